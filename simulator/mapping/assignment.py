"""Which compute unit runs which block, and how evenly that loads the units.

Knows queues of blocks and counts of units and dies. Never touches operators, bytes or time. A
policy cuts the queue into stripes, each dealt in turn to a range of units, so loads follow from
the runs of the queue without walking its blocks.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError
from simulator.mapping.blocks import Blocks, Extent, GroupedBlocks, Run
from simulator.registry import Registry

Weigh = Callable[[Extent], float]


@dataclass(frozen=True, slots=True)
class Stripe:
    """``count`` blocks of the queue from ``start`` on, dealt in turn to a range of units.

    The first block goes to unit ``first + offset``, the next one to the unit after it, around the
    ``width`` units from ``first`` on.
    """

    start: int
    count: int
    first: int
    width: int
    offset: int = 0

    def unit(self, position: int) -> int:
        """The unit of the block at that position of the queue."""
        return self.first + (self.offset + position - self.start) % self.width


Policy = Callable[[Blocks, tuple[tuple[int, int], ...]], tuple[Stripe, ...]]
"""From a queue and the (first unit, units) of each die to stripes in the order they run."""

POLICIES: Registry[Policy] = Registry("mapping policy", group="tilecast.mapping_policies")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """Blocks on units: the stripes, and the blocks and the load that each unit got."""

    policy: str
    stripes: tuple[Stripe, ...]
    blocks: tuple[int, ...]
    """Blocks per unit."""
    load: tuple[float, ...]
    """Load per unit: elements of the result, or what ``weigh`` says of a block."""

    @property
    def imbalance(self) -> float:
        """Largest load over mean load; 1 is even, and also what an empty queue gives."""
        total = sum(self.load)
        return max(self.load) * len(self.load) / total if total else 1.0

    def unit(self, position: int) -> int:
        """The unit that runs the block at that position of the queue."""
        for stripe in self.stripes:
            if stripe.start <= position < stripe.start + stripe.count:
                return stripe.unit(position)
        raise IndexError(f"the queue has {sum(self.blocks)} blocks, none at {position}")


@POLICIES.register("round_robin")
def round_robin(blocks: Blocks, dies: tuple[tuple[int, int], ...]) -> tuple[Stripe, ...]:
    """Block i on unit i modulo the units: what a plain grid launch gives."""
    return (Stripe(0, blocks.count, 0, sum(units for _, units in dies)),)


@POLICIES.register("die_aware")
def die_aware(blocks: Blocks, dies: tuple[tuple[int, int], ...]) -> tuple[Stripe, ...]:
    """Each die gets a stretch of the queue, so that neighbours share the operands in its cache.

    A stretch is as long as the die's share of the units. AMD's Triton kernels remap workgroups
    this way, since the hardware deals them to the dies of a package in turn.
    """
    total = sum(units for _, units in dies)
    stripes: list[Stripe] = []
    start = seen = 0
    for first, units in dies:
        seen += units
        stop = blocks.count * seen // total
        stripes.append(Stripe(start, stop - start, first, units))
        start = stop
    return tuple(stripes)


@POLICIES.register("expert_aware")
def expert_aware(blocks: Blocks, dies: tuple[tuple[int, int], ...]) -> tuple[Stripe, ...]:
    """All blocks of one expert on one die, so that its weights enter one cache only.

    Experts go largest first to the die with the least load per unit (Graham's longest processing
    time rule, SIAM J. Appl. Math. 17, 1969: at most 4/3 of the best maximum on equal dies).
    """
    parts = blocks.parts if isinstance(blocks, GroupedBlocks) else (blocks,)
    counts = [part.count for part in parts]
    starts = [0, *np.cumsum(counts).tolist()]
    dealt = [0] * len(dies)
    stripes: list[Stripe] = []
    for part in sorted(range(len(parts)), key=lambda part: -counts[part]):
        if counts[part]:
            die = min(range(len(dies)), key=lambda die: (dealt[die] / dies[die][1], die))
            first, units = dies[die]
            stripes.append(Stripe(starts[part], counts[part], first, units, dealt[die] % units))
            dealt[die] += counts[part]
    return tuple(stripes)


def map_blocks(
    blocks: Blocks,
    units: int,
    dies: int = 1,
    policy: str = "round_robin",
    *,
    weigh: Weigh | None = None,
) -> Mapping:
    """Deal ``blocks`` to ``units`` units on ``dies`` dies.

    Dies have equal shares of the units, the first ones one more where that does not divide.
    ``weigh`` gives the load of a block by its extent; its number of elements without. Raises
    InputError for a device without units or with more dies than units, UnknownNameError for an
    unknown policy.

    >>> from simulator.mapping.blocks import decompose
    >>> map_blocks(decompose((1024, 1024), (256, 256)), units=3).blocks
    (6, 5, 5)
    """
    if not 1 <= dies <= units:
        raise InputError(f"{units} units cannot stand on {dies} dies; give 1 to {units} dies")
    edges = [-(-units * die // dies) for die in range(dies + 1)]
    ranges = tuple((a, b - a) for a, b in itertools.pairwise(edges))
    stripes = POLICIES[policy](blocks, ranges)
    counts = np.zeros(units, dtype=np.int64)
    load = np.zeros(units)
    runs = blocks.runs()
    ends = list(itertools.accumulate(count for count, _ in runs))
    for stripe in stripes:
        for count, extent, position in _within(runs, ends, stripe):
            dealt = _dealt(count, stripe, position, units)
            counts += dealt
            load += dealt * (math.prod(extent) if weigh is None else weigh(extent))
    return Mapping(
        policy=policy, stripes=stripes, blocks=tuple(counts.tolist()), load=tuple(load.tolist())
    )


def _within(
    runs: tuple[Run, ...], ends: list[int], stripe: Stripe
) -> Iterator[tuple[int, Extent, int]]:
    """The runs of the queue that lie in a stripe, cut to it, as (count, extent, position)."""
    position, stop = stripe.start, stripe.start + stripe.count
    number = bisect_right(ends, position)
    while position < stop:
        last = min(ends[number], stop)
        yield last - position, runs[number][1], position
        position, number = last, number + 1


def _dealt(count: int, stripe: Stripe, position: int, units: int) -> NDArray[np.int64]:
    """How many of ``count`` blocks from ``position`` on each unit gets."""
    each, rest = divmod(count, stripe.width)
    dealt = np.zeros(units, dtype=np.int64)
    mine = dealt[stripe.first : stripe.first + stripe.width]
    mine += each
    start = (stripe.offset + position - stripe.start) % stripe.width
    mine[start : start + rest] += 1
    mine[: max(0, start + rest - stripe.width)] += 1
    return dealt
