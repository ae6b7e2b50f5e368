"""A tornado: what less and more of each number does to the throughput, largest first.

Pure layout; the pen draws it.
"""

from __future__ import annotations

import math

from simulator.report import numbers, palette
from simulator.report.experts_picture import LINE, Drawing, Rect, Scale, Sketch, Swatch
from simulator.report.placement import text_width
from simulator.report.sensitivity import (
    SMALL,
    Elasticity,
    Sensitivity,
    Side,
    finding,
    percent,
    signed,
)

BARS = 12
"""Numbers that are drawn at most."""
ROW, HALF = 34.0, 11.0
"""Heights of a number's row, and of each of its two bars."""
TITLE = "What would change the throughput"
LESS, MORE = palette.SERIES[1], palette.SERIES[0]


def shown(found: Sensitivity) -> tuple[Elasticity, ...]:
    """The numbers with bars."""
    return found.felt[:BARS]


def caption(found: Sensitivity) -> str:
    """What the picture says, and what its marks mean."""
    parts = [finding(found), f"Bars: throughput with {percent(found.step)} more or less of each."]
    if any(one.kinked for one in shown(found)):
        parts.append("*: what binds changes within the step, so the slope holds on one side only.")
    if any(side.refused for one in shown(found) for side in (one.less, one.more)):
        parts.append("Where a bar lacks, the device cannot be so.")
    left = len(found.felt) - len(shown(found))
    if left:
        parts.append(f"{left} smaller ones are in the table.")
    if found.small:
        many = len(found.small)
        parts.append(f"{many} more have an elasticity under {SMALL:g}.")
    return " ".join(parts)


def picture(found: Sensitivity, width: float) -> Drawing:
    """Lay out the bars."""
    entries = shown(found)
    sketch = Sketch(width)
    wide = width >= 700
    names = [f"{one.name}{' *' if one.kinked else ''}" for one in entries]
    most = 230.0 if wide else 142.0
    label = min(most, max((text_width(name, 12.0) for name in names), default=0.0)) + 10
    right = 150.0 if wide else 104.0
    gains = [gain for one in entries for side in _sides(one) if (gain := one.gain(side))]
    low, high = min([0.0, *gains]), max([0.0, *gains])
    room = 0.06 * (high - low) or 0.01
    x = Scale(low=low - room, high=high + room, start=label, length=width - label - right)
    top = _legend(sketch, found, width, right) - 12
    bottom = top - ROW * max(1, len(entries))
    values = x.ticks(58.0 if wide else 28.0)
    _, texts, _ = numbers.ticks([100 * value for value in values], "%")
    for value, text in zip(values, texts, strict=True):
        at = x.at(value)
        colour, weight = (palette.INK, 1.2) if abs(value) < 1e-12 else (palette.RULE, 0.7)
        sketch.line((at, top), (at, bottom), colour=colour, weight=weight, under=True)
        sketch.write(text, at, bottom - 12, "center", colour=palette.FAINT)
    middle = x.start + x.length / 2
    what = "change of throughput, %"
    sketch.write(what, middle, bottom - 12 - LINE, "center", colour=palette.FAINT)
    if not entries:
        sketch.write("nothing moves it", middle, top - ROW / 2, "center", colour=palette.FAINT)
    for place, (one, name) in enumerate(zip(entries, names, strict=True)):
        centre = top - ROW * (place + 0.5)
        sketch.write(name, label - 10, centre, "right", room=label - 10)
        for side, fill, edge, key in (
            (one.more, MORE, centre, "more"),
            (one.less, LESS, centre - HALF, "less"),
        ):
            gain = one.gain(side)
            if gain is None:
                continue
            ends = sorted((x.at(0.0), x.at(gain)))
            box = Rect(ends[0], edge, max(ends[1] - ends[0], 0.5), HALF)
            sketch.fill([box], fill, gid=f"{key}-{place + 1}")
        cells = [_gain(one.gain(side)) for side in (one.less, one.more)]
        sketch.write(cells[0], width - right * 0.55, centre, "right")
        sketch.write(cells[1], width - 4, centre, "right")
    return sketch.finish(math.ceil(24 + LINE - bottom), TITLE, caption(found))


def _sides(one: Elasticity) -> tuple[Side, Side]:
    return one.less, one.more


def _gain(gain: float | None) -> str:
    return numbers.ABSENT if gain is None else signed(gain)


def _legend(sketch: Sketch, found: Sensitivity, width: float, right: float) -> float:
    step, y = percent(found.step), -LINE / 2
    sketch.legend([Swatch(f"{step} more", MORE), Swatch(f"{step} less", LESS)])
    sketch.write("less", width - right * 0.55, y, "right", colour=palette.FAINT)
    sketch.write("more", width - 4, y, "right", colour=palette.FAINT)
    return y - LINE / 2
