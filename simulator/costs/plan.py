"""The kernel that an operator becomes on a target, and the choice among candidates.

Knows kernels and the closed form of one class of tiles. Never touches operators or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.mapping.kernel import Kernel
from simulator.units import BytesPerSecond, FlopsPerSecond

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STAGE_WAVES = 8
"""Waves times stages below which a tile's inner loop is simulated in stages. It bounds what one
stage hides, an eighth of a wave, and the events of a kernel, which grow with waves x stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPlan:
    """One operator as a kernel, with what a report says about it."""

    kernel: Kernel
    format: str
    """Number format of the matrix units, or of the data where they are not used."""
    roof: FlopsPerSecond
    """Peak rate of the whole device in that format."""
    tile: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The best of several candidates: its position, units, and stages."""

    index: int
    units: int
    stages: int


def stage_count(waves: Ints, steps: Ints) -> Ints:
    """Stages per tile: whole kernels of few waves are resolved finer than one tile."""
    return np.minimum(steps, np.maximum(1, -(-STAGE_WAVES // waves)))


def isolated(
    tiles: Ints,
    units: Ints,
    moved: Floats,
    compute: Floats,
    stages: Ints,
    bandwidth: BytesPerSecond,
    cap: BytesPerSecond,
) -> Floats:
    """Seconds of kernels of one class each, alone on an idle device; all arrays of one shape.

    With n tiles of q stages on K units, w = ceil(n / K) waves, r tiles in the last one, and per
    stage l(m) = bytes / min(bandwidth / m, cap) and C seconds of compute:

        w = 1:  l(r) + (q - 1) max(l(r), C) + C
        w > 1:  l(K) + ((w - 1) q - 1) max(l(K), C) + q max(l(r), C) + C
    """
    waves = -(-tiles // units)
    last = tiles - (waves - 1) * units
    size, time = moved / stages, compute / stages
    full = size * np.maximum(units / bandwidth, 1 / cap)
    tail = size * np.maximum(last / bandwidth, 1 / cap)
    first = np.where(waves > 1, full + ((waves - 1) * stages - 1) * np.maximum(full, time), tail)
    rounds = np.where(waves > 1, stages, stages - 1)
    result: Floats = first + rounds * np.maximum(tail, time) + time
    return result


def choose(
    tiles: Ints,
    moved: Floats,
    compute: Floats,
    steps: Ints,
    extra: Floats,
    *,
    units: int,
    bandwidth: BytesPerSecond,
    cap: BytesPerSecond,
) -> Choice:
    """The candidate with the least time, and on how many units it runs.

    Each candidate has ``tiles`` tiles that move ``moved`` bytes and compute ``compute`` seconds
    in up to ``steps`` steps, plus ``extra`` seconds once. A launch of n tiles takes as few units
    as keep its number of waves, so that no unit only crowds the pipe; and it may take one wave
    more where that is faster. Ties go to the earlier candidate.
    """
    waves = -(-tiles // units)
    best: Choice | None = None
    least = np.inf
    for extra_waves in (0, 1, 2):
        some = np.minimum(waves + extra_waves, tiles)
        taken = -(-tiles // some)
        stages = stage_count(-(-tiles // taken), steps)
        times = extra + isolated(tiles, taken, moved, compute, stages, bandwidth, cap)
        index = int(np.argmin(times))
        if times[index] < least:
            least = float(times[index])
            best = Choice(index=index, units=int(taken[index]), stages=int(stages[index]))
    assert best is not None
    return best
