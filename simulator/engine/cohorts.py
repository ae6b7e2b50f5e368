"""Units that take tiles from a queue, load the next while they compute this one, and agree.

Knows one kernel, one pipe and the clock. Never touches hardware specs, launches or reports.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf

from simpy import Event, Timeout

from simulator.engine.instant import Instant
from simulator.engine.pipes import Pipe
from simulator.engine.recorder import Recorder
from simulator.engine.solo import IDLE, delay_until, play
from simulator.mapping.kernel import Kernel
from simulator.units import Seconds


class Cohort:
    """``count`` units in one state: when their tile is done, and the class that they compute next.

    Its load ends when the pipe says so. The end of its compute is known from the start, so it
    becomes an event only where it comes after the load.
    """

    __slots__ = ("count", "done", "following", "process")

    def __init__(
        self, process: KernelProcess, current: int, following: int, count: int, done: Seconds
    ) -> None:
        self.process = process
        self.following = following
        self.count = count
        self.done = done

    def arrived(self) -> None:
        """The next tile is in the buffer."""
        if self.process.instant.env.now >= self.done:
            self.process.ready(self.following, self.count)
        else:
            self.wait()

    def wait(self) -> None:
        """Be woken when the current tile is done."""
        env = self.process.instant.env
        Timeout(env, delay_until(self.done, env.now)).callbacks.append(self.computed)

    def computed(self, _: Event) -> None:
        """The current tile is done, and the next one has been there before."""
        if self.process.ready(self.following, self.count):
            self.process.instant.settle()


class RecordedCohort(Cohort):
    """A cohort that records its compute as it begins and its load as it ends."""

    __slots__ = ("start",)

    def __init__(
        self, process: KernelProcess, current: int, following: int, count: int, done: Seconds
    ) -> None:
        super().__init__(process, current, following, count, done)
        self.start = process.instant.env.now
        if current != IDLE:
            self._record("units", current, done)

    def arrived(self) -> None:
        self._record("pipe", self.following, self.process.instant.env.now)
        super().arrived()

    def _record(self, resource: str, tile_class: int, end: Seconds) -> None:
        process = self.process
        assert process.recorder is not None
        task = f"{process.kernel.name}[{tile_class}]"
        process.recorder.add(resource, task, self.start, end, self.count)


class KernelProcess:
    """The tiles of one kernel on its units, in cohorts or one by one.

    Each of ``kernel.units`` equal units has two buffers. When a unit begins to compute a tile the
    other buffer is free, so in that moment it takes the next tile from the queue and begins to
    load it; it computes it once it is loaded and the tile before is done. Bytes move through
    ``pipe``, shared with whatever else is in it.

    Units in one state stay in one state until the queue hands them different classes, so they are
    simulated as a cohort with a count, split where the queue's runs end and merged where states
    meet. With ``single`` every cohort has a count of one: each unit is then simulated on its own,
    by the same code and with the same order of float operations, hence with the same bits.

    Tie rule: units that become ready at one instant are served in ascending order of the class
    that they are about to compute. It depends on the state alone, so members of a cohort are
    interchangeable, and it is applied at the end of the instant, when all of them are known.

    Tiles of a run that is not released yet are not in the queue. A unit looks for its next tile
    when it begins one and when it ends one; if there is none it waits for the next release.

    ``end`` is the time at which the last tile so far was done, ``events`` the loads and computes
    of cohorts that were begun, ``computing`` the unit-seconds of compute among them. ``drained``
    is called when the last unit falls idle. With a ``recorder`` each cohort's spans are recorded.
    """

    __slots__ = (
        "_class",
        "_cohort",
        "_drained",
        "_env",
        "_future",
        "_idle",
        "_lane",
        "_left",
        "_loads",
        "_pipe",
        "_plays",
        "_queue",
        "_ready",
        "_single",
        "_times",
        "computing",
        "end",
        "events",
        "instant",
        "kernel",
        "recorder",
    )

    def __init__(
        self,
        kernel: Kernel,
        pipe: Pipe,
        instant: Instant,
        *,
        single: bool = False,
        recorder: Recorder | None = None,
        drained: Callable[[], None] | None = None,
    ) -> None:
        assert kernel.units > 0, "a kernel without units would never end"
        self.kernel = kernel
        self.end: Seconds = instant.env.now
        self.events = 0
        self.computing: Seconds = 0.0
        self._pipe = pipe
        self._lane = pipe.lane(kernel.rate_cap)
        self.instant = instant
        self._env = instant.env
        self.recorder = recorder
        self._cohort = Cohort if recorder is None else RecordedCohort
        self._single = single
        self._plays = not single and recorder is None and drained is None
        self._drained = drained
        self._loads = [tile.pipe_bytes for tile in kernel.classes]
        self._times = [tile.compute for tile in kernel.classes]
        self._queue: deque[tuple[int, int]] = deque()
        self._future: deque[tuple[Seconds, tuple[int, int]]] = deque()
        if kernel.releases:
            times = zip(kernel.releases, kernel.runs, strict=True)
            self._future.extend((time, run) for time, run in times if run[0])
        else:
            self._queue.extend(run for run in kernel.runs if run[0])
        self._left, self._class = self._next()
        self._ready: dict[int, int] = {}
        self._idle = 0

    def begin(self, since: Seconds = 0.0) -> None:
        """Let every unit ask for its first tile at the end of this instant.

        The launch, from which releases count, was ``since`` seconds ago.
        """
        if self._future:
            now = self._env.now
            self._future = deque((max(now - since + due, now), run) for due, run in self._future)
            self._release_until(now)
        if self.ready(IDLE, self.kernel.units):
            self.instant.settle()

    def _next(self) -> tuple[int, int]:
        """The next run of the queue as (tiles left, class)."""
        return self._queue.popleft() if self._queue else (0, IDLE)

    def _release(self, event: Event) -> None:
        due = event.value
        assert due is not None, "a release carries its time"
        self._release_until(due)
        waiting, self._idle = self._idle, 0
        if waiting and self.ready(IDLE, waiting):
            self.instant.settle()

    def _release_until(self, due: Seconds) -> None:
        """Put the runs that are due into the queue, and see to the next ones."""
        future = self._future
        while future and future[0][0] <= due:
            self._queue.append(future.popleft()[1])
        if future:
            then = future[0][0]
            Timeout(self._env, then - self._env.now, then).callbacks.append(self._release)
        if not self._left:
            self._left, self._class = self._next()

    def ready(self, current: int, count: int) -> bool:
        """Note ``count`` units that can begin ``current``; whether they are the instant's first."""
        ready = self._ready
        if ready:
            ready[current] = ready.get(current, 0) + count
            return False
        ready[current] = count
        self.instant.decide(self._start)
        return True

    def _start(self) -> None:
        """Begin the tiles of the ready units and hand out the next ones, in class order."""
        ready, self._ready = self._ready, {}
        if self._plays and self._pipe.users == 1 and self._env.peek() == inf and IDLE not in ready:
            end = play(self, ready)
            Timeout(self._env, delay_until(end, self._env.now))
            return
        lane, single = self._lane, self._single
        now = self._pipe.advance()
        for current in sorted(ready) if len(ready) > 1 else ready:
            units = ready[current]
            computing = current != IDLE
            done = now
            if computing:
                time = self._times[current]
                done += time
                self.computing += units * time
            else:
                self.end = now
            taken: tuple[tuple[int, int], ...]
            if units < self._left:
                self._left -= units
                taken = ((self._class, units),)
            else:
                taken = self._take(units)
            for following, count in taken:
                loading = following != IDLE
                if not loading and not computing:
                    self._idle += count
                    break
                cohorts, members = (count, 1) if single else (1, count)
                self.events += (loading + computing) * cohorts
                for _ in range(cohorts):
                    cohort = self._cohort(self, current, following, members, done)
                    if loading:
                        lane.add(self._loads[following], cohort)
                    else:
                        cohort.wait()
        if self._idle == self.kernel.units and not self._future and self._drained is not None:
            self._drained()

    def _take(self, units: int) -> tuple[tuple[int, int], ...]:
        """Take the next tiles from the queue: how many units get which class, or none."""
        taken: dict[int, int] = {}
        left, following = self._left, self._class
        while units >= left > 0:
            taken[following] = taken.get(following, 0) + left
            units -= left
            left, following = self._next()
        if units:
            taken[following] = taken.get(following, 0) + units
            left -= units
        self._left, self._class = max(left, 0), following
        return tuple(taken.items())
