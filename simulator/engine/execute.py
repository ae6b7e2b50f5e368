"""Run a kernel, or a stream of kernels behind their launches.

Knows kernels, launches and the processes that simulate them. Never touches hardware specs,
operators or reports.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from simpy import Environment

from simulator.costs.estimate import estimate
from simulator.engine.cohorts import KernelProcess
from simulator.engine.instant import Instant
from simulator.engine.machine import CommandProcessor, LaunchPolicy
from simulator.engine.pipes import Pipe
from simulator.engine.recorder import Recorder
from simulator.mapping.kernel import Kernel
from simulator.units import Seconds

Mode = Literal["roofline", "cohort", "tile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRun:
    """One kernel alone on an idle device.

    ``makespan`` runs to the end of the last tile and includes the kernel's ``fixed`` time, all of
    which passes before the first load. ``events`` counts the loads and computes of cohorts (of
    tiles in tile mode), passed-over waves included. ``pipe_busy`` is the seconds in which any load
    was under way, ``compute_busy`` the unit-seconds of compute. In roofline mode nothing is
    simulated: no events, and the pipe is busy for bytes / bandwidth.
    """

    makespan: Seconds
    events: int
    pipe_busy: Seconds
    compute_busy: Seconds

    def at_pace(self, factor: float) -> KernelRun:
        """The same run with every duration times ``factor``."""
        return KernelRun(
            makespan=self.makespan * factor,
            events=self.events,
            pipe_busy=self.pipe_busy * factor,
            compute_busy=self.compute_busy * factor,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Kernels that a stream executes in order, ``repeat`` times over, such as equal layers."""

    name: str
    repeat: int
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRun:
    """A stream of kernels behind their launches.

    ``latency`` is from the first launch on the host to the end of the last kernel. ``starts``
    and ``durations`` have an entry per executed kernel, in stream order with repeats written out;
    ``kernels`` has the run of each kernel of each segment, once. ``events`` is over the whole
    stream; ``simulated`` is how many kernel runs it took to find it, which the memo lowers and
    equality ignores.
    """

    latency: Seconds
    starts: tuple[Seconds, ...]
    durations: tuple[Seconds, ...]
    kernels: tuple[tuple[KernelRun, ...], ...]
    events: int
    simulated: int = field(compare=False)


def run_kernel(
    kernel: Kernel, *, mode: Mode = "cohort", recorder: Recorder | None = None
) -> KernelRun:
    """Run ``kernel`` from idle units and an empty pipe, without a launch.

    Cohort and tile mode agree bit for bit; roofline mode is ``costs.estimate.estimate``.
    ``recorder`` receives the spans of loads and computes, in seconds from the kernel's start.
    """
    if kernel.pace != 1:
        spans = None if recorder is None else Recorder()
        run = run_kernel(kernel.unpaced, mode=mode, recorder=spans)
        if recorder is not None and spans is not None:
            recorder.extend(spans, pace=kernel.pace)
        return run.at_pace(kernel.pace)
    if mode == "roofline":
        return KernelRun(
            makespan=estimate(kernel),
            events=0,
            pipe_busy=kernel.pipe_bytes / kernel.bandwidth,
            compute_busy=kernel.compute,
        )
    env = Environment(0.0)
    instant = Instant(env)
    pipe = Pipe(instant, kernel.bandwidth)
    spans = None if recorder is None else Recorder()
    process = KernelProcess(kernel, pipe, instant, single=mode == "tile", recorder=spans)
    process.begin(kernel.fixed)
    env.run()
    if recorder is not None and spans is not None:
        recorder.extend(spans, kernel.fixed)
    return KernelRun(
        makespan=kernel.fixed + process.end,
        events=process.events,
        pipe_busy=pipe.busy,
        compute_busy=process.computing,
    )


