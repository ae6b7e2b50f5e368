"""A collective over the links of its group: the ways to do it, and the one that takes least.

A way is alpha-beta: steps, each with the latency of its link, and bytes over the scale-up and the
scale-out tier of a rank at once. Knows links and the operator. Never touches fitted constants or a
clock.

With n ranks, s of them in each of i domains, a message of m bytes and one or (for an all-reduce)
two passes p, a rank sends

- one-shot: all of its message to each other rank, m (n - 1); a gather: its part, m (n - 1)/n;
- two-shot: its parts, then its sum: 2 m (n - 1)/n in two steps (a reduce-scatter is the first);
- ring: p m (n - 1)/n in p (n - 1) steps; as many rings as a domain has ranks leave it, so that
  each rank sends 1/s of that over its own way out;
- tree: two binary trees that each carry half, 2 m in 2 log2 n steps;
- in-switch: m, which the switch adds (NVLink SHARP);
- hierarchical: p m (s - 1)/s inside, p (m/s) (i - 1)/i across, chunk after chunk, so that both
  tiers are busy at once: a reduce-scatter, an all-reduce across, an all-gather;
- pairwise: m/n to each other rank at once. On rails, what a rank has for others than its equals
  of other domains crosses its own domain first.

Forms: NCCL at 5067397c, src/graph/tuning.cc; Thakur et al., IJHPCA 19 (2005).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from simulator.costs.fabric import Fabric, Floats, fabric, tiers
from simulator.costs.target import Target
from simulator.ops.collective import Collective
from simulator.units import Bytes, BytesPerSecond, Seconds

Tier = Literal["scale_up", "scale_out"]
START: Seconds = 4e-6
"""From launch to the first byte: a small all-reduce of a library kernel in a graph, less steps."""
SWITCH_START: Seconds = 20e-6
"""More of it where a switch adds: NVLS in NCCL's tuner takes 25 us in all."""
SWITCH_SHARE = 0.71
"""Share of the link that adding in the switch reaches: 274 of 387 GB/s on eight H100."""
ADDS = frozenset(("fp16", "bf16", "fp32"))
"""Formats that a switch adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """What one rank sends over one tier: bytes, and the most that it reaches with them alone."""

    bytes: Bytes
    rate: BytesPerSecond

    @property
    def seconds(self) -> Seconds:
        """Alone on the tier."""
        return self.bytes / self.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to do a collective: its name, its steps, and its bytes by tier."""

    algorithm: str
    latency: Seconds
    legs: Mapping[Tier, Leg]

    @property
    def transfer(self) -> Seconds:
        """Seconds of the bytes alone: the tiers work side by side."""
        return max((leg.seconds for leg in self.legs.values()), default=0.0)

    @property
    def seconds(self) -> Seconds:
        """The collective alone on its links."""
        return self.latency + self.transfer

    def held(self, algorithm: str, seconds: Seconds, latency: Seconds) -> Way:
        """The same bytes in ``seconds``, of which ``latency`` are steps, or less where the links
        need longer for the bytes; fewer bytes where they need more than ``seconds`` for them."""
        legs = dict(self.legs)
        wire = max(seconds - latency, min(self.transfer, seconds))
        if not legs or wire <= 0:
            return Way(algorithm=algorithm, latency=seconds, legs={})
        slower = wire / self.transfer
        for tier, leg in legs.items():
            if slower >= 1:
                legs[tier] = replace(leg, rate=leg.rate / slower)
            else:
                legs[tier] = replace(leg, bytes=leg.bytes * slower)
        return Way(algorithm=algorithm, latency=seconds - wire, legs=legs)


def links_of(op: Collective, target: Target) -> Fabric:
    """The links of the group, where ranks of one domain are ``stride`` devices apart."""
    return fabric(
        target, np.array([float(op.ranks)]), np.array([-1.0]), np.array([float(op.stride)])
    )


def rates_of(target: Target) -> dict[Tier, BytesPerSecond]:
    """Bytes per second and direction of a device's tiers: what its collectives share."""
    inside, outside = tiers(target)
    return {"scale_up": inside, "scale_out": outside}


def fastest(op: Collective, target: Target) -> Way:
    """The way that takes the least time; of equals the first by the order of ``ways``."""
    return min(ways(op, target), key=lambda way: way.seconds)


