"""Ratios to the base on a logarithmic axis, each with its interval.

Pure layout; the pen draws it. What cannot be told from the base is hollow, so that the picture
holds without colour.
"""

from __future__ import annotations

import math

from simulator.report import numbers, palette, ratio
from simulator.report.compare import Comparison, Entry
from simulator.report.compare_words import faster
from simulator.report.experts_picture import LINE, Drawing, Rect, Sketch
from simulator.report.picture import Axis
from simulator.report.placement import text_width

ROW = 38.0
_STEPS = (1, 1.2, 1.5, 2, 3, 5, 7)


def title(found: Comparison) -> str:
    """``Times as fast as h200, per device``."""
    return numbers.plain(f"Times as fast as {found.base.hardware}, per device")


def caption(found: Comparison) -> str:
    """What the picture says, and what its marks mean."""
    parts = [f"{'; '.join(faster(found, one) for one in others(found))}."]
    parts.append("Lines are 80 % intervals of the ratio.")
    if any(found.verdict(one) == "cannot tell" for one in found.entries):
        parts.append("Hollow: cannot be told from the base, as the interval covers 1.")
    return " ".join(parts)


def others(found: Comparison) -> tuple[Entry, ...]:
    """The devices beside the base."""
    return tuple(one for one in found.entries if one is not found.base)


def picture(found: Comparison, width: float) -> Drawing:
    """Lay out a row for each device beside the base."""
    rows = others(found)
    sketch = Sketch(width)
    wide = width >= 700
    names = [numbers.plain(one.hardware) for one in rows]
    label = min(200.0 if wide else 92.0, max((text_width(n, 12.0) for n in names), default=0)) + 12
    right = 150.0 if wide else 118.0
    values = [value for one in rows if (value := found.value(one)) is not None]
    spans = [within for one in rows if (within := found.ends(one)) is not None]
    finite = [end for span in spans for end in span if 0 < end < math.inf]
    low, high = min([1.0, *values, *finite]) / 1.12, max([1.0, *values, *finite]) * 1.12
    x = Axis(low=low, high=high, start=label, length=width - label - right - 14)
    top = -LINE - 4
    bottom = top - ROW * max(1, len(rows))
    sketch.write("ratio [80 %]", width - 4, -LINE / 2, "right", colour=palette.FAINT)
    for tick in _ticks(x):
        at = x.at(tick)
        colour, weight = (palette.INK, 1.2) if tick == 1 else (palette.RULE, 0.7)
        sketch.line((at, top), (at, bottom), colour=colour, weight=weight, under=True)
        sketch.write(f"{tick:g}x", at, bottom - 12, "center", colour=palette.FAINT)
    for place, (one, name) in enumerate(zip(rows, names, strict=True)):
        centre = top - ROW * (place + 0.5)
        sketch.write(name, label - 12, centre, "right", room=label - 12)
        value, within = found.value(one), found.ends(one)
        if value is None or within is None:
            reason = "does not fit" if one.refused else "no answer"
            sketch.write(reason, x.start + 8, centre, colour=palette.FAINT)
            continue
        ends = [x.at(min(high, max(low, end))) for end in within]
        whisker = {"colour": palette.INK, "weight": 2.0, "under": True}
        sketch.line((ends[0], centre), (ends[1], centre), **whisker)
        for end in ends:
            sketch.line((end, centre - 5), (end, centre + 5), **whisker)
        unsure = found.verdict(one) == "cannot tell"
        box = Rect(x.at(value) - 6, centre - 6, 12.0, 12.0)
        fill = palette.PAPER if unsure else palette.SERIES[0]
        sketch.fill([box], fill, edge=palette.INK, gid=f"ratio-{place + 1}")
        if unsure:
            sketch.frame(box, colour=palette.INK, weight=1.4)
        text = ratio.times(value, within) + (" ?" if unsure else "")
        sketch.write(text, width - 4, centre, "right")
    return sketch.finish(math.ceil(24 - bottom), title(found), caption(found))


def _ticks(x: Axis) -> list[float]:
    """Round ratios along the axis, 1 among them, at least 34 points apart."""
    decades = range(math.floor(math.log10(x.low)), math.ceil(math.log10(x.high)) + 1)
    known = {float(f"{step * 10.0**power:.3g}") for power in decades for step in _STEPS}
    kept = [1.0]
    for tick in sorted(known, key=lambda tick: (abs(math.log(tick)), tick)):
        if x.low <= tick <= x.high and all(abs(x.at(tick) - x.at(one)) >= 34 for one in kept):
            kept.append(tick)
    return sorted(kept)
