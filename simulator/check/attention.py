"""Attention, block by block on real numbers: online softmax over key-value tiles, split caches.

Knows the operator, blocks and a memory under test. Never touches costs or time. The recurrence is
that of FlashAttention-2 (arXiv 2307.08691, algorithm 1); splits of a cache are merged by their
log-sum-exp as in FlashDecoding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.check.memory import Array, Memory
from simulator.check.products import Ran, precision, rounded
from simulator.mapping.blocks import decompose
from simulator.mapping.tiling import Tiling
from simulator.ops.attention import Attention
from simulator.ops.op import Arrays


@dataclass(slots=True)
class _State:
    """Running maximum, sum and weighted values of a block of query rows."""

    largest: Array
    total: Array
    values: Array

    @classmethod
    def empty(cls, rows: int, width: int, kind: np.dtype[Any]) -> _State:
        lowest = np.full((rows, 1), -np.inf, dtype=kind)
        return cls(lowest, np.zeros((rows, 1), dtype=kind), np.zeros((rows, width), dtype=kind))

    def add(self, largest: Array, total: Array, values: Array) -> None:
        """Join sums that were taken relative to another maximum."""
        top = np.maximum(self.largest, largest)
        base = np.where(np.isfinite(top), top, 0)  # rows that have seen no key yet
        old, new = np.exp(self.largest - base), np.exp(largest - base)
        self.total = self.total * old + total * new
        self.values = self.values * old + values * new
        self.largest = top


def packs(op: Attention, tiling: Tiling) -> bool:
    """Whether query heads that share keys fill the rows of a tile: decode, and short chunks."""
    packed = op.q_len * (op.heads // op.kv_heads)
    return op.q_len == 1 or (packed <= tiling.rows and op.kv_len > op.q_len)


def run_attention(op: Attention, arrays: Arrays, memory: Memory, tiling: Tiling) -> Ran:
    """Query blocks against key-value tiles; with packing, all heads of one key-value head."""
    kind = precision(op.format, op.kv_format)
    memory.add("q", arrays["q"], op.format, "read")
    for name in ("k",) if op.latent else ("k", "v"):
        memory.add(name, arrays[name], op.kv_format, "kv_read" if op.cached else "read")
    if op.sinks:
        memory.add("sinks", arrays["sinks"], op.format, "weights")
    memory.result("out", (op.batch, op.q_len, op.heads, op.v_dim), op.format, "written", kind)
    shared = op.heads // op.kv_heads
    group = shared if packs(op, tiling) else 1
    flops, done = 0.0, 0
    # A row of a block is (query, head of the group), the head fastest.
    shape = (op.batch, op.heads // group, op.q_len * group)
    for block in decompose(shape, (1, 1, tiling.rows), (2, 0, 1)):
        (batch, number, first), rows = block.start, block.extent[2]
        queries, heads = np.divmod(np.arange(first, first + rows), group)
        heads += number * group
        boxes = _boxes(first, rows, group)
        q = np.concatenate(
            [
                memory.load(
                    "q", (batch, query, number * group + head, 0), (1, n, m, op.head_dim)
                ).reshape(-1, op.head_dim)
                for query, head, n, m in boxes
            ]
        )
        state = _State.empty(rows, op.v_dim, kind)
        start, stop = op.visible(int(queries[0]), int(queries[-1] - queries[0]) + 1)
        share = -(-(stop - start) // tiling.split)
        for low in range(start, stop, share):
            keys = range(low, min(low + share, stop))
            part = _State.empty(rows, op.v_dim, kind)
            where = (batch, int(heads[0]) // shared)
            flops += _attend(op, memory, tiling.columns, part, q, queries, where, keys)
            state.add(part.largest, part.total, part.values)
        if op.sinks:
            sinks = memory.load("sinks", (0,), (op.heads,))[heads][:, None]
            state.add(sinks, np.ones_like(state.total), np.zeros_like(state.values))
        result = rounded(state.values / state.total, op.format)
        for query, head, n, m in boxes:
            tile, result = result[: n * m], result[n * m :]
            at = (batch, query, number * group + head, 0)
            memory.store("out", at, tile.reshape(1, n, m, op.v_dim))
        done += 1
    return flops, done


def _attend(
    op: Attention,
    memory: Memory,
    columns: int,
    state: _State,
    q: Array,
    queries: Array,
    where: tuple[int, int],
    keys: range,
) -> float:
    """Scores, softmax and values of one block against a range of keys; the FLOP it did."""
    batch, head = where
    spans = [op.visible(int(query), 1) for query in queries]
    first = np.array([start for start, _ in spans])[:, None]
    last = np.array([stop for _, stop in spans])[:, None]
    flops = 0.0
    for at in keys[::columns]:
        # Past the last token of the cache a tile is zeros; a shorter range ends inside it.
        n = columns if keys.stop == op.kv_len else min(columns, keys.stop - at)
        k = memory.load("k", (batch, at, head, 0), (1, n, 1, op.head_dim))[0, :, 0]
        if op.latent:
            v = k[:, : op.v_dim]
        else:
            v = memory.load("v", (batch, at, head, 0), (1, n, 1, op.v_dim))[0, :, 0]
        token = np.arange(at, at + n)
        seen = (token >= first) & (token < np.minimum(last, keys.stop))
        scores = np.where(seen, (q @ k.T) * op.scale, -np.inf)
        top = scores.max(axis=1, keepdims=True)
        p = np.exp(scores - np.where(np.isfinite(top), top, 0))
        state.add(top, p.sum(axis=1, keepdims=True), rounded(p, op.format) @ v)
        flops += 2.0 * int(seen.sum()) * (op.head_dim + op.v_dim)
    return flops


def _boxes(first: int, rows: int, group: int) -> list[tuple[int, int, int, int]]:
    """Rows of a block as boxes (query, head, queries, heads): part queries first and last."""
    boxes: list[tuple[int, int, int, int]] = []
    last = first + rows
    while first < last:
        query, head = divmod(first, group)
        whole = (last - first) // group if head == 0 else 0
        if whole:
            boxes.append((query, 0, whole, group))
            first += whole * group
        else:
            heads = min(group - head, last - first)
            boxes.append((query, head, 1, heads))
            first += heads
    return boxes
