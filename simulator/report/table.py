"""A result as text for a terminal, 60 columns and wider.

Rows never wrap: columns are dropped in a fixed order, then names are cut in the middle. Rounds
nothing itself; colour and letters beyond ASCII are used only where asked for.
"""

from __future__ import annotations

import io
import math
import os
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from simulator.report import numbers, palette
from simulator.report.experts import summary
from simulator.report.facts import facts, title, trust
from simulator.report.ranking import lines, of_roof, times_each
from simulator.result import Bound, Result

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

NARROWEST = 40

_INDENT = 2
_GAP = 2
_LABEL = 12
_LEAST_NAME = 14
_DROPPED = (11, 10, 9, 8, 7, 2, 6, 1, 5)
"""Columns of the operator table in the order in which a narrow sheet loses them."""


def render(
    result: Result, width: int = 80, *, color: bool = False, ascii_only: bool = False
) -> str:
    """The result as a terminal table of at most ``width`` columns (never under 40).

    ``color`` adds escape codes; without it there are none. ``ascii_only`` keeps to 7-bit letters.
    """
    from rich.console import Console, Group
    from rich.text import Text

    width = max(NARROWEST, width)
    look = _Look(width=width, ascii_only=ascii_only)
    parts: list[RenderableType] = [*_heading(result, look), Text()]
    answers = [
        (fact.label, "   ".join((fact.value, "; ".join(fact.details))).rstrip())
        for fact in facts(result)
    ]
    answers += summary(result)
    parts += [_facts(answers, look), Text()]
    parts += [*_resources(result, look), Text()]
    parts += [*_operators(result, look), Text()]
    notes = [("trust", trust(result))]
    notes += [("warning", numbers.plain(text)) for text in result.warnings]
    parts.append(_facts(notes, look))
    sheet = io.StringIO()
    Console(
        file=sheet,
        width=width,
        force_terminal=color,
        color_system="256" if color else None,
        no_color=not color,
        force_jupyter=False,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
    ).print(Group(*parts))
    text = sheet.getvalue().replace(numbers.NO_BREAK, " ")
    text = "".join(f"{line.rstrip()}\n" for line in text.split("\n")[:-1])
    return text.encode("ascii", "replace").decode() if ascii_only else text


def print_table(
    result: Result, stream: TextIO, environment: Mapping[str, str] = os.environ
) -> None:
    """Write the table as ``stream`` can show it.

    On a terminal: its width, in colour unless NO_COLOR is set. Elsewhere: 80 columns, no colour.
    Letters beyond ASCII only where the encoding of the stream has them.
    """
    terminal = stream.isatty()
    dumb = environment.get("TERM") == "dumb"
    try:
        _BAR.encode(stream.encoding or "ascii")
        plain = False
    except (UnicodeEncodeError, LookupError):
        plain = True
    stream.write(
        render(
            result,
            shutil.get_terminal_size().columns if terminal else 80,
            color=terminal and not dumb and not environment.get("NO_COLOR"),
            ascii_only=plain,
        )
    )


_BAR = "\N{FULL BLOCK}"
_EIGHTHS = " \u258f\u258e\u258d\u258c\u258b\u258a\u2589"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """Width and letters of the sheet."""

    width: int
    ascii_only: bool

    def cut(self, text: str, width: int) -> str:
        from rich.cells import cell_len

        mark = ".." if self.ascii_only else "\N{HORIZONTAL ELLIPSIS}"
        room = width
        while cell_len(short := numbers.cut(text, room, mark)) > width and room > 0:
            room -= 1
        return short

    def bar(self, fraction: float, width: int) -> str:
        if self.ascii_only:
            return "#" * round(fraction * width)
        full, part = divmod(round(8 * fraction * width), 8)
        return (_BAR * full + (_EIGHTHS[part] if part else "")) or (
            "\u258f" if fraction > 0 else ""
        )


def _heading(result: Result, look: _Look) -> list[Text]:
    """The title in as few lines as it needs, the fidelity at the right of the first."""
    from rich.cells import cell_len
    from rich.text import Text

    fidelity = numbers.plain(result.provenance.fidelity)
    rows, room = [""], look.width - len(fidelity) - _GAP
    for part in title(result):
        joined = f"{rows[-1]}, {part}" if rows[-1] else part
        if rows[-1] and cell_len(joined) > room:
            rows[-1] += ","
            rows.append("  " + part)
            room = look.width
        else:
            rows[-1] = joined
    first = look.cut(rows[0], look.width - len(fidelity) - _GAP)
    gap = " " * (look.width - cell_len(first) - len(fidelity))
    heading = Text.assemble((first, "bold"), gap, (fidelity, "dim"), no_wrap=True)
    return [heading, *(Text(row, "bold", no_wrap=True) for row in rows[1:])]


