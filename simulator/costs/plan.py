"""The kernel that an operator becomes on a target, and the choice among candidates.

Knows kernels and the closed form of equal tiles. Never touches operators or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.costs.closed_form import closed_form_many
from simulator.costs.target import Target
from simulator.mapping.kernel import Kernel, TileClass
from simulator.mapping.tiling import Tiling
from simulator.units import Bytes, Flops, FlopsPerSecond, Seconds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SLAB_WAVES = 8
"""Waves below which the inner loop of a tile is cut into slabs. A kernel of few waves would hide
too little if whole tiles were loaded before they are computed; with slabs at most an eighth of
the work stands alone, and the events of a kernel stay at twice this number or its waves."""


WAVES = np.array([*range(1, 13), 16, 24, 32])
"""Waves that a launch is tried with, beside the least that it can have. The same on every device,
so that one with more units has every choice of one with fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPlan:
    """One operator as a kernel, with what a report says about it."""

    kernel: Kernel
    format: str
    """Number format of the matrix units, or of the data where they are not used."""
    roof: FlopsPerSecond
    """Peak rate of the whole device in that format."""
    tiling: Tiling


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The best of several candidates: its position, on how many units, in how many slabs."""

    index: int
    units: int
    slabs: int
    compute: Seconds
    """Seconds that one unit computes a whole tile."""


def choose(
    target: Target,
    *,
    tiles: Ints,
    moved: Floats,
    multiply: Floats,
    fed: Floats,
    steps: Ints,
    extra: Floats,
) -> Choice:
    """The candidate with the least time, on how many units it runs, and in how many slabs.

    Each candidate has ``tiles`` tiles. A tile moves ``moved`` bytes of device memory, computes for
    ``multiply`` seconds while ``fed`` bytes come from the cache, in ``steps`` steps of an inner
    loop; the launch takes ``extra`` seconds more. The inner loop is handed out in slabs of whole
    steps. A launch of n tiles in w waves takes as few units as they need, k = ceil(n / w): no unit
    only crowds the pipe, and the slabs of a tile cannot spread over units that had none of it.
    More waves than the least are tried too, since fewer units share the cache. Ties go to the
    earlier candidate.
    """
    waves = np.maximum(WAVES, -(-tiles // target.units)[:, None])
    taken = np.maximum(-(-tiles[:, None] // waves), 1)
    slabs = np.minimum(steps[:, None], -(-SLAB_WAVES // waves))
    # Each unit fills at its own width; all together cannot have more than the cache gives.
    alone = np.maximum(multiply, fed / target.fill)[:, None]
    compute = np.maximum(alone, (fed * tiles)[:, None] / (waves * target.cache_bandwidth))
    times = extra[:, None] + closed_form_many(
        tiles[:, None] * slabs, taken, moved[:, None] / slabs, compute / slabs, target.bandwidth
    )
    best = np.unravel_index(np.argmin(times), times.shape)
    return Choice(
        index=int(best[0]),
        units=int(taken[best]),
        slabs=int(slabs[best]),
        compute=float(compute[best]),
    )


def equal_tiles(
    name: str,
    target: Target,
    choice: Choice,
    *,
    tiles: int,
    read: Bytes,
    written: Bytes,
    flops: Flops,
    extra: Seconds = 0.0,
) -> Kernel:
    """A kernel whose tiles all cost the same: an equal share of what the launch moves.

    Which tile of a row or column misses the cache first, and pays for the others, is chance; and
    an edge tile computes as long as a full one, since matrix instructions are padded.
    """
    entries = tiles * choice.slabs
    share = TileClass(
        load=read / entries,
        store=written / entries,
        compute=choice.compute / choice.slabs,
        flops=flops / entries,
    )
    return Kernel(
        name=name,
        classes=(share,),
        runs=((entries, 0),),
        units=choice.units,
        bandwidth=target.bandwidth,
        fixed=target.stack.fill + extra,
    )
