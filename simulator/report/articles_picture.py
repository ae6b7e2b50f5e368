"""Claimed against simulated ratios on one logarithmic axis, a group of rows for each workload.

Object interface of matplotlib only; the same comparisons give the same bytes. Marks differ in
shape and fill, so that the picture holds without colour.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.report import palette
from simulator.report.articles import Comparison, Ratio
from simulator.report.articles_page import claimed, times
from simulator.report.pen import DPI, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, LEFT, RIGHT = 960.0, 290.0, 140.0
"""Points: the sheet, the room of names, and of values."""
ROW, HEAD, TOP, BOTTOM = 40.0, 34.0, 62.0, 52.0
"""Points: a comparison, the head of its group, and the edges."""
APART = 8.0
"""Points from the middle of a row to either mark."""
TITLE = "Times as fast in training: claimed and simulated"
_TICKS = (0.5, 1, 2, 3, 5, 10, 20, 50)


def draw(groups: Sequence[Sequence[Comparison]]) -> bytes:
    """The picture as a PNG."""
    from matplotlib.figure import Figure

    inside = sum(HEAD + ROW * len(group) for group in groups)
    height = TOP + inside + BOTTOM
    with style():
        figure = Figure(figsize=(WIDTH / 72, height / 72), facecolor=palette.PAPER)
        box = (LEFT / WIDTH, BOTTOM / height, (WIDTH - LEFT - RIGHT) / WIDTH, inside / height)
        axes = figure.add_axes(box)
        axes.set_ylim(inside, 0)
        _dress(axes, [one for group in groups for one in group])
        y = 0.0
        for group in groups:
            _group(axes, group, y)
            y += HEAD + ROW * len(group)
        figure.text(
            14 / WIDTH, 1 - 22 / height, TITLE, fontsize=14, fontweight="bold", color=palette.INK
        )
        _legend(axes)
        sheet = io.BytesIO()
        figure.savefig(sheet, format="png", dpi=DPI, metadata={"Software": None, "Title": TITLE})
    return sheet.getvalue()


def _dress(axes: Axes, rows: Sequence[Comparison]) -> None:
    ends = [end for one in rows for ratio in (one.same, one.best) for end in ratio.ends]
    low, high = min(*ends, 1.0) / 1.15, max(ends) * 1.15
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    shown = [tick for tick in _TICKS if low <= tick <= high]
    axes.set_xticks(shown, [f"{tick:g}x" for tick in shown])
    axes.minorticks_off()
    axes.set_yticks([])
    axes.set_xlabel("step time of the other device over that of the device (1x: as fast)")
    axes.xaxis.label.set_color(palette.FAINT)
    axes.tick_params(length=0, colors=palette.FAINT)
    axes.set_axisbelow(True)
    axes.grid(True, axis="x", color=palette.RULE, linewidth=0.8)
    axes.axvline(1.0, color=palette.INK, linewidth=1.2, zorder=1)
    for name, spine in axes.spines.items():
        spine.set(color=palette.RULE, linewidth=0.8, visible=name == "bottom")


def _group(axes: Axes, group: Sequence[Comparison], top: float) -> None:
    """The rows of one workload under its name; the claim as a line with a diamond in each row."""
    head = top + HEAD / 2 + 4
    _words(axes, group[0].workload, 0.0, head, left=LEFT - 14, bold=True)
    _words(axes, "ratio [80 %]", 1.0, head, left=-10, faint=True)
    said = []
    for place, one in enumerate(group):
        y = top + HEAD + ROW * (place + 0.5)
        _words(axes, one.same.new.label, 0.0, y - APART, left=LEFT - 22)
        _words(axes, f"against {one.same.base.label}", 0.0, y + APART, left=LEFT - 22, faint=True)
        _ratio(axes, one.same, y - APART, filled=True)
        _ratio(axes, one.best, y + APART, filled=False)
        if one.claim is not None:
            said.append((one.claim, y))
    if said:
        speed = [claim.speed for claim, _ in said]
        axes.plot(
            speed, [y for _, y in said], marker="D", markersize=8, linestyle="dashed",
            linewidth=1.0, zorder=4, color=palette.INK, markerfacecolor=palette.SERIES[1],
        )  # fmt: skip
        axes.annotate(
            f"claimed {claimed(said[0][0])}", (speed[0], head), ha="center", va="center",
            color=palette.INK, annotation_clip=False,
        )  # fmt: skip


def _ratio(axes: Axes, ratio: Ratio, y: float, *, filled: bool) -> None:
    """A mark with its interval, and the value beside the axis."""
    colour = palette.INK if filled else palette.FAINT
    axes.plot(ratio.ends, (y, y), color=colour, linewidth=2.4 if filled else 1.4, zorder=2)
    axes.plot(
        [ratio.value], [y], marker="o" if filled else "s", markersize=8 if filled else 7,
        color=palette.SERIES[0] if filled else palette.PAPER, markeredgecolor=colour,
        markeredgewidth=1.2, zorder=3,
    )  # fmt: skip
    _words(axes, times(ratio), 1.0, y, left=-10, faint=not filled)


def _words(
    axes: Axes, text: str, x: float, y: float, *, left: float, bold: bool = False,
    faint: bool = False,
) -> None:  # fmt: skip
    """Text beside the axes: ``left`` points to the left of a share ``x`` of their width."""
    axes.annotate(
        text, (x, y), (-left, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
        va="center", fontweight="bold" if bold else "normal", annotation_clip=False,
        color=palette.FAINT if faint else palette.INK,
    )  # fmt: skip


def _legend(axes: Axes) -> None:
    from matplotlib.lines import Line2D

    def key(label: str, marker: str, line: float, edge: str, fill: str) -> Line2D:
        return Line2D(
            [], [], label=label, marker=marker, markersize=8, markeredgewidth=1.2, linewidth=line,
            color=edge, markeredgecolor=edge, markerfacecolor=fill,
        )  # fmt: skip

    keys = [
        key("one plan, BF16, 80 % interval", "o", 2.4, palette.INK, palette.SERIES[0]),
        key("each its best plan", "s", 1.4, palette.FAINT, palette.PAPER),
        key("claimed", "D", 0.0, palette.INK, palette.SERIES[1]),
    ]
    axes.legend(
        handles=keys, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False,
        columnspacing=1.4, handletextpad=0.5, borderaxespad=0.2, labelcolor=palette.INK,
    )  # fmt: skip
