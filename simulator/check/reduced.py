"""Operators made small enough to compute in Python, with what makes them hard kept.

Knows operators and the tiles they run on. Never touches numbers or time. Kept: the rest that an
axis leaves after whole tiles, head groups, windows that bind, unequal experts, filters, formats.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from simulator.mapping.tiling import Tiling
from simulator.ops.attention import Attention
from simulator.ops.conv import Conv2d
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Op
from simulator.ops.pointwise import Pointwise

EXPERTS = 8
"""Experts that a reduced operator keeps."""
SPLITS = 3
"""Parts of a split K or of a split cache that a reduced operator keeps."""
COLUMNS = 512
"""Step in which the columns of a pointwise operator are cut."""


def default_tiling(op: Op) -> Tiling:
    """Small tiles for a check without a device: they leave ragged edges on every axis."""
    if isinstance(op, Pointwise):
        return Tiling(4096)
    if isinstance(op, Attention):
        return Tiling(16, 32, split=SPLITS) if op.q_len == 1 else Tiling(32, 32)
    return Tiling(64, 32, 32)


def family(op: Op) -> Hashable:
    """What two operators share that only differ in size: one check stands for both."""
    if isinstance(op, Matmul):
        return Matmul, op.a, op.b, op.out, op.bias, op.batch > 1
    if isinstance(op, GroupedMatmul):
        return GroupedMatmul, op.a, op.b, op.out, op.bias
    if isinstance(op, Conv2d):
        return Conv2d, op.a, op.b, op.out, op.bias, op.kernel, op.stride
    if isinstance(op, Pointwise):
        return Pointwise, op.function, op.format, op.result
    if isinstance(op, Attention):
        return replace(
            op,
            name="",
            batch=1,
            q_len=min(op.q_len, 2),
            kv_len=2,
            heads=op.heads // op.kv_heads,
            kv_heads=1,
            window=None if op.window is None else 1,
            chunk=None if op.chunk is None else 1,
        )
    return op


def reduce(op: Op, tiling: Tiling) -> Op:
    """``op`` with each long axis cut to two tiles of ``tiling`` and the rest it had.

    An axis of tokens that tiles divide gets a ragged edge as well, since any number of tokens
    occurs. An operator that is small already stays as it is.
    """
    rows, columns, depth = tiling.rows, tiling.columns, tiling.depth
    if isinstance(op, Matmul):
        return replace(
            op,
            m=_tokens(op.m, rows),
            n=_cut(op.n, columns),
            k=_cut(op.k, depth * min(tiling.split, SPLITS)),
            batch=min(op.batch, 2),
        )
    if isinstance(op, GroupedMatmul):
        counts = tuple(_tokens(count, rows) for count in _some(op.counts))
        return replace(op, counts=counts, n=_cut(op.n, columns), k=_cut(op.k, depth))
    if isinstance(op, Conv2d):
        return replace(
            op,
            batch=min(op.batch, 2),
            height=_tokens(op.height, 6 * op.stride),
            width=_tokens(op.width, 6 * op.stride),
            in_channels=_cut(op.in_channels, depth),
            out_channels=_cut(op.out_channels, columns),
        )
    if isinstance(op, Attention):
        return _attention(op, tiling)
    if isinstance(op, Pointwise):
        return _pointwise(op, rows)
    return op


def fewer_splits(tiling: Tiling) -> Tiling:
    """The tiling that a reduced operator runs with."""
    return replace(tiling, split=min(tiling.split, SPLITS))


def _cut(size: int, unit: int) -> int:
    """Two whole units and the rest of ``size``; a size below three units as it is."""
    return size if size < 3 * unit else 2 * unit + size % unit


def _tokens(size: int, unit: int) -> int:
    """``_cut``, with an odd rest where there was none."""
    return size if size < 3 * unit else 2 * unit + (size % unit or (unit // 2) | 1)


def _some(counts: tuple[int, ...]) -> tuple[int, ...]:
    """At most EXPERTS counts in their order: the least, the largest, and some between."""
    if len(counts) <= EXPERTS:
        return counts
    ranked = sorted(range(len(counts)), key=lambda expert: (counts[expert], expert))
    step = (len(counts) - 1) / (EXPERTS - 1)
    chosen = sorted(ranked[round(place * step)] for place in range(EXPERTS))
    return tuple(counts[expert] for expert in chosen)


def _attention(op: Attention, tiling: Tiling) -> Attention:
    kv_heads = min(op.kv_heads, 2)
    kept = op.kv_len - op.q_len
    q_len = _tokens(op.q_len, tiling.rows)
    if op.causal:
        kv_len = q_len + _tokens(max(0, kept), tiling.columns * min(tiling.split, SPLITS))
    else:
        kv_len = _tokens(op.kv_len, tiling.columns)

    def bound(span: int | None) -> int | None:
        """A window that binds still does; one that does not is left."""
        binds = span is not None and span < op.kv_len
        return max(1, span * kv_len // op.kv_len) if span is not None and binds else span

    return replace(
        op,
        batch=min(op.batch, 2 if op.q_len == 1 else 1),
        q_len=q_len,
        kv_len=kv_len,
        heads=op.heads // op.kv_heads * kv_heads,
        kv_heads=kv_heads,
        window=bound(op.window),
        chunk=bound(op.chunk),
    )


def _pointwise(op: Pointwise, elements: int) -> Pointwise:
    cols = _cut(op.cols, COLUMNS)
    block = max(1, elements // cols)
    small = replace(op, cols=cols, weights=op.weights * cols // op.cols)
    if op.written_rows is None:
        return replace(small, rows=_tokens(op.rows, block))
    written = _tokens(op.written_rows, block)
    missing = op.terms * op.written_rows - op.rows
    return replace(small, written_rows=written, rows=max(0, op.terms * written - missing))
