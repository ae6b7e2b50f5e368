"""Latency against throughput of every point of a study; those that nothing beats are strong.

Pure layout; the pen draws it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from simulator.report import palette
from simulator.report.experts_picture import LINE, Drawing, Rect, Sketch
from simulator.report.placement import Box, Line, Sheet, around, text_width
from simulator.report.sweep import LETTERS, Row, Swept
from simulator.report.sweep_axis import measure, ticks
from simulator.report.sweep_line import legend

DRAWN = 3000
"""Beaten points that are drawn at most."""
NUMBERED = 50
"""Best points with numbers at most: those of the page's table."""
STRONG, WEAK = 9.0, 3.5
"""Sides of marks."""
TITLE = "Latency against throughput"


def caption(found: Swept) -> str:
    """What the picture says, and what its marks mean."""
    many, left = len(found.front), len(found.answered) - len(found.front)
    more = f", {DRAWN:,} of {left:,} drawn" if left > DRAWN else ""
    return (
        f"Better is up and to the left. Of {len(found.answered):,} points {many:,} stand out: no "
        f"other is as fast and has more throughput. Their numbers are rows of the table of best "
        f"points, their letters what binds. Small grey marks are the others{more}."
    )


def picture(found: Swept, width: float) -> Drawing:
    """Lay out the points."""
    sketch = Sketch(width)
    wide = width >= 700
    strong = {row["index"] for row in found.front}
    beaten = [row for row in found.answered if row["index"] not in strong]
    step = -(-len(beaten) // DRAWN) or 1
    left, right = 66.0, 18.0
    height = 340.0 if wide else 280.0
    top = -LINE - 6
    x = measure([row["latency"] for row in found.answered], left, width - left - right)
    y = measure([row["throughput"] for row in found.answered], top - height, height)
    shown, marks = ticks(y, 30.0, found.unit)
    heading = f"throughput, {shown or found.unit}"
    sketch.write(heading, 0.0, -LINE / 2, colour=palette.FAINT)
    for at, text in marks:
        sketch.line((x.start, at), (width - right, at), colour=palette.RULE, weight=0.7, under=True)
        sketch.write(text, left - 8, at, "right", colour=palette.FAINT)
    shown, marks = ticks(x, 62.0, "s")
    for at, text in marks:
        ends = (at, top), (at, top - height)
        sketch.line(*ends, colour=palette.RULE, weight=0.7, under=True)
        half = text_width(text, 12.0) / 2
        at = min(at, width - half)
        sketch.write(text, at, top - height - 12, "center", colour=palette.FAINT)
    low = top - height - 12 - LINE
    name = f"latency, {shown}" if shown else "latency"
    sketch.write(name, x.start + x.length / 2, low, "center", colour=palette.FAINT)

    def place(row: Row) -> tuple[float, float]:
        return x.at(row["latency"]), y.at(row["throughput"])

    sketch.fill([_mark(place(row), WEAK) for row in beaten[::step]], palette.OTHER, gid="beaten")
    line = [place(row) for row in found.front]
    if len(line) > 1:
        sketch.line(*line, colour=palette.FAINT, weight=1.2, under=True)
    for row, spot in zip(found.front, line, strict=True):
        look = {"edge": palette.PAPER, "gid": f"best-{row['index']}"}
        sketch.fill([_mark(spot, STRONG)], palette.BOUND[row["bound_by"]], **look)
    sheet = Sheet(bounds=Box(left + 2, top - height + 2, width - 2, top - 2))
    sheet.boxes += [_box(place(row), WEAK) for row in beaten[::step]]
    _number(sketch, found, line, sheet)
    low = sketch.legend(legend(found), low - LINE / 2 - 6) - LINE / 2
    return sketch.finish(math.ceil(4 - low), TITLE, caption(found))


def _number(
    sketch: Sketch, found: Swept, line: Sequence[tuple[float, float]], sheet: Sheet
) -> None:
    """Numbers of the best points, where there is room."""
    sheet.boxes += [_box(at, STRONG) for at in line]
    sheet.lines += [Line(*a, *b) for a, b in pairwise(line)]
    for number, (row, at) in enumerate(zip(found.front[:NUMBERED], line, strict=False), start=1):
        text = f"{number} {LETTERS[row['bound_by']]}"
        near = (spot for spot in around(*at, STRONG / 2, text, 12.0) if spot.leader is None)
        if spot := sheet.place(text, 12.0, near):
            sketch.write(text, spot.x, spot.y, "center")


def _box(at: tuple[float, float], side: float) -> Box:
    half = side / 2
    return Box(at[0] - half, at[1] - half, at[0] + half, at[1] + half)


def _mark(at: tuple[float, float], side: float) -> Rect:
    return Rect(at[0] - side / 2, at[1] - side / 2, side, side)
