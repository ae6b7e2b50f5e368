"""Matrix products: tiles, waves, split-K, memory, and the quantising that some products begin with.

Serves ``gemm`` (m, n, k) and ``bmm`` (batch of them) in every number format. For each tile and
split that a library may have, one wave takes as long as its busiest resource; waves, memory and
fixed times add up to the kernel; the fastest candidate is taken, as tuned libraries do. Each
candidate gets faster with every resource and none depends on the device, so the minimum does too.
Knows shapes, a target and constants. Never touches tables or a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simulator.costs.families.model import (
    REPLAYED,
    WAITED,
    Column,
    Floats,
    Model,
    Prior,
    Query,
    Terms,
    Values,
)
from simulator.costs.target import Target
from simulator.specs.precision import FORMATS


class Product(NamedTuple):
    """Formats of one product: activation, weight, result, and the rate that multiplies them."""

    activation: str
    weight: str
    result: str
    rate: str

    @property
    def bytes(self) -> tuple[float, float, float]:
        """Bytes per element of activation, weight and result, scales included."""
        a, w, o = (FORMATS[name].bits_per_element / 8 for name in self[:3])
        return a, w, o


PRODUCTS: Mapping[str, Product] = {
    **{name: Product(name, name, name, name) for name in ("fp64", "fp32", "fp16", "bf16")},
    "tf32": Product("fp32", "fp32", "fp32", "tf32"),
    **{
        name: Product(name, name, "bf16", FORMATS[name].compute or name)
        for name in ("fp8", "fp8_block", "int8", "mxfp8", "mxfp6", "mxfp4", "nvfp4", "fp6", "fp4")
    },
    "w8a16_int8": Product("bf16", "int8", "bf16", "bf16"),
    "w8a16_fp8": Product("bf16", "fp8", "bf16", "bf16"),
    "w4a16_int4": Product("bf16", "int4", "bf16", "bf16"),
    "w4a16_mxfp4": Product("bf16", "mxfp4", "bf16", "bf16"),
    "w4a16_nvfp4": Product("bf16", "nvfp4", "bf16", "bf16"),
    "w4a8_mxfp4": Product("mxfp8", "mxfp4", "bf16", "fp8"),
}
"""Number formats of products by the name that tables use."""

_TILES = (
    *((16, n) for n in (32, 64, 128)),
    *((32, n) for n in (64, 128)),
    (64, 32),
    *((m, n) for m in (64, 128, 192, 256) for n in (64, 96, 128, 192, 256)),
)
_SPLIT_TILES = ((16, 32), (64, 32), (64, 64), (128, 128))
_SPLITS = (2, 4, 8, 16)
_TILE_M, _TILE_N, _SPLIT = np.array(
    [(m, n, 1) for m, n in _TILES] + [(m, n, s) for m, n in _SPLIT_TILES for s in _SPLITS],
    dtype=np.float64,
).T
"""Tile m, tile n and split of each candidate."""
_HIGH, _AT_HIGH = np.unique(_TILE_M, return_inverse=True)
_WIDE, _AT_WIDE = np.unique(_TILE_N, return_inverse=True)
_PARTS, _AT_PART = np.unique(_SPLIT, return_inverse=True)
_REFERENCE_CLOCK = 1.83e9
"""Launches, waves and splits are constant in clocks, not in seconds, and stated at this clock; a
step of k waits half for the memory; launches of a quantising kernel have no clock of the device."""
_REFERENCE_PAUSE = 1.9e-6
"""Gap and fill of the stack, seconds, at which launches are stated: those of Hopper's stack."""
_PLAIN = frozenset({"bf16", "fp16", "tf32", "fp32", "fp64"})
"""Rates of products whose operands need no quantising."""
_CHUNK = 64  # rows at a time: rows x candidates then stay in the cache of one core

