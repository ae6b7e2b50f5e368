"""A study over one choice: the throughput of each value as a bar with its interval.

Pure layout; the pen draws it.
"""

from __future__ import annotations

import math

from simulator.report import numbers, palette
from simulator.report.experts_picture import LINE, Drawing, Rect, Sketch
from simulator.report.placement import text_width
from simulator.report.sweep import Swept, throughput_ends
from simulator.report.sweep_axis import measure, ticks
from simulator.report.sweep_line import legend

BARS = 40
"""Values that are drawn at most."""
ROW, BAR = 32.0, 14.0
TITLE = "What one choice does"


def caption(found: Swept) -> str:
    """What the picture says, and what its marks mean."""
    axis, best = found.varied[0], found.best
    said = f"Most throughput: {axis.value(str(best[axis.path]))}. " if best else ""
    left = len(axis.texts) - BARS
    more = f" The first {BARS} values; {left} more are in the table." if left > 0 else ""
    return f"{said}Lines are 80 % intervals.{more}"


def picture(found: Swept, width: float) -> Drawing:
    """Lay out a bar for each value of the one varied path."""
    axis = found.varied[0]
    rows = {str(row[axis.path]): row for row in reversed(found.rows)}
    texts = axis.texts[:BARS]
    sketch = Sketch(width)
    wide = width >= 700
    names = [numbers.plain(text) for text in texts]
    label = min(230.0 if wide else 112.0, max(text_width(n, 12.0) for n in names)) + 12
    right = 150.0 if wide else 88.0
    answers = [rows[text] for text in texts if rows[text]["throughput"]]
    values = [row["throughput"] for row in answers]
    values += [end for row in answers for end in throughput_ends(row) or ()]
    x = measure(values or [1.0], label, width - label - right - 20)
    top = -LINE - 8
    bottom = top - ROW * len(texts)
    shown, marks = ticks(x, 72.0, found.unit)
    sketch.write(f"throughput, {shown} [80 %]", label, -LINE / 2, colour=palette.FAINT)
    for at, text in marks:
        sketch.line((at, top), (at, bottom), colour=palette.RULE, weight=0.7, under=True)
        sketch.write(text, at, bottom - 12, "center", colour=palette.FAINT)
    for place, (text, name) in enumerate(zip(texts, names, strict=True)):
        centre = top - ROW * (place + 0.5)
        sketch.write(name, label - 12, centre, "right", room=label - 12)
        row = rows[text]
        if not row["throughput"]:
            sketch.write(row["status"], x.start + 8, centre, colour=palette.FAINT)
            continue
        end = x.at(row["throughput"])
        box = Rect(x.start, centre - BAR / 2, end - x.start, BAR)
        sketch.fill([box], palette.BOUND[row["bound_by"]], gid=f"throughput-{row['index']}")
        if ends := throughput_ends(row):
            low, high = map(x.at, ends)
            sketch.line((low, centre), (high, centre), weight=1.6)
            for at in (low, high):
                sketch.line((at, centre - 4), (at, centre + 4), weight=1.6)
        value = numbers.count(row["throughput"])
        words = f"{value}, {row['bound_by']}" if wide else value
        sketch.write(words, width - 4, centre, "right")
    low = sketch.legend(legend(found), bottom - 12 - LINE / 2 - 8) - LINE / 2
    return sketch.finish(math.ceil(4 - low), TITLE, caption(found))
