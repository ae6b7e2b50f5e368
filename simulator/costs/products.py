"""Matrix products as kernels: which tile and split, and what each class of tiles costs.

Serves GEMM, batches of them, convolution as implicit GEMM, and one GEMM per expert. Pure
functions of an operator and a target. Never touches a clock.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from simulator.costs.memory import rereads
from simulator.costs.plan import Floats, Ints, KernelPlan, choose
from simulator.costs.target import Target
from simulator.mapping.blocks import decompose
from simulator.mapping.kernel import Kernel, TileClass
from simulator.ops.conv import Conv2d
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.specs.precision import number_format
from simulator.units import Bytes

_PARTIAL = 4.0  # bytes of one fp32 partial sum


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operands:
    """Bytes per element as the units see them, and whole operands as the memory does."""

    a: float
    b: float
    out: float
    a_total: Bytes
    b_total: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Library:
    """The stack's tiles crossed with its split-K factors, as columns."""

    m: Ints
    n: Ints
    k: Ints
    split: Ints

    @classmethod
    def of(cls, target: Target, *, split: bool) -> _Library:
        library = target.stack.matmul
        splits = library.split_k if split else (1,)
        rows = np.array(
            [(*tile, factor) for factor in splits for tile in library.tiles], dtype=np.int64
        )
        return cls(m=rows[:, 0], n=rows[:, 1], k=rows[:, 2], split=rows[:, 3])


def plan_matmul(op: Matmul, target: Target) -> KernelPlan:
    """A GEMM, or ``op.batch`` equal ones in one launch."""
    a, b, out = (number_format(name) for name in (op.a, op.b, op.out))
    operands = _Operands(
        a=a.bits_per_element / 8,
        b=b.bits_per_element / 8,
        out=out.bits_per_element / 8,
        a_total=a.bytes(op.batch * op.m * op.k),
        b_total=b.bytes(op.batch * op.k * op.n),
    )
    return _plan(op.name, op.m, op.n, op.k, op.batch, operands, (op.a, op.b), target)


def plan_conv(op: Conv2d, target: Target) -> KernelPlan:
    """A convolution: the image is read once, its unfolded rows come from the cache."""
    demand = op.demand()
    operands = _Operands(
        a=number_format(op.a).bits_per_element / 8,
        b=number_format(op.b).bits_per_element / 8,
        out=number_format(op.out).bits_per_element / 8,
        a_total=demand.read,
        b_total=demand.weights,
    )
    return _plan(op.name, op.m, op.n, op.k, 1, operands, (op.a, op.b), target)


def _tile_time(
    target: Target, rate: float, m: Ints, n: Ints, depth: Ints, operands: _Operands
) -> Floats:
    """Seconds that one unit computes a whole tile: matrix units or operand feed, the slower.

    The tile is padded to its full size, as the matrix instructions are. The feed is the operands
    of the tile out of the last-level cache.
    """
    multiply = 2.0 * m * n * depth / rate
    feed = (m * operands.a + n * operands.b) * depth / target.feed
    result: Floats = np.maximum(multiply, feed)
    return result


def _reduction(target: Target, elements: float, split: Ints) -> Floats:
    """Seconds to add the partial sums of a split K: one more small kernel through the cache."""
    moved = 2.0 * _PARTIAL * elements * split / (target.feed * target.units)
    return np.where(split > 1, target.stack.fill + moved, 0.0)


