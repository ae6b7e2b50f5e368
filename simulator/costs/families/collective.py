"""Collectives over the links of a group: NCCL-type rings and pairs, one- and two-shot all-reduce.

Every library is the least over its ways to do it. A ring sends (n - 1)/n of the message once
(all-gather, reduce-scatter) or twice (all-reduce) in one of three protocols, as NCCL has them: LL
with flags in every word, LL128 with one in a line, Simple with one in a chunk; each has its start,
its cost per step, and its share of the link. The own chunk of a device is copied by the same
threads and costs part of a pass over the wire. All-to-all and send-receive go to each peer at
once. A switch that adds (NVLink SHARP) is one more way to all-reduce. One- and two-shot kernels
read their peers' messages at once, all of each or one part. Form and protocol shares: NCCL tuner
at 5067397c, src/graph/tuning.cc, and fits on all-gather of 2, 4 and 8 devices.

Knows shapes, links and constants. Never touches files, measurements or a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from simulator.costs.fabric import Fabric, fabric
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

MICRO = 1e-6
GIGA = 1e9
NEVER = 1e6
"""Start, in microseconds, of a way that a library does not have."""

FAR = 1e12
"""A stride that leaves every domain."""

KERNEL_ONLY = ("vidur",)
"""Campaigns whose times are those of the kernel, the wait for the slowest rank included."""
STREAM = ("aiconfigurator", "llmcompass")
"""Campaigns that launch collectives one by one from the host."""
PER_RANK = ("oneccl",)
"""Frameworks whose benchmark states the bytes that one rank gives to an all-gather."""
WAIT_NORM = 3.0

_NAMES = (Column(name="message_bytes"), Column(name="n_gpus"))
OPS = (
    "all_reduce", "all_gather", "reduce_scatter", "alltoall", "send_recv", "all_reduce_custom",
)  # fmt: skip
_ADDS = {"fp16", "bf16", "fp32"}
"""Formats that a switch adds."""

SHARED = {"narrow": Prior(value=0.3, spread=1.0, low=1e-3, high=3.0)}
"""``narrow``: more of the own chunk's cost where a reduction adds one-byte elements."""

OWN: Mapping[str, Prior] = {
    # microseconds
    "start": Prior(value=7.0, spread=0.4, by_generation=0.5),
    "graph": Prior(value=4.0, spread=0.4, by_generation=0.3),
    "kernel": Prior(value=6.0, spread=0.5, by_generation=0.4),
    "wait": Prior(value=40.0, spread=0.4, by_generation=0.4),
    "ll128_start": Prior(value=2.0, spread=0.6, by_generation=0.5),
    "simple_start": Prior(value=10.0, spread=0.6, by_generation=0.5),
    "pair_start": Prior(value=6.0, spread=0.5, by_generation=0.4),
    "switch_start": Prior(value=20.0, spread=0.4, by_generation=0.3),
    "shot_start": Prior(value=3.5, spread=0.4, by_generation=0.4),
    "two_start": Prior(value=4.0, spread=0.6, by_generation=0.4),
    # steps, in units of the link's own
    "step": Prior(value=1.0, spread=0.3, by_generation=0.25),
    "ll128_step": Prior(value=0.5, spread=0.6, by_generation=0.4),
    "simple_step": Prior(value=3.0, spread=0.7, by_generation=0.7),
    "pair_step": Prior(value=1.2, spread=0.5, by_generation=0.3),
    "shot_step": Prior(value=0.4, spread=0.6, by_generation=0.4),
    # shares of what the link reaches
    "ll": Prior(value=0.05, spread=0.6, by_generation=0.4, low=1e-3, high=1.0),
    "ll128": Prior(value=0.5, spread=0.3, by_generation=0.25, low=1e-2, high=1.1),
    "simple": Prior(value=0.93, spread=0.1, by_generation=0.1, low=0.1, high=1.2),
    "pair": Prior(value=0.9, spread=0.2, by_generation=0.15, low=0.05, high=1.3),
    "switch": Prior(value=0.7, spread=0.2, by_generation=0.15, low=0.05, high=1.0),
    "one_shot": Prior(value=0.75, spread=0.3, by_generation=0.25, low=0.02, high=1.3),
    "two_shot": Prior(value=1.0, spread=0.3, by_generation=0.25, low=0.02, high=3.0),
    # GB/s
    "channel": Prior(value=7.0, spread=0.5, by_generation=0.25),
    # passes over the wire that other work costs
    "copy": Prior(value=0.5, spread=0.4, by_generation=0.25, low=1e-2, high=3.0),
    "add": Prior(value=0.5, spread=0.4, by_generation=0.25, low=1e-2, high=3.0),
    "add_copy": Prior(value=0.6, spread=0.4, by_generation=0.25, low=1e-2, high=3.0),
    "pair_copy": Prior(value=0.4, spread=0.7, by_generation=0.4, low=1e-2, high=3.0),
    "two_copy": Prior(value=0.3, spread=0.7, by_generation=0.3, low=1e-3, high=5.0),
}  # fmt: skip

