"""Blocks of a tensor in the order in which a kernel's queue hands them out.

Knows shapes, block shapes and a rasterisation order. Never touches number formats, operators or
hardware. Counts and runs come from the grid alone, so their cost does not grow with the tensor
along an axis that the block divides.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from simulator.errors import InputError

Extent = tuple[int, ...]
Run = tuple[int, Extent]
"""How many blocks in a row have that extent."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block: its place in the grid, its first element, and what of it lies in the tensor."""

    index: tuple[int, ...]
    start: tuple[int, ...]
    extent: Extent
    part: int = 0
    """Which tensor of a group it belongs to."""

    @property
    def slices(self) -> tuple[slice, ...]:
        """The block as an index into its tensor."""
        return tuple(slice(a, a + n) for a, n in zip(self.start, self.extent, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class TileBlocks:
    """A tensor cut into a grid of blocks, the last one along an axis as short as it must be.

    ``order`` names the axes from the slowest to the fastest. With ``group`` above one the two
    fastest axes are walked as GPU libraries do to keep operands in the L2: bands of ``group``
    blocks along the slower of the two, and inside a band the slower axis runs fastest (Triton
    tutorial 3, "L2 cache optimizations"; CUTLASS threadblock swizzle).
    """

    shape: tuple[int, ...]
    block: tuple[int, ...]
    order: tuple[int, ...]
    group: int = 1

    def __post_init__(self) -> None:
        rank = len(self.shape)
        if len(self.block) != rank or min(self.block, default=1) < 1 or min(self.shape) < 0:
            raise InputError(
                f"a tensor of shape {self.shape} cannot be cut into blocks of {self.block}; "
                f"give {rank} positive block extents"
            )
        if sorted(self.order) != list(range(rank)):
            raise InputError(f"order {self.order} does not name each of the {rank} axes once")
        if self.group < 1 or (self.group > 1 and rank < 2):
            raise InputError(f"group {self.group} needs two axes and a count of at least 1")

    @property
    def grid(self) -> tuple[int, ...]:
        """Blocks along each axis."""
        return tuple(-(-n // b) for n, b in zip(self.shape, self.block, strict=True))

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return math.prod(self.grid)

    def spans(self, axis: int) -> tuple[tuple[int, int], ...]:
        """(start, extent) of each block along one axis."""
        size, step = self.shape[axis], self.block[axis]
        return tuple((start, min(step, size - start)) for start in range(0, size, step))

    def lengths(self, axis: int) -> tuple[tuple[int, int], ...]:
        """(count, extent) along one axis: the whole blocks, then the ragged one."""
        whole, rest = divmod(self.shape[axis], self.block[axis])
        runs = ((whole, self.block[axis]),) if whole else ()
        return (*runs, (1, rest)) if rest else runs

    def indices(self) -> Iterator[tuple[int, ...]]:
        """Places in the grid, in queue order."""
        position = _inverse(self.order)
        for place in self._places([self.grid[axis] for axis in self.order]):
            yield tuple(place[p] for p in position)

    def _places(self, grid: list[int]) -> Iterator[tuple[int, ...]]:
        """Places along the axes in ``order``."""
        if self.group == 1:
            yield from itertools.product(*map(range, grid))
            return
        *slow, rows, columns = grid
        for outer in itertools.product(*map(range, slow)):
            for first in range(0, rows, self.group):
                band = range(first, min(first + self.group, rows))
                for column, row in itertools.product(range(columns), band):
                    yield (*outer, row, column)

    def __iter__(self) -> Iterator[Block]:
        for index in self.indices():
            start = tuple(i * b for i, b in zip(index, self.block, strict=True))
            extent = tuple(
                min(b, n - a) for a, b, n in zip(start, self.block, self.shape, strict=True)
            )
            yield Block(index, start, extent)

    def classes(self) -> dict[Extent, int]:
        """How many blocks of each extent there are, the largest first: at most 2 per axis."""
        lengths = [self.lengths(axis) for axis in range(len(self.shape))]
        return {
            tuple(extent for _, extent in choice): math.prod(count for count, _ in choice)
            for choice in itertools.product(*lengths)
        }

    def runs(self) -> tuple[Run, ...]:
        """The queue as (count, extent) runs.

        >>> decompose((600, 512), (256, 256)).runs()
        ((4, (256, 256)), (2, (88, 256)))
        """
        if self.count == 0:
            return ()
        # From the fastest axis outwards, each with the extents of the axes inside it.
        axes = self.order if self.group == 1 else self.order[:-2]
        runs: list[Run] = [(1, ())] if self.group == 1 else self._bands(*self.order[-2:])
        for axis in reversed(axes):
            inner, runs = runs, []
            for count, length in self.lengths(axis):
                _extend(runs, [(many, (length, *rest)) for many, rest in inner], count)
        position = _inverse(self.order)
        if list(position) == sorted(position):
            return tuple(runs)
        turned = {extent: tuple(extent[p] for p in position) for _, extent in runs}
        return tuple((count, turned[extent]) for count, extent in runs)

    def _bands(self, row: int, column: int) -> list[Run]:
        """Runs over the two fastest axes as (row extent, column extent)."""
        full, ragged = self.block[row], self.shape[row] % self.block[row]
        whole, rest = divmod(self.grid[row], self.group)
        if ragged and rest == 0:
            whole, rest = whole - 1, self.group
        tail = [(rest - 1, full), (1, ragged)] if ragged else [(rest, full)]
        runs: list[Run] = []
        for repeat, heights in ((whole, [(self.group, full)]), (min(rest, 1), tail)):
            band: list[Run] = []
            for count, width in self.lengths(column):
                _extend(band, [(many, (height, width)) for many, height in heights if many], count)
            _extend(runs, band, repeat)
        return runs


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """Where in ``order`` each axis stands."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def _extend(runs: list[Run], more: list[Run], times: int) -> None:
    """Append ``more`` that many times; equal neighbours become one run."""
    if times == 0 or not more:
        return
    if len(more) == 1:
        more, times = [(more[0][0] * times, more[0][1])], 1
    if runs and runs[-1][1] == more[0][1]:
        runs[-1] = (runs[-1][0] + more[0][0], runs[-1][1])
        runs.extend(more[1:])
        times -= 1
    runs.extend(more * times)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedBlocks:
    """The blocks of several tensors, one tensor after the other: a launch over all experts."""

    parts: tuple[TileBlocks, ...]

    @property
    def count(self) -> int:
        """How many blocks there are in all parts."""
        return sum(part.count for part in self.parts)

    def __iter__(self) -> Iterator[Block]:
        for number, part in enumerate(self.parts):
            for block in part:
                yield Block(block.index, block.start, block.extent, number)

    def classes(self) -> dict[Extent, int]:
        """How many blocks of each extent there are over all parts."""
        total: Counter[Extent] = Counter()
        for part, times in Counter(self.parts).items():
            for extent, count in part.classes().items():
                total[extent] += count * times
        return dict(total)

    def runs(self) -> tuple[Run, ...]:
        """The queue as (count, extent) runs, equal neighbours joined across parts."""
        known = {part: list(part.runs()) for part in set(self.parts)}
        joined: list[Run] = []
        for part in self.parts:
            _extend(joined, known[part], 1)
        return tuple(joined)


Blocks = TileBlocks | GroupedBlocks


def decompose(
    shape: tuple[int, ...],
    block: tuple[int, ...],
    order: tuple[int, ...] | None = None,
    *,
    group: int = 1,
) -> TileBlocks:
    """Cut a tensor of ``shape`` into blocks; row-major unless ``order`` or ``group`` say else.

    An axis of length zero gives no blocks. Raises InputError where ranks differ, a block extent
    is not positive or the order is not a permutation of the axes.

    >>> decompose((1024, 1024), (256, 256)).count
    16
    """
    order = tuple(range(len(shape))) if order is None else order
    return TileBlocks(shape=tuple(shape), block=tuple(block), order=tuple(order), group=group)


def concatenate(parts: Iterable[TileBlocks]) -> GroupedBlocks:
    """The parts' blocks in one queue, in the order given.

    >>> concatenate(decompose((rows, 512), (128, 128)) for rows in (100, 0, 130)).count
    12
    """
    return GroupedBlocks(parts=tuple(parts))
