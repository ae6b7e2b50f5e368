"""The command processor: kernels of one stream, in stream order, behind their launches.

Knows launch costs and durations. Never touches what a kernel does or how long it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from simulator.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPolicy:
    """How kernels get from the host to the device.

    ``eager``: the host issues the kernels of a stream one after another, ``host`` seconds each,
    and runs ahead of the device. ``graph``: the whole stream is issued at once. In both modes
    ``first`` seconds pass before the host has issued anything, and the device leaves ``gap``
    seconds between the end of a kernel and the start of the next one.
    """

    mode: Literal["eager", "graph"] = "graph"
    host: Seconds = 0.0
    gap: Seconds = 0.0
    first: Seconds = 0.0


class Host:
    """What issues launches, of one stream or of several in turn; it has ``issued`` so many."""

    __slots__ = ("issued",)

    def __init__(self) -> None:
        self.issued = 0


class CommandProcessor:
    """Starts each kernel of one stream when the one before is over and it has been issued.

    Kernel i starts at max(end of i-1 + gap, issue of i), where the issue of i is at
    first + (i + 1) x host for eager launches and at ``first`` for a graph. ``end`` is when the
    last kernel so far ends. Starts and ends are sums in stream order, so they depend on the
    durations alone and not on how those were found. With a ``host`` that issues for other streams
    too, i counts the kernels of all.
    """

    __slots__ = ("_host", "_policy", "_reachable", "end")

    def __init__(self, policy: LaunchPolicy, host: Host | None = None) -> None:
        self._policy = policy
        self._host = host or Host()
        self._reachable: Seconds = 0.0
        self.end: Seconds = 0.0

    def wait(self, until: Seconds) -> None:
        """Start nothing before ``until``."""
        self._reachable = max(self._reachable, until)

    def execute(self, duration: Seconds) -> Seconds:
        """Run the next kernel for ``duration`` seconds; returns its start."""
        policy = self._policy
        self._host.issued += 1
        start = policy.first
        if policy.mode == "eager":
            start += self._host.issued * policy.host
        if self._reachable > start:
            start = self._reachable
        self.end = start + duration
        self._reachable = self.end + policy.gap
        return start

    def execute_all(self, durations: Sequence[Seconds], repeat: int = 1) -> list[Seconds]:
        """Run kernels of these ``durations`` in order, ``repeat`` times over; returns their starts.

        What ``execute`` does for each in turn, without a call for each.
        """
        policy, issued = self._policy, self._host.issued
        first, gap = policy.first, policy.gap
        host = policy.host if policy.mode == "eager" else 0.0
        reachable, end = self._reachable, self.end
        starts = []
        for _ in range(repeat):
            for duration in durations:
                issued += 1
                start = first + issued * host
                if reachable > start:
                    start = reachable
                starts.append(start)
                end = start + duration
                reachable = end + gap
        self._host.issued, self._reachable, self.end = issued, reachable, end
        return starts
