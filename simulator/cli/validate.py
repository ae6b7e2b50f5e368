"""``validate``: the product's own errors against measured data."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from simulator.check.measured import data_folder
from simulator.check.refit import ship
from simulator.check.validate import PROTOCOLS, as_shipped, chosen, leaving_out, steps_of
from simulator.cli.sheet import put
from simulator.costs.families.model import Model, models
from simulator.errors import InputError, UnknownNameError
from simulator.report import numbers
from simulator.report.validation import HEADS, Case, cells, grouped, score
from simulator.report.validation_page import DETAILS, SUMMARIES, Study, ready, write_validation
from simulator.tables.predict import shipped_fit
from simulator.tables.queries import SIZES

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.padding import Padding

MEASURED = ("device", "op", "dtype", *SIZES, "latency_us")
"""Columns without which nothing can be judged."""


def studies(
    data: Path | None, family: str | None, ways: Sequence[str], report: Path | None
) -> list[Study]:
    """Judge the models of a family, or all, as shipped and then in each of ``ways``.

    Raises InputError where the data is not there or is none, UnknownNameError for an unknown
    family.
    """
    wanted = chosen(family)
    folder = _measured(data, fits=bool(ways))
    if report is not None:
        ready(report)
    counts = {"shipped": len(wanted)} | {way: steps_of(wanted, folder, way) for way in ways}
    found = []
    with _progress(sum(counts.values())) as step:
        for way in counts:
            cases = (
                as_shipped(wanted, folder, step=step)
                if way == "shipped"
                else leaving_out(wanted, folder, by=way, step=step)
            )
            title, protocol = PROTOCOLS[way]
            if cases:
                found.append(Study(name=way, title=title, protocol=protocol, cases=cases))
    return found


def _measured(data: Path | None, *, fits: bool) -> Path:
    """The folder of the measurements, those that fits need among them."""
    folder = data_folder(data)
    for name in ("operators", "by_framework") if fits else ("operators",):
        _check_columns(folder / f"{name}.parquet")
    return folder


def _check_columns(path: Path) -> None:
    """Raise InputError where a file is no table of measurements."""
    import polars as pl

    try:
        known = pl.read_parquet_schema(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        found = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise InputError(f"{path} cannot be read as parquet: {found}") from None
    lacking = [name for name in MEASURED if name not in known]
    if lacking:
        raise InputError(f"{path} has no column {', '.join(lacking)}; name measured data")


def fit_again(name: str, data: Path | None) -> None:
    """Fit a model anew and write its files; raises UnknownNameError for an unknown model."""
    if name not in models():
        raise UnknownNameError("model", name, models())
    folder = _measured(data, fits=True)
    ship(models()[name], folder=folder, say=lambda text: print(text, file=sys.stderr))  # noqa: T201


def write_page(found: Sequence[Study], directory: Path) -> list[Path]:
    """Write the Markdown page and the pictures of today's validation."""
    wanted = _models_in(found)
    fits = [shipped_fit(model.name) for model in wanted]
    days = sorted({fit.date for fit in fits})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    about = "; ".join(dict.fromkeys(fit.data for fit in fits))
    return write_validation(
        found, directory, date=date.today().isoformat(), data=f"{about}. Fits of {when}"
    )


def _models_in(found: Sequence[Study]) -> list[Model]:
    ops = {case.op for study in found for case in study.cases}
    return [model for model in models().values() if ops & set(model.columns)]


def as_data(found: Sequence[Study]) -> dict[str, Any]:
    """Scores as plain data, fractions, by family and by operator, format and device."""
    return {study.name: [_entry(key, cases) for key, cases in _all(study)] for study in found}


def _all(study: Study) -> Iterator[tuple[dict[str, str], list[Case]]]:
    for _, by in (*SUMMARIES, DETAILS):
        for key, cases in grouped(study.cases, *by):
            yield dict(zip(by, key, strict=True)), cases


def _entry(key: dict[str, str], cases: list[Case]) -> dict[str, Any]:
    return key | asdict(score(cases))


def print_studies(found: Sequence[Study], stream: TextIO) -> None:
    """Scores by family, then by operator, format and device; 80 columns."""
    from rich.text import Text

    parts: list[RenderableType] = []
    for study in found:
        for heads, by in SUMMARIES:
            parts += [Text(f"{study.title}, by {heads[0]}", "bold")]
            parts += [_table(heads, list(grouped(study.cases, *by)))]
        for (op,), cases in sorted(grouped(study.cases, "op"), key=lambda pool: pool[0]):
            parts += [Text(op, "bold")]
            parts += [_table(("format", "device"), list(grouped(cases, "dtype", "device")))]
    put(stream, *parts)
    stream.write(
        "mean, median: error relative to the measured time, %; ratio: predicted over\n"
        "measured; band: beyond the fastest and slowest framework, %; in 80 %: share of\n"
        "rows inside the interval, %; plain: mean error of the plain roofline, %\n"
    )


def _table(heads: Sequence[str], groups: list[tuple[tuple[str, ...], list[Case]]]) -> Padding:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1, 0, 0), pad_edge=False)
    sizes = (24, 8) if heads[-1] == "class" else (12, 20)
    for size in sizes:
        table.add_column(width=size, no_wrap=True)
    for head in HEADS:
        table.add_column(justify="right", no_wrap=True, min_width=max(5, len(head)))
    table.add_row(*(Text(head, "dim") for head in (" ".join(heads[:-1]), heads[-1], *HEADS)))
    groups = sorted(groups, key=lambda pool: pool[0]) if heads[0] != "family" else groups
    columns = zip(*(cells(score(cases)) for _, cases in groups), strict=True)
    rows = zip(*(numbers.align(column) for column in columns), strict=True)
    for (key, _), row in zip(groups, rows, strict=True):
        first, second = " ".join(key[:-1]), key[-1]
        table.add_row(numbers.cut(first, sizes[0], ".."), numbers.cut(second, sizes[1], ".."), *row)
    return Padding(table, (0, 0, 1, 1))


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[str], None]]:
    """A bar on standard error where that is a terminal, otherwise nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=steps)
        done = -1

        def step(name: str) -> None:
            nonlocal done
            done += 1
            progress.update(task, completed=done, description=name)

        yield step
