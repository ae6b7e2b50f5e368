"""Seconds of one operator alone on a device, from the fitted models: what the engine is held to.

Knows operators, models, fits and stacks. Never touches a clock or files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from simulator.costs.collective import Way, fastest, ways
from simulator.costs.families.collective import chosen, links_of, wide
from simulator.costs.families.experts import layer_seconds
from simulator.costs.families.library import REFERENCE, distance, rules_of, split, values_for
from simulator.costs.families.model import Query, Terms, Values, model_of
from simulator.costs.families.of_op import layer_of, query_of, share_of_layer
from simulator.costs.target import Target
from simulator.ops.collective import Collective
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Op
from simulator.ops.pointwise import MOVES, Pointwise
from simulator.result import Bound
from simulator.specs.precision import number_format
from simulator.tables.predict import interval, shipped_fit
from simulator.units import Bytes, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """One operator in a captured graph, the gap to the next kernel included."""

    seconds: Seconds
    lower: float
    """Factor of the 80 % interval."""
    upper: float
    distance: str
    family: str
    model: str
    """Name of the fit."""
    library: str
    parts: Mapping[Bound, Seconds]
    """What each resource alone would take."""
    way: str = ""
    """The algorithm of a collective."""


def alone(op: Op, target: Target) -> Alone | None:
    """The fitted time of ``op``, or None where the stack has no measured library for it.

    Never below what the device's peaks allow.
    """
    query = layer_of(op) if isinstance(op, GroupedMatmul) else query_of(op)
    return None if query is None else _answer(query, op, target)


def _terms(op: Op, query: Query, target: Target, values: Values) -> tuple[Terms, float]:
    """What the model says, and the share of it that is this operator's."""
    if isinstance(op, GroupedMatmul):
        hidden, inter = float(query["hidden"][0]), float(query["inter"][0])
        counts = np.array([op.counts], dtype=np.float64)
        tokens = np.array([op.tokens or op.rows], dtype=np.float64)
        gated = bool(query["gated"][0])
        terms = layer_seconds(
            counts, hidden, inter, query.dtype, gated, target, values, tokens=tokens
        )
        return terms, share_of_layer(op)
    return model_of(query.op).seconds(query, target, values), 1.0


def _answer(query: Query, op: Op, target: Target) -> Alone | None:
    try:
        model = model_of(query.op)
    except KeyError:
        return None
    if REFERENCE not in target.stack.libraries.get(model.name, ()):
        return None
    for part in split(target.stack, model.name, query):
        fit = shipped_fit(model.name)
        values = values_for(fit, part.library, target.stack)
        terms, share = _terms(op, query, target, values)
        way, measured = "", True
        if isinstance(op, Collective):
            way, terms = _collective(query, terms, target, values)
            measured = float(links_of(query, target).islands[0]) <= 1
        far = distance(fit, part.library, target) if measured else "new"
        parts = {name: share * float(np.ravel(value)[0]) for name, value in terms.parts.items()}
        binds = max(parts, key=lambda name: parts[name])
        lower, upper = interval(fit, query, target, far, binds, told=False)
        scattered = (slowdown(op, target) - 1) * parts.get("memory", 0.0)
        kept = beside(parts, _kept(op) / target.bandwidth)
        return Alone(
            seconds=max(share * float(terms.seconds[0]) + scattered + kept, floor(op, target)),
            lower=lower,
            upper=upper,
            distance=far,
            family=model.family,
            model=model.name,
            library=part.library,
            parts=parts,
            way=way,
        )
    return None


def beside(parts: Mapping[Bound, Seconds], more: Seconds) -> Seconds:
    """What ``more`` time of the device memory adds to a product: tiles and memory meet as the root
    of their squares, as the models of products have it."""
    compute, memory = parts.get("compute", 0.0), parts.get("memory", 0.0)
    return math.hypot(compute, memory + more) - math.hypot(compute, memory)


def _kept(op: Op) -> Bytes:
    """Bytes of a product's result beyond one in 16 bits, which all were fitted with: gradients of
    weights are wider, and added to what is there."""
    if not isinstance(op, Matmul):
        return 0.0
    size = op.batch * op.m * op.n
    return max(0.0, (1 + op.accumulate) * number_format(op.out).bytes(size) - 2.0 * size)


def _collective(query: Query, terms: Terms, target: Target, values: Values) -> tuple[str, Terms]:
    """The fitted way or, of a group that leaves its domain, a faster one in its constants."""
    way, group = chosen(query, target, values), links_of(query, target)
    if float(group.islands[0]) <= 1:
        return way, terms
    if query.op in ("send_recv", "alltoall"):
        # The pairs that were fitted are of one domain: a step between domains comes on top.
        latency = terms.parts["latency"] + group.far_step
        parts = {**terms.parts, "latency": latency}
        return way, Terms(seconds=terms.seconds + group.far_step, parts=parts)
    other, found = wide(query, target, values)
    faster = float(found.seconds[0]) < float(terms.seconds[0])
    return (other, found) if faster else (way, terms)


def collective(op: Collective, target: Target) -> tuple[Way, Alone | None]:
    """How a collective is done, and what a fit says of it: bytes by tier at rates that take the
    fitted time, or alpha-beta over the links where the stack has no library for it."""
    way, fitted = fastest(op, target), alone(op, target)
    if fitted is None:
        return way, None
    if fitted.way != way.algorithm:
        way = next((one for one in ways(op, target) if one.algorithm == fitted.way), way)
    return way.held(fitted.way, fitted.seconds, fitted.parts["latency"]), fitted


def untouched(ops: Iterable[Collective], before: Target, after: Target) -> tuple[str, ...]:
    """Collectives that take as long over ``after``'s links as over ``before``'s, each kind once:
    what a change of the system has no effect on, in words."""
    same = {
        f"{op.algorithm} among {op.ranks} ranks, {op.stride} apart": None
        for op in ops
        if collective(op, before)[0].seconds == collective(op, after)[0].seconds
    }
    return tuple(same)


def merges(form: str, target: Target) -> bool:
    """Whether dispatch and combine in that form send a rank one copy of a token, however many of
    its experts are there: as its library was fitted; the throughput form does where none is."""
    query = Query(op=f"moe_dispatch_{form}", dtype="fp8", framework=REFERENCE, sizes={})
    rules = rules_of(target.stack, "moe_comm", query)
    if not rules:
        return form == "ht"
    values = values_for(shipped_fit("moe_comm"), rules[0].use, target.stack)
    return values["merge"] > 0.5


def slowdown(op: Op, target: Target) -> float:
    """How much longer the device memory takes for rows that lie anywhere than for a stream."""
    if not (isinstance(op, Pointwise) and op.function in MOVES):
        return 1.0
    row = number_format(op.format).bytes(op.cols)
    return target.bandwidth / target.gather_bandwidth(row)


def floor(op: Op, target: Target) -> Seconds:
    """Seconds that no kernel beats: weights and KV cache, which no cache keeps between two uses, at
    the peak bandwidth of the data sheet. Activations may still lie in a cache."""
    demand = op.demand()
    return (demand.weights + demand.kv_read) / target.peak_bandwidth