def ways(op: Collective, target: Target) -> tuple[Way, ...]:
    """Every way that the group's links have for the operator."""
    group = _Group.of(op, target)
    if op.algorithm == "send_recv":
        return (group.sent(op, target),)
    if op.algorithm == "alltoall":
        return (group.pairwise(op.message),)
    passes = 2 if op.algorithm == "all_reduce" else 1
    return tuple(group.passed(op, passes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Plain numbers of one row of a ``Fabric``."""

    n: float
    size: float
    islands: float
    inside: float
    chain: float
    outside: float
    near: Seconds
    """From one device of the domain to any other."""
    step: Seconds
    far: Seconds
    around: Seconds
    across: Seconds
    reduces: bool
    rails: bool

    @classmethod
    def of(cls, op: Collective, target: Target) -> _Group:
        links = links_of(op, target)

        def first(values: Floats) -> float:
            return float(values[0])

        return cls(
            n=float(op.ranks),
            size=first(links.size),
            islands=first(links.islands),
            inside=first(links.inside),
            chain=first(links.chain),
            outside=first(links.outside),
            near=links.step * first(links.hops),
            step=links.step,
            far=links.far_step,
            around=first(links.around),
            across=first(links.across),
            reduces=links.reduces,
            rails=links.rails,
        )

    def way(
        self,
        name: str,
        latency: Seconds,
        near: Bytes,
        far: Bytes = 0.0,
        rate: BytesPerSecond | None = None,
    ) -> Way:
        legs: dict[Tier, Leg] = {}
        if near > 0:
            legs["scale_up"] = Leg(bytes=near, rate=rate or self.inside)
        if far > 0:
            legs["scale_out"] = Leg(bytes=far, rate=self.outside)
        return Way(algorithm=name, latency=START + latency, legs=legs)

    def passed(self, op: Collective, passes: int) -> Iterator[Way]:
        """All-reduce in two passes; reduce-scatter or all-gather in one."""
        m, n = op.message, self.n
        part = m * (n - 1) / n
        inside = self.islands == 1
        if inside and passes == 2:
            yield self.way("one-shot", self.near, m * (n - 1))
        if inside:
            yield self.way(("one-shot", "two-shot")[passes - 1], passes * self.near, passes * part)
        if inside and passes == 2 and self.reduces and n > 2 and op.format in ADDS:
            late = SWITCH_START + 2 * self.near
            yield self.way("in-switch", late, m, rate=self.inside * SWITCH_SHARE)
        yield self.ringed("ring", passes * self.around, passes * part)
        if passes == 2:
            yield self.ringed("tree", 2 * self.across, 2 * m)
        if not inside and self.size > 1:
            yield from self.hierarchical(m, passes)

    def ringed(self, name: str, latency: Seconds, sent: Bytes) -> Way:
        """``sent`` by each rank to the next, in as many rings as ranks of a domain."""
        away = sent / self.size if self.islands > 1 else 0.0
        near = sent if self.size > 1 else 0.0
        return self.way(name, latency, near, away, self.chain)

    def hierarchical(self, m: Bytes, passes: int) -> Iterator[Way]:
        """Inside directly or in a ring, across in a ring or in trees."""
        near = passes * m * (self.size - 1) / self.size
        own = m / self.size
        inner = (
            (passes * self.near, self.inside),
            (passes * (self.size - 1) * self.step, self.chain),
        )
        outer = [(passes * (self.islands - 1) * self.far, passes * own * (1 - 1 / self.islands))]
        if passes == 2:
            outer.append((2 * float(np.log2(self.islands)) * self.far, 2 * own))
        for late, rate in inner:
            for later, far in outer:
                yield self.way("hierarchical", late + later, near, far, rate)

    def pairwise(self, m: Bytes) -> Way:
        """All to all, to every peer at once; messages to peers are posted by halves."""
        away = m * (self.n - self.size) / self.n
        near = m * (self.size - 1) / self.n
        rounds = float(np.log2(max(self.n, 2.0)))
        late = max(self.near, self.step * rounds) + (self.far if away else 0.0)
        if away and self.rails and self.size > 1:
            crossing = near + away * (1 - 1 / self.size)
            return self.way("hierarchical pairwise", late + self.near, crossing, away)
        return self.way("pairwise", late, near, away)

    def sent(self, op: Collective, target: Target) -> Way:
        """One rank to the next. The slowest pair decides: one that leaves the domain, if any."""
        if self.islands == 1:
            pair = _Group.of(replace(op, ranks=2), target)
            return pair.way("direct", pair.near, op.message)
        link = target.accelerator.scale_up
        crosses = self.rails and link is not None and link.peers and op.stride % link.peers
        if crosses:
            one = _Group.of(replace(op, ranks=2, stride=1), target)
            late = self.near + self.far
            return self.way("direct over a peer", late, op.message, op.message, one.inside)
        return self.way("direct", self.far, 0.0, op.message)
