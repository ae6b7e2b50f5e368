"""The links of a rank as shared pipes: collectives at once take their bytes through one tier
together, and over different tiers side by side.

Knows tiers by name, bytes, rates and the clock. Never touches operators, algorithms or topology.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from typing import NamedTuple

from simpy import Environment, Event, Timeout

from simulator.engine.instant import Instant
from simulator.engine.pipes import Lane, Pipe
from simulator.units import Bytes, BytesPerSecond, Seconds


class LinkSet:
    """The tiers of one rank, each a pipe of ``rates[tier]`` bytes per second and direction.

    ``clock`` is the environment, or the ``Instant`` that it is shared with, for flows that meet
    others of the same engine. ``started`` counts the bytes of collectives that were started,
    ``carried`` those that have arrived, by tier.
    """

    def __init__(self, clock: Environment | Instant, rates: Mapping[str, BytesPerSecond]) -> None:
        for tier, rate in rates.items():
            if not (rate > 0 and isfinite(rate)):
                raise ValueError(f"tier {tier!r} has a rate of {rate}")
        self.instant = clock if isinstance(clock, Instant) else Instant(clock)
        self.pipes = {tier: Pipe(self.instant, rate) for tier, rate in rates.items()}
        self.started: dict[str, Bytes] = dict.fromkeys(rates, 0.0)
        self.carried: dict[str, Bytes] = dict.fromkeys(rates, 0.0)

    def start(
        self,
        bytes_by_tier: Mapping[str, Bytes],
        latency: Seconds = 0.0,
        caps: Mapping[str, BytesPerSecond] | None = None,
    ) -> Event:
        """Begin a collective now; the event comes when its last byte has.

        After ``latency`` its bytes join every tier that they use, at most ``caps[tier]`` bytes per
        second of them. Alone it takes the latency and its slowest tier. Raises ValueError for a
        tier that is not there, and for a negative or endless amount.
        """
        caps = caps or {}
        if not (latency >= 0 and isfinite(latency)):
            raise ValueError(f"the latency is {latency}")
        for tier, size in bytes_by_tier.items():
            if tier not in self.pipes:
                raise ValueError(f"no tier {tier!r}; there are {', '.join(self.pipes)}")
            if not (size >= 0 and isfinite(size) and caps.get(tier, inf) > 0):
                raise ValueError(f"{size} bytes at {caps.get(tier, inf)} B/s over {tier!r}")
        done = Event(self.instant.env)
        loads = [
            _Load(tier, size, self.pipes[tier].lane(caps.get(tier, inf)))
            for tier, size in bytes_by_tier.items()
            if size > 0
        ]
        for tier, size in bytes_by_tier.items():
            self.started[tier] += size
        transfer = _Transfer(self, loads, done)
        if latency:
            Timeout(self.instant.env, latency).callbacks.append(transfer.begin)
        else:
            transfer.begin()
        return done


class _Load(NamedTuple):
    tier: str
    size: Bytes
    lane: Lane


class _Transfer:
    """One collective: a flow on each tier that it uses."""

    __slots__ = ("done", "left", "links", "loads")

    def __init__(self, links: LinkSet, loads: list[_Load], done: Event) -> None:
        self.links, self.loads, self.done = links, loads, done
        self.left = len(loads)

    def begin(self, _: Event | None = None) -> None:
        if not self.loads:
            self.done.succeed()
            return
        self.links.instant.decide(self._join)
        self.links.instant.settle()

    def _join(self) -> None:
        for load in self.loads:
            self.links.pipes[load.tier].advance()
            load.lane.add(load.size, _Stream(self, load))

    def arrived(self, load: _Load) -> None:
        self.links.carried[load.tier] += load.size
        self.left -= 1
        if not self.left:
            self.links.instant.decide(self._end)

    def _end(self) -> None:
        self.done.succeed()


class _Stream:
    """The bytes of a collective in one pipe."""

    __slots__ = ("count", "load", "transfer")

    def __init__(self, transfer: _Transfer, load: _Load) -> None:
        self.count = 1
        self.transfer, self.load = transfer, load

    def arrived(self) -> None:
        self.transfer.arrived(self.load)
