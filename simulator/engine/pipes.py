"""A pipe: bandwidth that the flows in it share equally, in virtual time.

Knows bytes, rates and the clock. Never touches kernels, units or why bytes move.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import Protocol

from simpy import Event, Timeout

from simulator.engine.instant import Instant
from simulator.units import Bytes, BytesPerSecond, Seconds


class Flow(Protocol):
    """``count`` equal streams of bytes that join and leave a pipe together."""

    count: int

    def arrived(self) -> None:
        """All bytes are there. May hand in decisions for the end of the instant, no more."""


class Lane:
    """The flows of one pipe that have the same rate cap, and the virtual time that they share.

    ``virtual`` is the bytes that each flow has moved since the lane was last empty. A flow of B
    bytes that joins at virtual time V leaves at V + B whatever joins or leaves in between, so
    nothing is recomputed for it meanwhile. Flows that leave together share one heap entry.
    """

    __slots__ = ("active", "cap", "ends", "flows", "least", "pace", "virtual")

    def __init__(self, cap: BytesPerSecond) -> None:
        self.cap = cap
        self.least = 1 / cap
        self.active = 0
        self.virtual: Bytes = 0
        self.pace: float = 0.0  # seconds per byte of each flow
        self.ends: list[Bytes] = []
        self.flows: dict[Bytes, list[Flow]] = {}

    def add(self, size: Bytes, flow: Flow) -> None:
        """Let ``flow`` join, ``size`` bytes for each of its streams.

        Call ``Pipe.advance`` before, within the same decision of an instant.
        """
        end = self.virtual + size
        self.active += flow.count
        leaving = self.flows.get(end)
        if leaving is None:
            self.flows[end] = [flow]
            heappush(self.ends, end)
        else:
            leaving.append(flow)

    def leave(self) -> list[Flow]:
        """Take out the flows whose end has come, in the order of their ends."""
        ends = self.ends
        left = self.flows.pop(heappop(ends))
        while ends and ends[0] <= self.virtual:
            left += self.flows.pop(heappop(ends))
        if ends:
            for flow in left:
                self.active -= flow.count
        else:  # an empty lane starts afresh and keeps all its bits
            self.active = 0
            self.virtual = 0
        return left

    def drop(self) -> None:
        """Take out all flows, whose ends have been seen to elsewhere."""
        self.active = 0
        self.virtual = 0
        self.ends.clear()
        self.flows.clear()


class Pipe:
    """Max-min fair sharing of ``bandwidth`` (bytes/s) among flows, each capped by its lane.

    In one lane each of ``a`` streams moves at min(bandwidth / a, cap). Over several lanes the
    pipe fills like water: in ascending order of cap a lane gets its cap or an equal share of what
    is left, whichever is less, so bandwidth that capped streams leave over goes to the others.
    Kernels with equal caps share a lane, and the rule is then the one-lane rule, bit for bit.

    Only the next wake-up is scheduled. Virtual time is then *assigned* the end it was scheduled
    for, not accumulated, so flows leave exactly when due. A wake-up that an arrival has made
    obsolete is not the latest one and is ignored.

    ``busy`` is the seconds, so far, in which anything was under way, ``users`` how often a lane
    was asked for.
    """

    __slots__ = (
        "_env",
        "_instant",
        "_lanes",
        "_last",
        "_nearest",
        "_resting",
        "_since",
        "_touched",
        "_wake_up",
        "bandwidth",
        "busy",
        "users",
    )

    def __init__(self, instant: Instant, bandwidth: BytesPerSecond) -> None:
        self.bandwidth = bandwidth
        self.busy: Seconds = 0.0
        self.users = 0
        self._env = instant.env
        self._instant = instant
        self._lanes: list[Lane] = []
        self._last: Seconds = instant.env.now
        self._since: Seconds = 0.0
        self._resting = True
        self._wake_up: Event | None = None
        self._touched = False

    def lane(self, cap: BytesPerSecond = inf) -> Lane:
        """The lane of flows that move at most ``cap`` bytes per second each."""
        self.users += 1
        for lane in self._lanes:
            if lane.cap == cap:
                return lane
        lane = Lane(cap)
        self._lanes.append(lane)
        self._lanes.sort(key=lambda lane: lane.cap)
        return lane

    def advance(self) -> Seconds:
        """Bring virtual time up to now, which is returned; due before flows join.

        The next wake-up is scheduled at the end of the instant. Repeating it does nothing more.
        """
        now = self._env.now
        if not self._touched:
            self._touched = True
            self._instant.conclude(self._arm)
        if now > self._last:
            elapsed, self._last = now - self._last, now
            for lane in self._lanes:
                if lane.active:
                    lane.virtual += elapsed / lane.pace
        return now

    def _arm(self) -> None:
        """Pace the lanes and schedule the wake-up for the flows that leave next."""
        lanes = self._lanes
        self._touched = False
        if len(lanes) == 1:
            nearest = lanes[0]
            if not nearest.active:
                return
            pace = nearest.active / self.bandwidth
            if pace < nearest.least:
                pace = nearest.least
            nearest.pace = pace
            delay = (nearest.ends[0] - nearest.virtual) * pace
        else:
            delay = inf
            left, streams = self.bandwidth, sum(lane.active for lane in lanes)
            if not streams:
                return
            for lane in lanes:
                if lane.active:
                    pace = streams / left
                    if pace < lane.least:
                        pace = lane.least
                        left -= lane.active * lane.cap
                        streams -= lane.active
                    lane.pace = pace
                    needed = (lane.ends[0] - lane.virtual) * pace
                    if needed < delay:
                        delay, nearest = needed, lane
        if self._resting:
            self._resting = False
            self._since = self._last
        self._nearest = nearest
        # A flow whose end rounding has put behind virtual time is due now.
        self._wake_up = wake_up = Timeout(self._env, delay if delay > 0 else 0)
        wake_up.callbacks.append(self._wake)

    def _wake(self, event: Event) -> None:
        if event is not self._wake_up:
            return
        lanes = self._lanes
        if len(lanes) == 1:
            self._last = now = self._env.now
            nearest = lanes[0]
            nearest.virtual = nearest.ends[0]
            for flow in nearest.leave():
                flow.arrived()
            resting = not nearest.active
        else:
            now = self.advance()
            self._nearest.virtual = self._nearest.ends[0]
            for lane in lanes:
                if lane.active and lane.ends[0] <= lane.virtual:
                    for flow in lane.leave():
                        flow.arrived()
            resting = not any(lane.active for lane in lanes)
        if resting:
            self._resting = True
            self.busy += now - self._since
        elif not self._touched:
            self._touched = True
            self._instant.conclude(self._arm)
        self._instant.settle()
