"""Seconds of one kernel at many rates at once, without events: ``costs.estimate`` over arrays.

Knows counts, bytes and seconds of a kernel. Never touches hardware specs or a clock.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.costs.bounds import ROUNDING
from simulator.costs.closed_form import Tiles, closed_form_many, tiles_by_cost
from simulator.costs.estimate import waves_of
from simulator.mapping.kernel import Kernel

Floats = NDArray[np.float64]


def estimate_many(
    kernel: Kernel,
    *,
    bandwidth: ArrayLike,
    slower: ArrayLike = 1.0,
    units: ArrayLike | None = None,
) -> Floats:
    """``estimate`` of ``kernel`` at every pipe ``bandwidth`` (bytes per second), with its tiles
    computing ``slower`` times as long as they do, on so many ``units``; the arrays broadcast.

    Seconds, equal to the scalar closed form within 1e-12. The kernel's pace holds at all points;
    a kernel with ``releases`` has no closed form over arrays, and raises ValueError.
    """
    if kernel.releases:
        raise ValueError("tiles that are released one by one have no closed form over arrays")
    plain = kernel.unpaced
    many = plain.units if units is None else units
    counts = tiles_by_cost(plain)
    if len(counts) == 1:
        (((size, compute), tiles),) = counts.items()
        seconds = plain.fixed + closed_form_many(
            tiles, many, size, compute * np.asarray(slower), bandwidth, plain.rate_cap
        )
        return seconds * kernel.pace
    rate, slow, on = np.broadcast_arrays(
        np.asarray(bandwidth, dtype=np.float64), np.asarray(slower, dtype=np.float64), many
    )
    seconds = np.empty(rate.shape)
    for count in np.unique(on):
        at = on == count
        some = replace(plain, units=int(count))
        if sum(counts.values()) <= count:
            seconds[at] = plain.fixed + _one_wave(counts, rate[at], slow[at], plain.rate_cap)
        else:
            seconds[at] = _several(some, counts, rate[at], slow[at])
    return seconds * kernel.pace


def _one_wave(counts: Tiles, rate: Floats, slow: Floats, cap: float) -> Floats:
    """``one_wave`` over arrays."""
    under_way = sum(counts.values())
    moved, loaded, end = 0.0, np.zeros_like(rate), np.zeros_like(rate)
    for size, compute in sorted(counts):
        loaded = loaded + (size - moved) * np.maximum(under_way / rate, 1 / cap)
        moved = size
        end = np.maximum(end, loaded + compute * slow)
        under_way -= counts[size, compute]
    return end


def _several(kernel: Kernel, counts: Tiles, rate: Floats, slow: Floats) -> Floats:
    """Wave after wave, held within ``bounds``, as ``estimate`` does it."""
    cap, units = kernel.rate_cap, kernel.units
    waves = waves_of(kernel)
    total, computing = np.zeros_like(rate), np.zeros_like(rate)
    for repeat, tiles, moved, computed, _ in waves:
        load = moved * np.maximum(1 / rate, 1 / (tiles * cap))
        mean = computed / tiles * slow
        total = total + np.maximum(load, computing) + (repeat - 1) * np.maximum(load, mean)
        computing = mean
    moved = sum(count * size for (size, _), count in counts.items())
    computed = sum(count * time for (_, time), count in counts.items())
    lone = 1 / np.minimum(rate, cap)
    shared = np.maximum(1 / rate, 1 / (units * cap))
    slowest = sorted(((time, count) for (_, time), count in counts.items()), reverse=True)
    as_slow, several, longest = 0, 0.0, 0.0
    for time, count in slowest:
        longest += time * max(0, min(count, 2 - as_slow))
        as_slow += count
        several = max(several, -(-as_slow // units) * time)
    lower = np.maximum(
        moved * shared + slowest[-1][0] * slow,
        min(size for size, _ in counts) * lone + max(computed / units, several) * slow,
    )
    for size, time in counts:
        lower = np.maximum(lower, size * lone + time * slow)
    most = max(size for size, _ in counts)
    upper = np.minimum(
        moved * lone + computed * slow,
        moved * shared
        + (computed / units + longest * (1 - 1 / units)) * slow
        + most / cap * np.maximum(0.0, 1 - cap * shared if cap < np.inf else 0.0),
    )
    found = kernel.fixed + total + waves[-1][4] * slow
    found = np.maximum(found, (kernel.fixed + lower) * (1 - ROUNDING))
    return np.asarray(np.minimum(found, (kernel.fixed + upper) * (1 + ROUNDING)))
