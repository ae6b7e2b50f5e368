"""The routing of every MoE layer of one pass, and the share of it that each rank has.

Knows routings, placements and how tokens lie on ranks. Never touches operators, bytes or time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simulator.mapping.exchange import Traffic, Volume, shares, traffic
from simulator.mapping.experts import ExpertPlacement, place
from simulator.mapping.routing import draw
from simulator.specs.plan import Plan
from simulator.specs.routing import parse_routing
from simulator.specs.workload import MoE

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One rank's part of one MoE layer. A rank that has all experts exchanges nothing."""

    counts: tuple[int, ...]
    """Rows of each of its slots."""
    arrived: int
    """Tokens that have an expert here, each once."""
    slots: int
    """Slots of all ranks."""
    volume: Volume | None = None

    def times(self, factor: float) -> Share:
        """That of so many times as many tokens, routed alike."""
        volume = self.volume
        if volume is not None:
            sizes = {part: round(getattr(volume, part) * factor) for part in Volume.__slots__}
            volume = Volume(**sizes)
        return replace(
            self,
            counts=tuple(round(count * factor) for count in self.counts),
            arrived=round(self.arrived * factor),
            volume=volume,
        )


Even = Literal["nothing", "volumes", "all"]
"""What is spread evenly, for comparison: nothing, what ranks exchange, or the experts' rows too."""


@dataclass(frozen=True, kw_only=True)
class Routed:
    """One MoE layer routed: who holds what, what travels, and each rank's share."""

    net: MoE
    placement: ExpertPlacement
    traffic: Traffic
    per_rank: bool
    relayed: bool
    apart: bool = True
    """Tokens travel; else every rank has them all."""

    @cached_property
    def rank_load(self) -> Ints:
        """Rows of each rank."""
        return np.bincount(
            self.placement.rank_of_slot, self.traffic.counts, self.placement.ranks
        ).astype(np.int64)

    def shares(self, even: Even = "nothing") -> tuple[Share, ...]:
        """The share of each rank."""
        return self._shares[even]

    @cached_property
    def _shares(self) -> dict[Even, tuple[Share, ...]]:
        counts, arrived = self.traffic.counts, self.traffic.rows.sum(0)
        volumes: tuple[Volume | None, ...] = (None,) * self.placement.ranks
        even = volumes
        if self.placement.ranks > 1 and self.apart:
            volumes, even = (
                self.traffic.volumes(per_rank=self.per_rank, relayed=self.relayed, even=evenly)
                for evenly in (False, True)
            )
        held = zip(_spread(counts, self.placement.ranks), self.placement.slots, strict=True)
        dealt = np.concatenate([_spread(rows, len(slots)) for rows, slots in held])
        return {
            "nothing": self._cut(counts, arrived, volumes),
            "volumes": self._cut(counts, arrived, even),
            "all": self._cut(dealt, _spread(arrived, len(arrived)), even),
        }

    def _cut(
        self, counts: Ints, arrived: Ints, volumes: tuple[Volume | None, ...]
    ) -> tuple[Share, ...]:
        ends = np.cumsum([len(slots) for slots in self.placement.slots])[:-1]
        return tuple(
            Share(counts=tuple(mine.tolist()), arrived=int(here), slots=len(counts), volume=volume)
            for mine, here, volume in zip(np.split(counts, ends), arrived, volumes, strict=True)
        )


def _spread(rows: Ints, parts: int) -> Ints:
    """The same rows, dealt evenly to so many parts."""
    return np.array(shares(int(rows.sum()), parts), dtype=np.int64)


class Dispatch:
    """The routed layers of one part of a batch of which rank r has ``tokens[r][p]`` tokens.

    Each MoE layer draws from its own stream of ``seed``, so layers differ and the same layer has
    the same routing whatever the plan. ``per_rank``: a token goes once to a rank, however many
    of its experts are there. ``relayed``: it goes to other domains by way of one rank there.
    ``apart``: tokens travel to their experts; else every rank has all of them from the start.
    ``alike``: the first layer's routing is that of all layers of its kind.
    """

    def __init__(
        self,
        plan: Plan,
        tokens: tuple[tuple[int, ...], ...],
        seed: int,
        *,
        part: int = 0,
        domain: int = 1,
        per_rank: bool = True,
        relayed: bool = True,
        apart: bool = True,
        alike: bool = False,
    ) -> None:
        self.plan = plan
        self.tokens = tokens
        self.per_rank, self.relayed, self.apart = per_rank, relayed, apart
        self._seed, self._part, self._domain, self._alike = seed, part, domain, alike
        self.layers: dict[int, Routed] = {}
        """The layers routed so far, by their number among the MoE layers."""

    def routed(self, net: MoE, layer: int) -> Routed:
        """That MoE layer, counted from the first one."""
        if layer not in self.layers:
            first = self.layers.get(0)
            if (
                first is not None
                and first.net == net
                and (self._alike or parse_routing(net.routing).form == "balanced")
            ):
                self.layers[layer] = first
            else:
                self.layers[layer] = self._route(net, layer)
        return self.layers[layer]

    def share(self, net: MoE, layer: int, rank: int, even: Even = "nothing") -> Share:
        """That rank's share of a layer, or what it would be if loads were ``even``."""
        return self.routed(net, layer).shares(even)[rank]

    def _route(self, net: MoE, layer: int) -> Routed:
        def stream() -> np.random.Generator:
            return np.random.default_rng([self._seed, layer])

        total, plan = sum(map(sum, self.tokens)), self.plan
        loads = np.zeros(net.experts, dtype=np.int64)
        if plan.placement == "balanced":
            for some in draw(net, total, stream(), layer=layer):
                loads += some.counts
        # Domains of one rank are no nodes, and unequal ones would hold unequal numbers of experts.
        whole = self._domain > 1 and plan.ep % self._domain == 0
        placement = place(
            net.experts, plan.ep, redundant=plan.redundant_experts, policy=plan.placement,
            loads=loads.tolist(), nodes=plan.ep // self._domain if whole else 1,
            groups=net.router.groups,
        )  # fmt: skip
        found = traffic(
            draw(net, total, stream(), layer=layer),
            placement,
            self.tokens,
            part=self._part,
            domain=self._domain,
        )
        return Routed(
            net=net, placement=placement, traffic=found, per_rank=self.per_rank,
            relayed=self.relayed, apart=self.apart,
        )  # fmt: skip
