"""``sweep``: a study from a file, its progress, and the best of its points."""

from __future__ import annotations

import re
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import typer

from simulator.cli.sheet import grid, put
from simulator.errors import Fault, SpecError
from simulator.report import numbers
from simulator.study.journal import Row
from simulator.study.study_file import NUMBER, PLENTY, Study, read_study
from simulator.study.sweep import Told, front, sweep

SHOWN = 10
"""Rows of the front that are printed."""


def run_sweep(
    path: Path,
    out: Path | None,
    *,
    workers: int,
    dask: str | None,
    resume: bool,
    yes: bool,
    screened: bool,
) -> None:
    """Run the study in ``path`` and print what came of it.

    Raises SpecError for a large study that nobody said yes to.
    """
    study = read_study(path)
    many = study.many
    # A screen prices each value of each axis alone, and runs few points.
    runs = sum(map(len, study.axes.values())) if screened else many
    if runs > PLENTY and not yes:
        found = f"has {runs:,} values" if screened else f"makes {many:,} points"
        fix = f"up to {PLENTY:,} run without --yes" + (
            "" if screened else "; draw fewer with how: latin_hypercube, or answer numbers of the "
            "accelerator in closed form with --screen"
        )  # fmt: skip
        raise SpecError([Fault(str(path), None, "vary", found, fix)])
    target = out or path.with_suffix(".csv")
    whole = resume and target.exists() and not target.with_name(f"{target.name}.partial").exists()
    started = time.monotonic()
    try:
        with _progress(many) as told:
            rows = sweep(
                study, target, workers=workers, dask=dask, resume=resume, screened=screened,
                told=told,
            )  # fmt: skip
    except KeyboardInterrupt:
        sys.stderr.write(f"\nstopped; go on with --resume: {target}.partial\n")
        raise typer.Exit(130) from None
    if whole:
        sys.stdout.write(f"nothing to do: {target} is complete\n")
    sys.stdout.write(f"{study.base.command}\n")
    if screened:
        answered = [row for row in rows if row["status"] == "ok"]
        sys.stdout.write(f"{many:,} points in closed form, {len(rows):,} of them run\n")
        if not rows:
            sys.stdout.write("no point fits: each needs more than the memory holds\n")
        _table(study, answered, "fastest for the steps up their lists", sys.stdout)
    else:
        ok = sum(row["status"] == "ok" for row in rows)
        sys.stdout.write(f"{ok:,} of {many:,} points have an answer\n")
        _table(study, front(rows), "fastest at each throughput", sys.stdout)
    _reasons(rows, sys.stdout)
    passed = time.monotonic() - started
    sys.stderr.write(f"{many:,} points in {numbers.quantity(passed, 's')}: {target}\n")


@contextmanager
def _progress(many: int) -> Iterator[Told]:
    """A bar with rate and time left on a terminal, a line for each tenth elsewhere."""
    started, before, tenths = 0.0, -1, 0

    def rate(done: int) -> float:
        nonlocal before, started
        if before < 0:  # What an earlier run did is no speed.
            before, started = done, time.monotonic()
        return (done - before) / max(time.monotonic() - started, 1e-9)

    if not sys.stderr.isatty():

        def told(done: int, of: int, bad: int) -> None:
            nonlocal tenths
            fast = rate(done)
            if 10 * done // of > tenths:
                tenths = 10 * done // of
                line = f"{done:,} of {of:,} points, {bad:,} without an answer"
                if fast > 0 and done < of:
                    left = numbers.quantity((of - done) / fast, "s")
                    line += f"; {numbers.digits(fast)}/s, {left} left"
                sys.stderr.write(f"{line}\n")

        yield told
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        BarColumn(bar_width=24),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} points"),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        TimeRemainingColumn(),
        TextColumn("left, {task.fields[bad]:,} without an answer"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=many, bad=0, rate=0.0)
        yield lambda done, of, bad: bar.update(
            task, completed=done, total=of, bad=bad, rate=rate(done)
        )


def _table(study: Study, best: Sequence[Mapping[str, Any]], title: str, stream: TextIO) -> None:
    """Some of the best rows."""
    if not best:
        return
    shown = best if len(best) <= SHOWN else best[:: -(-len(best) // SHOWN)]
    unit, times = numbers.column([row["latency"] for row in shown], "s")
    names = [numbers.cut(path.rpartition(".")[2], 12) for path in study.paths]
    heads = [*names, unit, "per s", "bound"]
    cells = [
        [*(_short(str(row[path])) for path in study.paths), time,
         numbers.count(row["throughput"]), row["bound_by"]]
        for row, time in zip(shown, times, strict=True)
    ]  # fmt: skip
    # As many varied columns as 80 columns hold; the others are in the file.
    while len(heads) > 4 and _wide([heads, *cells]) > 78:
        heads.pop(0)
        cells = [row[1:] for row in cells]
    stream.write(f"\n{title}, {len(shown)} of {len(best)}\n")
    put(stream, grid(heads, cells, "r" * (len(heads) - 1) + "l"))


def _short(value: str) -> str:
    """A value in 14 letters at most, a fraction with four digits."""
    number = NUMBER.fullmatch(value)
    if number is not None and number[1].count(".") == 1:
        value = f"{float(number[1]):.4g} {number[2]}".strip()
    return numbers.cut(value, 14)


def _reasons(rows: Sequence[Row], stream: TextIO) -> None:
    """Why some points have no answer, most of a kind first."""
    kinds: dict[str, list[str]] = {}
    for row in rows:
        if row["status"] != "ok":
            reason = numbers.plain(str(row["reason"]).splitlines()[0])
            # Points that differ in sizes alone fail for one reason.
            kind = re.sub("[0-9][0-9,.]*", "0", reason)
            kinds.setdefault(kind, []).append(f"{row['status']}: {reason}")
    for found in sorted(kinds.values(), key=len, reverse=True)[:5]:
        for line in textwrap.wrap(f"{len(found):,}x {found[0]}", 78, subsequent_indent="  "):
            stream.write(f"{line}\n")
    if len(kinds) > 5:
        stream.write(f"and {len(kinds) - 5:,} other reasons, in the file\n")


def _wide(table: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in zip(*table, strict=True))