SHARED: Mapping[str, Prior] = {
    "persistence": Prior(value=0.7, low=0.01, high=0.99),  # 0: whole waves, 1: fractions of a wave
    "split": Prior(value=3e-6),  # s, second phase of a split-K
    "wave": Prior(value=0.5e-6),  # s per wave, prologue and epilogue that nothing hides
    "warm": Prior(value=0.3),  # share of the cache that keeps replayed tensors
    "fill": Prior(value=2.0),  # x 64 B/clk, filling a unit from the cache
}
OWN: Mapping[str, Prior] = {
    "matrix": Prior(value=0.85, by_generation=0.2, high=1.3),  # share of the rate at held clock
    "memory": Prior(value=1.0, spread=0.1, by_generation=0.05, high=1.15),  # of achieved bandwidth
    "launch": Prior(value=2e-6, spread=0.4, by_generation=0.3),  # s, gap, first fill and drain
    "step": Prior(value=7e-8, spread=0.5, by_generation=0.1),  # s per 128 B of k
    "reuse": Prior(value=0.3, spread=0.5, by_generation=0.7, high=1),  # warm, for activations
    "widen": Prior(value=1.3, spread=0.5, by_generation=0.3),  # vector FLOP per widened weight
    "copies": Prior(value=5.0, spread=0.1),  # of the weights that replays rotate through
    "quantise": Prior(value=1e-9, spread=0.7, by_generation=0.3),  # s, launches of quantising
    "passes": Prior(value=1e-7, spread=0.5, by_generation=0.2),  # of quantising over memory
    "row": Prior(value=100.0, spread=1.0, by_generation=0.7),  # clocks per row on one unit
    "burst": Prior(value=1e-9, spread=1e-6),  # of the matrix rate before the clock is lowered
    "edge": Prior(value=8, spread=0.7, by_generation=0.3, high=64),  # rows that tiles add in cost
    "host": Prior(value=1e-9, spread=0.5, by_generation=0.1),  # s, eager launch from the host
}
_ROW_RATE = 2.1
"""Bytes per clock at which one block quantises one row: the common value of a fit with it free to
the same measurements (2026-12)."""