_NO_SHOT = {"shot_start": NEVER}
_NO_RING = {
    "start": NEVER, "graph": NEVER, "kernel": NEVER, "wait": 1.0,
}  # fmt: skip
PRIORS: Mapping[str, Mapping[str, float]] = {
    "nccl": _NO_SHOT,
    "oneccl": {**_NO_SHOT, "start": 10.0, "simple": 0.7},
    # 13 us on a stream and 6 to 7.5 us in a graph for a small all-reduce of eight MI300X.
    "rccl": {**_NO_SHOT, "start": 9.0, "step": 0.35, "simple_step": 3.5},
    "aiter-allreduce": {**_NO_RING, "shot_start": 5.0},
    "trtllm-allreduce": _NO_RING,
    "vllm-allreduce": _NO_RING,
    "sglang-allreduce": _NO_RING,
}

KIN = False
"""A start depends on the host that a generation was measured in: kin say nothing of it."""
STAND_INS: Mapping[str, tuple[str, ...]] = {
    "rccl": ("nccl",),
    "oneccl": ("nccl",),
    "aiter-allreduce": ("sglang-allreduce",),
}
TREES = 70
NEVER_FITTED = tuple(WAITED)
DESCRIPTIONS: Mapping[str, str] = {
    "nccl": "NCCL 2.27 to 2.29, by its own benchmark or alone in a graph.",
    "oneccl": "oneCCL 2021.15 to 2021.17.",
    "trtllm-allreduce": "TensorRT-LLM one- and two-shot all-reduce, 1.0 to 1.3.",
    "vllm-allreduce": "vLLM custom and symmetric-memory all-reduce, 0.14 to 0.24.",
    "sglang-allreduce": "SGLang custom all-reduce, 0.5.",
}


def seconds(query: Query, target: Target, values: Values) -> Terms:
    """Seconds of each collective.

    ``message_bytes`` is the whole buffer of one rank: what all-reduce leaves, all-gather gathers,
    reduce-scatter and all-to-all take, send-receive sends. ``n_gpus`` ranks; ``nodes`` where the
    shape names it, -1 or absent where it is not known. ``stride``, where named, is how many devices
    apart the ranks stand; ``ranks`` the chain that a send-receive is one pair of.
    """
    if "+" in query.source:
        return _median(
            [replace(query, source=name) for name in query.source.split("+")], target, values
        )
    links = links_of(query, target)
    if query.op == "send_recv":
        wire, latency = _pairs(query, links, values, query["message_bytes"])
    elif query.op == "alltoall":
        wire, latency = _pairs(query, links, values, None)
    else:
        wire, latency = _rings(query, links, values)
        if query.op in ("all_reduce", "all_reduce_custom"):
            for other in (_shots(query, links, values), _switch(query, links, values)):
                better = wire + latency > other[0] + other[1]
                wire = np.where(better, other[0], wire)
                latency = np.where(better, other[1], latency)
    total = wire + latency
    if query.source in KERNEL_ONLY and query.op != "send_recv":
        wait = values["wait"] * MICRO
        total = np.cbrt(total * total * total + wait * wait * wait)
        return Terms(
            seconds=total, parts={"link": wire, "latency": latency, "waiting": total - wire}
        )
    return Terms(seconds=total, parts={"link": wire, "latency": latency})


