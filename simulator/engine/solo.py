"""The rest of a kernel that shares neither pipe nor clock, played without a schedule.

The events of ``cohorts`` and ``pipes``, in the same order and with the same float operations, in
one loop over local variables: each costs a fraction of what it costs as an event of SimPy. Tile
mode never comes here, so it checks every bit. Knows the insides of a kernel's process and of its
pipe. Never touches launches or reports.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf, nextafter
from typing import TYPE_CHECKING

from simulator.units import Bytes, Seconds

if TYPE_CHECKING:
    from simulator.engine.cohorts import KernelProcess

IDLE = -1  # in place of a class: the unit has no tile


def delay_until(then: Seconds, now: Seconds) -> Seconds:
    """The delay after which a clock at ``now`` shows that very time."""
    delay = then - now
    if now + delay != then:
        delay = nextafter(delay, inf if now + delay < then else 0.0)
    return delay


def play(process: KernelProcess, ready: dict[int, int]) -> Seconds:
    """Run ``process`` to its end, which is returned, once the units in ``ready`` can begin.

    Due only where no event is scheduled, no other kernel can use the pipe and no run is still to
    be released. Then the cohorts that load are all in the pipe and none waits for its compute.
    """
    pipe, units = process._pipe, process.kernel.units
    loads, times, queue = process._loads, process._times, process._queue
    left, tile = process._left, process._class
    computing, events, end = process.computing, process.events, process.end
    (lane,) = pipe._lanes
    bandwidth, least, pace = pipe.bandwidth, lane.least, lane.pace
    virtual, active = lane.virtual, lane.active
    last, since, busy, resting = pipe._last, pipe._since, pipe.busy, pipe._resting
    # (end in virtual time, class, units, end of the tile before)
    flows: list[tuple[Bytes, int, int, Seconds]] = [
        (due, cohort.following, cohort.count, cohort.done)
        for due, joined in lane.flows.items()
        for cohort in joined
        if isinstance(cohort, process._cohort)
    ]
    heapify(flows)
    waiting: list[tuple[Seconds, int, int]] = []
    now = process.instant.env.now
    while True:
        if ready:
            # Decisions of the instant: ``KernelProcess._start``.
            if not active and left > units and ready.get(tile) == units:
                # Waves in which every unit computes and loads one class.
                time, step = times[tile], units / bandwidth
                load = loads[tile] * (step if step > least else least)
                work = units * time
                for _ in range((left - 1) // units):
                    loaded, done = now + load, now + time
                    if done > loaded + loaded:
                        break  # the clock may not show that very time
                    busy += loaded - now
                    computing += work
                    now = loaded if loaded > done else done
                    left -= units
                    events += 2
            if now > last:
                if active:
                    virtual += (now - last) / pace
                last = now
            for current in sorted(ready) if len(ready) > 1 else ready:
                count = ready[current]
                if current == IDLE:
                    end = now
                    continue
                time = times[current]
                done = now + time
                computing += count * time
                if count < left:
                    left -= count
                    events += 2
                    active += count
                    heappush(flows, (virtual + loads[tile], tile, count, done))
                    continue
                taken: dict[int, int] = {}
                while count >= left > 0:
                    taken[tile] = taken.get(tile, 0) + left
                    count -= left
                    left, tile = queue.popleft() if queue else (0, IDLE)
                if count:
                    taken[tile] = taken.get(tile, 0) + count
                    left = max(left - count, 0)
                for following, count in taken.items():
                    if following == IDLE:
                        events += 1
                        heappush(waiting, (now + delay_until(done, now), IDLE, count))
                    else:
                        events += 2
                        active += count
                        heappush(flows, (virtual + loads[following], following, count, done))
            ready = {}
        # Its conclusion and the next instant: ``Pipe._arm`` and ``Pipe._wake``.
        if active:
            pace = active / bandwidth
            if pace < least:
                pace = least
            if resting:
                resting, since = False, last
            delay = (flows[0][0] - virtual) * pace
            wake = now + delay if delay > 0 else now
            arrives = not waiting or wake <= waiting[0][0]
        elif waiting:
            arrives = False
        else:
            break
        if arrives:
            last = now = wake
            virtual = flows[0][0]
            while flows and flows[0][0] <= virtual:
                _, following, count, done = heappop(flows)
                active -= count
                if now >= done:
                    ready[following] = ready.get(following, 0) + count
                else:
                    heappush(waiting, (now + delay_until(done, now), following, count))
            if not active:
                resting, virtual = True, 0
                busy += now - since
        else:
            now = waiting[0][0]
        while waiting and waiting[0][0] == now:
            _, following, count = heappop(waiting)
            ready[following] = ready.get(following, 0) + count
    process.computing, process.events, process.end = computing, events, end
    process._left, process._class, process._idle = 0, IDLE, units
    lane.drop()
    pipe.busy, pipe._last, pipe._resting = busy, last, True
    return end
