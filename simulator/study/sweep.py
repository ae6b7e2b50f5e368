"""A study run to its end: points in chunks over an executor, rows on disk as they come.

Knows scenarios, executors and journals. Never touches costs, clocks or drawing.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from multiprocessing import get_context, parent_process
from pathlib import Path
from socket import create_connection
from threading import Thread
from typing import Any

from simulator.errors import CapacityError, Fault, InputError, SimulatorError, SpecError
from simulator.fronts import pareto
from simulator.result import Result
from simulator.specs.scenario import Scenario
from simulator.study.change import changed
from simulator.study.journal import Journal, Row
from simulator.study.screened import best_of, screen_of, whole_table
from simulator.study.study_file import Study
from simulator.study.what_if import Runner
from simulator.version import __version__

Told = Callable[[int, int, int], None]
"""Hears how many points are done, of how many, and how many of them have no answer."""
Point = tuple[int, Mapping[str, object]]

LARGEST_CHUNK = 64
"""Points of one task: enough to be worth sending, few enough to lose."""
TRIES = 3
"""How often a chunk is given to a worker that was lost."""
METRICS = (
    "latency", "latency_lower", "latency_upper", "throughput", "bound_by", "mfu", "mbu",
    "memory_bytes", "devices", "energy", "cost", "warnings",
)  # fmt: skip
"""Columns of an answer, in base units: seconds, tokens per second, bytes, joules, dollars; and what
the run warns of."""


def sweep(
    study: Study,
    out: str | Path,
    *,
    workers: int = 1,
    dask: str | None = None,
    resume: bool = False,
    screened: bool = False,
    told: Told | None = None,
) -> list[Row]:
    """Answer every point of ``study`` and write them to ``out``, CSV or parquet.

    Points are run in this process, in ``workers`` processes, or on the Dask cluster at the address
    ``dask``. A row has its index, the varied values, ``METRICS``, a status (``ok``, ``does not
    fit``, ``refused``, ``failed``) and the reason. With ``resume`` rows of an earlier run that was
    stopped are kept, and only the others are run; of a table that is complete, the rows are read.
    The table is the same however it was made.

    ``screened`` answers a grid over numbers of the accelerator in closed form (``screen``), and
    runs those points that no other beats (``best_of``): the rows that are returned. The table has
    all points; those that were not run have status ``screened``, their latency and throughput.

    Raises SpecError where the file cannot be written or is of another study, where another sweep
    writes it, or where the study cannot be screened, and InputError where no cluster answers.
    """
    if workers < 1:
        raise SpecError([Fault("sweep", None, "workers", f"found {workers}", "1 or more")])
    marks = marks_of(study, screened)
    found = screen_of(study) if screened else None
    asked = range(study.many) if found is None else best_of(found).tolist()
    with _executor(workers, dask) as executor, Journal(out, marks, resume=resume) as journal:
        if journal.whole:
            return _finished(study, journal, asked, screened)
        left: deque[Point] = deque((at, study.point(at)) for at in asked if at not in journal.rows)
        bad = sum(row["status"] != "ok" for row in journal.rows.values())
        for some in _answers(study.base, left, executor):
            journal.add(some)
            bad += sum(row["status"] != "ok" for row in some)
            if told is not None:
                told(len(journal.rows), len(asked), bad)
        rows = [journal.rows[index] for index in sorted(journal.rows)]
        journal.close(None if found is None else whole_table(found, rows, METRICS))
    return rows


def _finished(study: Study, journal: Journal, asked: Sequence[int], screened: bool) -> list[Row]:
    """The rows ``asked`` for of the finished table.

    Raises SpecError where it is of another study: its columns or points differ, or the first one
    that has an answer has another now.
    """
    frame = journal.table([*study.paths, "bound_by", "status", "reason"])
    columns = ["index", *study.paths, *["steps"] * screened, *METRICS, "status", "reason"]
    rows: list[Row] = []
    same = frame.columns == columns and len(frame) == study.many
    if same:
        rows = frame[list(asked)].drop("steps", strict=False).to_dicts()
        told = [{name: row[name] for name in ("index", *study.paths)} for row in rows]
        same = told == [_named(at, study.point(at)) for at in asked]
    if same and (first := next((row for row in rows if row["status"] == "ok"), None)):
        again = _row(study.base, first["index"], study.point(first["index"]))
        same = again["latency"] == first["latency"]
    if not same:
        fix = "name another file, or remove it"
        found = "is of another study, or of another version"
        raise SpecError([Fault(str(journal.out), None, "", found, fix)])
    return rows


def marks_of(study: Study, screened: bool = False) -> dict[str, str]:
    """What tells this study from any other, by name."""
    base = study.base
    marks = {
        "version": __version__,
        "base": base.command,
        "numbers behind the base": _digest(base),
        "values": _digest((tuple(study.axes.items()), study.how)),
    }
    return marks | ({"screen": "closed form"} if screened else {"screen": "none"})


def _digest(what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:32]


def answer(base: Scenario, points: Sequence[Point]) -> list[Row]:
    """Rows of some points, each on its own: what fails is a row with the reason."""
    return [_row(base, index, point) for index, point in points]


_runner = Runner()
"""Of this process, so that points share what they have in common."""


def _row(base: Scenario, index: int, point: Mapping[str, object]) -> Row:
    try:
        answered = _metrics(_runner(changed(base, point)))
    except CapacityError as error:
        return _unanswered(index, point, "does not fit", str(error))
    except SimulatorError as error:
        return _unanswered(index, point, "refused", str(error))
    except Exception as error:
        return _unanswered(index, point, "failed", _told(error))
    return _named(index, point) | answered | {"status": "ok", "reason": None}


def _named(index: int, point: Mapping[str, object]) -> Row:
    return {"index": index, **{path: str(value) for path, value in point.items()}}


def _unanswered(index: int, point: Mapping[str, object], status: str, reason: str) -> Row:
    return _named(index, point) | dict.fromkeys(METRICS) | {"status": status, "reason": reason}


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _metrics(result: Result) -> Row:
    within = result.interval
    return {
        "latency": result.latency,
        "latency_lower": within and within.lower,
        "latency_upper": within and within.upper,
        "throughput": result.throughput,
        "bound_by": result.bound_by,
        "mfu": result.mfu,
        "mbu": result.mbu,
        "memory_bytes": result.memory.total,
        "devices": result.devices,
        "energy": result.energy,
        "cost": result.cost,
        "warnings": " | ".join(result.warnings) or None,
    }


@contextmanager
def _executor(workers: int, dask: str | None) -> Iterator[Pool | None]:
    """Who runs the chunks; None: this process."""
    if dask is not None:
        try:
            distributed: Any = import_module("distributed")  # It has no types.
        except ImportError:
            raise InputError(
                "a Dask cluster needs the package distributed; install it with "
                "pip install 'tilecast[dask]'"
            ) from None
        try:
            _knock(dask)
            client = distributed.Client(dask, timeout=10, set_as_default=False)
        except (OSError, ValueError, TimeoutError, ImportError) as error:
            raise InputError(
                f"no Dask scheduler answers at {dask!r}: {str(error) or type(error).__name__}; "
                "start one with: dask scheduler"
            ) from None
        with client, client.get_executor(pure=False) as executor:
            try:
                client.wait_for_workers(1, timeout=10)
            except TimeoutError:
                raise InputError(
                    f"the Dask scheduler at {dask!r} has no worker; start one with: dask worker"
                ) from None
            threads = sum(client.nthreads().values())
            yield Pool(lambda: executor, max(1, threads))
    elif workers > 1:
        pool = Pool(
            lambda: ProcessPoolExecutor(
                workers, mp_context=get_context("spawn"), initializer=_follow
            ),
            workers,
        )
        try:
            yield pool
        finally:
            pool.executor.shutdown(cancel_futures=True)
    else:
        yield None


def _knock(address: str) -> None:
    """Raise OSError or ValueError where nothing listens: a client that was refused would wait for
    itself at the end of the process."""
    comm: Any = import_module("distributed.comm")
    if "://" not in address or address.startswith(("tcp://", "tls://")):
        with create_connection(comm.get_address_host_port(address), timeout=10):
            pass


def _follow() -> None:
    """End this worker when the process that began it ends, however it does."""
    parent = parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=follow, daemon=True).start()


class Pool:
    """An executor, and how to get a new one where its workers were lost."""

    def __init__(self, make: Callable[[], Executor], workers: int) -> None:
        self._make, self.workers = make, workers
        self.executor = make()

    def renew(self) -> None:
        """Begin with new workers."""
        self.executor = self._make()


def _answers(base: Scenario, left: deque[Point], pool: Pool | None) -> Iterator[Sequence[Row]]:
    """Rows of all points, chunk by chunk, in the order in which they are ready."""
    if pool is None:
        while left:
            chunk = [left.popleft() for _ in range(min(len(left), LARGEST_CHUNK // 8))]
            yield answer(base, chunk)
        return
    size = max(1, min(LARGEST_CHUNK, len(left) // (4 * pool.workers)))
    rest = iter(left)
    waiting: deque[tuple[Sequence[Point], int]] = deque()
    running: dict[Future[list[Row]], tuple[Sequence[Point], int]] = {}
    while True:
        while len(running) < 2 * pool.workers:
            if not waiting and (chunk := list(islice(rest, size))):
                waiting.append((chunk, 1))
            if not waiting:
                break
            task = waiting.popleft()
            running[pool.executor.submit(answer, base, task[0])] = task
        if not running:
            return
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        lost = False
        for future in done:
            points, tries = running.pop(future)
            try:
                yield future.result()
            except BrokenProcessPool:
                lost = True
                waiting.append((points, tries + 1))
            except Exception as error:
                # A cluster gave up on it: each of its points goes alone, so that one is blamed.
                if len(points) > 1:
                    waiting.extend(([point], tries) for point in points)
                else:
                    yield [_unanswered(*points[0], "failed", _told(error))]
        if lost:
            # All that was running went down with the pool.
            waiting.extend((points, tries + 1) for points, tries in running.values())
            running.clear()
            if any(tries > TRIES for _, tries in waiting):
                raise InputError(
                    f"workers were lost {TRIES} times in a row; run with fewer workers, and with "
                    "--resume, which keeps what is finished"
                )
            pool.renew()


def front(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The Pareto front of answered rows, shortest latency first: no other row is as fast and has
    more throughput."""
    first: dict[tuple[float, float], Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["index"]):
        if row["status"] == "ok" and row["throughput"] is not None:
            first.setdefault((row["latency"], -row["throughput"]), row)
    goals = sorted(first)
    best = pareto([latency for latency, _ in goals], [less for _, less in goals])
    return [first[goals[place]] for place in best]
