"""The tile that an operator is checked with: the one that the cost model would run it on.

Knows tiles of products, attention and pointwise operators. Never touches time.
"""

from __future__ import annotations

from simulator.costs.pointwise import BLOCKS
from simulator.mapping.tiling import Tiling
from simulator.ops.attention import Attention
from simulator.ops.op import Op
from simulator.ops.pointwise import Pointwise

__all__ = ["Tiling", "default_tiling"]


def default_tiling(op: Op) -> Tiling:
    """Small tiles for a check without a device: they leave ragged edges on every axis."""
    if isinstance(op, Pointwise):
        return Tiling(int(BLOCKS[0]))
    if isinstance(op, Attention):
        return Tiling(16 if op.q_len == 1 else 32, 32, split=3 if op.q_len == 1 else 1)
    return Tiling(64, 32, 32)
