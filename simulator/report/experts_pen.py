"""Draws a picture of experts with matplotlib; the same picture gives the same bytes.

Object interface only: no pyplot, no global state left behind. Decides nothing about places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulator.report import palette
from simulator.report.experts_picture import Drawing, Patch
from simulator.report.pen import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.path import Path


def draw(drawing: Drawing) -> Figure:
    """The picture as a figure whose unit is the point."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch
    from matplotlib.transforms import Affine2D

    with style():
        rcParams["hatch.linewidth"] = 0.7
        size = (drawing.width / 72, drawing.height / 72)
        figure = Figure(figsize=size, facecolor=palette.PAPER)
        points = Affine2D().scale(1 / 72) + figure.dpi_scale_trans
        for patch in drawing.patches:
            look: dict[str, Any] = {"facecolor": patch.fill, "linewidth": 0.0, "zorder": 2}
            if patch.hatched:
                look |= {"facecolor": "none", "hatch": "////", "edgecolor": patch.fill}
            elif patch.edge:
                look |= {"linewidth": 0.6, "edgecolor": patch.edge}
            shape = PathPatch(_outline(patch), transform=points, **look)
            if patch.gid:
                shape.set_gid(patch.gid)
            figure.add_artist(shape)
        for line in drawing.strokes:
            xs, ys = zip(*line.points, strict=True)
            look = {"color": line.colour, "linewidth": line.weight, "linestyle": line.dash}
            order = 1 if line.under else 3
            figure.add_artist(Line2D(xs, ys, transform=points, zorder=order, **look))
        for words in drawing.words:
            figure.text(
                words.x,
                words.y,
                words.text,
                transform=points,
                fontsize=words.size,
                fontweight="bold" if words.bold else "normal",
                color=words.colour,
                ha=words.align,
                va="center_baseline",
                zorder=4,
            )
    return figure


def _outline(patch: Patch) -> Path:
    from matplotlib.path import Path

    corners: list[tuple[float, float]] = []
    for rect in patch.rects:
        right, top = rect.left + rect.width, rect.bottom + rect.height
        left, bottom = rect.left, rect.bottom
        corners += [(left, bottom), (right, bottom), (right, top), (left, top), (left, bottom)]
    codes = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY] * len(patch.rects)
    if patch.corners:
        corners += [*patch.corners, patch.corners[0]]
        codes += [Path.MOVETO, *[Path.LINETO] * (len(patch.corners) - 1), Path.CLOSEPOLY]
    return Path(corners, codes)
