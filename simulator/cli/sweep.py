"""``sweep``: a study from a file, its progress, and the best of its points."""

from __future__ import annotations

import re
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import typer

from simulator.cli.sheet import grid, put
from simulator.errors import Fault, SpecError
from simulator.report import numbers
from simulator.study.journal import Row
from simulator.study.study_file import PLENTY, Study, read_study
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
) -> None:
    """Run the study in ``path`` and print what came of it.

    Raises SpecError for a large study that nobody said yes to.
    """
    study = read_study(path)
    many = len(study.points)
    if many > PLENTY and not yes:
        fix = f"up to {PLENTY:,} run without --yes; draw fewer with how: latin_hypercube"
        raise SpecError([Fault(str(path), None, "vary", f"makes {many:,} points", fix)])
    target = out or path.with_suffix(".csv")
    started = time.monotonic()
    try:
        with _progress(many) as told:
            rows = sweep(study, target, workers=workers, dask=dask, resume=resume, told=told)
    except KeyboardInterrupt:
        sys.stderr.write(f"\nstopped; go on with --resume: {target}.partial\n")
        raise typer.Exit(130) from None
    if not rows:
        sys.stdout.write(f"nothing to do: {target} is complete\n")
        return
    _print(study, rows, sys.stdout)
    passed = time.monotonic() - started
    sys.stderr.write(f"{many:,} points in {numbers.quantity(passed, 's')}: {target}\n")


@contextmanager
def _progress(many: int) -> Iterator[Told]:
    """A bar with rate and time left on a terminal, a line for each tenth elsewhere."""
    if not sys.stderr.isatty():
        tenths = 0

        def told(done: int, of: int, bad: int) -> None:
            nonlocal tenths
            if 10 * done // of > tenths:
                tenths = 10 * done // of
                sys.stderr.write(f"{done:,} of {of:,} points, {bad:,} without an answer\n")

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
        started, before = time.monotonic(), -1

        def shown(done: int, of: int, bad: int) -> None:
            nonlocal before
            before = done if before < 0 else before  # What an earlier run did is no speed.
            rate = (done - before) / (time.monotonic() - started)
            bar.update(task, completed=done, bad=bad, rate=rate)

        yield shown


def _print(study: Study, rows: Sequence[Row], stream: TextIO) -> None:
    """The front of latency against throughput, and why some points have no answer."""
    best = front(rows)
    answered = sum(row["status"] == "ok" for row in rows)
    stream.write(f"{study.base.command}\n")
    stream.write(f"{answered:,} of {len(rows):,} points have an answer\n")
    if best:
        shown = best if len(best) <= SHOWN else best[:: -(-len(best) // SHOWN)]
        unit, times = numbers.column([row["latency"] for row in shown], "s")
        names = [numbers.cut(path.rpartition(".")[2], 12) for path in study.paths]
        heads = [*names, unit, "per s", "bound"]
        cells = [
            [*(numbers.cut(str(row[path]), 14) for path in study.paths), time,
             numbers.count(row["throughput"]), row["bound_by"]]
            for row, time in zip(shown, times, strict=True)
        ]  # fmt: skip
        # As many varied columns as 80 columns hold; the others are in the file.
        while len(heads) > 4 and _wide([heads, *cells]) > 78:
            heads.pop(0)
            cells = [row[1:] for row in cells]
        stream.write(f"\nfastest at each throughput, {len(shown)} of {len(best)}\n")
        put(stream, grid(heads, cells, "r" * (len(heads) - 1) + "l"))
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
