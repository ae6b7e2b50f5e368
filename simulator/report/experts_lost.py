"""From the run with even loads to this one, step by step, as a waterfall.

Steps may cost time or save some; the ends and the steps between add up. Pure layout; the pen
draws it.
"""

from __future__ import annotations

import itertools
import math

from simulator.expert_use import ExpertUse
from simulator.report import numbers, palette
from simulator.report.experts import lost_finding, total
from simulator.report.experts_picture import Drawing, Rect, Scale, Sketch, fitted
from simulator.report.placement import text_width

ROW = 26.0
"""Height of a step."""


def picture(use: ExpertUse, width: float) -> Drawing:
    """Lay out the steps; needs at least the run with even loads."""
    sketch = Sketch(width)
    times = [step.time for step in use.lost]
    reached = list(itertools.accumulate(times))
    whole = total(use)
    names = [numbers.plain(use.lost[0].name)]
    names += [
        f"{'+' if step.time >= 0 else '-'} {numbers.plain(step.name)}" for step in use.lost[1:]
    ]
    names.append("this run")
    unit, cells = numbers.column([*times, whole], "s")
    steps = zip(cells[1:-1], times[1:], strict=True)
    signed = [cells[0], *(f"+{cell}" if time > 0 else cell for cell, time in steps), cells[-1]]
    signed = numbers.align(signed, numbers.FIGURE_SPACE, numbers.POINT_SPACE)
    room = 300.0 if width >= 700 else 118.0
    label = min(room, max(text_width(name, 12.0) for name in names)) + 10
    value = max(text_width(cell, 12.0) for cell in signed) + 12
    x = Scale(
        low=min(0.0, *reached),
        high=max(0.0, *reached) or 1.0,
        start=label,
        length=math.floor(width - label - value - 20),
    )
    top = -24.0
    low = top - ROW * len(names)
    values = x.ticks(64.0)
    axis, texts, _ = numbers.ticks(values, "s")
    for at, text in zip(map(x.at, values), texts, strict=True):
        sketch.line((at, top), (at, low), colour=palette.RULE, weight=0.7, under=True)
        sketch.write(text, at, low - 12, "center", colour=palette.FAINT)
    sketch.write(axis, x.start + x.length + 24, low - 12)
    sketch.write(unit, width - 6, -11.0, "right", colour=palette.FAINT)
    before = [0.0, *reached[:-1], 0.0]
    after = [*reached, whole]
    ends = {0, len(names) - 1}
    for row, (name, start, end) in enumerate(zip(names, before, after, strict=True)):
        bottom = top - ROW * (row + 1)
        left, right = sorted((x.at(start), x.at(end)))
        box = Rect(left, bottom + 4, right - left, ROW - 8)
        if row in ends:
            sketch.fill([box], palette.OTHER, gid=f"step-{row}")
        elif end >= start:
            sketch.fill([box], palette.INK, gid=f"step-{row}")
        else:
            sketch.fill([box], palette.PAPER, edge=palette.INK, gid=f"step-{row}")
        if row < len(names) - 1:
            sketch.line((x.at(end), bottom + 4), (x.at(end), bottom - 4), weight=0.8)
        middle = bottom + ROW / 2
        sketch.write(fitted(name, label - 10), label - 8, middle, "right", bold=row in ends)
        sketch.write(signed[row], width - 6, middle, "right", bold=row in ends)
    return sketch.finish(24 - low, "Time lost to imbalance", lost_finding(use))
