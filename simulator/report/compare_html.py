"""A study as a page without script: findings, pictures, tables, and the command that made it.

Knows pieces of a page, not what they say. Its policy lets nothing in from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.errors import Fault, SpecError
from simulator.report import numbers, palette
from simulator.report.experts_page import Plate, Table
from simulator.report.experts_picture import MARGIN, Drawing, stacked
from simulator.report.roofline import NARROW, WIDE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simulator.report.pen import Captioned

Draw = Callable[[float], "tuple[Figure, Captioned]"]
"""Draws a picture of a width in points."""


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


def render(page: Page) -> str:
    """The page as HTML."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["typeset"] = numbers.typeset
    text = environment.from_string(_text("compare.html.j2")).render(
        page=page,
        light=palette.variables(palette.LIGHT),
        dark=palette.variables(palette.DARK),
        style=_text("page.css"),
    )
    return text.rstrip() + "\n"


def write(contents: Mapping[str, bytes], directory: str | Path) -> list[Path]:
    """Write files into ``directory``, made if absent, each whole or not at all; returns them.

    Raises SpecError where it cannot be written.
    """
    target = Path(directory)
    part = target / ".part"
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            part.write_bytes(content)
            part.replace(target / name)
    except OSError as error:
        fix = "name a directory that can be written, or a new one"
        found = error.strerror or str(error)
        raise SpecError([Fault(str(directory), None, "", found, fix)]) from None
    finally:
        if target.is_dir():
            part.unlink(missing_ok=True)
    return [target / name for name in contents]


def _text(name: str) -> str:
    return resources.files("simulator.report").joinpath(name).read_text(encoding="utf-8")
