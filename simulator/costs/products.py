"""Matrix products as kernels: which tile and split, and what each class of tiles costs.

Serves GEMM, batches of them, convolution as implicit GEMM, and one GEMM per expert. Pure
functions of an operator and a target. Never touches a clock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from simulator.costs.memory import rereads
from simulator.costs.plan import Choice, Floats, Ints, KernelPlan, equal_tiles, rank
from simulator.costs.target import Target
from simulator.mapping.kernel import Kernel, TileClass
from simulator.mapping.tiling import Tiling
from simulator.ops.conv import Conv2d
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.specs.precision import number_format
from simulator.units import Bytes

_PARTIAL = 4.0  # bytes of one fp32 partial sum


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operands:
    """Formats of both operands, and their whole size as the memory sees it."""

    a: str
    b: str
    a_total: Bytes
    b_total: Bytes

    @property
    def element_bytes(self) -> tuple[float, float]:
        """Bytes per element of a and b."""
        a, b = number_format(self.a), number_format(self.b)
        return a.bits_per_element / 8, b.bits_per_element / 8

    @property
    def once(self) -> Bytes:
        """Both operands, each once."""
        return self.a_total + self.b_total


@dataclass(frozen=True, slots=True, kw_only=True)
class _Library:
    """The stack's tiles crossed with its split-K factors, as columns."""

    m: Ints
    n: Ints
    k: Ints
    split: Ints

    @classmethod
    def of(cls, target: Target, depth: int, *, split: bool) -> _Library:
        """Every tile, and every split of it that leaves a step of the inner loop to each part."""
        library = target.stack.matmul
        rows = np.array(
            [
                (*tile, factor)
                for factor in (library.split_k if split else (1,))
                for tile in library.tiles
                if factor == 1 or depth >= factor * tile[2]
            ],
            dtype=np.int64,
        )
        return cls(m=rows[:, 0], n=rows[:, 1], k=rows[:, 2], split=rows[:, 3])

    def depth(self, k: int) -> Ints:
        """Elements of the inner dimension that one part of a split walks, in whole steps."""
        share = -(-k // self.split)
        depth: Ints = -(-share // self.k) * self.k
        return depth

    def tiling(self, index: int) -> Tiling:
        """One entry as the mapping states it."""
        return Tiling(*(int(column[index]) for column in (self.m, self.n, self.k, self.split)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """Tiles of equal products in one launch, by candidate, and the operands of all products."""

    products: Ints
    rows: Ints
    columns: Ints
    a_total: Bytes
    b_total: Bytes

    def again(self, target: Target, index: Ints, units: Ints) -> Floats:
        """Bytes that the candidates ``index`` read again on as many ``units``."""
        products, columns = self.products[index], self.columns[index]
        rows = np.maximum(self.rows[index], 1)
        cache, dies = target.last_caches
        return products * rereads(
            rows,
            columns,
            self.a_total / (products * rows),
            self.b_total / (products * columns),
            concurrent=units,
            cache=cache,
            dies=dies,
        )


def plan_matmul(op: Matmul, target: Target) -> KernelPlan:
    """A GEMM, or ``op.batch`` equal ones in one launch."""
    operands = _Operands(
        a=op.a,
        b=op.b,
        a_total=number_format(op.a).bytes(op.batch * op.m * op.k),
        b_total=op.demand().weights,
    )
    written = op.demand().written
    return _plan(op.name, (op.m, op.n, op.k), op.batch, operands, written, target)


def plan_conv(op: Conv2d, target: Target) -> KernelPlan:
    """A convolution: the image is read once, its unfolded rows come from the cache."""
    demand = op.demand()
    operands = _Operands(a=op.a, b=op.b, a_total=demand.read, b_total=demand.weights)
    return _plan(op.name, (op.m, op.n, op.k), 1, operands, demand.written, target)


def _reduction(target: Target, elements: int, split: Ints) -> Floats:
    """Seconds to add the partial sums of a split K: one more small kernel through the cache."""
    moved = 2.0 * _PARTIAL * elements * split / target.cache_bandwidth
    return np.where(split > 1, target.stack.fill + moved, 0.0)


def _drawn(target: Target, a: float, b: float, library: _Library) -> Floats:
    """Bytes per element of depth that a tile draws from the cache; a cluster shares the larger
    operand, which one read delivers to all its tiles."""
    of_a, of_b = library.m * a, library.n * b
    shared = np.maximum(of_a, of_b) * (1 - 1 / target.stack.matmul.multicast)
    return np.asarray(of_a + of_b - shared, dtype=np.float64)


def _plan(
    name: str,
    shape: tuple[int, int, int],
    batch: int,
    operands: _Operands,
    written: Bytes,
    target: Target,
) -> KernelPlan:
    """``batch`` products of (m, n, k): the tile and split of least time, equal tiles.

    The tile computes at its full size, as matrix instructions are padded, or waits for its
    operands out of the cache.
    """
    m, n, k = shape
    a, b = operands.element_bytes
    library = _Library.of(target, k, split=True)
    matrix = target.matrix_format(operands.a, operands.b)
    rate = target.matrix_rate(matrix, target.stack.matmul.efficiency, operands.b, operands.a)
    depth = library.depth(k)
    rows, columns = -(-m // library.m), -(-n // library.n)
    tiles = batch * rows * columns * library.split
    walk = _Walk(
        products=batch * library.split,
        rows=rows,
        columns=columns,
        a_total=operands.a_total,
        b_total=operands.b_total,
    )
    extra = _reduction(target, batch * m * n, library.split)
    (best,) = rank(
        target,
        tiles=tiles,
        moved=(operands.once + written) / tiles,
        multiply=np.asarray(2.0 * library.m * library.n * depth / rate, dtype=np.float64),
        fed=(library.m * a + library.n * b) * depth,
        drawn=_drawn(target, a, b, library) * depth,
        steps=depth // library.k,
        extra=extra,
        again=partial(walk.again, target),
    )
    i = best.index
    return KernelPlan(
        kernel=equal_tiles(
            name,
            target,
            best,
            tiles=int(tiles[i]),
            read=operands.once + best.again,
            written=written,
            flops=2.0 * batch * m * n * k,
            extra=float(extra[i]),
        ),
        format=matrix,
        roof=target.matrix_peak(matrix) * target.units,
        tiling=library.tiling(i),
    )


TILES_TRIED = 3
"""Tiles of a grouped product that are simulated: unlike experts make the closed form of equal
tiles a guess, off by a percent or two, so some are told apart by events."""

ALIKE = 1.01
"""Tiles that take at most so many times the least are as good; the largest of them goes first, as
libraries prefer it, and as it takes the fewest events."""


def plan_grouped(op: GroupedMatmul, target: Target) -> Iterator[KernelPlan]:
    """One GEMM per expert in one launch, in expert order: a class of tiles per distinct count.

    Every expert streams its own weights, so a tile of an expert with few rows moves as many bytes
    for less work. Experts without rows have no tiles. Yields the likely best tiles, the likeliest
    first, then each on several numbers of units.
    """
    demand = op.demand()
    operands = _Operands(a=op.a, b=op.b, a_total=demand.read, b_total=demand.weights)
    a, b = operands.element_bytes
    library = _Library.of(target, op.k, split=False)
    matrix = target.matrix_format(op.a, op.b)
    rate = target.matrix_rate(matrix, target.stack.matmul.efficiency, op.b, op.a)
    hit = Counter(count for count in op.counts if count)
    heights = np.array(list(hit), dtype=np.int64)[:, None]
    many = np.array(list(hit.values()), dtype=np.int64)[:, None]
    columns = -(-op.n // library.n)
    rows = (many * -(-heights // library.m)).sum(axis=0)
    tiles = np.maximum(rows * columns, 1)
    depth = library.depth(op.k)
    # Only tiles of one expert share anything; experts count as equal in what they read again.
    active = max(1, op.active)
    walk = _Walk(
        products=np.full_like(tiles, active),
        rows=-(-rows // active),
        columns=columns,
        a_total=operands.a_total,
        b_total=operands.b_total,
    )
    ranked = rank(
        target,
        tiles=tiles,
        moved=(operands.once + demand.written) / tiles,
        multiply=np.asarray(2.0 * library.m * library.n * depth / rate, dtype=np.float64),
        fed=(library.m * a + library.n * b) * depth,
        drawn=_drawn(target, a, b, library) * depth,
        steps=depth // library.k,
        extra=np.zeros(len(tiles)),
        again=partial(walk.again, target),
        keep=TILES_TRIED,
        alike=ALIKE,
    )

    def plan(best: Choice) -> KernelPlan:
        return KernelPlan(
            kernel=_grouped_kernel(op, target, library, best),
            format=matrix,
            roof=target.matrix_peak(matrix) * target.units,
            tiling=library.tiling(best.index),
        )

    yield from map(plan, ranked)
    tried = [
        replace(best, units=units)
        for best in ranked
        for units in _unit_counts(int(tiles[best.index]), target.units)
    ]
    index, units = np.array([(choice.index, choice.units) for choice in tried]).T
    again = walk.again(target, index, units)
    for choice, more in zip(tried, again, strict=True):
        other = replace(choice, again=float(more))
        if other not in ranked:
            yield plan(other)


def _unit_counts(tiles: int, units: int) -> list[int]:
    """As few units as need the least number of waves, and one or two more."""
    least = max(1, -(-tiles // units))
    return [max(1, -(-tiles // waves)) for waves in range(least, least + 3)]


GRAIN_BITS = 40
"""Bits of what an expert's tile moves: sums of so short numbers are exact, and units that have
loaded as much by different ways are in one state again."""


def _grained(size: Bytes, largest: Bytes, bits: int) -> Bytes:
    """``size`` with no more than the first ``bits`` bits that ``largest`` has."""
    grain = math.ldexp(1.0, math.frexp(largest)[1] - bits)
    return round(size / grain) * grain


def _grouped_kernel(op: GroupedMatmul, target: Target, library: _Library, best: Choice) -> Kernel:
    """The queue of expert tiles for one choice; what it reads again is shared among all tiles."""
    demand = op.demand()
    once = demand.read + demand.weights
    scale = 1.0 + best.again / once if once else 1.0
    tile_m, columns = int(library.m[best.index]), -(-op.n // int(library.n[best.index]))
    beside = columns * best.slabs
    stored = demand.written / max(1, op.rows) / beside
    per_row = scale * demand.read / max(1, op.rows) / beside + stored
    per_expert = scale * demand.weights / max(1, op.active) / beside
    largest = per_row * max(op.counts, default=0) + per_expert
    per_row, per_expert = (_grained(size, largest, GRAIN_BITS) for size in (per_row, per_expert))
    classes: list[TileClass] = []
    known: dict[int, tuple[int, int]] = {}
    for count in sorted(set(filter(None, op.counts))):
        tall = -(-count // tile_m)
        entries = tall * beside
        moved = (per_row * count + per_expert) / tall
        store = _grained(stored * count / tall, largest, GRAIN_BITS + 12)
        known[count] = (entries, len(classes))
        classes.append(
            TileClass(
                load=moved - store,
                store=store,
                compute=best.compute / best.slabs,
                flops=2.0 * op.n * op.k * count / entries,
            )
        )
    runs: list[tuple[int, int]] = []
    for count in filter(None, op.counts):
        entries, which = known[count]
        if runs and runs[-1][1] == which:
            entries += runs.pop()[0]
        runs.append((entries, which))
    return Kernel(
        name=op.name,
        classes=tuple(classes),
        runs=tuple(runs),
        units=best.units,
        bandwidth=best.bandwidth,
        fixed=target.stack.fill,
    )
