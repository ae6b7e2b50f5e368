"""Decode attention: one query token per sequence against its cache, plain and MLA.

A block reads the keys and values of one sequence and key head, or of one part of it, for the query
heads that share them; a second kernel adds up the parts. For each number of parts that a library
may choose, the blocks are dealt out over the units: one block alone waits for its loads, many
blocks on a unit share its matrix, vector and cache rates, all together share the memory. The
fastest number of parts is taken, so no rule of a library can make a larger device slower. What
fits the cache is found there by campaigns that replay the same tensors.
Knows shapes, a target and constants. Never touches measurements, files or a clock.

Splitting is that of Flash-Decoding (2023) and of the schedulers of FlashAttention, FlashInfer and
FlashMLA; blocks times bytes in flight over latency (Little's law) ramp up the memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from simulator.costs.families.decode_libraries import (
    DESCRIPTIONS as DESCRIPTIONS,
)
from simulator.costs.families.decode_libraries import (
    PRIORS as PRIORS,
)
from simulator.costs.families.decode_libraries import (
    STAND_INS as STAND_INS,
)
from simulator.costs.families.model import (
    REPLAYED,
    Column,
    Floats,
    Model,
    Prior,
    Query,
    Terms,
    Values,
)
from simulator.costs.target import Target
from simulator.specs.precision import number_format

MICRO = 1e-6
CHUNK = 512
"""Rows at a time: rows x numbers of parts then stay in the L2 of one core."""

PARTS = np.array([1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128], dtype=np.float64)[:, None]
"""Numbers of parts that a sequence may be split into, one row each."""

MLA_VALUE = 512
"""Width of the latent that MLA reads as value; its key is ``head_dim`` wide, rotary part included
(DeepSeek-V2, arXiv 2405.04434)."""

REGISTERS = 256 * 1024.0
"""Bytes of registers of the units for which the blocks of one unit are stated."""

REFERENCE_CLOCK = 1.83e9
"""Clock at which fixed times are stated; half of each runs at the device's clock."""

TREES = 70
LIMIT = 0.35

SHARED: Mapping[str, Prior] = {
    # Share of the cache that a replayed working set may fill before half of it is missed.
    "resident": Prior(value=0.7, spread=0.4, low=0.1, high=1.5),
    # 0: blocks come in whole waves; 1: in fractions of a wave.
    "persistence": Prior(value=0.5, spread=0.5, low=0.05, high=1.0),
}

