"""Pointwise operators as kernels: blocks of rows that stream through the units.

Pure functions of an operator and a target. Never touches a clock.
"""

from __future__ import annotations

from math import inf

import numpy as np

from simulator.costs.plan import KernelPlan, equal_tiles, rank
from simulator.costs.target import Target
from simulator.mapping.tiling import Tiling
from simulator.ops.pointwise import MOVES, Pointwise
from simulator.specs.precision import number_format

BLOCKS = np.array([4096, 16384, 65536])
"""Elements of one block: from what 256 threads hold in registers to what a persistent kernel
walks through; the smallest fills the units on small tensors, the largest keeps waves few."""

SLABS = 8
"""Vectors of a block that are under way on their own."""

ROWS = MOVES | {"weighted_sum"}
"""Functions whose rows lie anywhere in memory: embeddings, routed tokens, cache slots."""


def plan_pointwise(op: Pointwise, target: Target) -> KernelPlan:
    """Elements in equal blocks that read, compute and write once."""
    demand = op.demand()
    elements = max(1, op.rows * op.cols)
    tiles = -(-elements // BLOCKS)
    rate = target.vector_rate(op.format)
    row = number_format(op.format).bytes(op.cols) if op.function in ROWS else inf
    # The last block takes as long as a full one: its threads are masked, not fewer.
    full = BLOCKS / elements
    (best,) = rank(
        target,
        tiles=tiles,
        moved=demand.bytes / tiles,
        multiply=demand.vector_flops * full / rate,
        fed=(demand.bytes - demand.weights) * full + demand.weights,
        drawn=(demand.bytes - demand.weights) * full + demand.weights,
        steps=np.full(len(BLOCKS), SLABS),
        extra=np.zeros(len(BLOCKS)),
        contiguous=row,
    )
    written = demand.written + demand.kv_written
    return KernelPlan(
        kernel=equal_tiles(
            op.name,
            target,
            best,
            tiles=int(tiles[best.index]),
            read=demand.bytes - written,
            written=written,
            flops=demand.vector_flops,
        ),
        format=op.format,
        roof=rate * target.units,
        tiling=Tiling(int(BLOCKS[best.index])),
    )
