"""Axes of pictures of studies: even or by ratio, whichever the values ask for, with round ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from simulator.report import numbers
from simulator.report.experts_picture import Scale
from simulator.report.picture import Axis

WIDE_SPREAD = 20.0
"""Ratio of the largest to the smallest value beyond which an axis is logarithmic."""

Measure = Axis | Scale


def spread(values: Sequence[float]) -> bool:
    """Whether the values ask for a logarithmic axis."""
    return min(values) > 0 and max(values) > WIDE_SPREAD * min(values)


def measure(values: Sequence[float], start: float, length: float) -> Measure:
    """An axis over positive values: from zero, or logarithmic where they are far apart."""
    if spread(values):
        return Axis(low=min(values) / 1.15, high=max(values) * 1.15, start=start, length=length)
    return Scale(high=1.06 * max(values), start=start, length=length)


def ticks(axis: Measure, gap: float, unit: str) -> tuple[str, list[tuple[float, str]]]:
    """The unit of the axis, and places with their texts, ``gap`` points apart or more; where the
    axis is logarithmic, times have units of their own."""
    if isinstance(axis, Scale):
        values = axis.ticks(gap)
        shown, texts, _ = numbers.ticks(values, unit)
    else:
        values = _round_values(axis, gap)
        own = unit if unit == "s" else ""
        pairs = [numbers.ticks([value], own) for value in values]
        texts = [f"{cells[0]} {name}".strip() for name, cells, _ in pairs]
        shown = "" if own else unit
    return shown, [(axis.at(value), text) for value, text in zip(values, texts, strict=True)]


def _round_values(axis: Axis, gap: float) -> list[float]:
    """Powers of ten, then twice and five times them where there is room."""
    powers = range(math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high)) + 1)
    kept: list[float] = []
    for step in (1, 5, 2):
        for power in powers:
            value = float(f"{step}e{power}")
            apart = all(abs(axis.at(value) - axis.at(one)) >= gap for one in kept)
            if axis.low <= value <= axis.high and apart:
                kept.append(value)
    return sorted(kept)


def thinned(widths: Sequence[float], places: Sequence[float], gap: float = 8.0) -> list[int]:
    """Every n-th of texts of such widths in such places, so that none touches the next; the last
    is kept."""
    for step in range(1, len(places)):
        kept = list(range(len(places) - 1, -1, -step))[::-1]
        if all(
            places[b] - places[a] >= (widths[a] + widths[b]) / 2 + gap for a, b in pairwise(kept)
        ):
            return kept
    return [len(places) - 1] if places else []
