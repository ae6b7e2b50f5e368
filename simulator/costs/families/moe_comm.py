"""Dispatch and combine of mixture-of-experts tokens between ranks.

The throughput form (``ht``) sends a token once to each rank, and once to each domain of ranks,
that holds one of its experts; a budget of units moves it. The low-latency form (``ll``) sends one
copy per expert, and each expert's copies are moved by units of its own, so that few experts leave
most of the device idle. Both pay a start, more of it where the ranks span domains, and overlap
what they send inside a domain with what leaves it. The ``step`` operators are a framework's whole
step around the kernels: constants of their own, same form. Rates per unit and per expert: fits on
DeepEP's kernels (deepseek-ai/DeepEP at dd758caf); form: its legacy and elastic buffers.

Knows shapes, links and constants. Never touches files, measurements or a clock.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simulator.costs.fabric import fabric
from simulator.costs.families.model import Column, Floats, Model, Prior, Query, Terms, Values
from simulator.costs.target import Target

MICRO, GIGA = 1e-6, 1e9

_BYTES = {
    "dispatch": {"bf16": 2.0, "fp16": 2.0, "nvfp4": 9 / 16, "fp4": 9 / 16},
    "combine": {"fp4": 9 / 16},
}
"""Bytes of an element with its share of the scales, by the format that the shape names."""
_USUAL = {"dispatch": 33 / 32, "combine": 2.0}
"""Else fp8 with a scale of four bytes for 128 elements there, and bf16 back."""

_DTYPES = ("", "bf16", "fp8", "nvfp4", "fp4")

OPS = tuple(
    f"moe_{way}_{form}{step}"
    for step in ("", "_step")
    for way in ("dispatch", "combine")
    for form in ("ht", "ll")
)
_COLUMNS = tuple(Column(name=name) for name in ("tokens", "hidden", "topk", "experts", "n_gpus"))

OWN: Mapping[str, Prior] = {
    # microseconds
    "dispatch_start": Prior(value=25.0, spread=0.8, by_generation=0.3),
    "combine_start": Prior(value=30.0, spread=0.8, by_generation=0.3),
    "rank_step": Prior(value=0.3, spread=0.3),
    "far_start": Prior(value=8.0, spread=0.8),
    "far_step": Prior(value=5.0, spread=1.0),
    "per_expert": Prior(value=0.02, spread=0.7, by_generation=0.3),
    "per_token": Prior(value=0.5, spread=0.8, by_generation=0.2),
    # shares of what links reach
    "dispatch_near": Prior(value=0.75, spread=0.3, by_generation=0.2, low=0.05, high=1.16),
    "combine_near": Prior(value=0.75, spread=0.3, by_generation=0.2, low=0.05, high=1.16),
    "dispatch_far": Prior(value=0.7, spread=0.3, low=0.05, high=1.0),
    "combine_far": Prior(value=0.7, spread=0.3, low=0.05, high=1.0),
    "spine": Prior(value=0.5, spread=0.3, low=0.1, high=1.0),
    # GB/s of one unit, or of one expert's units
    "dispatch_unit": Prior(value=17.0, spread=0.3, by_generation=0.15),
    "combine_unit": Prior(value=18.0, spread=0.3, by_generation=0.15),
    "far_unit": Prior(value=1.8, spread=0.4),
    "dispatch_expert": Prior(value=3.5, spread=0.4, by_generation=0.15),
    "combine_expert": Prior(value=10.0, spread=0.6, by_generation=0.15),
    # share of the copies for several experts of one rank that go as one; no fit moves it
    "merge": Prior(value=1e-3, spread=5e-4, low=1e-4, high=1.0),
    # passes over the device memory
    "passes": Prior(value=1.0, spread=0.7),
}  # fmt: skip

_LL = {
    "dispatch_start": 12.0, "combine_start": 12.0, "dispatch_near": 0.65, "combine_near": 0.65,
    "dispatch_far": 0.9, "combine_far": 0.9,
}  # fmt: skip
_HT = {
    "merge": 1.0,
    "dispatch_far": 0.9,
    "combine_far": 0.9,
    "dispatch_start": 30.0,
    "combine_start": 45.0,
    "far_start": 15.0,
    "far_step": 30.0,
}
PRIORS: Mapping[str, Mapping[str, float]] = {
    "deepep-ht": _HT,
    "deepep-ll": _LL,
    "vllm-ht-step": {"merge": 1.0, "dispatch_start": 250.0, "combine_start": 90.0},
    "vllm-v2-step": {"merge": 1.0, "dispatch_start": 250.0, "combine_start": 150.0},
    "vllm-ll-step": {**_LL, "dispatch_start": 50.0, "combine_start": 50.0},
    "trtllm-ht-step": {"merge": 1.0, "dispatch_start": 65.0, "combine_start": 55.0},
    "trtllm-ll-step": {**_LL, "dispatch_start": 70.0, "combine_start": 45.0},
    # Shares of a full mesh that MORI at 624002c8 states for eight ranks.
    "mori-ht": {
        **_HT,
        "dispatch_near": 0.8,
        "combine_near": 0.95,
        "dispatch_far": 0.8,
        "combine_far": 1.0,
    },
    "mori-ll": {**_LL, "merge": 1.0, "dispatch_near": 0.53, "combine_near": 0.65},
}
TREES = 70
POD = 4
"""Domains under one switch of the network of the cluster that was timed. More of them shared
narrower ways there (``spine``): 22 GB/s a rank at 64 ranks, whatever the units, where 46 GB/s
were reached at 32. That is the cluster's, not the device's, so the operator alone knows nothing
of it."""
KIN = False
"""A start depends on the host that a generation was measured in: kin say nothing of it."""
STAND_INS: Mapping[str, tuple[str, ...]] = {
    "mori-ht": ("deepep-ht",),
    "mori-ll": ("deepep-ll",),
    "vllm-v2-step": ("vllm-ht-step",),
}
DESCRIPTIONS: Mapping[str, str] = {
    "deepep-ht": "DeepEP normal kernels, transmit and notify.",
    "deepep-ll": "DeepEP low-latency kernels.",
    "vllm-ht-step": "vLLM's step around DeepEP's normal kernels, 0.24.",
    "vllm-v2-step": "vLLM's step around DeepEP V2, 0.24.",
    "vllm-ll-step": "vLLM's step around DeepEP's low-latency kernels, 0.24.",
    "trtllm-ht-step": "TensorRT-LLM's step around DeepEP's normal kernels, 1.3.",
    "trtllm-ll-step": "TensorRT-LLM's step around DeepEP's low-latency kernels, 1.3.",
}


def seconds(query: Query, target: Target, values: Values) -> Terms:
    """Seconds of each dispatch or combine.

    ``tokens`` per rank of ``hidden`` elements, each for ``topk`` of ``experts`` experts spread
    over ``n_gpus`` ranks; ``sms``, where positive, is the budget of units of the throughput form,
    and ``nodes`` the hosts, -1 where not known. ``row`` states the bytes of a row; ``near``,
    ``crossing``, ``far`` and ``handled`` the rows that the fullest rank moves
    (``mapping.exchange.Volume``), in place of what even routing gives.
    """
    _, way, form = query.op.split("_")[:3]
    tokens, hidden, topk = query["tokens"], query["hidden"], query["topk"]
    experts, n = query["experts"], query["n_gpus"]
    none = np.full(query.rows, -1.0)
    links = fabric(target, n, query.sizes.get("nodes", none))
    row = hidden * _BYTES[way].get(query.dtype, _USUAL[way])
    row = query.sizes.get("row", row)
    payload = tokens * row
    ranks = n * (1 - (1 - 1 / n) ** topk)
    copies = topk + values["merge"] * (ranks - topk)
    if form == "ht":
        # Out of a domain goes one copy for each other domain, and is spread there.
        near = payload * copies
        far = payload * links.islands * (1 - (1 - 1 / links.islands) ** topk)
        crossing = near * (1 - 1 / links.size)
    else:
        # A rank also writes the copies for itself as if they were another's.
        near = crossing = payload * copies * links.size / n
        far = payload * copies
    far = far * (1 - 1 / links.islands)
    handled = tokens * topk
    if "near" in query.sizes:
        near, crossing = query["near"] * row, query["crossing"] * row
        far, handled = query["far"] * row, query["handled"]
    units = _units(query, target, form, experts)
    rate = values[f"{way}_unit" if form == "ht" else f"{way}_expert"] * GIGA
    wire = crossing / (links.inside * values[f"{way}_near"])
    moved = near / (units * rate)
    outside = links.outside * values[f"{way}_far"]
    if query.source and form == "ht":
        outside = outside * np.where(links.islands > POD, values["spine"], 1.0)
    away = far / outside
    if form == "ht":
        # A unit has a thread group for each other domain, so more domains keep it busier.
        others = np.maximum(links.islands - 1, 1.0)
        sent = far / (units * others * values["far_unit"] * GIGA)
        away = np.maximum(away, np.where(far > 0, sent, 0.0))
    near_time = np.maximum(wire, moved)
    transfer = np.cbrt(near_time * near_time * near_time + away * away * away)
    memory = values["passes"] * handled * row / target.bandwidth
    start = values[f"{way}_start"] + values["rank_step"] * np.log2(np.maximum(n / 4, 1.0))
    start = start + np.where(
        links.islands > 1, values["far_start"] + values["far_step"] * np.log2(links.islands), 0.0
    )
    start = start + values["per_expert"] * experts
    if form == "ht":
        start = start + values["per_token"] * tokens / units
    latency = start * MICRO
    return Terms(
        seconds=latency + transfer + memory,
        parts={"link": transfer, "memory": memory, "latency": latency},
    )


def _units(query: Query, target: Target, form: str, experts: Floats) -> Floats:
    """Units that move tokens: the budget of the throughput form, else one for each expert."""
    most = float(target.units)
    if form == "ll":
        return np.minimum(experts, most)
    budget = query.sizes.get("sms", np.zeros(query.rows))
    return np.where(budget > 0, np.minimum(budget, most), most)


def features(query: Query) -> Mapping[str, Floats]:
    """What a learned residual may look at: shapes alone."""
    rows = np.ones(query.rows)
    return {
        "tokens": np.log2(query["tokens"]),
        "bytes": np.log2(query["tokens"] * query["hidden"]),
        "topk": query["topk"],
        "experts": np.log2(query["experts"]),
        "n_gpus": query["n_gpus"],
        "sms": query.sizes.get("sms", rows * 0.0),
        "op": rows * OPS.index(query.op),
        "dtype": rows * _DTYPES.index(query.dtype if query.dtype in _DTYPES else ""),
    }


MODEL = Model(
    name="moe_comm",
    family="moe_comm",
    columns=dict.fromkeys(OPS, _COLUMNS),
    shared={},
    own=OWN,
    seconds=seconds,
    features=features,
)
