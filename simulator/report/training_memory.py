"""Memory of a rank of each pipeline stage by part, against the capacity.

Stages that hold the same are one bar. Pure layout; the pen draws it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.memory_use import MemoryUse
from simulator.report import numbers, palette
from simulator.report.experts_picture import Drawing, Rect, Scale, Sketch, Swatch
from simulator.report.placement import text_width
from simulator.report.training import memory_finding, stage_names
from simulator.training_use import TrainingUse

ROW = 25.0
STAGES = 24
"""Bars at most; those between are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One stage, or several that hold the same."""

    stages: tuple[int, ...]
    use: MemoryUse


def bars(use: TrainingUse) -> list[Bar]:
    """The stages in order, neighbours that hold the same together."""
    found: list[Bar] = []
    for stage, memory in enumerate(use.memory):
        sizes = [(part.name, part.bytes) for part in memory.parts]
        if found and sizes == [(part.name, part.bytes) for part in found[-1].use.parts]:
            found[-1] = Bar(stages=(*found[-1].stages, stage), use=memory)
        else:
            found.append(Bar(stages=(stage,), use=memory))
    return found


def parts(use: TrainingUse) -> list[str]:
    """Names of the parts, the largest on any stage first."""
    most: dict[str, float] = {}
    for memory in use.memory:
        for part in memory.parts:
            most[part.name] = max(most.get(part.name, 0.0), part.bytes)
    return sorted((name for name in most if most[name] > 0), key=lambda name: -most[name])


def picture(use: TrainingUse, width: float) -> Drawing:
    """Lay out the bars; needs the memory of at least one stage."""
    sketch = Sketch(width)
    named = parts(use)
    own = named if len(named) <= len(palette.SERIES) else named[: len(palette.SERIES) - 1]
    every = bars(use)
    half = STAGES // 2
    cut = len(every) > STAGES
    shown = [*every[:half], *every[-half:]] if cut else every
    capacity = use.memory[0].capacity
    totals = [memory.total for memory in use.memory]
    wide = width >= 700
    names = [stage_names(bar.stages) for bar in shown]
    label = max(text_width(name, 12.0) for name in names) + 12
    unit, cells = numbers.column([bar.use.total for bar in shown], "B")
    cells = numbers.align(cells, numbers.FIGURE_SPACE, numbers.POINT_SPACE)
    value = max(text_width(cell, 12.0) for cell in cells) + 22
    x = Scale(
        high=1.04 * max(capacity, *totals), start=label, length=math.floor(width - label - value)
    )
    top = sketch.legend(_legend(named, own)) - 26
    sketch.write(unit, width - 4, top + 10, "right", colour=palette.FAINT)
    y = top
    for place, (bar, name, cell) in enumerate(zip(shown, names, cells, strict=True)):
        if cut and place == half:
            text = f"{len(every) - STAGES} more between"
            sketch.write(text, x.start + x.length / 2, y - 10, "center", colour=palette.FAINT)
            y -= 22
        bottom = y - ROW
        _bar(sketch, bar, named, own, x, bottom, place)
        sketch.write(name, label - 8, bottom + ROW / 2, "right", bold=True)
        sketch.write(cell, width - 4, bottom + ROW / 2, "right")
        y = bottom
    values = x.ticks(64.0 if wide else 48.0)
    axis, texts, _ = numbers.ticks(values, "B")
    for at, text in zip(map(x.at, values), texts, strict=True):
        sketch.line((at, top), (at, y), colour=palette.RULE, weight=0.7, under=True)
        sketch.write(text, at, y - 12, "center", colour=palette.FAINT)
    sketch.write(axis, width - 4, y - 12, "right")
    edge = x.at(capacity)
    sketch.line((edge, top + 4), (edge, y), weight=1.6)
    sketch.write(f"capacity {numbers.quantity(capacity, 'B')}", edge, top + 12, "right", bold=True)
    return sketch.finish(24 - y, "Memory of each stage", memory_finding(use))


def _bar(
    sketch: Sketch,
    bar: Bar,
    named: list[str],
    own: list[str],
    x: Scale,
    bottom: float,
    place: int,
) -> None:
    sizes = {part.name: part.bytes for part in bar.use.parts}
    reached = 0.0
    for name in [*own, None]:
        rest = [sizes.get(other, 0.0) for other in named if other not in own]
        size = math.fsum(rest) if name is None else sizes.get(name, 0.0)
        left, right = x.at(reached), x.at(reached + size)
        box = Rect(left, bottom + 3, right - left, ROW - 6)
        fill = palette.SERIES[-1 if name is None else own.index(name)]
        gid = f"bar-{place + 1}-{'other' if name is None else own.index(name) + 1}"
        sketch.fill([box], fill, edge=palette.PAPER if box.width >= 4 else "", gid=gid)
        text = numbers.quantity(size, "B")
        if size > 0 and text_width(text, 12.0) + 8 <= box.width:
            middle = left + box.width / 2
            sketch.write(text, middle, bottom + ROW / 2, "center", colour=palette.on(fill))
        reached += size
    over = bar.use.total - bar.use.capacity
    if over > 0:
        left = x.at(bar.use.capacity)
        box = Rect(left, bottom + 3, x.at(bar.use.total) - left, ROW - 6)
        sketch.fill([box], palette.INK, hatched=True, gid=f"bar-{place + 1}-over")


def _legend(named: list[str], own: list[str]) -> list[Swatch]:
    entries = [Swatch(numbers.plain(name), palette.SERIES[at]) for at, name in enumerate(own)]
    if len(own) < len(named):
        entries.append(Swatch(f"{len(named) - len(own)} others", palette.SERIES[-1]))
    return entries
