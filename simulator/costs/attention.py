"""Attention cores as kernels: query blocks in prefill, splits of the cache in decode.

Pure functions of an operator and a target. Never touches a clock.
"""

from __future__ import annotations

from collections import Counter
from math import inf

import numpy as np

from simulator.costs.memory import rereads
from simulator.costs.plan import Choice, Ints, KernelPlan, equal_tiles, pipe_bandwidth, rank
from simulator.costs.target import Target
from simulator.mapping.tiling import Tiling
from simulator.ops.attention import Attention
from simulator.policies.order import longest_first
from simulator.specs.precision import number_format
from simulator.units import Seconds

_PARTIAL = 4.0  # bytes of one fp32 partial output element

CACHE_BLOCK = 16
"""Tokens of one block of a paged cache, whose keys of one head are taken to lie side by side:
vLLM's default, the least of the engines."""

ROUNDS = 32
"""Most rounds in which a unit's share of a prefill is simulated: what one round cannot overlap is
then a thirty-second of the kernel."""


def plan_attention(op: Attention, target: Target) -> KernelPlan | tuple[KernelPlan, ...]:
    """Flash attention: a tile per query block and head, or per share of the cache in decode.

    Decode packs the query heads of one key-value head into the rows of a tile, and splits the
    cache of a sequence where batch and heads alone leave units idle (FlashDecoding, 2023).
    """
    packed = op.q_len * (op.heads // op.kv_heads)
    prefill_rows, _ = target.stack.attention.prefill_tile
    if op.q_len == op.kv_len == 1:
        # The first token of a sequence is a prefill and a decode at once.
        return _plan_decode(op, target), _plan_prefill(op, target)
    decode = op.q_len == 1 or (packed <= prefill_rows and op.kv_len > op.q_len)
    return _plan_decode(op, target) if decode else _plan_prefill(op, target)


def _softmax(target: Target) -> Seconds:
    """Seconds of one unit for the softmax of one score.

    An exponential on the special-function units; maximum, scale and sum on the vector ALUs
    (three operations, FlashAttention-3, arXiv 2407.08608, section 3.2).
    """
    return 1 / target.exponential_rate() + 3 / target.vector_rate()


def _plan_prefill(op: Attention, target: Target) -> KernelPlan:
    """A tile per query block and head, each as many steps long as it sees key-value blocks.

    Causal schedulers hand out the longest tile first, and a unit takes the next as it ends
    (FlashAttention-3 and 4), which keeps the last wave short. The kernel is as long as that
    schedule, in as many rounds as one unit walks; its units are those that it keeps busy.
    """
    library = target.stack.attention
    rows, columns = library.prefill_tile
    matrix = target.matrix_format(op.format)
    rate = target.matrix_rate(matrix, library.efficiency, op.format)
    cached = number_format(op.kv_format).bits_per_element / 8
    vector = op.head_dim + (0 if op.latent else op.v_dim)
    heads = op.batch * op.heads
    spans = [op.visible(first, min(rows, op.q_len - first)) for first in range(0, op.q_len, rows)]
    seen = [stop - start for start, stop in spans]
    tiles = Counter(-(-tokens // columns) for tokens in seen)
    length = longest_first(((heads * n, steps) for steps, n in tiles.items()), target.units)
    steps = heads * sum(n * steps for steps, n in tiles.items())
    units = -(-steps // length)
    block = float(rows * columns)
    fed = cached * columns * vector
    step = max(
        2.0 * block * (op.head_dim + op.v_dim) / rate,
        block * _softmax(target),
        fed / target.fill,
    )
    demand = op.demand()
    start, stop = op.visible(0, op.q_len)
    once = cached * op.batch * op.kv_heads * (stop - start) * vector
    # The tiles of one key-value head walk one panel, as far as each sees it; heads share none.
    walks = op.heads // op.kv_heads * len(seen)
    panels = op.batch * op.kv_heads
    cache, dies = target.last_caches
    again = panels * rereads(
        walks, 1, 0.0, once / panels, concurrent=target.units, cache=cache, dies=dies
    )
    moved_again = float(again) * sum(seen) / (len(seen) * (stop - start))
    moved = demand.bytes + moved_again
    rounds = min(length, ROUNDS)
    return KernelPlan(
        kernel=equal_tiles(
            op.name,
            target,
            Choice(
                index=0,
                units=units,
                slabs=1,
                compute=length * step / rounds,
                bandwidth=float(pipe_bandwidth(target, np.array(moved), np.array(fed * steps))),
                again=moved_again,
            ),
            tiles=units * rounds,
            read=moved - demand.written,
            written=demand.written,
            flops=demand.flops,
        ),
        format=matrix,
        roof=target.matrix_peak(matrix) * target.units,
        tiling=Tiling(rows, columns),
    )


def _plan_decode(op: Attention, target: Target) -> KernelPlan:
    """A tile per sequence, key-value head, block of packed query rows, and share of the cache."""
    library = target.stack.attention
    high, columns = library.decode_tile
    packed = op.q_len * (op.heads // op.kv_heads)
    blocks = -(-packed // high)
    matrix = target.matrix_format(op.format)
    rate = target.matrix_rate(matrix, library.efficiency, op.format)
    element = number_format(op.format).bits_per_element / 8
    cached = number_format(op.kv_format).bits_per_element / 8
    vector = op.head_dim + (0 if op.latent else op.v_dim)
    start, stop = op.visible(0, op.q_len)
    seen = stop - start
    groups = op.batch * op.kv_heads
    share = _shares(seen, library.min_split)
    splits = -(-seen // share)
    steps = -(-np.minimum(share, seen) // columns)
    tiles = groups * blocks * splits
    padded = (high * steps * columns).astype(np.float64)
    read = cached * groups * seen * vector + element * groups * packed * op.head_dim
    written = element * groups * packed * op.v_dim
    # The parts of a split sequence are merged by one more small kernel through the cache.
    partial = _PARTIAL * groups * packed * op.v_dim
    merge = target.stack.fill + 2.0 * partial * splits / target.cache_bandwidth
    extra = np.where(splits > 1, merge, 0.0)
    (best,) = rank(
        target,
        tiles=tiles,
        moved=(read + written) / tiles,
        multiply=np.maximum(
            2.0 * padded * (op.head_dim + op.v_dim) / rate, padded * _softmax(target)
        ),
        fed=cached * vector * np.minimum(share, seen).astype(np.float64),
        drawn=cached * vector * np.minimum(share, seen).astype(np.float64),
        steps=steps,
        extra=extra,
        contiguous=cached * op.head_dim * CACHE_BLOCK if op.cached else inf,
    )
    i = best.index
    return KernelPlan(
        kernel=equal_tiles(
            op.name,
            target,
            best,
            tiles=int(tiles[i]),
            read=read,
            written=written,
            flops=op.demand().flops,
            extra=float(extra[i]),
        ),
        format=matrix,
        roof=target.matrix_peak(matrix) * target.units,
        tiling=Tiling(high, columns, split=int(splits[i])),
    )


def _shares(seen: int, least: int) -> Ints:
    """Candidate shares of one sequence's cache, in tokens: ``least`` times 1, 1.5, 2, 3, 4, 6, ...

    Fixed lengths, not fixed counts, so that a longer sequence never has fewer parts of a length.
    """
    steps = range((-(-seen // least)).bit_length() + 1)
    return np.array([least * 2**p * (2 + q) // 2 for p in steps for q in (0, 1)], dtype=np.int64)
