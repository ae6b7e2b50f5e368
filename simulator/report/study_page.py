"""A study as a page: findings, pictures, tables that sort, and the command that made it.

Knows pieces of a page, not what they say. Its policy lets nothing in from outside, and the page is
whole without its script.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.report import numbers
from simulator.report.experts_page import Plate, Table
from simulator.report.experts_picture import MARGIN, Drawing, stacked
from simulator.report.files import write_files
from simulator.report.roofline import NARROW, WIDE
from simulator.report.template import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simulator.report.pen import Captioned

Draw = Callable[[float], "tuple[Figure, Captioned]"]
"""Draws a picture of a width in points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file that the command reads."""

    name: str
    text: str

    @property
    def lines(self) -> str:
        """The text, printable."""
        return "\n".join(numbers.plain(line) for line in self.text.splitlines())


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All that a page says, each text as plain text."""

    title: str
    about: str
    findings: list[str]
    warnings: list[str]
    notes: list[str]
    plates: list[Plate]
    tables: list[Table]
    commands: list[str]
    data: str
    sources: list[Source] = field(default_factory=list)


def plate(key: str, heading: str, draw: Draw) -> Plate:
    """A picture for both widths of the page, in the page's colours."""
    from simulator.report import pen

    elements = {}
    for kind, width in (("wide", WIDE), ("narrow", NARROW)):
        figure, drawing = draw(width)
        elements[kind] = pen.element(figure, drawing, kind, f"{kind}-{key}")
    return Plate(heading=heading, caption=drawing.caption, **elements)


def pictures(name: str, draw: Draw) -> dict[str, bytes]:
    """A picture as files: SVG and PNG."""
    from simulator.report import pen

    figure, drawing = draw(WIDE)
    return {
        f"{name}.svg": pen.svg(figure, drawing).encode(),
        f"{name}.png": pen.png(figure, drawing),
    }


def drawing_files(
    name: str, about: str, draw: Callable[[float], tuple[Figure, Drawing]]
) -> dict[str, bytes]:
    """A layout as files: between its title and its caption, under what it is about."""
    from simulator.report import experts_pen

    def whole(width: float) -> tuple[Figure, Drawing]:
        drawing = draw(width)[1]
        sheet = stacked([(drawing.title, drawing)], about, width + 2 * MARGIN)
        return experts_pen.draw(sheet), sheet

    return pictures(name, whole)


def write_page(
    page: Page, contents: Mapping[str, bytes], directory: str | Path, stale: Collection[str] = ()
) -> list[Path]:
    """Write the page and its other files, and remove ``stale`` ones; raises SpecError where they
    cannot be written."""
    html = render("study.html.j2", script="page.js", page=page).encode()
    return write_files({"index.html": html} | dict(contents), directory, stale)
