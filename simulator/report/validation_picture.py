"""Pictures of predictions against measurements, a panel for each family.

One shows every row, the other how the error goes with size. Object interface of matplotlib only;
the same cases give the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from simulator.report import numbers, palette
from simulator.report.pen import DPI, style
from simulator.report.picture import Axis
from simulator.report.validation import Case, Floats, grouped, score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, PANEL = 960.0, 300.0
"""Points: the whole picture, and the height of a row of panels."""
INSIDE = 270.0
"""Points of a panel between its axes' ends."""
ACROSS = 3
DOTS = 4000
"""Rows that a panel shows at most, evenly picked."""
NEAR, FAR = 1.25, 2.0
"""The shaded band, and the dashed lines."""
BINS = 4
"""Of the error by size, per decade of measured time."""
FEWEST = 8
"""Rows that a bin needs to be drawn."""
_TICKS = {0.5: "0.5", 0.7: "0.7", 1.0: "1", 1.4: "1.4", 2.0: "2"}


def predicted(cases: Sequence[Case], title: str) -> bytes:
    """Predicted against measured time, both logarithmic, as a PNG."""
    return _panels(
        cases, title, numbers.typeset("measured, us"), numbers.typeset("predicted, us"), _dots
    )


def by_size(cases: Sequence[Case], title: str) -> bytes:
    """Predicted over measured against the measured time, as a PNG."""
    return _panels(cases, title, numbers.typeset("measured, us"), "predicted / measured", _ratios)


CAPTIONS = {
    "predicted": (
        "Predicted against measured time of every held-back row, in microseconds. The line is "
        f"equality, the shade a factor of {NEAR:g} either way, the dashes a factor of {FAR:g}. "
        "Shape and colour tell operators apart."
    ),
    "by_size": (
        "Predicted over measured time against the measured time: median (line) and the middle "
        "80 % of the rows (shade) by quarter decade. Dashes: where measurements may lie by the "
        "predictions' own 80 % intervals."
    ),
}


def _panels(
    cases: Sequence[Case],
    title: str,
    below: str,
    beside: str,
    fill: Callable[[Axes, list[Case]], None],
) -> bytes:
    from matplotlib.figure import Figure

    families = list(grouped(cases, "family"))
    across = min(ACROSS, len(families))
    down = -(-len(families) // across)
    with style():
        size = (WIDTH / ACROSS * across / 72, (PANEL * down + 30) / 72)
        figure = Figure(figsize=size, facecolor=palette.PAPER, layout="constrained")
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=13, color=palette.INK)
        grid = figure.subplots(down, across, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place >= len(families):
                axes.set_axis_off()
                continue
            (family,), pool = families[place]
            _dress(axes, family, pool)
            fill(axes, pool)
            if place + across >= len(families):
                axes.set_xlabel(below, color=palette.FAINT)
            if place % across == 0:
                axes.set_ylabel(beside, color=palette.FAINT)
        return _png(figure, title)


def _dress(axes: Axes, family: str, pool: list[Case]) -> None:
    found = score(pool)
    words = f"{numbers.count(found.rows)} rows, mean {numbers.points(found.mean)} %"
    axes.set_title(family, loc="left", fontsize=12, fontweight="bold", color=palette.INK)
    axes.set_title(words, loc="right", fontsize=10, color=palette.FAINT)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_axisbelow(True)
    axes.grid(True, color=palette.RULE, linewidth=0.6)
    axes.tick_params(length=0, colors=palette.FAINT, labelsize=10)
    for spine in axes.spines.values():
        spine.set(color=palette.RULE, linewidth=0.8)


def _joined(pool: Sequence[Case], name: str) -> Floats:
    return np.concatenate([getattr(case, name) for case in pool])


def _dots(axes: Axes, pool: list[Case]) -> None:
    measured, found = _joined(pool, "measured"), _joined(pool, "predicted")
    both = np.concatenate([measured, found])
    low, high = float(both.min()) / 1.3, float(both.max()) * 1.3
    axes.set(xlim=(low, high), ylim=(low, high))
    _decades(axes, low, high, ("x", "y"))
    ends = np.array([low, high])
    axes.fill_between(ends, ends / NEAR, ends * NEAR, color=palette.RULE, alpha=0.7, linewidth=0)
    axes.plot(ends, ends, color=palette.INK, linewidth=1.0)
    for factor in (FAR, 1 / FAR):
        axes.plot(ends, ends * factor, color=palette.FAINT, linewidth=0.8, linestyle="dashed")
    step = max(1, -(-len(measured) // DOTS))
    for place, ((op,), part) in enumerate(grouped(pool, "op")):
        axes.plot(
            _joined(part, "measured")[::step],
            _joined(part, "predicted")[::step],
            linestyle="none",
            marker=palette.MARKS[place % len(palette.MARKS)],
            markersize=3.2,
            markeredgewidth=0,
            alpha=0.45,
            color=palette.SERIES[place % len(palette.SERIES)],
            label=op,
        )
    legend = axes.legend(
        loc="upper left", fontsize=9, frameon=False, handletextpad=0.1, borderpad=0.1,
        labelspacing=0.25, markerscale=1.8, labelcolor=palette.INK,
    )  # fmt: skip
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1.0)


def _ratios(axes: Axes, pool: list[Case]) -> None:
    measured, found = _joined(pool, "measured"), _joined(pool, "predicted")
    ratio = found / measured
    ends = {"low": found / _joined(pool, "upper"), "high": found / _joined(pool, "lower")}
    place = np.floor(np.log10(measured) * BINS).astype(np.int64)
    rows = []
    for which in np.unique(place):
        here = place == which
        if here.sum() >= FEWEST:
            middle = 10 ** ((which + 0.5) / BINS)
            spread = np.quantile(ratio[here], (0.1, 0.5, 0.9))
            stated = [float(np.exp(np.log(ends[name][here]).mean())) for name in ("low", "high")]
            rows.append((middle, *spread, *stated))
    axes.set_ylim(min(_TICKS) / 1.05, max(_TICKS) * 1.05)
    axes.set_yticks(list(_TICKS), list(_TICKS.values()))
    axes.minorticks_off()
    axes.axhline(1.0, color=palette.INK, linewidth=1.0)
    if not rows:
        return
    size, least, middle, most, low, high = np.array(rows).T
    colour = palette.SERIES[0]
    axes.set_xlim(size[0] / 1.5, size[-1] * 1.5)
    _decades(axes, size[0] / 1.5, size[-1] * 1.5, ("x",))
    axes.fill_between(size, least, most, color=colour, alpha=0.22, linewidth=0)
    axes.plot(size, middle, color=colour, linewidth=1.8, marker="o", markersize=3.5)
    for line in (low, high):
        axes.plot(size, line, color=palette.FAINT, linewidth=1.0, linestyle="dashed")


def _decades(axes: Axes, low: float, high: float, which: Sequence[str]) -> None:
    ticks, texts = zip(*Axis(low=low, high=high, start=0.0, length=INSIDE).ticks, strict=True)
    if "x" in which:
        axes.set_xticks(ticks, texts)
    if "y" in which:
        axes.set_yticks(ticks, texts)
    axes.minorticks_off()


def _png(figure: Figure, title: str) -> bytes:
    sheet = io.BytesIO()
    figure.savefig(sheet, format="png", dpi=DPI, metadata={"Software": None, "Title": title})
    return sheet.getvalue()
