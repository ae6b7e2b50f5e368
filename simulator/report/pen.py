"""Draws a picture with matplotlib, for SVG and PNG alike; the same picture gives the same bytes.

Object interface only: no pyplot, no global state left behind. Decides nothing about places.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from simulator.report import palette
from simulator.report.picture import Axis, Picture
from simulator.report.placement import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 110
"""Of the PNG: 1,467 pixels for the wide picture."""

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tilecast",
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "font.size": 12.0,
    "text.parse_math": False,
    "path.simplify": False,
    "axes.unicode_minus": False,
}
_BACKING = {"facecolor": palette.PAPER, "linewidth": 0, "pad": 1}


class Captioned(Protocol):
    """A picture with words about it."""

    @property
    def title(self) -> str: ...

    @property
    def caption(self) -> str: ...


def draw(picture: Picture) -> Figure:
    """The picture as a figure whose unit is the point."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.transforms import Affine2D

    with style():
        figure = Figure(figsize=(picture.width / 72, picture.height / 72), facecolor=palette.PAPER)
        frame = _axes(figure, picture, picture.x, (picture.y.start, picture.y.length))
        frame.set_ylim(picture.y.low, picture.y.high)
        frame.set_yscale("log")
        frame.set_yticks(*_ticks(picture.y))
        frame.minorticks_off()
        frame.tick_params(axis="y", length=0, colors=palette.FAINT, pad=5)
        frame.grid(True, color=palette.RULE, linewidth=0.6)
        if picture.strip is not None:
            low, high = picture.strip_y
            strip = _axes(figure, picture, picture.strip, (low, high - low))
            strip.set_yticks([])
            strip.grid(True, axis="x", color=palette.RULE, linewidth=0.6)

        points = Affine2D().scale(1 / 72) + figure.dpi_scale_trans

        def stroke(line: Line, **style: Any) -> None:
            artist = Line2D([line.x0, line.x1], [line.y0, line.y1], transform=points, **style)
            figure.add_artist(artist)

        def sign(x: float, y: float, shape: str, radius: float, gid: str, **style: Any) -> None:
            artist = Line2D(
                [x],
                [y],
                transform=points,
                linestyle="none",
                marker=shape,
                markersize=2 * radius,
                markeredgewidth=1.0,
                gid=gid,
                **style,
            )
            figure.add_artist(artist)

        for drop in picture.drops:
            stroke(drop, color=palette.FAINT, linewidth=0.8, linestyle="dotted", zorder=3)
        for link, dash in picture.links:
            stroke(link, color=palette.OTHER, linewidth=0.8, linestyle=dash, zorder=3)
        for ceiling in picture.ceilings:
            stroke(
                ceiling.line,
                color=ceiling.colour,
                linewidth=ceiling.weight,
                linestyle=ceiling.dash,
                gid=ceiling.gid,
                zorder=4,
            )
        for leader in picture.leaders:
            stroke(leader, color=palette.FAINT, linewidth=0.7, zorder=5)
        for mark in (*picture.marks, *picture.strip_marks):
            colour = palette.BOUND[mark.bound]
            fill, edge = (palette.PAPER, colour) if mark.device else (colour, palette.PAPER)
            sign(
                *mark.place,
                mark.shape,
                mark.radius,
                mark.gid,
                markerfacecolor=fill,
                markeredgecolor=edge,
                zorder=5 if mark.device else 6,
            )
        for place, key in enumerate(picture.keys, start=1):
            if key.dash:
                ends = Line(key.x - 14, key.y, key.x + 14, key.y)
                stroke(ends, color=key.colour, linewidth=1.4, linestyle=key.dash, zorder=7)
            if key.shape:
                fill = palette.PAPER if key.hollow else key.colour
                edge = key.colour if key.hollow else palette.PAPER
                sign(
                    key.x,
                    key.y,
                    key.shape,
                    key.radius,
                    f"key-{place}",
                    markerfacecolor=fill,
                    markeredgecolor=edge,
                    zorder=7,
                )
        for words in picture.words:
            figure.text(
                words.x,
                words.y,
                words.text,
                transform=points,
                fontsize=words.size,
                fontweight="bold" if words.bold else "normal",
                color=words.colour,
                ha=words.align,
                va="center_baseline" if words.turn == 0 else "center",
                rotation=words.turn,
                rotation_mode="anchor",
                bbox={"facecolor": palette.PAPER, "linewidth": 0, "pad": 1}
                if words.backed
                else None,
                zorder=8,
            )
    return figure


def svg(figure: Figure, picture: Captioned) -> str:
    """The figure as an SVG document: text as text, no date, a title for readers."""
    sheet = io.StringIO()
    metadata = {
        "Date": None,
        "Creator": None,
        "Title": picture.title,
        "Description": picture.caption,
    }
    with style():
        figure.savefig(sheet, format="svg", metadata=metadata)
    return sheet.getvalue()


def png(figure: Figure, picture: Captioned) -> bytes:
    """The figure as a PNG of moderate size."""
    sheet = io.BytesIO()
    metadata = {"Software": None, "Title": picture.title, "Description": picture.caption}
    with style():
        figure.savefig(sheet, format="png", dpi=DPI, metadata=metadata)
    return sheet.getvalue()


def element(figure: Figure, picture: Captioned, kind: str, prefix: str) -> str:
    """The figure as an element of a page, of the class ``kind``: in the page's colours, its ids
    its own."""
    from markupsafe import Markup

    text = svg(figure, picture)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
    text = re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', rf'<svg class="{kind}" \1>', text, count=1)
    return Markup(palette.themed(text))


@contextmanager
def style() -> Iterator[None]:
    """Our own settings whatever the user's are; a letter that the font lacks is no news."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        yield


def _axes(figure: Figure, picture: Picture, x: Axis, y: tuple[float, float]) -> Axes:
    place = (
        x.start / picture.width,
        y[0] / picture.height,
        x.length / picture.width,
        y[1] / picture.height,
    )
    axes = figure.add_axes(place, facecolor=palette.PAPER, zorder=0)
    axes.set_xlim(x.low, x.high)
    axes.set_xscale("log")
    axes.set_xticks(*_ticks(x))
    axes.tick_params(axis="x", length=0, colors=palette.FAINT, pad=9)
    axes.minorticks_off()
    for spine in axes.spines.values():
        spine.set(color=palette.RULE, linewidth=0.8)
    return axes


def _ticks(axis: Axis) -> tuple[list[float], list[str]]:
    return [value for value, _ in axis.ticks], [text for _, text in axis.ticks]
