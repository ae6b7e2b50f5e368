"""``sweep``: a study from a file, its progress, and the best of its points."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import typer

from simulator.cli.sheet import grid, put
from simulator.cli.write import say_written
from simulator.errors import Fault, SpecError
from simulator.report import numbers
from simulator.report.sweep import Swept, reasons, warnings
from simulator.specs.workload import Transformer
from simulator.study.journal import Row
from simulator.study.study_file import PLENTY, Study, read_study
from simulator.study.sweep import Told, front, sweep
from simulator.units import number_and_unit
from simulator.version import __version__

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
    report: Path | None = None,
) -> None:
    """Run the study in ``path``, print what came of it, and write its ``report``.

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
    if screened and report is not None:
        found, fix = "draws a study that was run in full", "leave out --screen, or --report"
        raise SpecError([Fault("sweep", None, "--report", found, fix)])
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
    _print(study, rows, screened, sys.stdout)
    passed = time.monotonic() - started
    sys.stderr.write(f"{many:,} points in {numbers.quantity(passed, 's')}: {target}\n")
    if report is not None:
        from simulator.report.sweep_page import write_sweep

        say_written(write_sweep(_swept(study, path, rows), report))


def _swept(study: Study, path: Path, rows: Sequence[Row]) -> Swept:
    """The study with its rows, as its report takes it."""
    base = study.base
    names = {
        "workload": base.model.name, "phase": base.phase, "hardware": f"on {base.hardware.name}",
    }  # fmt: skip
    changed = {"workload" if one == "model" else one for one in study.paths}
    fixed = [name for key, name in names.items() if key not in changed]
    return Swept(
        rows=tuple(rows),
        paths=study.paths,
        front=tuple(front(rows)),
        base=base.command,
        about=" ".join(fixed),
        unit="tok/s" if isinstance(base.model, Transformer) else "samples/s",
        name=path.name,
        text=path.read_text(encoding="utf-8"),
        version=__version__,
    )


def _print(study: Study, rows: Sequence[Row], screened: bool, stream: TextIO) -> None:
    """What was run, its best points, and why some have no answer."""
    ok = [row for row in rows if row["status"] == "ok"]
    for line in textwrap.wrap(f"base: {study.base.command}", 78, subsequent_indent="  "):
        stream.write(f"{line}\n")
    if screened:
        stream.write(f"{study.many:,} points in closed form, {len(rows):,} of them run\n")
        if not rows:
            stream.write("no point fits: each needs more than the memory holds\n")
        _table(study, ok, "fastest with so few steps up the lists", stream)
    else:
        stream.write(f"{len(ok):,} of {study.many:,} points have an answer\n")
        _table(study, front(rows), "fastest at each throughput", stream)
    for text in warnings(rows, study.paths):
        for line in textwrap.wrap(f"warning: {text}", 78, subsequent_indent="  "):
            stream.write(f"{line}\n")
    _reasons(rows, stream)


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
    heads = [
        *names,
        unit,
        "tok/s" if isinstance(study.base.model, Transformer) else "per s",
        "bound",
    ]
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
    number = number_and_unit(value)
    if number is not None and not number[0].is_integer():
        value = f"{number[0]:.4g} {number[1]}".strip()
    return numbers.cut(value, 14)


def _reasons(rows: Sequence[Row], stream: TextIO) -> None:
    """Why some points have no answer, most of a kind first."""
    kinds = reasons(rows)
    for count, status, reason in kinds[:5]:
        for line in textwrap.wrap(f"{count:,}x {status}: {reason}", 78, subsequent_indent="  "):
            stream.write(f"{line}\n")
    if len(kinds) > 5:
        stream.write(f"and {len(kinds) - 5:,} other reasons, in the file\n")


def _wide(table: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in zip(*table, strict=True))
