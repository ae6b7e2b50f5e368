"""A study over two numbers, or over more: throughput as a map, with what binds in each cell.

Pure layout; the pen draws it. A third number has a map for each value, under one scale; of what
varies beyond, a cell holds the best. What binds is a letter where cells have room, and a line
where it changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.report import numbers, palette
from simulator.report.experts_picture import LINE, Drawing, Rect, Scale, Sketch
from simulator.report.picture import Axis
from simulator.report.placement import text_width
from simulator.report.sweep import LETTERS, Row, Swept, Varied
from simulator.report.sweep_axis import Measure, spread, thinned, ticks
from simulator.result import Bound

PANELS = 6
"""Maps that are drawn at most."""
CELLS = 60
"""Values along one side of a map that are drawn at most."""
SHADES = 40
"""Steps of colour."""
TITLE = "Throughput, and what binds it"

Place = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What is across, up, and from map to map; each with the values that are drawn."""

    across: Varied
    up: Varied
    panel: Varied | None
    rest: tuple[Varied, ...]

    @property
    def columns(self) -> list[int]:
        """Places of the values across."""
        return _some(len(self.across.texts), CELLS)

    @property
    def lines(self) -> list[int]:
        """Places of the values up."""
        return _some(len(self.up.texts), CELLS)

    @property
    def panels(self) -> list[str]:
        """Values of the maps; one empty one where there is one map."""
        if self.panel is None:
            return [""]
        return [self.panel.texts[place] for place in _some(len(self.panel.texts), PANELS)]


def axes(found: Swept) -> Axes:
    """Numbers of many values across and up, words and few values from map to map."""
    order = sorted(found.varied, key=lambda one: (not one.values, -len(one.texts)))
    across, up, *others = order
    return Axes(across=across, up=up, panel=others[0] if others else None, rest=tuple(others[1:]))


def caption(found: Swept) -> str:
    """What the picture says, and what its marks mean."""
    used, best = axes(found), found.best
    parts = []
    if best is not None:
        rate = f"{numbers.count(best['throughput'])} {found.unit}"
        parts.append(f"Most throughput, {rate}, at {found.point(best)}.")
    parts.append("Darker is more; lines and letters are what binds.")
    if used.rest:
        names = ", ".join(one.name for one in used.rest)
        parts.append(f"Each cell is the best over {names}.")
    if found.lacking:
        parts.append(f"Hatched: {found.lacking}.")
    if used.panel is not None and len(used.panel.texts) > PANELS:
        parts.append(f"{PANELS} of {len(used.panel.texts)} values of {used.panel.name}.")
    for one in (used.across, used.up):
        if len(one.texts) > CELLS:
            parts.append(f"{CELLS} of {len(one.texts)} values of {one.name}.")
    return " ".join(parts)


def picture(found: Swept, width: float) -> Drawing:
    """Lay out the maps, and under them the scale and what letters mean."""
    used = axes(found)
    cells = _cells(found, used)
    values = [row["throughput"] for row in cells.values() if row is not None]
    sketch = Sketch(width)
    wide = width >= 700
    panels = used.panels
    many = 1 if len(panels) == 1 else (min(3, len(panels)) if wide else 1)
    labels = [numbers.typeset(used.up.labels[place]) for place in used.lines]
    left = min(150.0 if wide else 90.0, max(text_width(text, 12.0) for text in labels)) + 10
    room = (width - left - 18.0 * (many - 1) - 2) / many
    height = min(33.0 * len(used.lines), 330.0 if len(panels) == 1 else 200.0)
    height = max(height, 60.0)
    shade = _shades(values)
    top = 0.0
    sketch.write(used.up.heading, 0.0, -LINE / 2, colour=palette.FAINT, room=width)
    top -= LINE + 4
    for first in range(0, len(panels), many):
        if used.panel is not None:
            top -= LINE
        for column, panel in enumerate(panels[first : first + many]):
            start = left + column * (room + 18.0)
            if used.panel is not None:
                text = used.panel.said(panel)
                sketch.write(text, start, top + LINE / 2 + 2, bold=True, room=room)
            box = Rect(start, top - height, room, height)
            _map(sketch, used, cells, panel, box, shade)
            if column == 0:
                _up(sketch, labels, box, left)
            _across(sketch, used, box, width)
        top -= height + LINE + 10
    sketch.write(
        used.across.heading, left + room / 2, top - 1, "center", colour=palette.FAINT, room=room
    )
    top -= LINE + 14
    if values:
        top = _scale(sketch, values, found.unit, left, min(width - left - 30, 420.0), top)
    low = _legend(sketch, list(found.bounds), found.lacking, top, width)
    return sketch.finish(math.ceil(4 - low), TITLE, caption(found))