def links_of(query: Query, target: Target) -> Fabric:
    """The links of each group; of a pair of a longer chain, those of the pair that is slowest."""
    n, stride = query["n_gpus"], query.sizes.get("stride")
    nodes = query.sizes.get("nodes", np.full(query.rows, -1.0))
    if query.op == "send_recv" and stride is not None:
        whole = fabric(target, query.sizes.get("ranks", n), nodes, stride)
        stride = np.where(whole.islands > 1, FAR, stride)
    return fabric(target, n, nodes, stride)


def wide(query: Query, target: Target, values: Values) -> tuple[str, Terms]:
    """The fastest of the ways that pay for groups of many domains, and its name: one row.

    Ring, tree and hierarchical, all in the Simple protocol, with bytes as ``costs.collective`` has
    them and a ring's own work. None of it was measured: it is what the fitted start, step and
    share of the link imply.
    """
    links, m, n = links_of(query, target), query["message_bytes"], query["n_gpus"]
    passes = 2.0 if query.op.startswith("all_reduce") else 1.0
    own = values[{"all_gather": "copy", "reduce_scatter": "add"}.get(query.op, "add_copy")]
    first = (_start(query, values) + values["simple_start"]) * MICRO
    slow = values["step"] + values["simple_step"]
    s, i = links.size, links.islands
    up, out = links.chain * values["simple"], links.outside * values["simple"]
    far = (i - 1) * links.far_step
    short = np.log2(i) * links.far_step if passes == 2.0 else far
    inner = m / s * (passes * (s - 1) + own) / up
    found = {
        "ring": (m / n * (passes * (n - 1) + own) / np.minimum(up, out * s), passes * links.around),
        "hierarchical": (
            np.maximum(inner, passes * m / s * (i - 1) / i / out),
            passes * ((s - 1) * links.step + far),
        ),
        "hierarchical tree": (
            np.maximum(inner, passes * m / s / out), passes * ((s - 1) * links.step + short),
        ),
    }  # fmt: skip
    if passes == 2.0:
        found["tree"] = (passes * m / np.minimum(up, out * s), passes * links.across)
    name = min(found, key=lambda way: float((found[way][0] + slow * found[way][1])[0]))
    wire, steps = found[name]
    late = first + slow * steps
    if s[0] <= 1:  # nothing to do inside
        name = {"hierarchical": "ring", "hierarchical tree": "tree"}.get(name, name)
    if s[0] <= 1:  # nothing to do inside
        name = {"hierarchical": "ring", "hierarchical tree": "tree"}.get(name, name)
    return name.split()[0], Terms(seconds=wire + late, parts={"link": wire, "latency": late})


def chosen(query: Query, target: Target, values: Values) -> str:
    """The name of the way that ``seconds`` takes for a query of one row."""
    if query.op in ("send_recv", "alltoall"):
        return "direct" if query.op == "send_recv" else "pairwise"
    links, m, n = links_of(query, target), query["message_bytes"], query["n_gpus"]
    rings = _rings(query, links, values)
    if not query.op.startswith("all_reduce"):
        return "ring"
    found = {"ring": rings, "two-shot": _shots(query, links, values)}
    found["in-switch"] = _switch(query, links, values)
    name = min(found, key=lambda way: float((found[way][0] + found[way][1])[0]))
    once = m * (n - 1) / (links.direct * values["one_shot"])
    if name == "two-shot" and float(found[name][0][0]) == float(once[0]):
        return "one-shot"
    around = _start(query, values) * MICRO + values["step"] * 2 * links.around
    short = name == "ring" and float(rings[1][0]) < float(around[0])
    return "tree" if short else name


def _median(queries: Sequence[Query], target: Target, values: Values) -> Terms:
    """The median over campaigns that timed the same shapes in their own ways."""
    found = [seconds(query, target, values) for query in queries]
    middle = np.median(np.stack([terms.seconds for terms in found]), axis=0)
    return Terms(seconds=middle, parts=found[0].parts)


def _start(query: Query, values: Values) -> float:
    if query.source in KERNEL_ONLY:
        return values["kernel"]
    if query.source in STREAM and query.op != "all_reduce_custom":
        return values["start"]
    return values["graph"]


