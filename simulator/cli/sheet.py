"""Text with columns on a stream: as wide as the terminal, 80 columns elsewhere.

Colour only on a terminal; no blanks at the ends of lines.
"""

from __future__ import annotations

import io
import os
import shutil
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType


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
