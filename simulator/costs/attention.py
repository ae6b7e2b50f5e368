"""Attention cores as kernels: query blocks in prefill, splits of the cache in decode.

Pure functions of an operator and a target. Never touches a clock.
"""

from __future__ import annotations

import numpy as np

from simulator.costs.memory import rereads
from simulator.costs.plan import KernelPlan, choose
from simulator.costs.target import Target
from simulator.mapping.kernel import Kernel, TileClass
from simulator.ops.attention import Attention
from simulator.specs.precision import number_format
from simulator.units import Seconds

_PARTIAL = 4.0  # bytes of one fp32 partial output element


def plan_attention(op: Attention, target: Target) -> KernelPlan:
    """Flash attention: a tile per query block and head, or per share of the cache in decode.

    Decode packs the query heads of one key-value head into the rows of a tile, and splits the
    cache of a sequence where batch and heads alone leave units idle (FlashDecoding, 2023).
    """
    packed = op.q_len * (op.heads // op.kv_heads)
    prefill_rows, _ = target.stack.attention.prefill_tile
    decode = op.q_len == 1 or (packed <= prefill_rows and op.kv_len > op.q_len)
    return _plan_decode(op, target) if decode else _plan_prefill(op, target)


def _softmax(target: Target) -> Seconds:
    """Seconds of one unit for the softmax of one score.

    An exponential on the special-function units; maximum, scale and sum on the vector ALUs
    (three operations, FlashAttention-3, arXiv 2407.08608, section 3.2).
    """
    return 1 / target.exponential_rate() + 3 / target.vector_rate()


def _plan_prefill(op: Attention, target: Target) -> KernelPlan:
    library = target.stack.attention
    rows, columns = library.prefill_tile
    matrix = target.matrix_format(op.format)
    rate = target.matrix_rate(matrix, library.efficiency)
    element = number_format(op.format).bits_per_element / 8
    cached = number_format(op.kv_format).bits_per_element / 8
    vector = op.head_dim + (0 if op.latent else op.v_dim)
    heads = op.batch * op.heads
    spans: list[tuple[int, int, int]] = []
    for first in range(0, op.q_len, rows):
        high = min(rows, op.q_len - first)
        start, stop = op.visible(first, high)
        spans.append((high, first, stop - start))
    start, stop = op.visible(0, op.q_len)
    once = cached * op.batch * op.kv_heads * (stop - start) * vector
    fabric = cached * heads * vector * float(sum(seen for _, _, seen in spans))
    footprint = cached * op.kv_heads * (stop - start) * vector
    again = float(rereads(fabric, once, footprint, target.cache))
    per_token = (once + again) / (heads * sum(seen for _, _, seen in spans))
    index: dict[tuple[int, int, int], int] = {}
    classes: list[TileClass] = []
    runs: list[tuple[int, int]] = []
    # Longest first, all heads of one query block together: the order of causal schedulers that
    # keep the last wave short (FlashAttention-3 and 4).
    for high, first, seen in sorted(spans, key=lambda span: (-span[2], -span[1])):
        steps = -(-seen // columns)
        pairs = _pairs(op, first, high)
        key = (high, seen, pairs)
        if key not in index:
            index[key] = len(classes)
            padded = float(rows * steps * columns)
            multiply = 2.0 * padded * (op.head_dim + op.v_dim) / rate
            classes.append(
                TileClass(
                    load=per_token * seen + element * high * op.head_dim,
                    store=element * high * op.v_dim,
                    compute=max(
                        multiply,
                        padded * _softmax(target),
                        cached * seen * vector / target.feed,
                    ),
                    flops=2.0 * pairs * (op.head_dim + op.v_dim),
                )
            )
        if runs and runs[-1][1] == index[key]:
            runs[-1] = (runs[-1][0] + heads, index[key])
        else:
            runs.append((heads, index[key]))
    return KernelPlan(
        kernel=Kernel(
            name=op.name,
            classes=tuple(classes),
            runs=tuple(runs),
            units=min(target.units, heads * len(spans)),
            bandwidth=target.bandwidth,
            rate_cap=target.feed,
            fixed=target.stack.fill,
        ),
        format=matrix,
        roof=target.matrix_peak(matrix) * target.units,
        tile=f"{rows}x{columns}",
    )


def _pairs(op: Attention, first: int, rows: int) -> int:
    """Query-key pairs of the query rows first..first+rows-1 of one sequence and head."""
    if op.window is None and op.chunk is None:
        if not op.causal:
            return rows * op.kv_len
        low = op.kv_len - op.q_len + first + 1
        return (2 * low + rows - 1) * rows // 2
    spans = (op.visible(first + row, 1) for row in range(rows))
    return sum(stop - start for start, stop in spans)


def _plan_decode(op: Attention, target: Target) -> KernelPlan:
    library = target.stack.attention
    high, columns = library.decode_tile
    packed = op.q_len * (op.heads // op.kv_heads)
    blocks = -(-packed // high)
    matrix = target.matrix_format(op.format)
    rate = target.matrix_rate(matrix, library.efficiency)
    element = number_format(op.format).bits_per_element / 8
    cached = number_format(op.kv_format).bits_per_element / 8
    vector = op.head_dim + (0 if op.latent else op.v_dim)
    start, stop = op.visible(0, op.q_len)
    seen = stop - start
    groups = op.batch * op.kv_heads
    splits = _splits(seen, library.min_split, target.units)
    share = -(-seen // splits)
    splits = -(-seen // share)
    steps = -(-share // columns)
    tiles = groups * blocks * splits
    padded = (high * steps * columns).astype(np.float64)
    compute = np.maximum(
        2.0 * padded * (op.head_dim + op.v_dim) / rate,
        np.maximum(
            padded * _softmax(target),
            cached * share * vector / target.feed,
        ),
    )
    io = element * groups * packed * (op.head_dim + op.v_dim)
    moved = (cached * groups * seen * vector + io) / tiles
    partial = _PARTIAL * groups * packed * op.v_dim
    merge = target.stack.fill + 2.0 * partial * splits / (target.feed * target.units)
    extra = np.where(splits > 1, merge, 0.0)
    best = choose(
        tiles, moved, compute, steps, extra,
        units=target.units, bandwidth=target.bandwidth, cap=target.feed,
    )  # fmt: skip
    i = best.index
    split, chunk = int(splits[i]), int(share[i])
    last = seen - (split - 1) * chunk
    pairs = float(op.batch * op.heads * op.pairs())
    runs: list[tuple[int, int]] = []
    classes: list[TileClass] = []
    for count, tokens in ((split - 1, chunk), (1, last)):
        if not count:
            continue
        classes.append(
            TileClass(
                load=(cached * vector * tokens + element * packed * op.head_dim / split)
                / (blocks * best.slabs),
                store=element * packed * op.v_dim / (split * blocks * best.slabs),
                compute=float(compute[i]) / best.slabs,
                flops=2.0
                * pairs
                * (op.head_dim + op.v_dim)
                * tokens
                / (seen * groups * blocks * best.slabs),
            )
        )
        runs.append((count * groups * blocks * best.slabs, len(classes) - 1))
    return KernelPlan(
        kernel=Kernel(
            name=op.name,
            classes=tuple(classes),
            runs=tuple(runs),
            units=best.units,
            bandwidth=target.bandwidth,
            rate_cap=target.feed,
            fixed=target.stack.fill + float(extra[i]),
        ),
        format=matrix,
        roof=target.matrix_peak(matrix) * target.units,
        tile=f"{high}x{columns}" + (f" split {split}" if split > 1 else ""),
    )


def _splits(seen: int, least: int, units: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Candidate splits of one cache: 1, 2, 3, 4, 6, 8, ... as long as each keeps ``least``."""
    most = max(1, min(seen // max(1, least), units))
    powers = [2**power for power in range(most.bit_length())]
    both = sorted({value for power in powers for value in (power, 3 * power // 2) if value <= most})
    return np.array(both, dtype=np.int64)
