"""Operators that touch each element a few times: casts, norms, activations, softmax, copies.

A row per (m, k): m rows of k elements. The kernel takes a launch, then as long as the slower of
memory and units. Memory is a mix of the cache, where what one call touches stays for the next,
and the device; rows that a unit cannot hold are read again for each further pass. Units work on
whole rows: each costs clocks per row and per element, and a lone row has a latency of its own.
Knows shapes, a target and constants. Never touches tables or a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from simulator.costs.families.model import (
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
from simulator.ops.pointwise import COST
from simulator.specs.precision import FORMATS

EXPONENTIAL = 35.0
"""Vector FLOP of one exponential with its division (LLMCompass at b95c6c95, A100 vector unit)."""

_EAGER = frozenset({"neusight"})
"""Campaigns that launch from the host, one kernel at a time."""
RESIDENT = 2048
"""Threads that a unit holds at once where the device does not state it."""
_FLAT_OPS = frozenset({"add", "gelu", "silu", "relu2"})
"""Operators whose rows no kernel walks one by one."""
_SLACK = 0.01  # of a step, so that a step that is a little short does not count for two
_CHUNK = 4096  # rows at a time: the columns then stay in the cache of one core


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What an operator moves and computes per element of its (m, k) result."""

    reads: float
    writes: float
    flops: float
    again: float = 0.0
    """Further passes over the first input, before the one that writes."""
    registers: int = 0
    """Longest row that the block keeps in its registers between passes."""
    input: str = ""
    """Format of the input, where the query's is the result's."""

    @classmethod
    def of(cls, function: str, *, exponentials: float = 0, **more: object) -> Kind:
        """The kind of a function of the operator catalogue."""
        reads, writes, flops = COST[function]
        flops += EXPONENTIAL * exponentials
        return cls(reads=reads, writes=writes, flops=flops, **more)  # type: ignore[arg-type]


KINDS: Mapping[str, Kind] = {
    **{name: Kind.of(name) for name in (
        "relu2", "add", "rope", "gather", "cache_write", "top_k", "weighted_sum",
    )},
    **{name: Kind.of(name, exponentials=1) for name in (
        "gelu", "silu", "gelu_mul", "clamped_silu_mul", "sigmoid_mul",
    )},
    "silu_mul": Kind.of("silu_mul", exponentials=1),
    "rmsnorm": Kind.of("rms_norm", again=1),
    "add_rmsnorm": Kind.of("add_rms_norm", again=1),
    "layernorm": Kind.of("layer_norm", again=1),
    "group_norm_silu": Kind.of("group_norm_silu", again=1, exponentials=1),
    "softmax": Kind.of("softmax", again=2, exponentials=2, registers=1024),
    "quantise": Kind.of("quantise"),
    "quant_cast": Kind.of("quantise", input="bf16"),
    "quant_amax": Kind(reads=1, writes=0, flops=2, input="bf16"),
}  # fmt: skip
"""Operators by name; FLOP as in the operator catalogue, an exponential counted apart."""

OWN: Mapping[str, Prior] = {
    "launch": Prior(value=2e-6, spread=0.4),  # s, gap, first fill and drain
    "memory": Prior(value=1.0, spread=0.03, by_generation=0.03, high=1.15),  # of achieved bandwidth
    "cache": Prior(value=0.15, spread=0.3, by_generation=0.1, high=1.2),  # of the units' ports
    "warm": Prior(value=0.9, spread=0.3, by_generation=0.2, high=2.0),  # share kept between calls
    "row": Prior(value=10.0, spread=1.5, by_generation=0.2),  # clocks of one unit per row
    "element": Prior(value=0.1, spread=0.4, by_generation=0.1),  # clocks of one unit per element
    "lone": Prior(value=0.1, spread=1.5, by_generation=0.2),  # clocks per element of one row alone
    "wait": Prior(value=0.01, spread=0.4),  # more of them where it comes from the device memory
    "threads": Prior(value=512.0, spread=1e-4),  # largest block that walks a row
    "vector": Prior(value=8.0, spread=1e-4),  # elements that one of its threads takes at once
    "near": Prior(value=1.0, spread=0.5),  # of a unit's memory that keeps the rows it works on
    "far": Prior(value=200.0, spread=0.5),  # units whose rows share the last cache
    "passes": Prior(value=1.0, spread=1e-4),  # over the bytes that the operator must move
    "work": Prior(value=1.0, spread=0.08),  # vector instructions over those counted
    "host": Prior(value=1e-5, spread=0.7, by_generation=0.5),  # s, launched from the host
}
_FLAT = {  # elements alone, with no block for each row
    "row": 1e-3, "lone": 1e-9, "element": 0.01, "wait": 1e-3, "threads": 32.0, "vector": 1.0,
}  # fmt: skip
_SCALAR = {"element": 0.7, "wait": 0.2, "lone": 1.0, "threads": 1024.0, "vector": 1.0}
PRIORS: Mapping[str, Mapping[str, float]] = {
    "trtllm-cast": {**_FLAT, "element": 0.15},
    "torch-elementwise": _FLAT,
    "torch-add-twice": {**_FLAT, "passes": 2.0},
    "vllm-cast": {"row": 150.0},
    "vllm-activation": _SCALAR,
    "vllm-rmsnorm": _SCALAR,
    "torch-layernorm": {
        "row": 500.0,
        "element": 0.1,
        "lone": 2.0,
        "threads": 128.0,
        "vector": 4.0,
        "work": 4.0,
        "wait": 0.1,
    },
    "torch-softmax": {"element": 0.02, "lone": 0.5, "vector": 4.0},
    "sgl-cast": {"passes": 10.0, "launch": 6e-6},
}
NEVER_FITTED = tuple(WAITED)
TREES = 50


