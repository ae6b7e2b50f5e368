"""A study over one number: throughput and latency with their intervals, and what binds where.

Pure layout; the pen draws it. What binds is a strip with words under both curves, and each change
of it a line through them, so that the picture holds without colour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise

from simulator.report import numbers, palette
from simulator.report.experts_picture import LINE, Drawing, Rect, Scale, Sketch, Swatch
from simulator.report.picture import Axis
from simulator.report.placement import text_width
from simulator.report.sweep import LETTERS, Row, Swept, Varied, throughput_ends
from simulator.report.sweep_axis import Measure, measure, thinned, ticks

LEFT, RIGHT = 66.0, 16.0
STRIP, MARK = 20.0, 8.0
TITLE = "What one number does"

Ends = tuple[float, float] | None


def changes(found: Swept) -> list[tuple[Row, Row]]:
    """Neighbours of the one varied path that different resources bind."""
    answers = [row for row in _by_value(found) if row is not None and row["status"] == "ok"]
    return [(a, b) for a, b in pairwise(answers) if a["bound_by"] != b["bound_by"]]


def caption(found: Swept) -> str:
    """What the picture says, and what its marks mean."""
    axis = found.varied[0]
    said = [
        f"between {axis.value(str(a[axis.path]))} and {axis.value(str(b[axis.path]))} from "
        f"{a['bound_by']} to {b['bound_by']}"
        for a, b in changes(found)
    ]
    bound = next(iter(found.bounds))
    if not said:
        what = f"{bound} binds all along {axis.name}."
    elif len(said) > 4:
        what = f"What binds changes {len(said)} times along {axis.name}, as the strip shows."
    else:
        what = f"What binds along {axis.name} changes {'; '.join(said)}."
    parts = [what[0].upper() + what[1:], "Shaded: 80 % interval. Marks are points that were run."]
    if found.lacking:
        parts.append(f"Hatched: {found.lacking}.")
    return " ".join(parts)


def picture(found: Swept, width: float) -> Drawing:
    """Lay out both curves over the values of the one varied path, which are numbers."""
    axis = found.varied[0]
    rows = _by_value(found)
    sketch = Sketch(width)
    wide = width >= 700
    x = _across(axis, LEFT, width - LEFT - RIGHT)
    places = [x.at(value) for value in axis.values]
    edges = [x.start, *((a + b) / 2 for a, b in pairwise(places)), x.start + x.length]
    top = -LINE
    bands: list[tuple[str, str, float, Callable[[Row], float], Callable[[Row], Ends]]] = [
        ("throughput", found.unit, 220.0 if wide else 180.0, _throughput, throughput_ends),
        ("latency", "s", 150.0 if wide else 130.0, _latency, _latency_ends),
    ]
    spans = []
    for name, unit, height, value, ends in bands:
        y = _up(found, value, ends, top - LINE - 8, height)
        shown, marks = ticks(y, 26.0, unit)
        heading = f"{name}, {shown}" if shown else name
        sketch.write(f"{heading} [80 %]", LEFT, top - LINE / 2, colour=palette.FAINT)
        for at, text in marks:
            ends_of = (x.start, at), (x.start + x.length, at)
            sketch.line(*ends_of, colour=palette.RULE, weight=0.7, under=True)
            sketch.write(text, LEFT - 8, at, "right", colour=palette.FAINT)
        _curve(sketch, rows, places, y, value, ends, name)
        spans.append((top - LINE - 8 - height, top - LINE - 8))
        top -= height + LINE + 22
    bottom = top + 10
    for row, left, right in zip(rows, edges, edges[1:], strict=False):
        if row is None or row["status"] != "ok":
            boxes = [Rect(left, low, right - left, high - low) for low, high in spans]
            sketch.fill(boxes, palette.OTHER, hatched=True)
    _strip(sketch, rows, edges, bottom - STRIP - 4, spans)
    labels = [numbers.typeset(label) for label in axis.labels]
    widths = [text_width(label, 12.0) for label in labels]
    middles = [min(at, width - room / 2) for at, room in zip(places, widths, strict=True)]
    for place in thinned(widths, middles):
        sketch.line(
            (places[place], bottom - STRIP - 4), (places[place], bottom - STRIP - 9),
            colour=palette.FAINT,
        )  # fmt: skip
        sketch.write(
            labels[place], middles[place], bottom - STRIP - 18, "center", colour=palette.FAINT
        )
    last = bottom - STRIP - 18 - LINE
    sketch.write(
        axis.heading, x.start + x.length / 2, last, "center", colour=palette.FAINT, room=x.length
    )
    last = sketch.legend(legend(found), last - LINE / 2 - 6) - LINE / 2
    return sketch.finish(4 - last, TITLE, caption(found))


def legend(found: Swept) -> list[Swatch]:
    """What binds, by letter and colour."""
    return [
        Swatch(f"{LETTERS[bound]} {bound} binds", palette.BOUND[bound]) for bound in found.bounds
    ]


def _across(axis: Varied, start: float, length: float) -> Measure:
    low, high = axis.values[0], axis.values[-1]
    if axis.by_ratio:
        room = (high / low) ** 0.03
        return Axis(low=low / room, high=high * room, start=start, length=length)
    room = 0.03 * (high - low)
    return Scale(low=low - room, high=high + room, start=start, length=length)


def _up(
    found: Swept, value: Callable[[Row], float], ends: Callable[[Row], Ends], top: float,
    height: float,
) -> Measure:  # fmt: skip
    answers = found.answered
    values = [value(row) for row in answers]
    values += [end for row in answers for end in ends(row) or ()]
    return measure(values, top - height, height)


def _by_value(found: Swept) -> list[Row | None]:
    """The row of each value; None where none was run. Equal points have equal rows."""
    axis = found.varied[0]
    rows: dict[str, Row] = {}
    for row in found.rows:
        rows.setdefault(str(row[axis.path]), row)
    return [rows.get(text) for text in axis.texts]


def _curve(
    sketch: Sketch,
    rows: Sequence[Row | None],
    places: Sequence[float],
    y: Measure,
    value: Callable[[Row], float],
    ends: Callable[[Row], Ends],
    name: str,
) -> None:
    """The band, the line and the marks of each run of values that have answers."""
    for run in _runs(rows, places):
        spans = [(x, limits) for x, row in run if (limits := ends(row)) is not None]
        if len(spans) == len(run) > 1:
            upper = [(x, y.at(limits[1])) for x, limits in spans]
            lower = [(x, y.at(limits[0])) for x, limits in spans]
            sketch.area([*upper, *reversed(lower)], palette.RULE)
        elif len(run) == 1 and spans:
            x, limits = spans[0]
            ends_of = (x, y.at(limits[0])), (x, y.at(limits[1]))
            sketch.line(*ends_of, colour=palette.OTHER, weight=4.0, under=True)
        line = [(x, y.at(value(row))) for x, row in run]
        sketch.line(*line, colour=palette.INK, weight=1.6, under=len(run) == 1)
        for (x, up), (_, row) in zip(line, run, strict=True):
            box = Rect(x - MARK / 2, up - MARK / 2, MARK, MARK)
            look = {"edge": palette.PAPER, "gid": f"{name}-{row['index']}"}
            sketch.fill([box], palette.BOUND[row["bound_by"]], **look)


def _runs(rows: Sequence[Row | None], places: Sequence[float]) -> Iterator[list[tuple[float, Row]]]:
    run: list[tuple[float, Row]] = []
    for row, place in zip(rows, places, strict=True):
        if row is not None and row["status"] == "ok" and row["throughput"]:
            run.append((place, row))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _strip(
    sketch: Sketch, rows: Sequence[Row | None], edges: Sequence[float], bottom: float,
    spans: Sequence[tuple[float, float]],
) -> None:  # fmt: skip
    """What binds at each value, and a line across the curves where it changes."""
    columns = list(zip(rows, edges, edges[1:], strict=False))
    before: object = None
    for bound, group in groupby(columns, lambda column: column[0] and column[0]["bound_by"]):
        found = list(group)
        left, right = found[0][1], found[-1][2]
        if bound is None:
            before = None
            continue
        fill = palette.BOUND[bound]
        sketch.fill([Rect(left, bottom, right - left, STRIP)], fill, edge=palette.PAPER)
        text = next(
            (t for t in (f"{bound} binds", bound, LETTERS[bound])
             if text_width(t, 12.0) + 6 <= right - left), "",
        )  # fmt: skip
        if text:
            at = (left + right) / 2, bottom + STRIP / 2
            sketch.write(text, *at, "center", colour=palette.on(fill))
        if before is not None:
            dashed = {"colour": palette.INK, "weight": 1.0, "dash": "dashed"}
            for low, high in spans:
                sketch.line((left, low), (left, high), **dashed)
        before = bound


def _throughput(row: Row) -> float:
    return float(row["throughput"])


def _latency(row: Row) -> float:
    return float(row["latency"])


def _latency_ends(row: Row) -> Ends:
    low, high = row["latency_lower"], row["latency_upper"]
    return (low, high) if low and high else None
