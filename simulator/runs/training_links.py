"""Communication of a training step over the replicas, and what all of it takes of a rank's links.

Reads prices of collectives and exchanges. Holds no event, and never touches how a step is played.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from simulator.costs.collective import Tier, rates_of
from simulator.costs.target import Target
from simulator.engine.pipeline import Shares
from simulator.ops.collective import Collective
from simulator.ops.exchange import Exchange
from simulator.ops.op import Op
from simulator.runs.prices import Prices
from simulator.specs.plan import Plan
from simulator.specs.precision import number_format
from simulator.tables.alone import collective
from simulator.units import Bytes, Seconds

if TYPE_CHECKING:
    from simulator.runs.training import TrainingRun


def reductions(plan: Plan, wide: str, dense: int, routed: int) -> tuple[list[Op], list[Op]]:
    """What gathers the weights of a piece of the model, in format ``wide``, and what reduces its
    gradients over the replicas: of so many parameters, those of routed experts apart.

    Without ZeRO gradients are all-reduced and nothing is gathered. With it each replica keeps
    the reduced gradients of its part, and gathers the weights that the others have updated.
    """
    gathered, reduced = list[Op](), list[Op]()
    ranks = plan.cp * plan.replicas
    spread = max(plan.tp, plan.ep)
    experts = max(1, plan.tp * ranks // spread) if plan.ep > 1 else ranks
    for what, many, size in (("", ranks, dense), (".experts", experts, routed)):
        if many < 2 or not size:
            continue
        stride = spread if what and plan.ep > 1 else plan.tp
        grads = number_format(plan.gradients).bytes(size)
        common = {"ranks": many, "stride": stride}
        if plan.zero == 0:
            reduced.append(
                Collective(
                    name=f"gradients{what}.all_reduce", algorithm="all_reduce", message=grads,
                    format=plan.gradients, **common,
                )
            )  # fmt: skip
            continue
        reduced.append(
            Collective(
                name=f"gradients{what}.reduce_scatter", algorithm="reduce_scatter",
                message=grads, format=plan.gradients, **common,
            )
        )  # fmt: skip
        gathered.append(
            Collective(
                name=f"weights{what}.all_gather", algorithm="all_gather",
                message=number_format(wide).bytes(size), format=wide, **common,
            )
        )  # fmt: skip
    return gathered, reduced


def shares_of(run: TrainingRun) -> Shares:
    """Sends between stages, gathers and reductions over the replicas, and exchanges of experts.

    Collectives inside a layer, of tensor and context parallelism, count as its computation and
    share their links with nothing.
    """
    pieces = [piece for rank in run.ranks for piece in rank]
    over_replicas = [op for piece in pieces for ops in run.reductions(piece) for op in ops]
    exchanges = [
        op
        for piece in pieces
        for done, count in piece.passes
        for op in (*done.forward, *done.recomputed, *done.dgrad) * count
        if isinstance(op, Exchange)
    ]
    return Shares(
        sends=_mean([run.send] if run.plan.pp > 1 else [], run.prices),
        collectives=_mean(over_replicas, run.prices),
        exchanges=_mean(exchanges, run.prices),
    )


def _mean(ops: Iterable[Op], prices: Prices) -> dict[str, float]:
    """Of each tier, the share that these take one after another: the seconds in which it carries
    their bytes at its full rate, over those that they take."""
    rates = rates_of(prices.target)
    busy: dict[Tier, Seconds] = {}
    total = 0.0
    for op, count in Counter(ops).items():
        total += count * prices[op].exchange[1]
        for tier, size in _sent(op, prices.target).items():
            busy[tier] = busy.get(tier, 0.0) + count * size / rates[tier]
    return {tier: min(1.0, time / total) for tier, time in busy.items() if total > 0}


def _sent(op: Op, target: Target) -> dict[Tier, Bytes]:
    """What a rank sends over each tier; of exchanges the fullest one."""
    if isinstance(op, Exchange):
        return {"scale_up": op.crossing * op.row, "scale_out": op.far * op.row}
    assert isinstance(op, Collective), "nothing else moves over links"
    way, _ = collective(op, target)
    return {tier: leg.bytes for tier, leg in way.legs.items()}
