"""Text with columns on a stream: as wide as the terminal, 80 columns elsewhere.

Colour only on a terminal; no blanks at the ends of lines.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from simulator.report import numbers, palette

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def width(stream: TextIO) -> int:
    """Columns that the stream shows, 60 at least."""
    return max(60, shutil.get_terminal_size().columns) if stream.isatty() else 80


def put(stream: TextIO, *parts: RenderableType) -> None:
    """Write the parts, one below the other."""
    from rich.console import Console, Group

    color = stream.isatty() and not os.environ.get("NO_COLOR")
    sheet = io.StringIO()
    Console(
        file=sheet, width=width(stream), force_terminal=color, no_color=not color,
        color_system="256" if color else None, force_jupyter=False, legacy_windows=False,
        markup=False, emoji=False, highlight=False,
    ).print(Group(*parts))  # fmt: skip
    stream.write("".join(f"{line.rstrip()}\n" for line in sheet.getvalue().split("\n")[:-1]))


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]], sides: str) -> Table:
    """Rows under dim heads, each column to the side that ``sides`` says, l or r, numbers by their
    points; a last cell that names what binds has its colour."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    for side in sides:
        table.add_column(justify="left" if side == "l" else "right", no_wrap=True)
    columns = [
        numbers.align(column) if side == "r" else list(column)
        for side, column in zip(sides, zip(*rows, strict=True), strict=True)
    ]
    table.add_row(*(Text(f"  {head}" if not place else head, "dim")
                    for place, head in enumerate(heads)))  # fmt: skip
    colours = {str(name): colour for name, colour in palette.BOUND.items()}
    for row in zip(*columns, strict=True):
        last = Text(row[-1], colours.get(row[-1], ""))
        table.add_row(f"  {row[0]}", *row[1:-1], last)
    return table
