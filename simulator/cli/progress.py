"""Progress of a run on the terminal: how many kernels were found, while it lasts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counting() -> Iterator[Callable[[], None] | None]:
    """A function to call for each kernel, which shows their number and the time on standard error.

    None where that is no terminal, as then nobody looks.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.completed:,.0f} kernels"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda: progress.advance(task)


@contextmanager
def searching() -> Iterator[Callable[[str, int, int | None], None] | None]:
    """A function to call with what is done, how much of it and of how much: a bar on standard
    error. None where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(bar_width=24), TextColumn("{task.completed:,.0f}"),
        TextColumn("{task.description}"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda what, done, of: progress.update(
            task, description=what, completed=done, total=of
        )
