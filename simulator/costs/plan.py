"""The kernel that an operator becomes on a target, and the choice among candidates.

Knows kernels and the closed form of equal tiles. Never touches operators or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.costs.closed_form import closed_form_many
from simulator.mapping.kernel import Kernel
from simulator.units import BytesPerSecond, FlopsPerSecond

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SLAB_WAVES = 8
"""Waves below which the inner loop of a tile is cut into slabs. A kernel of few waves would hide
too little if whole tiles were loaded before they are computed; with slabs at most an eighth of
the work stands alone, and the events of a kernel stay at twice this number or its waves."""


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
    """The best of several candidates: its position, on how many units, in how many slabs."""

    index: int
    units: int
    slabs: int


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
    """The candidate with the least time, on how many units it runs, and in how many slabs.

    Each candidate has ``tiles`` tiles that move ``moved`` bytes and compute ``compute`` seconds
    in ``steps`` steps of an inner loop, plus ``extra`` seconds once. The inner loop is handed out
    in slabs of whole steps. A launch of n tiles takes as few units as keep its number of waves,
    k = ceil(n / w), so that no unit only crowds the pipe and the slabs of a tile cannot spread
    over units that had none of it; and it takes a wave or two more where that is faster. Ties go
    to the earlier candidate.
    """
    waves = np.maximum(-(-tiles // units), 1)
    best: Choice | None = None
    least = np.inf
    for some in (waves, waves + 1, waves + 2):
        taken = np.maximum(-(-tiles // some), 1)
        slabs = np.minimum(steps, -(-SLAB_WAVES // some))
        times = extra + closed_form_many(
            tiles * slabs, taken, moved / slabs, compute / slabs, bandwidth, cap
        )
        index = int(np.argmin(times))
        if times[index] < least:
            least = float(times[index])
            best = Choice(index=index, units=int(taken[index]), slabs=int(slabs[index]))
    assert best is not None, "the stack's library has at least one tile"
    return best
