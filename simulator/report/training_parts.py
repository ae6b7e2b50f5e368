"""Where the time of a training step goes, part by part, as bars that follow one another.

Pure layout; the pen draws it.
"""

from __future__ import annotations

import math

from simulator.report import numbers, palette
from simulator.report.experts_picture import Drawing, Rect, Scale, Sketch, Swatch, fitted
from simulator.report.placement import text_width
from simulator.report.training import parts_finding
from simulator.result import Bound
from simulator.training_use import StepPart, TrainingUse

ROW = 24.0
SMALL = 0.003
"""Share of the step below which parts of one look are drawn as one."""
_ORDER = ("forward", "recompute", "backward", "update", "exposed")


def rows(use: TrainingUse) -> list[tuple[str, StepPart]]:
    """Names and parts in the order of the step, small ones of a kind together."""
    whole = math.fsum(part.time for part in use.parts)
    kept: list[tuple[str, StepPart]] = []
    small: dict[tuple[str, str], list[StepPart]] = {}
    for part in sorted(use.parts, key=lambda part: (_ORDER.index(part.group), -part.time)):
        if part.time >= SMALL * whole or part.group in ("update", "exposed"):
            kept.append((_name(part), part))
        elif part.time > 0:
            small.setdefault((part.group, part.bound), []).append(part)
    for (group, _), parts in small.items():
        time = math.fsum(part.time for part in parts)
        names = ", ".join(part.name for part in parts)
        joined = StepPart(name=names, group=parts[0].group, bound=parts[0].bound, time=time)
        last = max(
            (place for place, (_, part) in enumerate(kept) if part.group == group), default=-1
        )
        kept.insert(last + 1, (_name(joined), joined))
    return kept


def _name(part: StepPart) -> str:
    alone = part.group in ("update", "exposed")
    return numbers.plain(part.name if alone else f"{part.group}: {part.name}")


def _short(name: str) -> str:
    for long, short in (("forward: ", "fwd "), ("backward: ", "bwd "), ("recompute: ", "again ")):
        name = name.replace(long, short)
    return name


def picture(use: TrainingUse, width: float) -> Drawing:
    """Lay out the parts; needs some."""
    sketch = Sketch(width)
    wide = width >= 700
    found = [(name if wide else _short(name), part) for name, part in rows(use)]
    whole = math.fsum(part.time for part in use.parts)
    names = [*(name for name, _ in found), "step"]
    times = [*(part.time for _, part in found), whole]
    unit, cells = numbers.column(times, "s")
    shares = [*numbers.shares(times[:-1], whole), "100.0"]
    cells = numbers.align(cells, numbers.FIGURE_SPACE, numbers.POINT_SPACE)
    room = 270.0 if wide else 122.0
    label = min(room, max(text_width(name, 12.0) for name in names)) + 12
    value = max(text_width(cell, 12.0) for cell in cells) + 10
    percent = 44.0
    x = Scale(high=whole, start=label, length=math.floor(width - label - value - percent - 8.0))
    top = sketch.legend(_legend(found)) - 18
    sketch.write(unit, width - percent - 6, top + 10, "right", colour=palette.FAINT)
    sketch.write("%", width - 4, top + 10, "right", colour=palette.FAINT)
    low = top - ROW * len(names)
    values = x.ticks(64.0)
    axis, texts, _ = numbers.ticks(values, "s")
    for at, text in zip(map(x.at, values), texts, strict=True):
        sketch.line((at, top), (at, low), colour=palette.RULE, weight=0.7, under=True)
        sketch.write(text, at, low - 12, "center", colour=palette.FAINT)
    sketch.write(axis, x.start + x.length + 14, low - 12)
    reached = 0.0
    for place, (name, time) in enumerate(zip(names, times, strict=True)):
        last = place == len(names) - 1
        start = 0.0 if last else reached
        bottom = top - ROW * (place + 1)
        box = Rect(x.at(start), bottom + 4, max(0.0, x.at(start + time) - x.at(start)), ROW - 8)
        fill = palette.OTHER if last else palette.BOUND[found[place][1].bound]
        sketch.fill([box], fill, gid=f"part-{place + 1}")
        reached += 0.0 if last else time
        middle = bottom + ROW / 2
        if not last:
            end = x.at(reached)
            sketch.line((end, bottom + 4), (end, bottom - 4), colour=palette.FAINT, weight=0.8)
        sketch.write(fitted(name, label - 12), label - 8, middle, "right", bold=last)
        sketch.write(cells[place], width - percent - 6, middle, "right", bold=last)
        sketch.write(shares[place], width - 4, middle, "right", bold=last)
    return sketch.finish(24 - low, "Where the time of the step goes", parts_finding(use))


_WORDS: dict[Bound, str] = {
    "compute": "computes",
    "link": "waits for links",
    "latency": "launches",
    "waiting": "waits for other stages",
}
"""What the colours say."""


def _legend(found: list[tuple[str, StepPart]]) -> list[Swatch]:
    present = {part.bound for _, part in found if part.time > 0}
    return [
        Swatch(text, palette.BOUND[bound]) for bound, text in _WORDS.items() if bound in present
    ]