_PASS = {"quantise": 3e-6, "passes": 1.4}
PRIORS: Mapping[str, Mapping[str, float]] = {
    "trtllm-fp8": {"quantise": 10e-6, "passes": 2.0},  # the tensor's maximum is found first
    "cutlass-fp8": _PASS,
    "sgl-fp8": _PASS,
    "trtllm-fp8-block": _PASS,
    "deepgemm-fp8-block": _PASS,
    "trtllm-nvfp4": _PASS,
    "flashinfer-nvfp4": _PASS,
    "sgl-nvfp4": _PASS,
    "trt-int8": {"quantise": 5e-6, "passes": 0.3},
    "torch-eager": {"host": 35e-6},
    # What cuBLAS keeps on A100 and H100 where a fit tells clock and kernel apart: 0.89 and 0.94.
    "cublas": {"burst": 0.9},
}
DESCRIPTIONS: Mapping[str, str] = {
    "cublas": "cuBLASLt, bf16 and fp16, replayed in a graph",
    "cublas-profiled": "cuBLAS, fp16, kernel times of a profiler",
    "onednn": "oneDNN, bf16, eager",
    "onednn-fp8": "oneDNN, fp8, eager",
    "torch-eager": "cuBLAS SGEMM with TF32 off, eager PyTorch",
    "trtllm-fp8": "TensorRT-LLM, fp8 per tensor: maximum, cast, product",
    "cutlass-fp8": "vLLM CUTLASS, fp8 per token",
    "sgl-fp8": "SGLang kernel library, fp8 per token",
    "trtllm-fp8-block": "TensorRT-LLM, fp8 with 128-wide scales",
    "deepgemm-fp8-block": "DeepGEMM, fp8 with 128-wide scales",
    "trtllm-nvfp4": "TensorRT-LLM, nvfp4",
    "flashinfer-nvfp4": "FlashInfer in vLLM, nvfp4",
    "sgl-nvfp4": "FlashInfer in SGLang, nvfp4",
    "trt-int8": "TensorRT SmoothQuant, int8",
    "trt-weight-only": "TensorRT weight-only, int4 and int8 weights",
    "sgl-weight-only": "SGLang weight-only, int8 weights",
    "aiter-bf16": "ROCm AITER, bf16: the fastest of its kernels, profiled cold",
    "aiter-fp8": "ROCm AITER, fp8 pre-shuffled",
    "aiter-fp8-block": "ROCm AITER, fp8 with 128-wide scales",
    "aiter-int8": "ROCm AITER, int8 pre-shuffled",
    "aiter-mxfp4": "ROCm AITER, mxfp4",
    "aiter-mxfp8": "ROCm AITER, mxfp8",
}
RATE = 0.25
NEVER_FITTED = tuple(WAITED)
"""Campaigns that are only judged on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """What a device offers one kernel, per second."""

    matrix: float
    """FLOP/s of one unit at the clock that it holds under matrix load."""
    fill: float
    memory: float
    cache: float
    scale: float
    """Clocks of fixed times over those of the reference."""

    @classmethod
    def of(cls, target: Target, rate: str, values: Values, *, brief: bool) -> _Rates:
        compute = target.accelerator.compute
        clock = compute.clock
        flops = compute.matrix[target.matrix_format(rate)] * target.held_clock
        large = (1 + values["edge"] / _TILES[-1][0]) ** 2  # what the largest tile multiplies in all
        return cls(
            matrix=flops * max(values["matrix"], values["burst"] * large * brief),
            fill=values["fill"] * 64 * clock,
            memory=target.bandwidth * values["memory"],
            cache=target.cache_bandwidth,
            scale=_REFERENCE_CLOCK / clock,
        )


def seconds(query: Query, target: Target, values: Values) -> Terms:
    """Seconds of each product; columns m, n, k, and batch for ``bmm``.

    Raises SpecError where the device has no matrix rate for the format.
    """
    product = PRODUCTS[query.dtype]
    rates = _Rates.of(target, product.rate, values, brief=query.source in WAITED)
    batch = query["batch"] if query.op == "bmm" else np.ones(query.rows)
    kernel, computing, moving = (np.empty(query.rows) for _ in range(3))
    for first in range(0, query.rows, _CHUNK):
        part = slice(first, first + _CHUNK)
        m, n, k, copies = (
            column[part, None] for column in (query["m"], query["n"], query["k"], batch)
        )
        memory = _traffic(query, product, target, values, m, n, k, copies) / rates.memory
        times, tiles = _candidates(product, target, rates, values, (m, n, k, copies), memory)
        best = times.argmin(axis=1)
        rows = np.arange(len(best))
        kernel[part], computing[part], moving[part] = (
            times[rows, best],
            tiles[rows, best],
            memory[:, 0],
        )
    fixed = values["launch"] * _pause(target, product, rates)
    total = kernel + fixed
    if query.source in REPLAYED and product.activation != "bf16":
        quantising = _quantising(query, product, target, rates, values)
        total, moving, fixed = total + quantising, moving + quantising, fixed
    if query.source in WAITED:
        total += target.stack.launch.calls.get("gemm", 2 * target.stack.launch.host)
    elif query.source and values["host"] > 1e-7:
        total = np.sqrt(np.sqrt(total**4 + values["host"] ** 4))
        fixed = max(fixed, values["host"])
    return Terms(
        seconds=total,
        parts={"compute": computing, "memory": moving, "latency": np.full(query.rows, fixed)},
    )


def _pause(target: Target, product: Product, rates: _Rates) -> float:
    """Scale of the time outside the tiles: the stack's gap and fill over those of Hopper's, which
    the constants are stated at. Behind a quantising kernel the gap is hidden; then it is clocks."""
    if product.rate in _PLAIN:
        return (target.stack.launch.gap + target.stack.fill) / _REFERENCE_PAUSE
    return rates.scale


def _candidates(
    product: Product,
    target: Target,
    rates: _Rates,
    values: Values,
    shape: tuple[Floats, Floats, Floats, Floats],
    memory: Floats,
) -> tuple[Floats, Floats]:
    """(rows, candidates) seconds without launch, and of the tiles alone.

    A tile walks its k at one pace, so its time is its depth times a constant of the candidate.
    """
    m, n, k, batch = shape
    high = np.ceil(m / _HIGH)
    wide = np.ceil(n / _WIDE)
    depth = np.ceil(k / _PARTS / 64) * 64
    reduce = values["split"] * rates.scale + 8 / rates.cache * batch * m * n * _PARTS
    reduce[:, 0] = 0.0
    soft = values["persistence"]
    waves = (high * batch)[:, _AT_HIGH]
    waves *= wide[:, _AT_WIDE]
    waves *= _SPLIT
    waves /= target.units  # last: a whole number of waves must stay whole
    whole = np.ceil(waves)
    whole *= 1 - soft
    np.maximum(waves, 1, out=waves)
    waves *= soft
    waves += whole
    tiles = depth[:, _AT_PART] * _pace(product, target, rates, values)
    tiles *= waves
    times = tiles * tiles
    times += memory * memory
    np.sqrt(times, out=times)
    waves *= values["wave"] * rates.scale
    times += waves
    times += reduce[:, _AT_PART]
    return times, tiles


def _pace(product: Product, target: Target, rates: _Rates, values: Values) -> Floats:
    """Seconds per element of k of one tile of each candidate: resources that overlap in part."""
    a, w, _ = product.bytes
    edge = values["edge"]
    multiply = 2 * (_TILE_M + edge) * (_TILE_N + edge) / rates.matrix
    step = values["step"] * np.sqrt(rates.scale) * max(a, w) / 128
    fill = (_TILE_M * a + _TILE_N * w) / rates.fill
    squares = multiply**2 + step**2 + fill**2
    if w < a:
        # Weights are widened on the vector units, 128 lanes each.
        squares += (values["widen"] * _TILE_N / (128 * target.accelerator.compute.clock)) ** 2
    return np.asarray(np.sqrt(squares))


def _traffic(
    query: Query,
    product: Product,
    target: Target,
    values: Values,
    m: Floats,
    n: Floats,
    k: Floats,
    batch: Floats,
) -> Floats:
    """Bytes of device memory; replays find in the cache what fits it: x^2 / (1 + x^2) is missed,
    where x is what passes through between two uses over the share of the cache that keeps it."""
    a, w, o = product.bytes
    activations, weights, result = batch * m * k * a, batch * n * k * w, batch * m * n * o
    if query.source not in REPLAYED:
        return activations + weights + result
    room = values["warm"] * target.cache + 1.0
    rotated = values["copies"] * weights
    missed = (rotated / room) ** 2
    later = ((rotated + activations) / (values["reuse"] * target.cache + 1.0)) ** 2
    return activations * later / (1 + later) + weights * missed / (1 + missed) + result


def _quantising(
    query: Query, product: Product, target: Target, rates: _Rates, values: Values
) -> Floats:
    """Seconds of a quantising kernel before the product: launch, passes, one row, all rows."""
    a = product.bytes[0]
    clock = target.accelerator.compute.clock
    m, k = query["m"], query["k"]
    return np.asarray(
        values["quantise"]
        + values["passes"] * m * k * (2 + a) / target.bandwidth
        + 2 * k / (_ROW_RATE * clock)
        + m * values["row"] / (target.units * clock)
    )


def features(query: Query) -> Mapping[str, Floats]:
    """What the learned residual looks at: sizes, their remainders, and the format."""
    m, n, k = query["m"], query["n"], query["k"]
    batch = query["batch"] if query.op == "bmm" else np.ones(query.rows)
    blocks = batch * np.ceil(m / 128) * np.ceil(n / 128)
    return {
        "m": np.log2(m),
        "n": np.log2(n),
        "k": np.log2(k),
        "mn": np.log2(batch * m * n),
        "mk": np.log2(batch * m * k),
        "nk": np.log2(batch * n * k),
        "mnk": np.log2(batch * m * n * k),
        "m_over": m % 128,
        "n_over": n % 128,
        "k_over": k % 128,
        "blocks": blocks,
        "batch": batch,
    }


MODEL = Model(
    name="gemm",
    family="gemm",
    columns={
        "gemm": (Column(name="m"), Column(name="n"), Column(name="k")),
        "bmm": (Column(name="batch"), Column(name="m"), Column(name="n"), Column(name="k")),
    },
    dtypes={"gemm": tuple(PRODUCTS), "bmm": tuple(PRODUCTS)},
    shared=SHARED,
    own=OWN,
    seconds=seconds,
    features=features,
    unlearned=WAITED,
)
