"""The routing of every MoE layer of one pass, and the share of it that each rank has.

Knows routings, placements and how tokens lie on ranks. Never touches operators, bytes or time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.mapping.exchange import Traffic, Volume, traffic
from simulator.mapping.experts import ExpertPlacement, place
from simulator.mapping.routing import draw
from simulator.specs.plan import Plan
from simulator.specs.workload import MoE


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One rank's part of one MoE layer. A rank that has all experts exchanges nothing."""

    counts: tuple[int, ...]
    """Rows of each of its slots."""
    routed: int
    """Pairs of its own tokens and their experts, wherever those are."""
    arrived: int
    """Tokens that have an expert here, each once."""
    slots: int
    """Slots of all ranks."""
    volume: Volume | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """One MoE layer routed: who holds what, what travels, and each rank's share."""

    net: MoE
    placement: ExpertPlacement
    traffic: Traffic
    shares: tuple[Share, ...]


class Dispatch:
    """The routed layers of a pass in which rank r has ``tokens[r]`` tokens.

    Each MoE layer draws from its own stream of ``seed``, so layers differ and the same layer has
    the same routing whatever the plan. ``per_rank``: a token goes once to a rank, however many
    of its experts are there.
    """

    def __init__(
        self, plan: Plan, tokens: tuple[int, ...], seed: int, *, domain: int, per_rank: bool
    ) -> None:
        self.plan = plan
        self.tokens = tokens
        self.per_rank = per_rank
        self._seed = seed
        self._domain = domain
        self._layers: dict[tuple[MoE, int], Routed] = {}

    @property
    def layers(self) -> dict[int, Routed]:
        """The layers routed so far, by their number among the MoE layers."""
        return {layer: routed for (_, layer), routed in sorted(self._layers.items(), key=_number)}

    def routed(self, net: MoE, layer: int) -> Routed:
        """That MoE layer, counted from the first one."""
        key = net, layer
        if key not in self._layers:
            self._layers[key] = self._route(net, layer)
        return self._layers[key]

    def _route(self, net: MoE, layer: int) -> Routed:
        def stream() -> np.random.Generator:
            return np.random.default_rng([self._seed, layer])

        total, plan = sum(self.tokens), self.plan
        loads = np.zeros(net.experts, dtype=np.int64)
        if plan.placement == "balanced":
            for some in draw(net, total, stream(), layer=layer):
                loads += some.counts
        placement = place(
            net.experts, plan.ep, redundant=plan.redundant_experts, policy=plan.placement,
            loads=loads.tolist() if loads.any() else None,
        )  # fmt: skip
        found = traffic(
            draw(net, total, stream(), layer=layer), placement, self.tokens, domain=self._domain
        )
        volumes: tuple[Volume | None, ...] = (None,)
        if plan.ep > 1:
            volumes = found.volumes(per_rank=self.per_rank)
        first = 0
        shares = []
        for rank, slots in enumerate(placement.slots):
            shares.append(
                Share(
                    counts=tuple(found.counts[first : first + len(slots)].tolist()),
                    routed=int(found.pairs[rank].sum()),
                    arrived=int(found.rows[:, rank].sum()),
                    slots=len(placement.rank_of_slot),
                    volume=volumes[rank],
                )
            )
            first += len(slots)
        return Routed(net=net, placement=placement, traffic=found, shares=tuple(shares))


def _number(entry: tuple[tuple[MoE, int], Routed]) -> int:
    return entry[0][1]
