"""Rows of each expert and of each rank as bars, each with its mean.

Experts stand fullest first, as bars or, where they are many, as a stepped line; ranks stand in
their own order. Pure layout; the pen draws it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from simulator.expert_use import ExpertUse
from simulator.report import numbers, palette
from simulator.report.experts import load_finding
from simulator.report.experts_picture import LINE, Drawing, Rect, Scale, Sketch
from simulator.report.placement import text_width

BARS = 128
"""Bars of a panel at most; beyond, a stepped line."""
HIGH = 200.0
"""Points of the value axis."""
BESIDE = 700.0
"""Width from which the two panels stand beside each other."""

_LEFT, _RIGHT = 52.0, 66.0
"""Room for the ticks at the left of a panel and for the mean at its right."""
_ABOVE, _BELOW = 24.0, 46.0
"""Room for a panel's heading and for its axis."""


def picture(use: ExpertUse, width: float) -> Drawing:
    """Lay out the panel of experts, and that of ranks where there are several."""
    sketch = Sketch(width)
    tall = _ABOVE + HIGH + _BELOW
    two = use.ranks > 1
    beside = two and width >= BESIDE
    first = round(0.6 * width) if beside else width
    _panel(
        sketch,
        sorted(use.load, reverse=True),
        (0.0, 0.0, first),
        "per expert",
        "experts, fullest first",
    )
    if two:
        place = (first, 0.0, width - first) if beside else (0.0, -tall, width)
        fullest = use.rank_load.index(max(use.rank_load))
        if len(use.rank_load) <= BARS:
            _panel(sketch, use.rank_load, place, "per rank", "rank", fullest)
        else:
            loads = sorted(use.rank_load, reverse=True)
            _panel(sketch, loads, place, "per rank", "ranks, fullest first")
    height = tall if beside or not two else 2 * tall
    return sketch.finish(height, "Rows per expert and per rank", load_finding(use))


def _panel(
    sketch: Sketch,
    loads: Sequence[int],
    place: tuple[float, float, float],
    heading: str,
    below: str,
    marked: int | None = None,
) -> None:
    """One panel at (left, top, width); the bar ``marked`` is dark and named."""
    left, top, width = place
    base = top - _ABOVE - HIGH
    gid = "load-" + heading.replace(" ", "-")
    x = Scale(high=len(loads), start=left + _LEFT, length=math.floor(width - _LEFT - _RIGHT))
    y = Scale(high=1.15 * max(1, *loads), start=base, length=HIGH)
    right = x.start + x.length
    values = y.ticks(40.0, whole=True)
    mean = sum(loads) / len(loads)
    unit, texts, (middle, most) = numbers.ticks(values, "rows", [mean, max(loads)])
    sketch.write(f"{unit} {heading}", left, top - LINE / 2, bold=True)
    for value, text in zip(values, texts, strict=True):
        level = y.at(value)
        sketch.line((x.start, level), (right, level), colour=palette.RULE, weight=0.7, under=True)
        sketch.write(text, x.start - 6, level, "right", colour=palette.FAINT)
    if len(loads) <= BARS:
        named = None if marked is None else (marked, f"rank {marked}: {most}")
        _bars(sketch, loads, x, y, named, gid)
    else:
        _steps(sketch, loads, x, y, gid)
    sketch.line((x.start, y.at(mean)), (right, y.at(mean)), dash="dashed", weight=1.3)
    sketch.write("mean", right + 6, y.at(mean) + 8)
    sketch.write(middle, right + 6, y.at(mean) - 8)
    sketch.line((x.start, base), (right, base), colour=palette.FAINT, weight=0.8)
    _numbered(sketch, len(loads), x, base, from_one=marked is None)
    sketch.write(below, x.start + x.length / 2, base - 30, "center")


def _bars(
    sketch: Sketch,
    loads: Sequence[int],
    x: Scale,
    y: Scale,
    marked: tuple[int, str] | None,
    gid: str,
) -> None:
    """A bar for each; the one ``marked`` is dark and has its text above it."""
    step = x.length / len(loads)
    gap = min(6.0, 0.2 * step)
    rects = [
        Rect(x.at(place) + gap / 2, y.start, step - gap, y.at(rows) - y.start)
        for place, rows in enumerate(loads)
    ]
    which, text = marked or (-1, "")
    others = (rect for place, rect in enumerate(rects) if place != which)
    sketch.fill(others, palette.OTHER, gid=gid)
    if marked:
        sketch.fill([rects[which]], palette.INK, gid="fullest")
        half = text_width(text, 12.0) / 2 + 4
        middle = min(max(x.at(which + 0.5), x.start + half), x.start + x.length - half)
        sketch.write(text, middle, y.at(loads[which]) + 9, "center", bold=True)


def _steps(sketch: Sketch, loads: Sequence[int], x: Scale, y: Scale, gid: str) -> None:
    """A step for each run of equal loads, filled down to the base."""
    rects: list[Rect] = []
    corners: list[tuple[float, float]] = []
    first = 0
    for place in range(1, len(loads) + 1):
        if place == len(loads) or loads[place] != loads[first]:
            level = y.at(loads[first])
            rects.append(Rect(x.at(first), y.start, x.at(place) - x.at(first), level - y.start))
            corners += [(x.at(first), level), (x.at(place), level)]
            first = place
    sketch.fill(rects, palette.RULE, gid=gid)
    sketch.line(*corners, weight=1.6)


def _numbered(sketch: Sketch, count: int, x: Scale, base: float, *, from_one: bool) -> None:
    """Numbers under bars (from 0, or from 1 where they are places in an order)."""
    widest = text_width(numbers.count(count), 12.0) + 14
    every = x.ticks(widest, whole=True)
    step = int(every[1] - every[0]) if len(every) > 1 else count
    shown = [1, *range(step, count + 1, step)] if from_one else list(range(0, count, step))
    if from_one and step == 1:
        shown = shown[1:]
    last = -math.inf
    for number in shown:
        at = x.at(number - 0.5 if from_one else number + 0.5)
        if at - last >= widest - 8:
            sketch.write(numbers.count(number), at, base - 11, "center", colour=palette.FAINT)
            last = at
