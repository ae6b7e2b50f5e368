"""Prefill attention: causal with groups of query heads and sliding windows, encoder, MLA.

One thread block computes a tile of query rows against the keys that they see: matrix products,
exponentials and vector work per score element, with what causality and a window let it skip.
Blocks are dealt out over the units, the longest one or the sum of all binds. Rotary embedding,
cache write and quantisation that frameworks run beside the kernel are passes over its operands.
Knows shapes, a target and constants. Never touches measurements, files or a clock.

The tile arithmetic is that of FlashAttention (arXiv 2205.14135, 2307.08691, 2407.08608), the
exponential term that of FlashAttention-4 (16 per clock and SM on Hopper and Blackwell); list
scheduling is bounded as by Graham (1969).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from simulator.costs.families.model import Column, Floats, Model, Prior, Query, Terms, Values
from simulator.costs.families.prefill_libraries import DESCRIPTIONS, PRIORS, STAND_INS
from simulator.costs.target import Target
from simulator.specs.precision import number_format

__all__ = ["DESCRIPTIONS", "MODEL", "PRIORS", "STAND_INS", "features", "seconds"]

MICRO = 1e-6
CHUNK = 4096
"""Rows at a time: their columns stay in the L2 of one core."""

MLA_VALUE = 128
"""Value width of MLA, whose query and key are ``head_dim`` wide (DeepSeek-V2, arXiv 2405.04434)."""

MLA_LATENT = 512
"""Width of its latent, which is key and value of the absorbed form."""

WARM = 0.6
"""Share of the cache that operands read again by the next replay may fill and still stay."""

PADDED = (64, 96, 128, 192, 256, 512)
"""Head dimensions that kernels are compiled for; others are padded to the next."""

TREES = 40
LIMIT = 0.4
"""Size of the learned residual, and the largest correction of the logarithm."""

OWN: Mapping[str, Prior] = {
    # Time that is there for the smallest shape; what an 8-bit cache under wider products adds, and
    # a head dimension that is no multiple of 16: microseconds.
    "launch": Prior(value=9.0, spread=0.4, by_generation=0.2),
    "cast": Prior(value=1.0, spread=0.8, by_generation=0.3),
    "pad": Prior(value=1.0, spread=1.0),
    # Rates: shares of the matrix rate and of the exponential rate, instructions per score element,
    # share of the shorter of matrix and softmax time that the longer does not hide.
    "matrix": Prior(value=0.85, spread=0.1, by_generation=0.1, low=0.1, high=1.0),
    "exponent": Prior(value=1.0, spread=0.15, by_generation=0.1, low=0.5, high=1.6),
    "vector": Prior(value=3.0, spread=0.5, by_generation=0.3, low=0.1, high=80),
    "serial": Prior(value=0.45, spread=0.4, by_generation=0.2, low=0.02, high=1.0),
    # Scheduling: microseconds per block, share of the longest block that ends alone, and pieces
    # that the keys of one block are cut into where blocks are fewer than units.
    "setup": Prior(value=1.5, spread=0.5, by_generation=0.3),
    "tail": Prior(value=0.6, spread=0.4, by_generation=0.2, low=0.02, high=1.0),
    "splits": Prior(value=1.2, spread=0.5, low=1.0, high=64.0),
    # Passes over the operands beside the kernel, and the share of the cache's bandwidth they reach.
    "query_passes": Prior(value=2.0, spread=0.7, by_generation=0.3),
    "key_passes": Prior(value=2.0, spread=0.7, by_generation=0.3),
    "cache": Prior(value=0.4, spread=0.4, by_generation=0.2, low=0.05, high=1.5),
    # Cost per score element of head dimensions to 64, from 129, 193 and 257, and of those that are
    # no multiple of 16, over what the products alone ask for.
    "narrow": Prior(value=1.0, spread=0.25, by_generation=0.15),
    "middle": Prior(value=1.0, spread=0.3, by_generation=0.2),
    "wide": Prior(value=1.0, spread=0.3, by_generation=0.2),
    "widest": Prior(value=1.2, spread=0.4, by_generation=0.2),
    "odd": Prior(value=1.05, spread=0.3, by_generation=0.3),
    # Cost per score element with an 8-bit cache under wider products.
    "cache8": Prior(value=1.0, spread=0.3, by_generation=0.2),
    # Sliding windows: share of the masked part that is skipped, and tokens read beyond the window.
    "skip": Prior(value=0.97, spread=0.2, by_generation=0.1, low=0.02, high=1.0),
    "slack": Prior(value=60.0, spread=1.0, high=1000),
    # Facts of the kernel, which no fit moves: most and fewest query rows of a tile; whether the
    # heads of a group share it (1 never, 2 single tokens alone, 3 always); kernels of an eager
    # launch; whether MLA runs absorbed, on the latents (2) or on keys and values (1).
    "rows": Prior(value=128, spread=1e-4),
    "least": Prior(value=128, spread=1e-4),
    "packs": Prior(value=1, spread=1e-4),
    "launches": Prior(value=2, spread=1e-4),
    "absorbed": Prior(value=1, spread=1e-4),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """What one query and target fix for all rows. Seconds; per score element where it says so."""

    units: float
    product: float
    """Per score element and unit of head dimension, query-key and value together."""
    softmax: float
    """Per score element."""
    dram: float
    cache: float
    """Bytes per second out of the cache, never less than out of the memory."""
    warm: float
    """Bytes that stay in the cache from one replay to the next."""
    floor: float
    """There for the smallest shape, on top of all else."""
    host: float
    """Between the launches of an operator, beside what the device does."""
    keys: int
    """Keys of a tile."""


def seconds(query: Query, target: Target, values: Values) -> Terms:
    """Seconds of prefill attention for each shape.

    Columns: ``batch``, ``seq_q``, ``heads``, ``head_dim``, and for ``attention_context`` also
    ``seq_kv`` (its prefix counted), ``kv_heads`` and ``window`` (0: none). ``attention_encoder``
    sees all keys; ``mla_context`` has as many key heads as heads, and 128-wide values. Raises
    SpecError where the device multiplies neither the format nor a wider one.
    """
    rates = _rates(query, target, values)
    if query.rows <= CHUNK:
        found = _chunk(query, rates, values)
    else:
        parts = [
            _chunk(query.take(slice(at, at + CHUNK)), rates, values)
            for at in range(0, query.rows, CHUNK)
        ]
        found = tuple(np.concatenate(column) for column in zip(*parts, strict=True))  # type: ignore[assignment]
    total, compute, waiting, memory = found
    latency = np.full(1, rates.floor + rates.host)
    return Terms(
        seconds=total,
        parts={"compute": compute, "memory": memory, "waiting": waiting, "latency": latency},
    )


def _rates(query: Query, target: Target, values: Values) -> _Rates:
    compute = target.accelerator.compute
    clock = target.held_clock
    peak = compute.matrix[target.matrix_format(query.dtype)] * values["matrix"] * clock
    lanes = compute.vector["fp32"] / 2 * clock
    launch = target.stack.launch
    # Without a graph the host launches each kernel; a device that is faster waits for it.
    host = launch.host * round(values["launches"]) if target.stack.mode == "eager" else 0.0
    extra = values["cast"] if _narrow_cache(query) else 0.0
    return _Rates(
        units=float(compute.units),
        product=2 / peak,
        softmax=1 / (target.exponential_rate() * values["exponent"]) + values["vector"] / lanes,
        dram=target.bandwidth,
        cache=max(target.cache_bandwidth * values["cache"], target.bandwidth),
        warm=WARM * target.cache,
        floor=(values["launch"] + extra) * MICRO,
        host=host,
        keys=target.stack.attention.prefill_tile[1],
    )


def _narrow_cache(query: Query) -> bool:
    """Whether the cache holds 8 bits an element under products that are wider."""
    return query.kv_dtype == "fp8" and number_format(query.dtype).bits > 8


def _chunk(query: Query, rates: _Rates, values: Values) -> tuple[Floats, Floats, Floats, Floats]:
    """Seconds in all, of the work, of waiting for the last blocks, and of the memory."""
    batch, heads, length, width = (query[c] for c in ("batch", "heads", "seq_q", "head_dim"))
    context, mla = query.op == "attention_context", query.op == "mla_context"
    keys = query["seq_kv"] if context else length
    key_heads = query["kv_heads"] if context else heads
    value_width = np.full(1, float(MLA_VALUE)) if mla else width
    stored = width + value_width
    if mla and round(values["absorbed"]) == 2:
        width, value_width = width - MLA_VALUE + MLA_LATENT, np.full(1, float(MLA_LATENT))
        stored, key_heads = width, np.ones(1)
    each = _element(query, rates, values, width, value_width)

    group = heads / key_heads
    packs = round(values["packs"])
    if packs < 3:
        group = np.where(length == 1, group, 1.0) if packs == 2 else np.ones(1)
    least, most = round(values["least"]), round(values["rows"])
    rows = np.minimum(least * np.ceil(length * group / least), float(most))
    tiles = np.ceil(length * group / rows)
    seen, longest = _scores(query, rates, values, tiles, rows / group, keys)
    streams = batch * heads / group
    blocks = streams * tiles
    setup = values["setup"] * MICRO
    work = (each * rows * seen * streams + blocks * setup) / rates.units
    last = each * rows * longest / np.clip(rates.units / blocks, 1.0, values["splits"]) + setup
    core = np.maximum(last, work + values["tail"] * last * (blocks > rates.units))

    bits = 1.0 if number_format(query.dtype).bits == 8 else 2.0
    query_bytes = batch * length * heads * width * 2.0
    key_bytes = batch * keys * key_heads * stored * bits
    moved = query_bytes * (1.0 + value_width / width) + key_bytes
    share = moved / rates.warm if rates.warm else np.full(1, 1e3)
    share *= share
    warm = 1 / (1 + share * share)
    per_byte = warm / rates.cache + (1 - warm) / rates.dram
    memory = moved * per_byte
    written = key_bytes * (length / keys)
    beside = (values["query_passes"] * query_bytes + values["key_passes"] * written) * per_byte
    total = rates.floor + np.maximum(beside + np.maximum(core, memory), rates.host)
    if query.op == "attention_encoder":
        total = total + values["pad"] * MICRO * (width % 16 > 0)
    return total, work, core - work, memory + beside


def _element(
    query: Query, rates: _Rates, values: Values, width: Floats, value_width: Floats
) -> Floats:
    """Seconds per score element of a tile on one unit."""
    if query.op == "mla_context":
        product = rates.product * (width + value_width)
        factor = np.ones(1)
    else:
        pads = np.asarray(PADDED, dtype=np.float64)
        step = np.minimum(np.searchsorted(pads, width), len(pads) - 1)
        product = rates.product * 2 * np.maximum(pads[step], width)
        names = ("narrow", "", "", "middle", "wide", "widest")
        factor = np.array([values[name] if name else 1.0 for name in names])[step]
        factor = factor * np.where(width % 16 == 0, 1.0, values["odd"])
    if _narrow_cache(query):
        factor = factor * values["cache8"]
    softmax = rates.softmax
    each = np.maximum(product, softmax) + values["serial"] * np.minimum(product, softmax)
    return np.asarray(each * factor)


def _scores(
    query: Query, rates: _Rates, values: Values, tiles: Floats, step: Floats, keys: Floats
) -> tuple[Floats, Floats]:
    """Keys that all tiles of one head see, and those of the longest; ``step`` tokens a tile."""
    block = float(rates.keys)
    most = block * np.ceil(keys / block)
    if query.op == "attention_encoder":
        return tiles * most, most
    before = keys - query["seq_q"] + np.maximum(block - step, 0) / 2
    # The mean rounding of ``before`` falls short where all tiles end in the first block.
    seen = tiles * np.clip(before + step * (tiles + 1) / 2, block, most)
    if query.op == "mla_context" or not (query["window"] > 0).any():
        return seen, most
    window = query["window"]
    limit = block * np.ceil(window / block) + step + block / 2 + values["slack"]
    rising = np.clip((limit - before) / step, 0, tiles)
    inside = rising * (before + step * (rising + 1) / 2) + (tiles - rising) * limit
    some = seen - values["skip"] * np.maximum(seen - inside, 0)
    has = window > 0
    return np.where(has, some, seen), np.where(
        has, most - values["skip"] * np.maximum(most - limit, 0), most
    )


def features(query: Query) -> Mapping[str, Floats]:
    """What a learned residual may look at: shapes and formats alone."""
    heads, length, batch = query["heads"], query["seq_q"], query["batch"]
    context = query.op == "attention_context"
    flat = np.zeros(1)
    window = query["window"] if context else flat
    return {
        "length": length,
        "heads": batch * heads,
        "tokens": batch * length,
        "group": heads / query["kv_heads"] if context else flat,
        "key_heads": batch * query["kv_heads"] if context else flat,
        "width": query["head_dim"],
        "window": np.where(window > 0, length / np.maximum(window, 1), 0.0),
        "format": flat + number_format(query.dtype).bits + 4 * (query.kv_dtype == "fp8"),
    }


_CORE = (Column(name="batch"), Column(name="seq_q"), Column(name="heads"), Column(name="head_dim"))

MODEL = Model(
    name="prefill",
    family="attention",
    columns={
        "attention_context": (
            *_CORE,
            Column(name="seq_kv"),
            Column(name="kv_heads"),
            Column(name="window", least=0),
        ),
        "attention_encoder": _CORE,
        "mla_context": _CORE,
    },
    shared={},
    own=OWN,
    seconds=seconds,
    features=features,
)
