"""The plain roofline of measured operators: what a data sheet alone says, to be compared with.

The larger of operations over the dense peak and compulsory bytes over the peak bandwidth; messages
over one device's links. No launch, no tile, no cache. Knows shapes and peaks. Never touches
constants that were fitted.
"""

from __future__ import annotations

import numpy as np

from simulator.costs.families.gemm import PRODUCTS
from simulator.costs.families.model import Floats, Query
from simulator.costs.target import Target
from simulator.errors import InputError
from simulator.specs.precision import FORMATS

_WIRE = {"all_reduce": 2.0, "all_reduce_custom": 2.0}
"""Times that a message crosses a device's links, over (n - 1) / n; 1 for the others."""

_STREAMS = {"add": 3.0, "add_rmsnorm": 4.0, "silu_mul": 3.0, "quant_cast": 1.5}
"""Elements read and written per element of the result; 2 for the others."""


def plain_seconds(query: Query, target: Target) -> Floats:
    """Seconds by the plain roofline, one per row; NaN where the device has no figure for it."""
    if "message_bytes" in query.sizes and (query["message_bytes"] > 0).any():
        return _message(query["message_bytes"], query, target)
    if query.op.startswith(("moe_dispatch", "moe_combine")):
        element = 1.0 if query.dtype == "fp8" else 2.0
        return _message(query["tokens"] * query["topk"] * query["hidden"] * element, query, target)
    if query.op.startswith("moe"):
        flops, moved = _experts(query)
    elif query.op.startswith(("attention", "mla_context", "mla_generation")):
        flops, moved = _attention(query)
    elif query.op.startswith(("gemm", "bmm", "mla_bmm")):
        flops, moved = _product(query)
    else:
        streams = _STREAMS.get(query.op, 2.0)
        element = _bytes("bf16" if query.op == "quant_cast" else query.dtype)
        flops, moved = np.zeros(1), streams * element * query["m"] * query["k"]
    return np.maximum(flops / _peak(query, target), moved / target.peak_bandwidth)


def _message(sent: Floats, query: Query, target: Target) -> Floats:
    link = target.accelerator.scale_up
    if link is None:
        return np.full(query.rows, np.nan)
    n = np.maximum(query["n_gpus"], 2)
    return np.asarray(_WIRE.get(query.op, 1.0) * sent * (n - 1) / n / link.bandwidth)


def _bytes(name: str) -> float:
    return FORMATS[name].bits_per_element / 8 if name in FORMATS else 2.0


def _operands(query: Query) -> tuple[float, float, float, str]:
    """Bytes of an activation, a weight and a result, and the rate that multiplies them."""
    product = PRODUCTS.get(query.dtype)
    if product is None:
        return 2.0, 2.0, 2.0, "bf16"
    return (*product.bytes, product.rate)


def _peak(query: Query, target: Target) -> float:
    try:
        name = target.matrix_format(_operands(query)[3])
    except InputError:
        return float("inf")
    return target.matrix_peak(name) * target.units


def _product(query: Query) -> tuple[Floats, Floats]:
    a, w, o, _ = _operands(query)
    m, n, k = query["m"], query["n"], query["k"]
    batch = np.maximum(query["batch"], 1) if "batch" in query.sizes else np.ones(1)
    return 2 * batch * m * n * k, batch * (m * k * a + n * k * w + m * n * o)


def _attention(query: Query) -> tuple[Floats, Floats]:
    batch, heads, width, new = (query[name] for name in ("batch", "heads", "head_dim", "seq_q"))
    keys, values = width, width
    if query.op == "mla_context":
        values = 128 * np.ones(1)
    if query.op == "mla_generation":
        values = 512 * np.ones(1)
    seen = query["seq_kv"]
    if "window" in query.sizes:
        seen = np.where(query["window"] > 0, np.minimum(seen, query["window"]), seen)
    pairs = new * seen
    if query.op.endswith("_context"):
        pairs = seen * (new - seen / 2)
    cached = query.op == "mla_generation"  # one latent per token is both key and value
    stored = query["kv_heads"] * (keys if cached else keys + values) * _bytes(query.kv_dtype)
    flops = 2 * batch * heads * pairs * (keys + values)
    return flops, batch * (seen * stored + 2 * heads * new * (keys + values))


def _experts(query: Query) -> tuple[Floats, Floats]:
    a, w, o, _ = _operands(query)
    hidden, inter = query["hidden"], query["inter"] / np.maximum(query["tp"], 1)
    matrices = 2 + np.maximum(query["gated"], 0)
    ranks = np.maximum(query["ep"], 1)
    pairs = query["tokens"] * query["topk"] / ranks
    hit = np.minimum(query["experts"] / ranks, pairs)
    weights = hit * matrices * hidden * inter * w
    return 2 * pairs * matrices * hidden * inter, weights + query["tokens"] / ranks * hidden * (
        a + o
    )