def seconds(query: Query, target: Target, values: Values) -> Terms:
    """Seconds of each operator; columns m (rows) and k (elements of a row)."""
    fixed = _fixed(query, target, values)
    moving, working = np.empty(query.rows), np.empty(query.rows)
    for first in range(0, query.rows, _CHUNK):
        part = slice(first, first + _CHUNK)
        m, k = query["m"][part], query["k"][part]
        missed = _missed(query, target, values, m, k)
        moving[part] = _memory(query, target, values, m, k, missed)
        working[part] = _units(query, target, values, m, k, missed)
    # The eighth root of the sum of eighth powers: the slower of the two, a little more where
    # they are alike.
    a, b = (moving * moving) ** 2, (working * working) ** 2
    body = np.sqrt(np.sqrt(np.sqrt(a * a + b * b)))
    return Terms(
        seconds=fixed + body,
        parts={"memory": moving, "compute": working, "latency": np.full(query.rows, fixed)},
    )


def _fixed(query: Query, target: Target, values: Values) -> float:
    """Seconds before and after the kernel's work: from the host, or between nodes of a graph."""
    launch = target.stack.launch
    if query.source in WAITED:
        return launch.calls.get(query.op, 2 * launch.host)
    if query.source:
        return values["launch"] + (values["host"] if query.source in _EAGER else 0.0)
    return max(values["launch"], launch.gap + target.stack.fill)


def _width(name: str) -> float:
    return FORMATS[name].bits_per_element / 8


def _missed(query: Query, target: Target, values: Values, m: Floats, k: Floats) -> Floats:
    return _beyond(m * k * _once(query, values) / (values["warm"] * target.cache + 1.0))


def _once(query: Query, values: Values) -> float:
    """Bytes per element that the operator must move."""
    kind = KINDS[query.op]
    read = kind.reads * _width(kind.input or query.dtype)
    return (read + kind.writes * _width(query.kv_dtype or query.dtype)) * values["passes"]


def _memory(
    query: Query, target: Target, values: Values, m: Floats, k: Floats, missed: Floats
) -> Floats:
    """Seconds of the memory: the operator's own bytes, and rows that are read again."""
    kind = KINDS[query.op]
    device = target.bandwidth * values["memory"]
    ports = target.fill * target.units * values["cache"]
    cache = max(min(ports, target.cache_bandwidth), device)
    moved = m * k * _once(query, values) * (missed / device + (1 - missed) / cache)
    if not kind.again:
        return np.asarray(moved)
    # A further pass finds its row in the unit, else in the cache, else in the device memory.
    local = target.accelerator.level("lds")
    room = 0.0 if local is None else local.capacity
    threads, _ = _walk(k, values)
    row = k * _width(query.dtype)
    held = row * (target.accelerator.compute.threads or RESIDENT) / threads
    near = _beyond(held / (values["near"] * room + 1.0))
    far = _beyond(held * values["far"] / (target.cache + 1.0)) * missed
    again = m * row * kind.again * np.where(k <= kind.registers, 0.0, near)
    return np.asarray(moved + again * (far / device + (1 - far) / cache))


def _beyond(x: Floats) -> Floats:
    """Share that finds no room, of what is ``x`` times as large as the room."""
    x = x * x
    x = x * x
    return np.asarray(x / (1 + x))


def _walk(k: Floats, values: Values) -> tuple[Floats, Floats]:
    """Threads of the block of a row of k, a power of two with two steps or more; whole steps."""
    vector, most = values["vector"], values["threads"]
    threads = np.clip(np.exp2(np.ceil(np.log2(k / (2 * vector)) - _SLACK)), 32.0, most)
    step = threads * vector
    return threads, np.ceil(k / step - _SLACK) * step


def _units(
    query: Query, target: Target, values: Values, m: Floats, k: Floats, missed: Floats
) -> Floats:
    """Seconds of the units: rows shared among them, vector FLOP, or the latency of a lone row."""
    clock = target.accelerator.compute.clock
    _, steps = _walk(k, values)
    held = RESIDENT / (target.accelerator.compute.threads or RESIDENT)
    vector = values["work"] * KINDS[query.op].flops * clock / target.vector_rate()
    each = (values["element"] + values["wait"] * missed) * held + vector
    shared = (values["row"] + each * steps) * m / target.units
    return np.asarray(np.maximum(shared, values["lone"] * steps) / clock)


def features(query: Query) -> Mapping[str, Floats]:
    """What the learned residual looks at: sizes, how rows fill steps, and the operator."""
    m, k = query["m"], query["k"]
    # Without rows to walk, only the number of elements matters.
    rows, row = (np.ones_like(m), np.ones_like(m)) if query.op in _FLAT_OPS else (m, k)
    return {
        "m": np.log2(rows), "k": np.log2(row), "mk": np.log2(m * k), "k_over": row % 1024,
        "power": row / np.exp2(np.floor(np.log2(row))),
        "op": np.full(len(m), float(list(KINDS).index(query.op))),
    }  # fmt: skip


MODEL = Model(
    name="pointwise",
    family="elementwise",
    columns={name: (Column(name="m"), Column(name="k")) for name in KINDS},
    shared={},
    own=OWN,
    seconds=seconds,
    features=features,
)
