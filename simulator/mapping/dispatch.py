"""The routing of every MoE layer of one pass, and the share of it that each rank has.

Knows routings, placements and how tokens lie on ranks. Never touches operators, bytes or time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.mapping.exchange import Traffic, Volume, mean, shares, traffic
from simulator.mapping.experts import ExpertPlacement, place
from simulator.mapping.routing import draw
from simulator.specs.plan import Plan
from simulator.specs.routing import parse_routing
from simulator.specs.workload import Model, MoE, Transformer


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


def check_plan(model: Model, plan: Plan) -> None:
    """Raise InputError where the experts of some layer do not divide over the plan's ranks."""
    if (plan.ep == 1 and not plan.redundant_experts) or not isinstance(model, Transformer):
        return
    for experts in sorted({net.ffn.experts for net in model.layers() if isinstance(net.ffn, MoE)}):
        place(experts, plan.ep, redundant=plan.redundant_experts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """One MoE layer routed: who holds what, what travels, and each rank's share."""

    net: MoE
    placement: ExpertPlacement
    traffic: Traffic
    shares: tuple[Share, ...]


class Dispatch:
    """The routed layers of one part of a batch of which rank r has ``tokens[r][p]`` tokens.

    Each MoE layer draws from its own stream of ``seed``, so layers differ and the same layer has
    the same routing whatever the plan. ``per_rank``: a token goes once to a rank, however many
    of its experts are there. ``even_rows`` and ``even_volumes`` give every slot and every rank
    the mean instead, for comparison.
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
        even_rows: bool = False,
        even_volumes: bool = False,
    ) -> None:
        self.plan = plan
        self.tokens = tokens
        self.per_rank = per_rank
        self._seed = seed
        self._domain = domain
        self._part = part
        self._even_rows, self._even_volumes = even_rows, even_volumes
        self._layers: dict[tuple[MoE, int], Routed] = {}

    @property
    def layers(self) -> dict[int, Routed]:
        """The layers routed so far, by their number among the MoE layers."""
        return {layer: routed for (_, layer), routed in self._layers.items()}

    def routed(self, net: MoE, layer: int) -> Routed:
        """That MoE layer, counted from the first one."""
        key = net, layer
        if key not in self._layers:
            first = net, 0
            alike = parse_routing(net.routing).form == "balanced" and first in self._layers
            self._layers[key] = self._layers[first] if alike else self._route(net, layer)
        return self._layers[key]

    def _route(self, net: MoE, layer: int) -> Routed:
        def stream() -> np.random.Generator:
            return np.random.default_rng([self._seed, layer])

        total, plan = sum(map(sum, self.tokens)), self.plan
        loads = np.zeros(net.experts, dtype=np.int64)
        if plan.placement == "balanced":
            for some in draw(net, total, stream(), layer=layer):
                loads += some.counts
        placement = place(
            net.experts, plan.ep, redundant=plan.redundant_experts, policy=plan.placement,
            loads=loads.tolist(), nodes=-(-plan.ep // self._domain), groups=net.router.groups,
        )  # fmt: skip
        found = traffic(
            draw(net, total, stream(), layer=layer),
            placement,
            self.tokens,
            part=self._part,
            domain=self._domain,
        )
        volumes: tuple[Volume | None, ...] = (None,)
        if plan.ep > 1:
            volumes = found.volumes(per_rank=self.per_rank)
            if self._even_volumes:
                volumes = (mean(volumes),) * plan.ep
        counts, arrived = found.counts, found.rows.sum(0)
        if self._even_rows:
            counts, arrived = (
                np.array(shares(int(one.sum()), len(one)), dtype=np.int64)
                for one in (counts, arrived)
            )
        ends = np.cumsum([len(slots) for slots in placement.slots])[:-1]
        ranks = [
            Share(
                counts=tuple(mine.tolist()),
                arrived=int(arrived[rank]),
                slots=len(counts),
                volume=volumes[rank],
            )
            for rank, mine in enumerate(np.split(counts, ends))
        ]
        return Routed(net=net, placement=placement, traffic=found, shares=tuple(ranks))