OWN: Mapping[str, Prior] = {
    # Microseconds: kernels and gaps of the smallest shape; adding up parts; each part; a block.
    "launch": Prior(value=9.0, spread=0.4, by_generation=0.15),
    "combine": Prior(value=1.0, spread=0.7, by_generation=0.2),
    "part": Prior(value=0.02, spread=1.0, by_generation=0.2),
    "setup": Prior(value=1.5, spread=0.7, by_generation=0.2),
    "block": Prior(value=0.2, spread=1.0, by_generation=0.2),
    # Tokens below which a part takes no less time.
    "chunk": Prior(value=128.0, spread=0.7, by_generation=0.1, low=8, high=4096),
    # Bytes per clock that one block keeps in flight, and blocks on one unit at a time.
    "rate": Prior(value=15.0, spread=0.6, by_generation=0.2, low=0.5, high=128),
    "resident_blocks": Prior(value=2.0, spread=0.4, by_generation=0.1, low=0.5, high=8),
    # Shares of the matrix rate, of the cache's bandwidth, of the memory's.
    "matrix": Prior(value=0.5, spread=0.4, by_generation=0.15, low=0.02, high=1.0),
    "cache": Prior(value=0.5, spread=0.4, by_generation=0.2, low=0.05, high=1.5),
    "memory": Prior(value=1.0, spread=0.05, by_generation=0.04, low=0.5, high=1.12),
    # Instructions per score on the vector units; share of the shorter of work and memory that
    # adds to the longer.
    "vector": Prior(value=4.0, spread=0.6, by_generation=0.2, low=0.1, high=200),
    "serial": Prior(value=0.3, spread=0.5, by_generation=0.2, low=0.01, high=1.0),
    # Passes over query and result beside the kernel.
    "passes": Prior(value=2.0, spread=0.6, by_generation=0.2),
    # An 8-bit cache under wider products: bytes moved more for each byte of it, and microseconds.
    "widen": Prior(value=0.3, spread=1.0, by_generation=0.3),
    "cast": Prior(value=0.5, spread=1.0, by_generation=0.3),
    # What it does to the time of products and scores.
    "narrow": Prior(value=1.0, spread=0.4, by_generation=0.2, low=0.2, high=5),
    # Bytes read per byte of a 16-bit cache, where a kernel keeps it narrower.
    "stored": Prior(value=1.0, spread=0.03, by_generation=0.2, low=0.5, high=1.2),
    # Share of what lies before a sliding window that is read all the same.
    "beyond": Prior(value=0.002, spread=1.5, by_generation=0.3, high=1.0),
    # Facts of the kernel, which no fit moves: query heads of one block (1: each head reads the
    # cache by itself), most parts, query rows that the matrix units pad to, launches.
    "rows": Prior(value=64, spread=1e-4),
    "parts": Prior(value=128, spread=1e-4),
    "padded": Prior(value=16, spread=1e-4),
    "launches": Prior(value=2, spread=1e-4),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """What one query and target fix for all rows: seconds, and bytes per second."""

    units: float
    product: float
    """Per query row, token and unit of width."""
    score: float
    """Per query row and token: exponential and vector work."""
    port: float
    """Bytes per second that one unit takes in."""
    block: float
    """Bytes per second that one block takes in."""
    memory: float
    cache: float
    """Never less than the memory."""
    slots: float
    """Blocks that one unit runs at a time."""
    room: float
    """Bytes of replayed tensors that stay in the cache; 0 where nothing does."""
    scale: float
    floor: float
    host: float


def seconds(query: Query, target: Target, values: Values) -> Terms:
    """Seconds of one decode step's attention for each shape.

    Columns: ``batch``, ``seq_kv`` (the new token counted), ``heads``, ``head_dim``, and for
    ``attention_generation`` also ``kv_heads`` and ``window`` (0: none); MLA has one latent for all
    heads. Raises SpecError where the device multiplies neither the format nor a wider one.
    """
    rates = _rates(query, target, values)
    parts = [
        _chunk(query.take(slice(at, at + CHUNK)), rates, values)
        for at in range(0, query.rows, CHUNK)
    ]
    total, work, memory = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Terms(
        seconds=total,
        parts={"compute": work, "memory": memory, "latency": np.full(1, rates.floor + rates.host)},
    )


def _rates(query: Query, target: Target, values: Values) -> _Rates:
    compute = target.accelerator.compute
    clock = compute.clock
    peak = compute.matrix[target.matrix_format(query.dtype)] * target.held_clock
    registers = target.accelerator.level("registers")
    lanes = compute.vector["fp32"] / 2 * clock
    scale = 0.5 + 0.5 * REFERENCE_CLOCK / clock
    launch = target.stack.launch
    # Without a graph the host launches each kernel; a device that is faster waits for it.
    host = launch.host * round(values["launches"]) if target.stack.mode == "eager" else 0.0
    cast = values["cast"] if _narrow(query) else 0.0
    memory = target.bandwidth * values["memory"]
    return _Rates(
        units=float(compute.units),
        product=2 / (peak * values["matrix"]),
        score=1 / target.exponential_rate() + values["vector"] / lanes,
        port=target.fill / 2,
        block=values["rate"] * clock,
        memory=memory,
        cache=max(target.cache_bandwidth * values["cache"], memory),
        room=values["resident"] * target.cache if query.source in REPLAYED else 0.0,
        slots=values["resident_blocks"] * (registers.capacity / REGISTERS if registers else 1.0),
        scale=scale * MICRO,
        floor=(values["launch"] + cast) * scale * MICRO,
        host=host,
    )


def _narrow(query: Query) -> bool:
    """Whether an element of the cache has fewer than 16 bits."""
    return number_format(query.kv_dtype or query.dtype).bits < 16


def _chunk(query: Query, rates: _Rates, values: Values) -> tuple[Floats, Floats, Floats]:
    """Seconds in all, of the blocks, and of the memory."""
    batch, heads, length, width = (query[c] for c in ("batch", "heads", "seq_kv", "head_dim"))
    mla = query.op == "mla_generation"
    value_width = np.minimum(width, MLA_VALUE) if mla else width
    key_heads = np.ones(1) if mla else query["kv_heads"]
    narrow = _narrow(query)
    bits = number_format(query.kv_dtype or query.dtype).bits
    stored = 1 + values["widen"] if narrow else values["stored"]
    token = (width if mla else 2 * width) * bits / 8 * stored
    if not mla:
        window = query["window"]
        hidden = np.where(window > 0, np.maximum(length - window, 0), 0)
        length = length - (1 - values["beyond"]) * hidden

    group = heads / key_heads
    each = np.minimum(group, round(values["rows"]))  # query heads of one block
    blocks = batch * key_heads * np.ceil(group / each)
    rows = np.maximum(each, values["padded"])
    busy = rows * ((width + value_width) * rates.product + rates.score)
    busy = (busy * values["narrow"] if narrow else busy) + token / rates.port
    alone = token / rates.block
    cache_bytes = batch * key_heads * length * token
    query_bytes = 2 * batch * heads * (width + value_width)
    fill = (cache_bytes + query_bytes) / rates.room if rates.room else np.full(1, 1e3)
    fill *= fill
    warm = 1 / (1 + fill * fill)
    per_byte = warm / rates.cache + (1 - warm) / rates.memory
    memory = cache_bytes * per_byte
    beside = values["passes"] * query_bytes * per_byte
    # Partial results in fp32 go through the cache.
    partial = 8 * batch * heads * value_width / rates.cache
    core, total = _split(rates, values, blocks, length, busy, alone, partial, memory)
    return rates.floor + np.maximum(beside + total, rates.host), core, memory + beside


def _split(
    rates: _Rates, values: Values, blocks: Floats, length: Floats, busy: Floats, alone: Floats,
    partial: Floats, memory: Floats,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Seconds of the blocks, and in all, for the number of parts that takes the least.

    ``busy`` and ``alone``: seconds per token of a unit whose blocks share it, and more of a block
    that waits for its loads. ``partial``: seconds of one part's result through the cache.
    """
    parts = PARTS[: np.searchsorted(PARTS[:, 0], round(values["parts"]), side="right")]
    tokens = np.maximum(length / parts, np.minimum(length, values["chunk"]))
    shared = values["block"] * rates.scale + tokens * busy
    one = values["setup"] * rates.scale + tokens * np.maximum(rates.slots * busy, alone)
    deal = blocks * parts / rates.units
    core = np.maximum(_waves(deal / rates.slots, values) * one, _waves(deal, values) * shared)
    total = np.maximum(core, memory)
    total += values["serial"] * np.minimum(core, memory)
    adding = values["part"] * rates.scale + partial
    total[1:] += values["combine"] * rates.scale + parts[1:] * adding
    best = total.argmin(axis=0)
    rows = np.arange(total.shape[1])
    return core[best, rows], total[best, rows]


def _waves(deal: Floats, values: Values) -> Floats:
    """Times that one place works when ``deal`` blocks come to it on average."""
    soft = values["persistence"]
    return (1 - soft) * np.ceil(deal) + soft * np.maximum(deal, 1)


def features(query: Query) -> Mapping[str, Floats]:
    """What a learned residual may look at: shapes and formats alone."""
    batch, heads, length = query["batch"], query["heads"], query["seq_kv"]
    mla = query.op == "mla_generation"
    flat = np.zeros(1)
    key_heads = flat + 1 if mla else query["kv_heads"]
    window = flat if mla else query["window"]
    seen = np.where(window > 0, np.minimum(window, length), length)
    return {
        "length": length,
        "heads": batch * heads,
        "blocks": batch * key_heads,
        "batch": batch,
        "group": heads / key_heads,
        "work": batch * key_heads * seen * query["head_dim"],
        "width": query["head_dim"],
        "window": window,
        "format": flat + number_format(query.dtype).bits + 4 * _narrow(query),
    }


_CORE = (Column(name="batch"), Column(name="seq_kv"), Column(name="heads"), Column(name="head_dim"))

MODEL = Model(
    name="decode",
    family="attention",
    columns={
        "attention_generation": (*_CORE, Column(name="kv_heads"), Column(name="window", least=0)),
        "mla_generation": _CORE,
    },
    shared=SHARED,
    own=OWN,
    seconds=seconds,
    features=features,
)
