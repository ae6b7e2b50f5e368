"""Durations that need no simulation: kernels of one class of tiles, or of one wave.

Knows counts, bytes and seconds of a kernel. Never touches a clock, hardware specs or policies.
"""

from __future__ import annotations

from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.mapping.kernel import Kernel
from simulator.units import Bytes, BytesPerSecond, Seconds

Floats = NDArray[np.float64]
Tiles = dict[tuple[Bytes, Seconds], int]


def tiles_by_cost(kernel: Kernel) -> Tiles:
    """How many tiles there are of each (pipe bytes, compute), whatever their class is."""
    counts: Tiles = {}
    for count, index in kernel.runs:
        if count:
            tile = kernel.classes[index]
            cost = tile.pipe_bytes, tile.compute
            counts[cost] = counts.get(cost, 0) + count
    return counts


def closed_form(kernel: Kernel) -> Seconds | None:
    """Seconds of the kernel alone on an idle device, or None where only events can tell.

    Equal to the event run but for the order of additions (1e-12 relative). It knows two cases:

    One class, n tiles of B bytes and C seconds on K units: with w = ceil(n / K) waves, of which
    the last has r = n - (w - 1) K tiles, and l(m) = B max(m / bandwidth, 1 / rate_cap) seconds
    for m loads at once,

        w = 1:  l(n) + C
        w > 1:  l(K) + (w - 2) max(l(K), C) + max(l(r), C) + C

    since all units stay in step: each wave loads while the one before computes.

    One wave, any classes (n <= K): every load begins at once, see ``one_wave``.
    """
    counts = tiles_by_cost(kernel)
    tiles = sum(counts.values())
    if tiles <= kernel.units:
        return kernel.fixed + one_wave(counts, kernel.bandwidth, kernel.rate_cap)
    if len(counts) > 1:
        return None
    ((size, compute),) = counts
    units = kernel.units
    waves = -(-tiles // units)
    full = size * max(units / kernel.bandwidth, 1 / kernel.rate_cap)
    last = size * max((tiles - (waves - 1) * units) / kernel.bandwidth, 1 / kernel.rate_cap)
    steady = (waves - 2) * max(full, compute)
    return kernel.fixed + full + steady + max(last, compute) + compute


def one_wave(counts: Tiles, bandwidth: BytesPerSecond, rate_cap: BytesPerSecond) -> Seconds:
    """Seconds for tiles that all begin to load at once, each on a unit of its own.

    Shares stay equal, so the smallest loads end first: in ascending order of size, the step from
    one size to the next is made by all loads of at least that size together. A tile is done its
    compute time after its load.
    """
    under_way = sum(counts.values())
    loaded = moved = end = 0.0
    for size, compute in sorted(counts):
        loaded += (size - moved) * max(under_way / bandwidth, 1 / rate_cap)
        moved = size
        end = max(end, loaded + compute)
        under_way -= counts[size, compute]
    return end


def closed_form_many(
    tiles: ArrayLike,
    units: ArrayLike,
    pipe_bytes: ArrayLike,
    compute: ArrayLike,
    bandwidth: ArrayLike,
    rate_cap: ArrayLike = inf,
) -> Floats:
    """``closed_form`` of one class over arrays that broadcast, without ``fixed``.

    ``pipe_bytes`` (bytes) and ``compute`` (seconds) are per tile, ``bandwidth`` and ``rate_cap``
    in bytes per second; no tiles take no time. The operations are those of ``closed_form`` in the
    same order, so the seconds have the same bits.
    """
    n, k, size, time, rate, cap = (
        np.asarray(x, dtype=np.float64)
        for x in (tiles, units, pipe_bytes, compute, bandwidth, rate_cap)
    )
    least = 1 / cap
    waves = np.ceil(n / k)
    full = size * np.maximum(k / rate, least)
    last = size * np.maximum((n - (waves - 1) * k) / rate, least)
    several = full + (waves - 2) * np.maximum(full, time) + np.maximum(last, time) + time
    seconds = np.where(waves > 1, several, last + time)
    return np.where(n > 0, seconds, 0.0)
