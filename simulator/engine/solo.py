"""The rest of a kernel that nobody shares a pipe or a clock with, played without a schedule.

The same state, the same events in the same order and the same float operations as those of
``cohorts`` and ``pipes``, in one loop over local variables: an event costs a fraction of what it
costs as an event of SimPy. Tile mode never comes here, so that it checks every bit of it. Knows
the insides of a kernel's process and of its pipe. Never touches launches or reports.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf, nextafter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.engine.cohorts import KernelProcess
    from simulator.engine.pipes import Pipe
    from simulator.units import Seconds

IDLE = -1  # in place of a class: the unit has no tile


def show(now: Seconds, then: Seconds) -> Seconds:
    """The delay after which a clock at ``now`` shows ``then``."""
    delay = then - now
    if now + delay != then:
        delay = nextafter(delay, inf if now + delay < then else 0.0)
    return delay


def play(process: KernelProcess, pipe: Pipe, ready: dict[int, int]) -> None:
    """Run ``process`` to its end from an instant at which the units in ``ready`` can begin.

    Due only where no other event is scheduled, nothing else can be in the pipe, and no run of the
    queue is still to be released.
    """
    (lane,) = pipe._lanes
    loads, times, queue = process._loads, process._times, process._queue
    left, tile = process._left, process._class
    computing, events, end, units = process.computing, process.events, process.end, process.units
    bandwidth, least = pipe.bandwidth, lane.least
    ends, virtual, active, pace = lane.ends, lane.virtual, lane.active, lane.pace
    last, since, resting, busy = pipe._last, pipe._since, pipe._resting, pipe.busy
    flows = {
        due: [(cohort.following, cohort.count, cohort.done) for cohort in joined]
        for due, joined in lane._flows.items()
    }
    waiting: list[tuple[Seconds, int, int]] = []
    now = process.instant.env.now
    while True:
        if ready:
            if now > last:
                if active:
                    virtual += (now - last) / pace
                last = now
            if not active and left > units and ready.get(tile) == units:
                # Waves in which every unit computes and loads one class.
                time, step = times[tile], units / bandwidth
                load, work = loads[tile] * (step if step > least else least), units * time
                for _ in range((left - 1) // units):
                    loaded, done = now + load, now + time
                    if done > loaded + loaded:
                        break  # the clock might not show that very time
                    busy += loaded - now
                    computing += work
                    now = loaded if loaded > done else done
                    left -= units
                    events += 2
                last = now
            for current in sorted(ready) if len(ready) > 1 else ready:
                count = ready[current]
                if current == IDLE:
                    end = now
                    continue
                done = now + times[current]
                computing += count * times[current]
                while count:
                    if not left:
                        events += 1
                        heappush(waiting, (now + show(now, done), IDLE, count))
                        break
                    taken = count if count < left else left
                    ...
