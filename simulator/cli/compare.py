"""``compare``: devices side by side in tables of 80 columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TextIO

from simulator.cli.progress import searching
from simulator.cli.sheet import grid, put
from simulator.report import numbers
from simulator.report.compare import Comparison
from simulator.report.compare_words import (
    name,
    notes,
    rate_rows,
    refusals,
    sheet_rows,
    use_rows,
    warnings,
)
from simulator.study.compare import compare

if TYPE_CHECKING:
    from rich.table import Table

_WHOLE = re.compile("-?[0-9]{1,9}")


def found_comparison(workload: str, on: str, *, batches: str | None, **options: Any) -> Comparison:
    """Devices such as ``h200,mi355x`` side by side, behind a bar; ``batches`` like ``1,2,4`` or
    ``all``. ``options`` are those of ``compare``."""
    names = [name.strip() for name in on.split(",")]
    many: Sequence[Any] | Literal["all"] = ()
    if batches is not None:
        words = [word.strip() for word in batches.split(",")]
        numbered = [int(word) if _WHOLE.fullmatch(word) else word for word in words]
        many = "all" if words == ["all"] else numbered
    with searching() as told:
        return compare(workload, names, batches=many, told=told, **options)


def print_comparison(found: Comparison, stream: TextIO) -> None:
    """Rates and ratios, what else each device takes, data sheets beside what is reached, curves,
    and what cannot be told."""
    stream.write(f"{numbers.plain(found.about)}\n\n")
    put(stream, grid(*rate_rows(found)))
    stream.write("\n")
    put(stream, grid(*use_rows(found)))
    if len(found.entries) > 1:
        stream.write("\n")
        put(stream, grid(*sheet_rows(found)))
    if any(entry.points for entry in found.entries):
        stream.write("\n")
        put(stream, _curves(found))
    stream.write("\n")
    warned = (f"warning: {text}" for text in warnings(found))
    for text in (*refusals(found), *notes(found), *warned):
        for line in _wrapped(text):
            stream.write(f"  {line}\n")


def _curves(found: Comparison) -> Table:
    """Both rates of each device over batches."""
    rows = []
    times = [one.latency for entry in found.entries for one in entry.points]
    unit, cells = numbers.column(times, "s")
    shown = iter(cells)
    for entry in found.entries:
        strong = entry.front
        for place, one in enumerate(entry.points):
            beaten = "" if one in strong else " (beaten)"
            rows.append(
                [name(entry) if place == 0 else "", numbers.count(one.batch),
                 numbers.digits(one.user), numbers.digits(one.device), next(shown),
                 f"{one.bound_by}{beaten}"]
            )  # fmt: skip
    heads = ("", "batch", f"{found.unit}/s/user", f"{found.unit}/s/dev", unit, "bound")
    return grid(heads, rows, "lrrrrl")


def _wrapped(text: str) -> Iterator[str]:
    import textwrap

    yield from textwrap.wrap(text, 76, subsequent_indent="  ")
