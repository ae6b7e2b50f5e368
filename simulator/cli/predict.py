"""``predict``: a table of operator shapes in, their latencies out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from simulator.api import make_target
from simulator.cli.sheet import put, width
from simulator.costs.target import Target
from simulator.errors import InputError
from simulator.report import numbers, palette
from simulator.tables.answer import MICRO, Answer, answer, with_answer
from simulator.tables.files import check_target, read_table, write_table
from simulator.tables.queries import NAMES, SIZES
from simulator.tables.shapes import UNKNOWN, models_of

if TYPE_CHECKING:
    import polars as pl
    from rich.text import Text

T = TypeVar("T")

ROWS = 40
"""Rows on a terminal before the others are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """A table with its answer."""

    family: str
    target: Target
    frame: pl.DataFrame
    answer: Answer
    notes: list[str]


def predict_file(
    family: str, table: Path, on: str, out: Path | None, stack: str | None, overrides: Sequence[str]
) -> Found:
    """Answer the table in a file, and write it with the answer to ``out`` if that is given.

    Raises InputError with all that is wrong; nothing is written then.
    """
    faults: list[InputError] = []

    def attempt(work: Callable[[], T]) -> T | None:
        try:
            return work()
        except InputError as error:
            faults.append(error)
            return None

    attempt(lambda: models_of(family))
    target = attempt(lambda: make_target(on, stack=stack, overrides=overrides))
    if out is not None:
        attempt(lambda: check_target(out, unlike=table))
    frame = attempt(lambda: read_table(table))
    if faults:
        raise faults[0] if len(faults) == 1 else InputError("\n".join(map(str, faults)))
    assert target is not None
    assert frame is not None
    found = answer(family, frame, target, name=str(table))
    notes = list(found.notes)
    if out is not None:
        whole, renamed = with_answer(frame, found)
        write_table(whole, out)
        notes += renamed
    return Found(family=family, target=target, frame=frame, answer=found, notes=notes)


def as_data(found: Found) -> dict[str, Any]:
    """The answer as plain data, a list per column."""
    return {
        "family": found.family,
        "hardware": found.target.accelerator.name,
        "stack": found.target.stack.name,
        **{name: values.tolist() for name, values in found.answer.columns.items()},
        "distance": found.answer.prediction.distance.tolist(),
        "notes": found.notes,
    }


def print_answer(found: Found, stream: TextIO) -> None:
    """The first rows as a table of the terminal's width, 80 columns elsewhere."""
    from rich.table import Table
    from rich.text import Text

    shown = found.frame.head(ROWS)
    answers = {name: values[:ROWS].tolist() for name, values in found.answer.columns.items()}
    unit, latency = numbers.column([value / MICRO for value in answers["latency_us"]], "s")
    scale = 1e-6 / {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]
    ends = [
        f"{numbers.digits(low * scale)} .. {numbers.digits(high * scale)}"
        for low, high in zip(answers["lower_us"], answers["upper_us"], strict=True)
    ]
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    for name, right in (("row", True), ("operator", False), (unit, True), ("80 %", True)):
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    table.add_column("bound", no_wrap=True)
    fixed = (
        2 * 4
        + len("latency")
        + sum(max(map(len, cells), default=0) for cells in (latency, ends, [str(shown.height)]))
    )
    room = max(16, width(stream) - fixed - 4)
    table.add_row(*(Text(head, "dim") for head in ("", "operator", unit, "80 %", "bound")))
    cells = zip(_shapes(shown), numbers.align(latency), ends, answers["bound_by"], strict=True)
    for place, (shape, value, interval, bound) in enumerate(cells, start=1):
        table.add_row(
            f"{place:,}",
            Text(numbers.cut(shape, room, "..")),
            value,
            interval,
            _bound(bound),
        )
    device, stack = found.target.accelerator.name, found.target.stack.name
    stream.write(f"{found.family} on {device}, {stack}\n")
    put(stream, table)
    if found.frame.height > ROWS:
        more = found.frame.height - ROWS
        stream.write(f"and {more:,} more rows; -o FILE writes all of them\n")


def _bound(bound: str) -> Text:
    from rich.text import Text

    colours = {str(name): colour for name, colour in palette.BOUND.items()}
    return Text(bound, colours.get(bound, ""))


def _shapes(frame: pl.DataFrame) -> list[str]:
    """Each row in a few words: its names, then its sizes."""
    texts = []
    for row in frame.iter_rows(named=True):
        said = {name: str(value) for name, value in row.items() if value is not None}
        names = [said[name] for name in NAMES if said.get(name, "") not in ("", "-1")]
        sizes = [
            f"{name} {value}"
            for name, value in said.items()
            if name in SIZES and value not in ("", f"{UNKNOWN:g}")
        ]
        texts.append(numbers.plain(" ".join([*names, *sizes])))
    return texts
