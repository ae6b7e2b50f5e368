"""One layer in stream order: when each operator runs, and the gaps in between.

Reads the part of a pass that is repeated most; where its repetitions differ, as experts make them,
their mean. Pure layout; the pen draws it.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass

from simulator.report import numbers, palette
from simulator.report.experts_picture import LINE, Drawing, Rect, Scale, Sketch, Swatch
from simulator.report.placement import text_width
from simulator.result import Bound, OpUse, Result, Stream
from simulator.units import Seconds

Steps = tuple[tuple[str, Seconds], ...]
"""Name and duration of each."""
ROWS = 40
"""Operators of a layer at most; a layer of more has no picture."""
HEIGHT = 13.0
"""Of a box."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operator in its place, in seconds from the start of the layer."""

    name: str
    bound: Bound
    start: Seconds
    end: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Operators that follow one another again and again in a pass."""

    phase: str
    repeat: int
    gap: Seconds
    """Mean time before each operator."""
    share: float
    """Of the pass that all repetitions take."""
    apart: float
    """How far its repetitions are apart in time, over their mean."""
    steps: tuple[Step, ...]

    @property
    def time(self) -> Seconds:
        """One repetition, gaps included."""
        return self.steps[-1].end


def uses(result: Result, stream: Stream) -> dict[str, OpUse]:
    """The operators of a pass by the names that its stream has for them."""
    whole = {op.name: op for op in result.ops}
    names = {name for part in stream.parts for name, _ in part.steps}
    found = {name: whole.get(f"{stream.phase} {name}", whole.get(name)) for name in names}
    return {name: use for name, use in found.items() if use is not None}


def layers(result: Result) -> list[Layer]:
    """The layer of the first pass of each phase; none of a pass that repeats nothing."""
    found: dict[str, Layer] = {}
    for stream in result.stream:
        blocks = [block for block in _blocks(stream) if len(block) > 1]
        if stream.phase in found or not blocks or stream.latency <= 0:
            continue
        block = max(blocks, key=lambda block: math.fsum(time for row in block for _, time in row))
        known, now, steps = uses(result, stream), 0.0, []
        for same in zip(*block, strict=True):
            name, time = same[0][0], math.fsum(time for _, time in same) / len(same)
            now += stream.gap
            use = known.get(name)
            bound: Bound = use.bound_by if use is not None else "waiting"
            steps.append(Step(name=numbers.plain(name), bound=bound, start=now, end=now + time))
            now += time
        times = [math.fsum(time for _, time in row) for row in block]
        found[stream.phase] = Layer(
            phase=stream.phase,
            repeat=len(block),
            gap=stream.gap,
            share=len(block) * now / stream.latency,
            apart=(max(times) - min(times)) / now if now else 0.0,
            steps=tuple(steps),
        )
    return [layer for layer in found.values() if layer.time > 0]


def _blocks(stream: Stream) -> list[list[Steps]]:
    """The pass cut into blocks of operators that follow one another again and again: of each
    block its repetitions, which have the same names and may differ in times."""
    found: list[list[Steps]] = []
    for part in stream.parts:
        if part.repeat > 1:
            if len(part.steps) <= ROWS:
                found.append([part.steps] * part.repeat)
            continue
        names, at = [name for name, _ in part.steps], 0
        while at < len(names):
            period, many = max(
                ((size, _repeats(names, at, size)) for size in range(1, ROWS + 1)),
                key=lambda pair: pair[0] * pair[1] if pair[1] > 1 else 0,
            )
            if many == 1:
                period = 1
            ends = range(at, at + period * many, period)
            found.append([part.steps[start : start + period] for start in ends])
            at += period * many
    return found


def _repeats(names: list[str], at: int, size: int) -> int:
    """How often in a row the ``size`` names from ``at`` on come."""
    block, many = names[at : at + size], 1
    while names[at + many * size : at + (many + 1) * size] == block:
        many += 1
    return many


def finding(layer: Layer) -> str:
    """What the picture shows, as sentences."""
    longest = max(layer.steps, key=lambda step: step.end - step.start)
    share = numbers.percent((longest.end - longest.start) / layer.time)
    idle = layer.gap * len(layer.steps)
    kind, mean = "equal layers", ""
    if layer.apart > 1e-9:
        kind = "layers"
        mean = f" in the mean of all, which are {numbers.percent(layer.apart)} apart at most"
    text = (
        f"One of {numbers.count(layer.repeat)} {kind} takes {numbers.quantity(layer.time, 's')}"
        f"{mean}; all of them are {numbers.percent(layer.share)} of the pass."
        f" {numbers.cut(longest.name, 40)} is {share} of a layer."
    )
    if idle > 0:
        text += (
            f" The gaps before the operators are {numbers.percent(idle / layer.time)}: each is"
            f" drawn as the mean of the pass, {numbers.quantity(layer.gap, 's')}."
        )
    return text


def picture(layer: Layer, width: float) -> Drawing:
    """A row for each operator, a box from its start to its end, in the colour of what binds it."""
    sketch = Sketch(width)
    wide = width >= 700
    y = sketch.legend(_legend(layer)) - 12
    names = min(max(text_width(step.name, 12.0) for step in layer.steps), 190 if wide else 96)
    unit, cells = numbers.column([step.end - step.start for step in layer.steps], "s")
    aside = 4 + max(text_width(text, 12.0) for text in [*cells, unit])
    left = names + 10
    x = Scale(high=layer.time, start=left, length=math.floor(width - left - aside - 14))
    sketch.write(unit, width - 4, y - LINE / 2, "right", colour=palette.FAINT)
    y -= LINE + 2
    top = y
    boxes: dict[Bound, list[Rect]] = {}
    for step, cell in zip(layer.steps, cells, strict=True):
        middle = y - LINE / 2
        start, end = x.at(step.start), x.at(step.end)
        box = Rect(start, middle - HEIGHT / 2, end - start, HEIGHT)
        boxes.setdefault(step.bound, []).append(box)
        sketch.write(step.name, left - 8, middle, "right", room=names)
        sketch.write(cell, width - 4, middle, "right")
        y -= LINE
    for bound, rects in boxes.items():
        sketch.fill(rects, palette.BOUND[bound], gid=f"layer-{layer.phase}-{bound}")
    values = x.ticks(70.0 if wide else 44.0)
    axis, texts, _ = numbers.ticks(values, "s")
    for at, text in zip(map(x.at, values), texts, strict=True):
        sketch.line((at, top), (at, y), colour=palette.RULE, weight=0.7, under=True)
        sketch.line((at, y), (at, y - 4), colour=palette.FAINT, weight=0.8)
        sketch.write(text, at, y - 13, "center", colour=palette.FAINT)
    sketch.line((x.start, y), (x.start + x.length, y), colour=palette.FAINT, weight=0.8)
    sketch.write(f"{axis} from the start of the layer", x.start, y - 30, colour=palette.FAINT)
    return sketch.finish(42 - y, f"One layer of {layer.phase}", finding(layer))


def data(result: Result) -> str:
    """The boxes as CSV, in seconds."""
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(["phase", "repeat", "order", "operator", "bound_by", "start_s", "end_s"])
    for layer in layers(result):
        for order, step in enumerate(layer.steps, start=1):
            own = [numbers.plain(layer.phase), layer.repeat, order, step.name, step.bound]
            writer.writerow([*own, step.start, step.end])
    return sheet.getvalue()


def _legend(layer: Layer) -> list[Swatch]:
    """What binds its operators, by colour."""
    present = {step.bound for step in layer.steps}
    return [Swatch(bound, colour) for bound, colour in palette.BOUND.items() if bound in present]
