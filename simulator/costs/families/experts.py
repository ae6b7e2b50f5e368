"""Time of a mixture-of-experts layer on one rank, from hidden states to the layer's output.

Quantise, choose and sort experts, permute, two grouped products with the activation between them,
and the weighted sum. The tokens of every expert of the fullest rank decide. May know shapes, a
target and fitted constants. Never touches measurements.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from simulator.costs.families.experts_counts import TILES, Load, load, load_of_counts
from simulator.costs.families.library import REFERENCE
from simulator.costs.families.model import Column, Floats, Model, Prior, Query, Terms, Values
from simulator.costs.target import Target
from simulator.result import Bound
from simulator.specs.precision import number_format

_OPERANDS = {
    "w4a16_int4": ("bf16", "int4"),
    "w4a16_mxfp4": ("bf16", "mxfp4"),
    "w4a8_mxfp4": ("mxfp8", "mxfp4"),
    "w8a16_int8": ("bf16", "int8"),
}
"""Formats of activation and weight where they differ."""

_CANDIDATES = np.array([(tile, cols) for tile in range(len(TILES)) for cols in (32, 64, 128, 256)])
_ROWS = np.array(TILES)[_CANDIDATES[:, 0]].astype(np.float64)[:, None]
_COLS = _CANDIDATES[:, 1].astype(np.float64)[:, None]
_CHUNK = 1024
"""Rows at a time, so that all candidates of a chunk stay in the second-level cache."""

CHOICE = 3600.0
"""Clocks of the kernel that chooses experts, its launch in a graph included: what the operator
alone leaves out. Layers timed with and without it differ by 2 us at 1.8 GHz."""

_SIZES = ("tokens", "hidden", "inter", "experts", "topk", "ep", "tp")
COLUMNS = (*(Column(name=name) for name in _SIZES), Column(name="gated", least=0))


def seconds(query: Query, target: Target, values: Values) -> Terms:
    """Seconds of each layer and what each resource alone would take.

    ``tokens`` are all tokens of the expert-parallel group; a rank holds ``experts / ep`` experts
    of ``inter / tp`` columns (one half of a gated pair).
    """
    tokens, topk, experts = query["tokens"], query["topk"], query["experts"]
    work = _load(query)
    return _layer(
        work, tokens, tokens * topk, tokens * experts, query["hidden"],
        query["inter"] / query["tp"], query["gated"], query.dtype, target, values,
        alone=query.framework == REFERENCE,
    )  # fmt: skip


def _load(query: Query) -> Load:
    name = query.distribution
    if query.op == "moe_expert_compute" and name.startswith("power") and "eplb" not in name:
        name += "_crowded"
    return load(query["tokens"], query["experts"], query["topk"], query["ep"], name)


def layer_seconds(
    counts: NDArray[np.number],
    hidden: float,
    inter: float,
    dtype: str,
    gated: bool,
    target: Target,
    values: Values,
    *,
    tokens: Floats | None = None,
) -> Terms:
    """The operator alone for explicit counts, one time per layer; no choosing of experts inside.

    ``counts`` (layers, experts of the rank) are tokens of each expert, ``tokens`` (layers) rows
    of the output (one per pair where they are not given), and ``inter`` what the rank holds: one
    half of a gated pair.
    """
    work = load_of_counts(counts)
    full = np.ones(len(work.pairs))
    rows = work.pairs if tokens is None else tokens * full
    return _layer(
        work, rows, work.pairs, 0 * full, hidden * full, inter * full, gated * full, dtype,
        target, values, alone=True,
    )  # fmt: skip


def _layer(
    work: Load, tokens: Floats, sent: Floats, scanned: Floats, hidden: Floats, inter: Floats,
    gated: Floats, dtype: str, target: Target, values: Values, *, alone: bool,
) -> Terms:  # fmt: skip
    """One layer: ``sent`` pairs of the whole group, ``scanned`` scores of the router."""
    a, w = (number_format(name) for name in _OPERANDS.get(dtype, (dtype, dtype)))
    a_bytes, w_bytes = a.bits_per_element / 8, w.bits_per_element / 8
    clock = target.accelerator.compute.clock
    peak = target.matrix_peak(target.matrix_format(a.name, w.name))
    unit = min(peak * values["rate"], values["most"] * clock)
    bandwidth = target.bandwidth * values["memory"]
    wide = inter * (1 + (gated > 0))
    parts: dict[Bound, Floats] = {}
    total = np.zeros(len(tokens))
    for n, k in ((wide, hidden), (hidden, inter)):
        time, compute, stream = _grouped(
            work, n, k, a_bytes, w_bytes, unit, clock, target.units, bandwidth, values
        )
        total += time
        parts["compute"] = parts.get("compute", 0) + compute
        parts["memory"] = parts.get("memory", 0) + stream
    moved = work.pairs * (
        hidden * (2 + a_bytes) + 2 * wide + inter * a_bytes + 2 * hidden
    ) + 2 * tokens * hidden + values["remote"] * 2 * (sent - work.pairs) * hidden  # fmt: skip
    point = moved / (target.bandwidth * values["point"])
    fixed = values["fixed"]
    if alone:
        fixed = max(fixed - CHOICE, 0.3 * fixed)
    else:
        point = point + values["route"] * scanned / (target.units * clock)
    parts["memory"] = parts["memory"] + point
    parts["latency"] = np.full(len(tokens), (fixed + 2 * values["start"]) / clock)
    return Terms(seconds=total + point + fixed / clock, parts=parts)


def _grouped(
    work: Load, n: Floats, k: Floats, a: float, w: float, unit: float, clock: float, units: int,
    bandwidth: float, values: Values,
) -> tuple[Floats, Floats, Floats]:  # fmt: skip
    """Seconds of one grouped product; of its tiles alone; of its device memory alone.

    The best of all tiles: waves of blocks over the units, each block bound by the matrix unit or
    by the fill of its operands, beside the stream of the active experts' weights.
    """
    stream = (work.active * n * k * w + work.pairs * (k * a + 2 * n)) / bandwidth
    edge, soft = values["edge"], values["soft"]
    compute = 2 * (_ROWS + edge) * (_COLS + edge) / unit
    fill = (_ROWS * a + _COLS * w) / (values["fill"] * clock)
    step = np.sqrt(compute**2 + fill**2)
    lost = values["wave"] * values["tile"] / clock
    best, tiles = np.empty_like(stream), np.empty_like(stream)
    for start in range(0, len(stream), _CHUNK):
        part = slice(start, start + _CHUNK)
        count = work.blocks[_CANDIDATES[:, 0], part] * np.ceil(n[part] / _COLS) / units
        waves = (1 - soft) * np.ceil(count) + soft * np.maximum(count, 1.0)
        busy = waves * (step * k[part])
        time = np.sqrt(busy**2 + stream[part] ** 2) + lost * waves
        choice = time.argmin(axis=0)
        rows = np.arange(len(choice))
        best[part], tiles[part] = time[choice, rows], busy[choice, rows]
    return best + values["start"] / clock, tiles, stream


def features(query: Query) -> Mapping[str, Floats]:
    """Shapes alone, for the learned residual."""
    work = _load(query)
    active = np.maximum(work.active, 0.1)
    a, w = (number_format(name) for name in _OPERANDS.get(query.dtype, (query.dtype,) * 2))
    full = np.ones(query.rows)
    return {
        "tokens": np.log2(query["tokens"]),
        "per_expert": np.log2(np.maximum(work.pairs, 0.1) / active),
        "active": np.log2(active),
        "skew": np.log2(np.maximum(work.largest, 0.1) * active / np.maximum(work.pairs, 0.1)),
        "experts": query["experts"],
        "topk": query["topk"],
        "inter": np.log2(query["inter"] / query["tp"]),
        "whole": np.log2(query["inter"]),
        "hidden": np.log2(query["hidden"]),
        "ep": np.log2(query["ep"]),
        "gated": (query["gated"] > 0) * 1.0,
        "bits": full * (a.bits_per_element + w.bits_per_element / 32),
    }


_MARLIN = {"rate": 0.8, "most": 1000.0}
_UNTUNED = {"rate": 0.15, "memory": 0.19}
UNTUNED = (
    "sglang-flashinfer-cutlass-untuned-plain-bf16",
    "vllm-flashinfer-cutlass-untuned-fp8",
    "vllm-flashinfer-cutlass-untuned-plain-fp8",
)
PRIORS: Mapping[str, Mapping[str, float]] = {
    # Marlin multiplies in registers: the rate of Ampere's instructions on every later generation.
    "sglang-marlin-w4a16_int4": _MARLIN,
    "sglang-marlin-w4a16_mxfp4": _MARLIN,
    "vllm-marlin-w4a16_int4": _MARLIN,
    "vllm-marlin-w4a16_mxfp4": _MARLIN,
    "vllm-marlin-early-w4a16_int4": _MARLIN,
    "vllm-marlin-plain-w4a16_int4": _MARLIN,
    **dict.fromkeys(UNTUNED, _UNTUNED),
}
"""What single libraries start from in a fit."""

TREES, RATE, LIMIT = 40, 0.25, 0.45

DESCRIPTIONS = {
    "trtllm-cutlass-or-gen-nvfp4": "Between TensorRT-LLM's two NVFP4 backends, timed as one.",
    "vllm-marlin-early-w4a16_int4": "Marlin as vLLM 0.19 called it.",
    **dict.fromkeys(UNTUNED, "FlashInfer's CUTLASS experts on Hopper, run without tuning."),
}

MODEL = Model(
    name="experts",
    family="moe",
    columns={"moe": COLUMNS, "moe_expert_compute": COLUMNS},
    shared={
        # Clocks of a grouped product outside its tiles: gap of the graph, problem sizes.
        "start": Prior(value=5000, spread=0.3, low=100, high=20000),
        # Clocks of a wave of tiles that the next one does not hide.
        "wave": Prior(value=2500, spread=0.5, low=10, high=10000),
        # Rows and columns that a tile costs beyond its own.
        "edge": Prior(value=16, spread=0.5, low=1, high=128),
        # Bytes per clock into one unit.
        "fill": Prior(value=64, spread=0.5, low=8, high=512),
        # 0: whole waves; 1: fractions of them.
        "soft": Prior(value=0.15, spread=0.5, low=0.01, high=0.9),
    },
    own={
        # Share of the matrix peak.
        "rate": Prior(value=0.6, spread=0.5, by_generation=0.2, low=0.02, high=2.0),
        # FLOP per clock and unit that the library's matrix instructions end at, whatever the peak.
        "most": Prior(value=1e6, spread=0.3, low=100, high=1e7),
        # Clocks of everything that is neither product: choosing, sorting, launches.
        "fixed": Prior(value=25000, spread=0.7, by_generation=0.3, low=100, high=1e6),
        # Share of the reachable bandwidth at which weights stream.
        "memory": Prior(value=0.95, spread=0.15, by_generation=0.07, low=0.05, high=1.1),
        # Cost of a wave relative to the others' libraries.
        "tile": Prior(value=1.0, spread=0.7, low=0.05, high=20),
        # Bandwidth of the passes between the products over that of the device memory: above 1 where
        # the cache holds what lies between them.
        "point": Prior(value=1.5, spread=0.4, low=0.1, high=5),
        # Passes over pairs that other ranks work on: unfused permutes, buffers for the group.
        "remote": Prior(value=0.3, spread=1.5, low=1e-4, high=500),
        # Clocks and units per token and expert of the router's scores.
        "route": Prior(value=7.0, spread=1.0, low=1e-4, high=500),
    },
    seconds=seconds,
    features=features,
)
