"""The tile that an operator is checked with: the one that the cost model would run it on.

Knows tiles of products, attention and pointwise operators. Never touches time.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.costs.pointwise import BLOCK
from simulator.ops.attention import Attention
from simulator.ops.op import Op
from simulator.ops.pointwise import Pointwise


@dataclass(frozen=True, slots=True)
class Tiling:
    """Rows and columns of a tile of the result, depth of one step of the inner loop, and splits.

    Products: m, n, k and split-K. Attention: query rows, key-value tokens per step (``columns``),
    splits of the cache. Pointwise: elements of a block in ``rows``.
    """

    rows: int
    columns: int = 1
    depth: int = 1
    split: int = 1


def default_tiling(op: Op) -> Tiling:
    """Small tiles for a check without a device: they leave ragged edges on every axis."""
    if isinstance(op, Pointwise):
        return Tiling(BLOCK)
    if isinstance(op, Attention):
        return Tiling(16 if op.q_len == 1 else 32, 32, split=3 if op.q_len == 1 else 1)
    return Tiling(64, 32, 32)