class Memo:
    """Kernel runs by what the kernel contains, the ``size`` most recently used.

    Valid because every kernel of a stream starts on idle units and an empty pipe. Give one to
    several ``run_stream`` calls to share what they find.
    """

    def __init__(self, size: int = 4096) -> None:
        self._size = size
        self._runs: OrderedDict[object, tuple[KernelRun, Recorder | None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, key: object) -> tuple[KernelRun, Recorder | None] | None:
        """The run of this kernel in this mode and its spans, if it is known."""
        found = self._runs.get(key)
        if found is not None:
            self._runs.move_to_end(key)
        return found

    def put(self, key: object, run: KernelRun, spans: Recorder | None) -> None:
        """Keep a run, and drop the one that was of no use for longest."""
        self._runs[key] = run, spans
        self._runs.move_to_end(key)
        if len(self._runs) > self._size:
            self._runs.popitem(last=False)


def run_stream(
    segments: Iterable[Segment],
    launch: LaunchPolicy,
    *,
    mode: Mode = "cohort",
    memo: Memo | bool = True,
    recorder: Recorder | None = None,
) -> StreamRun:
    """Run the kernels of ``segments`` in order on one stream.

    Each kernel is simulated in its own time from zero, and starts and ends are added up from the
    durations in stream order. A duration therefore never depends on when the kernel starts, and
    the result is the same bit for bit with and without the memo, in cohort and in tile mode
    (apart from ``events``, which depends on the mode).

    With ``memo`` equal kernels are simulated once and the kernels of a segment are looked up once
    however often it repeats; True keeps them for this call, a ``Memo`` for as long as the caller
    likes. With False each is simulated. ``recorder`` receives a ``device`` span per kernel and
    the spans within it, in seconds from the first launch.
    """
    known = Memo() if memo is True else memo if isinstance(memo, Memo) else None
    processor = CommandProcessor(launch)
    starts: list[Seconds] = []
    durations: list[Seconds] = []
    kernels: list[tuple[KernelRun, ...]] = []
    events = simulated = 0
    for segment in segments:
        layer: list[tuple[Kernel, KernelRun, Recorder | None]] = []
        if known is not None and recorder is None and segment.repeat:
            found = [look_up(kernel, mode, known) for kernel in segment.kernels]
            runs = tuple(run for run, _, _ in found)
            spent = [run.makespan for run in runs]
            starts += processor.execute_all(spent, segment.repeat)
            durations += spent * segment.repeat
            events += segment.repeat * sum(run.events for run in runs)
            simulated += sum(new for _, _, new in found)
            kernels.append(runs)
            continue
        for repeat in range(segment.repeat):
            if repeat == 0 or known is None:
                layer = []
                for kernel in segment.kernels:
                    run, spans, new = look_up(kernel, mode, known, recorded=recorder is not None)
                    simulated += new
                    layer.append((kernel, run, spans))
            for kernel, run, spans in layer:
                start = processor.execute(run.makespan)
                starts.append(start)
                durations.append(run.makespan)
                events += run.events
                if recorder is not None and spans is not None:
                    recorder.add("device", kernel.name, start, processor.end)
                    recorder.extend(spans, start)
        kernels.append(tuple(run for _, run, _ in layer))
    return StreamRun(
        latency=processor.end,
        starts=tuple(starts),
        durations=tuple(durations),
        kernels=tuple(kernels),
        events=events,
        simulated=simulated,
    )


def look_up(
    kernel: Kernel, mode: Mode, memo: Memo | None, *, recorded: bool = False
) -> tuple[KernelRun, Recorder | None, bool]:
    """The run of a kernel alone, its spans, and whether it had to be simulated.

    Kernels that differ in their pace alone share one simulation, stretched.
    """
    plain = kernel.unpaced
    key = _content(plain, mode, recorded)
    found = None if memo is None else memo.get(key)
    new = found is None
    if found is None:
        spans = Recorder() if recorded else None
        found = run_kernel(plain, mode=mode, recorder=spans), spans
        if memo is not None:
            memo.put(key, *found)
    run, spans = found
    if kernel.pace != 1:
        run = run.at_pace(kernel.pace)
        if spans is not None:
            stretched = Recorder()
            stretched.extend(spans, pace=kernel.pace)
            spans = stretched
    return run, spans, new


def _content(kernel: Kernel, mode: Mode, named: bool) -> object:
    """What a run depends on; the name only where spans carry it."""
    name = kernel.name if named else None
    shape = kernel.classes, kernel.runs, kernel.units, kernel.releases
    return *shape, kernel.bandwidth, kernel.rate_cap, kernel.fixed, mode, name
