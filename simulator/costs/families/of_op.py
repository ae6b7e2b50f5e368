"""The operators of a model graph as queries to the cost models, one shape each.

Knows operators and the columns of the models. Never touches constants, devices or a clock.
"""

from __future__ import annotations

import numpy as np

from simulator.costs.families.library import REFERENCE
from simulator.costs.families.model import Query
from simulator.ops.attention import Attention
from simulator.ops.collective import Collective
from simulator.ops.conv import Conv2d
from simulator.ops.exchange import Exchange
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Op
from simulator.ops.pointwise import Pointwise

_WEIGHT_ONLY = {
    ("bf16", "int4"): "w4a16_int4",
    ("bf16", "int4_g64"): "w4a16_int4",
    ("bf16", "int4_g32"): "w4a16_int4",
    ("bf16", "nf4"): "w4a16_int4",
    ("bf16", "nf4_double"): "w4a16_int4",
    ("bf16", "mxfp4"): "w4a16_mxfp4",
    ("bf16", "int8"): "w8a16_int8",
    ("fp8", "mxfp4"): "w4a8_mxfp4",
    ("mxfp8", "mxfp4"): "w4a8_mxfp4",
}
"""Formats of unlike operands, by activation and weight, as the measured tables call them."""


def product_format(a: str, b: str) -> str:
    """The name of a product's formats: one name where both are alike.

    >>> product_format("fp16", "int4")
    'w4a16_int4'
    """
    if a == b:
        return a
    return _WEIGHT_ONLY.get(("bf16" if a == "fp16" else a, b), a)


def query_of(op: Op) -> Query | None:
    """One row that asks for ``op``, or None where no model covers it."""
    if isinstance(op, Matmul):
        return _matmul(op)
    if isinstance(op, Conv2d):
        return _query("gemm", product_format(op.a, op.b), m=op.m, n=op.n, k=op.k)
    if isinstance(op, Attention):
        return _attention(op)
    if isinstance(op, Pointwise):
        return _pointwise(op)
    if isinstance(op, Exchange):
        return _exchange(op)
    if isinstance(op, Collective):
        return _collective(op)
    return None


def layer_of(op: GroupedMatmul) -> Query | None:
    """The layer of experts that a grouped product is half of, without its counts: what chooses
    the library; None for a product that is no part of one."""
    if op.half is None:
        return None
    first = op.half in ("up", "gate_up")
    hidden = op.k if first else op.n
    gated = op.half in ("gate_up", "down")
    inter = (op.n // 2 if gated else op.n) if first else op.k
    return _query(
        "moe", product_format(op.a, op.b), tokens=op.rows, hidden=hidden, inter=inter,
        experts=len(op.counts), topk=1, ep=1, tp=1, gated=gated,
    )  # fmt: skip


def share_of_layer(op: GroupedMatmul) -> float:
    """Share of the weights of both products that one of them has."""
    return {"gate_up": 2 / 3, "down": 1 / 3}.get(op.half or "", 0.5)


def _query(op: str, dtype: str, kv_dtype: str = "", **sizes: float) -> Query:
    columns = {name: np.array([float(value)]) for name, value in sizes.items()}
    return Query(op=op, dtype=dtype, kv_dtype=kv_dtype, framework=REFERENCE, sizes=columns)


def _matmul(op: Matmul) -> Query:
    dtype = product_format(op.a, op.b)
    if op.batch == 1:
        return _query("gemm", dtype, m=op.m, n=op.n, k=op.k)
    return _query("bmm", dtype, batch=op.batch, m=op.m, n=op.n, k=op.k)


def _attention(op: Attention) -> Query | None:
    """The core as the measured operators cut it; None for shapes that none of them has."""
    heads = {"heads": op.heads, "kv_heads": op.kv_heads, "head_dim": op.head_dim}
    if op.q_len == 1 and op.cached and op.causal and (op.latent or op.kv_len > 1):
        start, stop = op.visible(0, 1)
        name = "mla_generation" if op.latent else "attention_generation"
        return _query(
            name, op.format, op.kv_format, batch=op.batch, seq_q=1, seq_kv=stop - start,
            window=0, **heads,
        )  # fmt: skip
    if op.latent or op.q_len != op.kv_len:
        return None
    batch, length = op.batch, op.q_len
    if op.chunk is not None and op.chunk < length:
        # Tokens see their own chunk alone: as many sequences of that length.
        batch, length = round(batch * length / op.chunk), op.chunk
    name = "attention_context" if op.causal else "attention_encoder"
    if op.head_dim != op.v_dim:
        name = "mla_context"
    return _query(
        name, op.format, op.kv_format, batch=batch, seq_q=length, seq_kv=length,
        window=op.window or 0, **heads,
    )  # fmt: skip


def _exchange(op: Exchange) -> Query:
    return _query(
        f"moe_{op.way}_{op.form}", op.format, tokens=op.tokens, hidden=op.hidden, topk=op.top_k,
        experts=op.experts, n_gpus=op.ranks, sms=op.units, row=op.row, near=op.near,
        crossing=op.crossing, far=op.far, handled=op.handled,
    )  # fmt: skip


def _collective(op: Collective) -> Query:
    """One rank to the next is a pair; whether it leaves its domain, all ranks together say."""
    pair = op.algorithm == "send_recv"
    return _query(
        op.algorithm, op.format, message_bytes=op.message, n_gpus=2 if pair else op.ranks,
        nodes=-1, stride=op.stride, ranks=op.ranks,
    )  # fmt: skip


_FUNCTIONS = {
    "rms_norm": "rmsnorm",
    "add_rms_norm": "add_rmsnorm",
    "layer_norm": "layernorm",
}
"""Functions that the measured operators call by another name."""


def _pointwise(op: Pointwise) -> Query:
    name = _FUNCTIONS.get(op.function, op.function)
    return _query(name, op.format, op.result, m=op.rows, k=op.cols)