def _plan(
    name: str,
    m: int,
    n: int,
    k: int,
    batch: int,
    operands: _Operands,
    formats: tuple[str, str],
    target: Target,
) -> KernelPlan:
    library = _Library.of(target, split=True)
    matrix = target.matrix_format(*formats)
    rate = target.matrix_rate(matrix, target.stack.matmul.efficiency)
    share = -(-k // library.split)
    depth = -(-share // library.k) * library.k
    rows, columns = -(-m // library.m), -(-n // library.n)
    tiles = batch * rows * columns * library.split
    compute = _tile_time(target, rate, library.m, library.n, depth, operands)
    once = operands.a_total + operands.b_total
    fabric = batch * float(k) * (m * columns * operands.a + n * rows * operands.b)
    again = rereads(fabric, np.full(len(tiles), once), np.full(len(tiles), once), target.cache)
    written = operands.out * batch * m * n
    moved = (once + again + written) / tiles
    extra = _reduction(target, float(batch * m * n), library.split)
    # A split that leaves less than one step of the inner loop does nothing.
    extra = np.where((library.split > 1) & (k // library.split < library.k), np.inf, extra)
    best = choose(
        tiles, moved, compute, depth // library.k, extra,
        units=target.units, bandwidth=target.bandwidth, cap=target.feed,
    )  # fmt: skip
    i = best.index
    tile_m, tile_n, split = int(library.m[i]), int(library.n[i]), int(library.split[i])
    a_share = operands.a_total + float(again[i]) * operands.a_total / once
    b_share = operands.b_total + float(again[i]) * operands.b_total / once
    # The ragged axis runs slowest, or the shorter of two, so that unlike tiles stand together.
    ragged_m, ragged_n = m % tile_m > 0, n % tile_n > 0
    rows_slow = rows[i] <= columns[i] if ragged_m == ragged_n else ragged_m
    blocks = decompose((m, n), (tile_m, tile_n), (0, 1) if rows_slow else (1, 0))
    index: dict[tuple[int, ...], int] = {}
    classes: list[TileClass] = []
    runs: list[tuple[int, int]] = []
    for count, extent in blocks.runs():
        if extent not in index:
            index[extent] = len(classes)
            high, wide = extent
            classes.append(
                TileClass(
                    load=(
                        a_share / batch * high / (m * int(columns[i]))
                        + b_share / batch * wide / (n * int(rows[i]))
                    )
                    / (split * best.slabs),
                    store=operands.out * high * wide / (split * best.slabs),
                    compute=float(compute[i]) / best.slabs,
                    flops=2.0 * high * wide * k / (split * best.slabs),
                )
            )
        # Products of a batch, parts of a split and slabs follow each other tile by tile.
        runs.append((count * batch * split * best.slabs, index[extent]))
    return KernelPlan(
        kernel=Kernel(
            name=name,
            classes=tuple(classes),
            runs=tuple(runs),
            units=best.units,
            bandwidth=target.bandwidth,
            rate_cap=target.feed,
            fixed=target.stack.fill + float(extra[i]),
        ),
        format=matrix,
        roof=target.matrix_peak(matrix) * target.units,
        tile=f"{tile_m}x{tile_n}x{int(library.k[i])}" + (f" split {split}" if split > 1 else ""),
    )


def plan_grouped(op: GroupedMatmul, target: Target) -> KernelPlan:
    """One GEMM per expert in one launch, experts in order; experts without rows have no tiles."""
    a, b, out = (number_format(name) for name in (op.a, op.b, op.out))
    operands = _Operands(
        a=a.bits_per_element / 8,
        b=b.bits_per_element / 8,
        out=out.bits_per_element / 8,
        a_total=a.bytes(op.rows * op.k),
        b_total=b.bytes(op.active * op.k * op.n),
    )
    library = _Library.of(target, split=False)
    matrix = target.matrix_format(op.a, op.b)
    rate = target.matrix_rate(matrix, target.stack.matmul.efficiency)
    hit = Counter(count for count in op.counts if count)
    columns = -(-op.n // library.n)
    heights = np.array(list(hit), dtype=np.int64)[:, None]
    many = np.array(list(hit.values()), dtype=np.int64)[:, None]
    rows = (many * -(-heights // library.m)).sum(axis=0) if hit else np.zeros_like(library.m)
    tiles = np.maximum(rows * columns, 1)
    depth = -(-op.k // library.k) * library.k
    compute = _tile_time(target, rate, library.m, library.n, depth, operands)
    once = operands.a_total + operands.b_total
    fabric = float(op.k) * (op.rows * columns * operands.a + op.n * rows * operands.b)
    # An expert's own operands are all that one group of tiles shares.
    share = np.full(len(tiles), once / max(1, op.active))
    again = rereads(fabric, np.full(len(tiles), once), share, target.cache)
    written = operands.out * op.rows * op.n
    best = choose(
        tiles, (once + again + written) / tiles, compute, depth // library.k,
        np.zeros(len(tiles)),
        units=target.units, bandwidth=target.bandwidth, cap=target.feed,
    )  # fmt: skip
    i = best.index
    tile_m, tile_n = int(library.m[i]), int(library.n[i])
    scale = 1.0 + float(again[i]) / once if once else 1.0
    a_row = scale * operands.a * op.k / int(columns[i])
    b_column = scale * operands.b * op.k
    index: dict[tuple[int, int, int], int] = {}
    classes: list[TileClass] = []
    runs: list[tuple[int, int]] = []
    known: dict[int, list[tuple[int, int]]] = {}
    for count in op.counts:
        if not count:
            continue
        if count not in known:
            high_tiles = -(-count // tile_m)
            known[count] = []
            for number, (high, wide) in decompose((count, op.n), (tile_m, tile_n)).runs():
                key = (high, wide, high_tiles)
                if key not in index:
                    index[key] = len(classes)
                    classes.append(
                        TileClass(
                            load=(a_row * high + b_column * wide / high_tiles) / best.slabs,
                            store=operands.out * high * wide / best.slabs,
                            compute=float(compute[i]) / best.slabs,
                            flops=2.0 * high * wide * op.k / best.slabs,
                        )
                    )
                known[count].append((number * best.slabs, index[key]))
        for number, which in known[count]:
            if runs and runs[-1][1] == which:
                runs[-1] = (runs[-1][0] + number, which)
            else:
                runs.append((number, which))
    return KernelPlan(
        kernel=Kernel(
            name=op.name,
            classes=tuple(classes),
            runs=tuple(runs),
            units=best.units,
            bandwidth=target.bandwidth,
            rate_cap=target.feed,
            fixed=target.stack.fill,
        ),
        format=matrix,
        roof=target.matrix_peak(matrix) * target.units,
        tile=f"{tile_m}x{tile_n}x{int(library.k[i])}",
    )