def _rings(query: Query, links: Fabric, values: Values) -> tuple[Floats, Floats]:
    """Least over the three protocols."""
    n, message = query["n_gpus"], query["message_bytes"]
    if query.framework in PER_RANK and query.op == "all_gather":
        message = message * n
    passes = 2.0 if query.op.startswith("all_reduce") else 1.0
    own = {"all_gather": "copy", "reduce_scatter": "add"}.get(query.op, "add_copy")
    extra: float = values[own]
    if own != "copy" and query.dtype in ("int8", "fp8"):
        extra *= 1 + values["narrow"]
    volume = message / n * (passes * (n - 1) + extra) / links.ring
    around = passes * links.around
    # A tree is as short as a ring inside a host, and shorter across many.
    first = passes * links.across if passes == 2.0 else around
    start = _start(query, values) * MICRO
    wire: Floats = volume / values["ll"]
    latency: Floats = start + values["step"] * first
    for name in ("ll128", "simple"):
        extra_start = values[f"{name}_start"] * MICRO
        late = start + extra_start + (values["step"] + values[f"{name}_step"]) * around
        slow = volume / values[name]
        better = wire + latency > slow + late
        wire, latency = np.where(better, slow, wire), np.where(better, late, latency)
    return wire, latency


def _pairs(
    query: Query, links: Fabric, values: Values, message: Floats | None
) -> tuple[Floats, Floats]:
    """Every rank to every other at once, or (with ``message``) one to one."""
    n = query["n_gpus"]
    if message is None:
        chunk = query["message_bytes"] / n
        sent = chunk * (n - 1)
        own = chunk * values["pair_copy"]
    else:
        chunk = sent = message
        own = np.zeros(n.shape)
    start = _start(query, values) * MICRO
    late = start + values["pair_step"] * links.step * np.log2(np.maximum(n, 2.0))
    # Small messages to a peer go over one channel, whatever the number of peers.
    flags = chunk / (values["channel"] * GIGA) + sent / (links.direct * values["ll128"])
    plain = (sent + own) / (links.direct * values["pair"])
    plain_late = late + values["pair_start"] * MICRO
    better = flags + late > plain + plain_late
    return np.where(better, plain, flags), np.where(better, plain_late, late)


def _shots(query: Query, links: Fabric, values: Values) -> tuple[Floats, Floats]:
    """One-shot: every rank reads all messages; two-shot: reduce-scatter, then all-gather."""
    n, message = query["n_gpus"], query["message_bytes"]
    start = np.inf if values["shot_start"] >= NEVER else values["shot_start"] * MICRO
    latency = start + values["shot_step"] * links.step * np.log2(n)
    one = message * (n - 1) / (links.direct * values["one_shot"])
    part = message / n * (n - 1)
    two = (2 * part / values["two_shot"] + message * values["two_copy"]) / links.direct
    late = latency + values["two_start"] * MICRO
    better = one + latency > two + late
    return np.where(better, two, one), np.where(better, late, latency)


def _switch(query: Query, links: Fabric, values: Values) -> tuple[Floats, Floats]:
    """The switch adds: each rank sends its message once and gets the sum once."""
    n, message = query["n_gpus"], query["message_bytes"]
    able = links.reduces and query.dtype in _ADDS
    inside = (links.islands <= 1) & (n > 2)
    start = (_start(query, values) + values["switch_start"]) * MICRO
    late = np.where(inside & able, start, np.inf)
    wire = message * n / (np.maximum(n - 1, 1) * links.inside * values["switch"])
    return wire, late


def features(query: Query) -> Mapping[str, Floats]:
    """What a learned residual may look at: the shape and the convention of the timing."""
    size, n = query["message_bytes"], query["n_gpus"]
    rows = np.ones(query.rows)
    return {
        "size": np.log2(size),
        "chunk": np.log2(size / n),
        "n_gpus": n,
        "op": rows * OPS.index(query.op),
        "kernel": rows * (query.source in KERNEL_ONLY),
        "narrow": rows * (query.dtype == "int8"),
    }


MODEL = Model(
    name="collective",
    family="collective",
    columns=dict.fromkeys(OPS, _NAMES),
    shared=SHARED,
    own=OWN,
    seconds=seconds,
    features=features,
)
