"""The time of a data mover: what issue, latency and the port to local memory allow.

Knows the numbers of one mover and how many descriptors of how many bytes it gets. Never touches
layouts, routings or the memory behind the unit, whose share of the bandwidth the engine decides.
Rates and times are those of one compute unit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.errors import InputError
from simulator.specs.hardware import DataMover
from simulator.units import Bytes, BytesPerSecond, Hertz, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MoverTimes:
    """One unit's mover in seconds.

    ``issue`` is the time between two descriptors of the unit, all its queues together; 0 where
    it is not known. ``flight`` is how many the queues hold at once; None: no limit known.
    """

    issue: Seconds
    latency: Seconds
    flight: int | None
    port: BytesPerSecond
    """Rate at which local memory takes the bytes."""

    @classmethod
    def of(cls, mover: DataMover, clock: Hertz, port: BytesPerSecond) -> MoverTimes:
        """The mover at that clock. Raises InputError where it states no latency."""
        if mover.latency is None:
            raise InputError("the data mover states no latency; give data_mover.latency in clocks")
        return cls(
            issue=(mover.issue or 0.0) / clock / mover.queues,
            latency=mover.latency / clock,
            flight=None if mover.depth is None else mover.depth * mover.queues,
            port=port,
        )


def issue_seconds(times: MoverTimes, descriptors: int) -> Seconds:
    """Seconds in which the unit issues so many descriptors, if nothing else holds them up."""
    return descriptors * times.issue


def descriptors_in_flight(rate: BytesPerSecond, latency: Seconds, size: Bytes) -> int:
    """Descriptors of ``size`` bytes under way that sustain ``rate``: Little's law, rounded up.

    20 TB/s over 256 units and 1,000 clocks of 2.4 GHz are 32.6 KB under way in each, four tiles
    of 8 KB:

    >>> descriptors_in_flight(20e12 / 256, 1000 / 2.4e9, 8192)
    4
    """
    return math.ceil(rate * latency / size)


def bandwidth(times: MoverTimes, size: Bytes, flying: int) -> BytesPerSecond:
    """Bytes per second of one unit with ``flying`` descriptors of ``size`` bytes under way.

    The least of what arrives in a latency (Little's law), what is issued and what the port takes.
    More descriptors than the queues hold are as many as they hold.
    """
    flying = flying if times.flight is None else min(flying, times.flight)
    issued = size / times.issue if times.issue else math.inf
    return min(flying * size / times.latency, issued, times.port)


def move_seconds(
    times: MoverTimes, descriptors: int, size: Bytes, flying: int | None = None
) -> Seconds:
    """Seconds until ``descriptors`` descriptors of ``size`` bytes in all have brought a tile.

    They keep the unit busy for max(issue, bytes over the port). Before the first bytes one latency
    passes. With at most ``flying`` under way, the queues' limit or what local memory has room for,
    each further round of that many waits for the part of the latency that its own work leaves:

        busy + latency + (rounds - 1) max(0, latency - busy flying / descriptors)

    Sixteen FP8 rows of 7,168 columns are one descriptor, which hides nothing of its latency:

    >>> tdm = MoverTimes(issue=8 / 2.4e9, latency=1000 / 2.4e9, flight=8, port=512 * 2.4e9)
    >>> round(move_seconds(tdm, 1, 16 * 7168) * 2.4e9)
    1224
    """
    if not descriptors:
        return 0.0
    limits = [n for n in (flying, times.flight) if n is not None]
    if any(n < 1 for n in limits):
        raise InputError(f"{min(limits)} descriptors under way move nothing; at least 1")
    at_once = min([descriptors, *limits])
    busy = max(issue_seconds(times, descriptors), size / times.port)
    rounds = -(-descriptors // at_once)
    waits = max(0.0, times.latency - busy * at_once / descriptors)
    return busy + times.latency + (rounds - 1) * waits
