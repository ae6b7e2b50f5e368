"""How tokens spread over experts: counts, and how many distinct experts a batch hits.

Knows how an expert layer says that it routes. Never touches hardware, weights of a model or time.
Chance is passed in as a generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simulator.errors import Fault, InputError, SpecError
from simulator.mapping.distributions import Sampler, chances, distinct, shares
from simulator.mapping.routers import Assignment, capacity, expert_choice, token_choice, within
from simulator.specs.recorded import read_histogram, read_logits, read_trace
from simulator.specs.routing import Routing, parse_routing, routing_faults
from simulator.specs.workload import MoE

__all__ = [
    "Assignment",
    "draw",
    "expected_distinct_experts",
    "expert_counts",
    "notes",
    "require_layers",
]

DRAWN = 1 << 16
"""Most tokens of one stretch, in the order of one single draw."""
SCORED = 1 << 20
"""Most logits that are held at once, but where experts choose."""

Logits = Callable[[int, int], NDArray[np.floating]]
"""Logits, (tokens, experts), of so many tokens from the first one on."""
Stretch = Callable[[int, int], Assignment]
"""The routing of so many tokens from the first one on."""


def draw(
    moe: MoE, tokens: int, rng: np.random.Generator, *, layer: int = 0
) -> Iterator[Assignment]:
    """Route ``tokens`` tokens of one MoE layer, a stretch of them at a time.

    ``layer`` counts the MoE layers of the model from 0, for routings that are recorded by layer:
    those of the file take turns where it has fewer. Of recorded tokens the first are taken, and all
    of them again and again where the batch has more.

    The experts of ``zipf``, ``power_law`` and ``lognormal`` are shuffled by ``rng`` first, so that
    the fullest are not the first; those of a histogram keep their places. Tokens of distributions
    weigh their experts alike; of them ``uniform`` keeps to a router's groups. With the same state
    of ``rng`` a batch is the beginning of a larger
    one, so more tokens lower no count, but where experts choose. ``logits`` that are drawn have a
    standard deviation of 1, plus an offset per expert; a router's bias for the choice is zero.

    With a capacity, pairs beyond it are dropped in token order and counted. Where experts choose,
    there is one stretch, and ``uniform`` stands for drawn logits.

    Raises InputError for a layer that cannot route, SpecError for a file that is not as it should
    be, and ValueError for a negative number of tokens.
    """
    if tokens < 0:
        raise ValueError(f"a batch has no negative number of tokens, such as {tokens}")
    routing = _checked(moe)
    factor = moe.capacity_factor
    if moe.router.choice == "expert_choice":
        taken = capacity(1.0 if factor is None else factor, tokens, moe.top_k, moe.experts)
        if tokens:
            logits = _logits(moe, routing, rng, layer)(0, tokens)
            yield expert_choice(logits, taken, moe.router)
        return
    most = tokens if factor is None else capacity(factor, tokens, moe.top_k, moe.experts)
    stretch = _STRETCHES[routing.form](moe, routing, rng, layer)
    used = np.zeros(moe.experts, dtype=np.int64)
    some = max(1, min(DRAWN, SCORED // moe.experts)) if routing.form == "logits" else DRAWN
    for first in range(0, tokens, some):
        routed = stretch(first, min(some, tokens - first))
        yield routed if most >= tokens else within(routed, most, used)


def expected_distinct_experts(experts: int, top_k: int, tokens: float) -> float:
    """Experts that at least one of ``tokens`` uniformly routed tokens chooses, in expectation.

    E (1 - (1 - k/E)^B): each expert is missed by one token with probability 1 - k/E.

    >>> round(expected_distinct_experts(256, 8, 16))
    102
    """
    missed: float = (1.0 - top_k / experts) ** tokens
    return experts * (1.0 - missed)


def expert_counts(
    moe: MoE, tokens: int, rng: np.random.Generator, *, layer: int = 0
) -> NDArray[np.int64]:
    """Tokens that each expert gets, shape (experts,), as ``draw`` routes them.

    They sum to ``tokens`` x ``top_k``, less what a capacity drops. Where tokens choose, more tokens
    never lower any count. Raises as ``draw`` does.
    """
    counts = np.zeros(moe.experts, dtype=np.int64)
    for routed in draw(moe, tokens, rng, layer=layer):
        counts += routed.counts
    return counts


def notes(moe: MoE, tokens: int, *, layer: int = 0, layers: int | None = None) -> Iterator[str]:
    """What a reader should know of how ``tokens`` of a layer are routed from a file.

    ``layers`` is the number of MoE layers of the model. Raises as ``draw`` does.
    """
    routing = _checked(moe)
    if routing.file is None:
        return
    recorded = _recorded_layers(moe, routing, routing.file)
    if layers is not None and len(recorded) > layers:
        yield (
            f"{routing.file} has {len(recorded):,} layers, the model {layers:,} with experts; "
            "the first are used"
        )
    if layers is not None and len(recorded) < layers:
        yield f"{routing.file} has {_taken(recorded, layers)}"
    if routing.form == "histogram":
        loads = read_histogram(routing.file, moe.experts, moe.top_k).loads
        load = loads[layer % len(loads)]
        if (share := load.max() / load.sum()) * moe.top_k > 1:
            yield (
                f"the fullest expert of {routing.file} has {share:.0%} of all pairs; no token "
                f"takes an expert twice, so {1 / moe.top_k:.0%} is routed and the rest elsewhere"
            )
        return
    if routing.form == "trace":
        traced = read_trace(routing.file, moe.experts, moe.top_k)
        known = len(traced[layer % len(traced)].experts)
    else:
        known = read_logits(routing.file, moe.experts, moe.top_k).shape[1]
    if tokens > known:
        some = "1 token" if known == 1 else f"{known:,} tokens"
        yield (
            f"{routing.file} has {some} of layer {recorded[layer % len(recorded)]}; the {tokens:,} "
            f"of the run repeat {'it' if known == 1 else 'them in turn'}"
        )


def _recorded_layers(moe: MoE, routing: Routing, file: str) -> tuple[int, ...]:
    """Numbers of the layers in the file, ascending."""
    if routing.form == "histogram":
        return read_histogram(file, moe.experts, moe.top_k).layers
    if routing.form == "trace":
        return tuple(known.layer for known in read_trace(file, moe.experts, moe.top_k))
    return tuple(range(len(read_logits(file, moe.experts, moe.top_k))))


def _taken(recorded: tuple[int, ...], layers: int) -> str:
    """How fewer recorded layers stand for all MoE layers of a model."""
    if len(recorded) == 1:
        return f"layer {recorded[0]} alone; all {layers:,} layers with experts take it"
    groups = []
    for place, number in enumerate(recorded[:_NAMED]):
        takers = range(place, layers, len(recorded))
        some = ", ".join(map(str, takers[:_NAMED]))
        groups.append(f"{some}{', ...' if len(takers) > _NAMED else ''} from {number}")
    more = len(recorded) - _NAMED
    return (
        f"{len(recorded):,} layers for the model's {layers:,} with experts, counted from 0: "
        f"{'; '.join(groups)}{f'; and so on for {more:,} more' if more > 0 else ''}"
    )


_NAMED = 3
"""Layers that a note lists before it stops."""


def require_layers(moe: MoE, layers: int) -> None:
    """Raise SpecError where a recording names layers that a model of ``layers`` layers, those
    without experts included, does not have."""
    routing = _checked(moe)
    if routing.file is None:
        return
    recorded = _recorded_layers(moe, routing, routing.file)
    unknown = [str(number) for number in recorded if number >= layers]
    if unknown:
        shown = f"{', '.join(unknown[:_SHOWN])}{', ...' if len(unknown) > _SHOWN else ''}"
        found = f"names {'layer' if len(unknown) == 1 else 'layers'} {shown}"
        fix = f"the model has layers 0 to {layers - 1}"
        raise SpecError([Fault(routing.file, None, "", found, fix)])


_SHOWN = 20
"""Unknown layers that a message lists."""


@lru_cache(maxsize=256)
def _checked(moe: MoE) -> Routing:
    """How the layer routes. Raises InputError where it cannot."""
    if not 1 <= moe.top_k <= moe.experts:
        raise InputError(f"top_k of {moe.top_k}: choose 1 to {moe.experts}, all experts")
    fields = {name: getattr(moe, name) for name in ("experts", "top_k", "router", "routing")}
    faults = [f"{name}: {found}; {fix}" for name, found, fix in routing_faults(fields)]
    if faults:
        raise InputError("\n".join(faults))
    return parse_routing(moe.routing)


def _alike(moe: MoE, choose: Callable[[int, int], NDArray[np.int64]]) -> Stretch:
    """Stretches of the experts (tokens, top_k) that ``choose`` gives, with equal weights."""

    def stretch(first: int, some: int) -> Assignment:
        expert = choose(first, some).ravel()
        return Assignment(
            experts=moe.experts,
            tokens=some,
            first=first,
            token=np.arange(first, first + some, dtype=np.int64).repeat(moe.top_k),
            expert=expert,
            weight=np.full(len(expert), 1 / moe.top_k),
        )

    return stretch


def _uniform(moe: MoE, routing: Routing, rng: np.random.Generator, layer: int) -> Stretch:
    """Every expert as likely; where a router keeps the best groups of experts, every one of those
    sets of groups as likely, and experts out of them alone."""
    router, top_k = moe.router, moe.top_k
    if router.top_groups == router.groups:
        return _alike(moe, lambda _, some: distinct(moe.experts, rng.random((some, top_k))))
    each, kept = moe.experts // router.groups, router.top_groups

    def choose(_: int, some: int) -> NDArray[np.int64]:
        uniform = rng.random((some, kept + top_k))
        groups = distinct(router.groups, uniform[:, :kept])
        which, place = np.divmod(distinct(kept * each, uniform[:, kept:]), each)
        return np.take_along_axis(groups, which, axis=1) * each + place

    return _alike(moe, choose)


def _balanced(moe: MoE, routing: Routing, rng: np.random.Generator, layer: int) -> Stretch:
    """Experts in turn, so that counts differ by at most one; those of one token lie as far apart
    as can be, since a router that balances ranks too would not send all copies to one."""
    pairs = moe.top_k
    stride = moe.experts // pairs
    while math.gcd(stride, moe.experts) > 1:
        stride += 1

    def stretch(first: int, some: int) -> NDArray[np.int64]:
        return np.arange(first * pairs, (first + some) * pairs) * stride % moe.experts

    return _alike(moe, stretch)


@lru_cache(maxsize=32)
def _skewed_sampler(form: str, number: float, experts: int, top_k: int) -> Sampler:
    return Sampler(chances(shares(form, number, experts, top_k), top_k))


def _skewed(moe: MoE, routing: Routing, rng: np.random.Generator, layer: int) -> Stretch:
    sampler = _skewed_sampler(routing.form, routing.number or 0.0, moe.experts, moe.top_k)
    places = rng.permutation(moe.experts)
    return _alike(moe, lambda _, some: places[sampler.draw(rng.random((some, sampler.left)))])


@lru_cache(maxsize=256)
def _load_sampler(loads: bytes, top_k: int) -> Sampler:
    return Sampler(chances(np.frombuffer(loads), top_k))


def _histogram(moe: MoE, routing: Routing, rng: np.random.Generator, layer: int) -> Stretch:
    loads = read_histogram(routing.file or "", moe.experts, moe.top_k).loads
    at = layer % len(loads)
    try:
        sampler = _load_sampler(loads[at].tobytes(), moe.top_k)
    except InputError as error:
        raise SpecError([Fault(routing.file or "", None, f"layer {at}", str(error))]) from None
    return _alike(moe, lambda _, some: sampler.draw(rng.random((some, sampler.left))))


def _trace(moe: MoE, routing: Routing, rng: np.random.Generator, layer: int) -> Stretch:
    layers = read_trace(routing.file or "", moe.experts, moe.top_k)
    known = layers[layer % len(layers)]

    def stretch(first: int, some: int) -> Assignment:
        rows = np.arange(first, first + some, dtype=np.int64)
        at = rows % len(known.experts)
        weights = known.weights
        return Assignment(
            experts=moe.experts,
            tokens=some,
            first=first,
            token=rows.repeat(moe.top_k),
            expert=known.experts[at].ravel(),
            weight=np.full(some * moe.top_k, 1 / moe.top_k)
            if weights is None
            else weights[at].ravel(),
        )

    return stretch


def _logits(moe: MoE, routing: Routing, rng: np.random.Generator, layer: int) -> Logits:
    if routing.file is not None:
        layers = read_logits(routing.file, moe.experts, moe.top_k)
        known = layers[layer % len(layers)]
        return lambda first, some: known[np.arange(first, first + some) % len(known)]
    offset = (rng.standard_normal(moe.experts) * (routing.number or 0.0)).astype(np.float32)

    def drawn(first: int, some: int) -> NDArray[np.floating]:
        logits = rng.standard_normal((some, moe.experts), dtype=np.float32)
        logits += offset
        return logits

    return drawn


def _scored(moe: MoE, routing: Routing, rng: np.random.Generator, layer: int) -> Stretch:
    logits = _logits(moe, routing, rng, layer)
    bias = np.zeros(moe.experts) if moe.router.bias else None
    return lambda first, some: token_choice(
        logits(first, some), moe.top_k, moe.router, bias=bias, first=first
    )


_STRETCHES: dict[str, Callable[[MoE, Routing, np.random.Generator, int], Stretch]] = {
    "uniform": _uniform,
    "balanced": _balanced,
    "zipf": _skewed,
    "power_law": _skewed,
    "lognormal": _skewed,
    "histogram": _histogram,
    "trace": _trace,
    "logits": _scored,
}