def _facts(pairs: Sequence[tuple[str, str]], look: _Look) -> RenderableType:
    """Labels at the left, text that wraps at the right."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    grid.add_column(width=_LABEL, no_wrap=True)
    room = look.width - _INDENT - _LABEL - _GAP
    grid.add_column(width=room, overflow="fold")
    for label, text in pairs:
        style = "bold" if label == "warning" else "dim"
        rows = textwrap.wrap(numbers.unbroken(text), room, break_on_hyphens=False)
        grid.add_row(Text(label, style), Text("\n".join(rows)))
    return Padding(grid, (0, 0, 0, _INDENT))


def _resources(result: Result, look: _Look) -> list[RenderableType]:
    """The breakdown by resource, a bar for each."""
    seconds = result.breakdown
    whole = max(result.latency, math.fsum(seconds.values()))
    unit, cells = numbers.column(list(seconds.values()), "s")
    shares = numbers.shares(list(seconds.values()), whole)
    room = look.width - _INDENT - len("where the time goes") - 2 * 9 - 3 * _GAP
    rows: list[list[Text]] = [
        [
            _bound(bound),
            _bound(bound, look.bar(time / (whole or 1.0), max(4, min(32, room)))),
            _cell(cell),
            _cell(share),
        ]
        for (bound, time), cell, share in zip(
            seconds.items(), numbers.align(cells), shares, strict=True
        )
    ]
    return _grid(["by resource", "", f"total {unit}", "share %"], rows, right=(2, 3), look=look)


def _operators(result: Result, look: _Look) -> list[RenderableType]:
    """The operator table, longest first."""
    entries = lines(result)
    ops = [entry.op for entry in entries]
    each_unit, each = times_each(ops)
    total_unit, total = numbers.column([entry.total for entry in entries], "s")
    rate_name, rate = numbers.column([op.rate if op else None for op in ops], "FLOP/s")
    intensity = [numbers.digits(op.intensity) if op and op.flops else "" for op in ops]
    moved_name, moved = numbers.column(
        [op.bytes / op.time if op and op.time > 0 else None for op in ops], "B/s"
    )
    roof = [numbers.percent(of_roof(op, result.roof)) if op else "" for op in ops]
    columns: list[tuple[str, list[str] | list[Text], bool]] = [
        ("where the time goes", [entry.name for entry in entries], False),
        ("count", [f"{numbers.count(op.count)}x" if op else "" for op in ops], True),
        (f"each {each_unit}", _blank(numbers.align(each)), True),
        (f"total {total_unit}", numbers.align(total), True),
        ("share %", [entry.share for entry in entries], True),
        ("bound", [_bound(entry.bound) for entry in entries], False),
        ("of roof", roof, True),
        ("FLOP/B", numbers.align(intensity), True),
        (rate_name, _blank(numbers.align(rate)), True),
        (moved_name, _blank(numbers.align(moved)), True),
        ("format", [numbers.plain(op.format) if op else "" for op in ops], False),
        ("tile", [numbers.plain(op.tile) if op else "" for op in ops], False),
    ]
    rows = [
        [cell if not isinstance(cell, str) else _cell(cell) for cell in row]
        for row in zip(*(cells for _, cells, _ in columns), strict=True)
    ]
    right = tuple(place for place, (_, _, flush) in enumerate(columns) if flush)
    heads = [name for name, _, _ in columns]
    return _grid(heads, rows, right=right, look=look, drop=_DROPPED)


def _blank(cells: Sequence[str]) -> list[str]:
    """Nothing where a line stands for several operators and has no value of its own."""
    return [" " * len(cell) if cell.strip() == numbers.ABSENT else cell for cell in cells]


def _bound(bound: Bound, text: str | None = None) -> Text:
    from rich.text import Text

    return Text(bound if text is None else text, palette.BOUND[bound], no_wrap=True)


def _cell(text: str) -> Text:
    from rich.text import Text

    return Text(text, no_wrap=True)


def _grid(
    heads: list[str],
    rows: list[list[Text]],
    *,
    right: tuple[int, ...],
    look: _Look,
    drop: tuple[int, ...] = (),
) -> list[RenderableType]:
    """A table without lines that fits: the columns of ``drop`` go first, then names are cut."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    widths = [
        max(len(head), *(row[place].cell_len for row in rows)) if rows else len(head)
        for place, head in enumerate(heads)
    ]
    shown = list(range(len(heads)))
    least = max(len(heads[0]), min(widths[0], _LEAST_NAME))

    def room() -> int:
        """What the other columns leave for the first."""
        return look.width - _INDENT - sum(_GAP + widths[place] for place in shown[1:])

    for place in drop:
        if room() < least:
            shown.remove(place)
    widths[0] = max(1, min(widths[0], room()))
    table = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    for place in shown:
        table.add_column(
            width=widths[place], justify="right" if place in right else "left", no_wrap=True
        )
    table.add_row(*(Text(heads[place], "dim", no_wrap=True) for place in shown))
    for row in rows:
        first = Text(look.cut(row[0].plain, widths[0]), row[0].style, no_wrap=True)
        table.add_row(first, *(row[place] for place in shown[1:]))
    return [Padding(table, (0, 0, 0, _INDENT))]