def _cells(found: Swept, used: Axes) -> dict[Place, Row | None]:
    """The best row of each place; None where no row has an answer."""
    across = [used.across.texts[place] for place in used.columns]
    up = [used.up.texts[place] for place in used.lines]
    cells: dict[Place, Row | None] = {
        (a, b, c): None for c in used.panels for b in up for a in across
    }
    for row in found.answered:
        panel = str(row[used.panel.path]) if used.panel else ""
        key = str(row[used.across.path]), str(row[used.up.path]), panel
        if key in cells:
            best = cells[key]
            if best is None or row["throughput"] > best["throughput"]:
                cells[key] = row
    return cells


def _shades(values: Sequence[float]) -> Any:
    """The colour of a value."""
    if not values:
        return None
    axis = _colours(values, 0.0, 1.0)
    return lambda value: palette.magnitude(round(SHADES * axis.at(value)) / SHADES)


def _colours(values: Sequence[float], start: float, length: float) -> Measure:
    """The scale of colours, from the least value to the most."""
    low, high = min(values), max(values)
    kind = Axis if spread(values) else Scale
    return kind(low=low, high=high, start=start, length=length)


def _map(
    sketch: Sketch,
    used: Axes,
    cells: Mapping[Place, Row | None],
    panel: str,
    box: Rect,
    shade: Any,
) -> None:
    """The cells of one map, first row at the bottom."""
    columns, lines = used.columns, used.lines
    wide, high = box.width / len(columns), box.height / len(lines)
    fills: dict[str, list[Rect]] = {}
    empty: list[Rect] = []
    bounds: dict[tuple[int, int], Bound | None] = {}
    roomy = wide >= 13 and high >= 14
    texts = [numbers.count(row["throughput"]) for row in cells.values() if row is not None]
    values = high >= 29 and max(text_width(text, 12.0) for text in texts or ["0"]) + 4 <= wide
    for up, line in enumerate(lines):
        for right, column in enumerate(columns):
            row = cells[used.across.texts[column], used.up.texts[line], panel]
            rect = Rect(box.left + right * wide, box.bottom + up * high, wide, high)
            bounds[right, up] = row["bound_by"] if row is not None else None
            if row is None:
                empty.append(rect)
                continue
            fill = shade(row["throughput"])
            fills.setdefault(fill, []).append(rect)
            if not roomy:
                continue
            centre = rect.left + wide / 2, rect.bottom + high / 2
            letter, ink = LETTERS[row["bound_by"]], palette.on(fill)
            if values:
                text = numbers.count(row["throughput"])
                sketch.write(letter, centre[0], centre[1] + 7, "center", colour=ink, bold=True)
                sketch.write(text, centre[0], centre[1] - 7, "center", colour=ink)
            else:
                sketch.write(letter, *centre, "center", colour=ink)
    number = used.panels.index(panel) + 1
    for fill, rects in fills.items():
        sketch.fill(rects, fill, gid=f"shade-{number}-{fill[1:]}")
    sketch.fill(empty, palette.FAINT, hatched=True)
    _borders(sketch, bounds, box, wide, high)
    sketch.frame(box, colour=palette.FAINT, weight=0.8)


def _borders(
    sketch: Sketch, bounds: Mapping[tuple[int, int], Bound | None], box: Rect, wide: float,
    high: float,
) -> None:  # fmt: skip
    """Lines between cells that different resources bind."""
    edges = []
    for (right, up), bound in bounds.items():
        x, y = box.left + right * wide, box.bottom + up * high
        for other, line in (
            (bounds.get((right - 1, up)), ((x, y), (x, y + high))),
            (bounds.get((right, up - 1)), ((x, y), (x + wide, y))),
        ):
            if bound is not None and other is not None and bound != other:
                edges.append(line)
    for colour, weight in ((palette.PAPER, 3.6), (palette.INK, 1.6)):
        for line in edges:
            sketch.line(*line, colour=colour, weight=weight)


def _up(sketch: Sketch, labels: Sequence[str], box: Rect, left: float) -> None:
    high = box.height / len(labels)
    places = [box.bottom + high * (place + 0.5) for place in range(len(labels))]
    for place in thinned([LINE - 4] * len(labels), places, gap=2.0):
        sketch.write(
            labels[place], box.left - 8, places[place], "right", colour=palette.FAINT,
            room=left - 8,
        )  # fmt: skip


def _across(sketch: Sketch, used: Axes, box: Rect, width: float) -> None:
    columns = used.columns
    labels = [numbers.typeset(used.across.labels[place]) for place in columns]
    wide = box.width / len(columns)
    places = [box.left + wide * (place + 0.5) for place in range(len(columns))]
    widths = [min(text_width(label, 12.0), box.width / 2) for label in labels]
    middles = [min(at, width - room / 2) for at, room in zip(places, widths, strict=True)]
    for place in thinned(widths, middles):
        x, y, room = middles[place], box.bottom - 11, widths[place] + 2
        sketch.write(labels[place], x, y, "center", colour=palette.FAINT, room=room)


def _scale(
    sketch: Sketch, values: Sequence[float], unit: str, left: float, length: float, top: float
) -> float:
    """The bar of colours with its values; returns its lower edge."""
    axis = _colours(values, left, length)
    step = length / SHADES
    for place in range(SHADES):
        fill = palette.magnitude((place + 0.5) / SHADES)
        rect = Rect(left + place * step, top - 14, step, 14.0)
        sketch.fill([rect], fill, gid=f"shade-bar-{place + 1}")
    sketch.frame(Rect(left, top - 14, length, 14.0), colour=palette.FAINT, weight=0.8)
    shown, marks = ticks(axis, 54.0, unit)
    if max(values) <= min(values):
        marks = [(left, numbers.count(values[0]))]
    for at, text in marks:
        sketch.line((at, top - 14), (at, top - 19), colour=palette.FAINT)
        sketch.write(text, at, top - 28, "center", colour=palette.FAINT)
    sketch.write(f"throughput, {shown or unit}", left, top + 9, colour=palette.FAINT)
    return top - 28 - LINE - 4


def _legend(sketch: Sketch, bounds: Sequence[Bound], gaps: str, y: float, width: float) -> float:
    """What letters and hatches mean."""
    at = 0.0
    entries = [(LETTERS[bound], f"{bound} binds") for bound in bounds]
    if gaps:
        entries.append(("", gaps))
    for letter, text in entries:
        if at and at + 24 + text_width(text, 12.0) > width:
            at, y = 0.0, y - LINE - 4
        if letter:
            sketch.write(letter, at + 7, y, "center", bold=True)
        else:
            box = Rect(at, y - 7, 16.0, 14.0)
            sketch.fill([box], palette.FAINT, hatched=True)
            sketch.frame(box, colour=palette.FAINT, weight=0.8)
        sketch.write(text, at + 22, y)
        at += text_width(text, 12.0) + 44
    return y - LINE


def _some(many: int, most: int) -> list[int]:
    """Places of at most so many, evenly spaced, first and last among them."""
    if many <= most:
        return list(range(many))
    return [round(place * (many - 1) / (most - 1)) for place in range(most)]
