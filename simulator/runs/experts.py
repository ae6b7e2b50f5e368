"""A pass of a language model, and what its router did to the machine.

Runs the pass on one device or on a group of ranks, and says who got which rows, what that moved
and what it cost against even loads. Holds no cost formula and no event of its own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from simulator.costs.target import Target
from simulator.engine.group import GroupRun
from simulator.mapping.dispatch import Dispatch, Even, Routed
from simulator.models.graph import Step, build_graph
from simulator.models.graph_parts import operand_format
from simulator.result import ExpertUse, Loss, Span
from simulator.runs.expert_phases import gathers, phases, step_of
from simulator.runs.fitted import fused
from simulator.runs.group import (
    Group,
    Ranks,
    Work,
    group_pass,
    meetings,
    run_ranks,
    scheduled,
    stages_of,
)
from simulator.runs.passes import Pass, one_device
from simulator.runs.prices import Prices
from simulator.specs.precision import number_format
from simulator.specs.scenario import Scenario
from simulator.specs.workload import Transformer
from simulator.units import Seconds

EVENED: tuple[Even, ...] = ("volumes", "all")
"""What is evened, step by step, on the way to a balanced run."""


def routed_pass(phase: str, weight: float, step: Step, prices: Prices) -> Pass:
    """One pass on as many devices as the plan has ranks."""
    scenario, target = prices.scenario, prices.target
    if scenario.plan.ep == 1:
        return _alone(phase, weight, step, prices)
    stack, plan = scenario.stack, scenario.plan
    quick = plan.exchange == "low_latency" or (plan.exchange == "auto" and phase == "decode")
    step = replace(
        step,
        exchange="ll" if quick else "ht",
        exchange_units=0 if quick else stack.exchange_units,
        dispatch=plan.dispatch,
        combine=plan.combine,
    )
    group = Group(step, prices)
    works = scheduled(group, group.priced())
    run = run_ranks(group, works)
    found = group_pass(phase, weight, group, works, run)
    steps = [found.latency]
    for even in EVENED:
        other = Group(step, prices, group.dispatches, even)
        steps.append(run_ranks(other, scheduled(other, other.priced())).latency)
    names = ("unequal exchange", "unequal experts")
    executed = ((work.priced, 1) for ranks in works for mine in ranks for work in mine)
    layer, spans = _slowest_layer(works, run, stack.launch.gap)
    use = _use(phase, scenario, group.dispatches, step, target, group.domain)
    return replace(
        found,
        experts=replace(
            use,
            phases=phases(found.lines, executed, scenario.plan, target),
            layer=layer,
            spans=spans,
            lost=_losses(steps, names),
        ),
    )


def _alone(phase: str, weight: float, step: Step, prices: Prices) -> Pass:
    scenario, target, model = prices.scenario, prices.target, prices.scenario.model
    assert isinstance(model, Transformer), "a U-Net has no experts"

    dispatch = Dispatch(scenario.plan, ((step.tokens,),), step.seed)

    def simulated(even: Even) -> Pass:
        graph = build_graph(model, step, partial(dispatch.share, rank=0, even=even))
        graph = fused(graph, scenario.stack)
        return one_device(phase, weight, graph, prices)

    found = simulated("nothing")
    if not dispatch.layers:
        return found
    even = simulated("all")
    executed = ((line.priced, line.count) for line in found.lines)
    return replace(
        found,
        experts=replace(
            _use(phase, scenario, [dispatch], step, target, 1),
            phases=phases(found.lines, executed, scenario.plan, target),
            lost=_losses([found.latency, even.latency], ("unequal experts",)),
        ),
    )


def _losses(latencies: list[Seconds], names: tuple[str, ...]) -> tuple[Loss, ...]:
    """From the last, even run, back to the first."""
    steps = [
        Loss(name=name, time=latencies[place] - latencies[place + 1])
        for place, name in enumerate(names)
    ]
    return (Loss(name="balanced run", time=latencies[-1]), *reversed(steps))


def _use(
    phase: str,
    scenario: Scenario,
    dispatches: list[Dispatch],
    step: Step,
    target: Target,
    domain: int,
) -> ExpertUse:
    """Who got which rows, over all MoE layers; parts of the batch together."""
    plan = scenario.plan
    layers = [
        tuple(dispatch.layers[number] for dispatch in dispatches)
        for number in sorted(dispatches[0].layers)
    ]
    net, ranks = layers[0][0].net, plan.ep
    parts = [part for layer in layers for part in layer]
    # Layers with another number of experts than the first one have no place in one picture.
    alike = [layer for layer in layers if layer[0].net.experts == net.experts]
    loads = np.array([np.sum([part.traffic.load for part in layer], axis=0) for layer in alike])
    held = np.array([np.sum([part.rank_load for part in layer], axis=0) for layer in layers])
    per_rank = dispatches[0].per_rank
    rows = np.sum([part.traffic.copies(per_rank=per_rank) for part in parts], axis=0)
    model = scenario.model
    assert isinstance(model, Transformer), "a U-Net has no experts"
    sent = operand_format(model, "experts") if step.dispatch is None else step.dispatch
    use = ExpertUse(
        phase=phase,
        routing=net.routing,
        experts=net.experts,
        top_k=net.top_k,
        layers=len(layers),
        tokens=sum(part.traffic.tokens for part in layers[0]),
        dropped=sum(layer[0].traffic.dropped for layer in layers),
        order=plan.expert_order,
        load=tuple(loads.sum(axis=0).tolist()),
        gathers=_gathers([part for layer in alike for part in layer], scenario, target),
        distinct=float((loads > 0).sum(axis=1).mean()),
        rank_load=tuple(held.sum(axis=0).astype(int).tolist()),
        expert_imbalance=_imbalance(loads),
        rank_imbalance=_imbalance(held),
    )
    if ranks == 1:
        return use
    return replace(
        use,
        ranks=ranks,
        domain=domain,
        redundant=plan.redundant_experts,
        placement=plan.placement,
        schedule=plan.schedule,
        rows=tuple(map(tuple, rows.tolist())),
        dispatch_row=number_format(sent).row_bytes(model.hidden),
        combine_row=number_format(step.combine).row_bytes(model.hidden),
    )


def _gathers(parts: list[Routed], scenario: Scenario, target: Target) -> tuple[int, ...]:
    """Descriptors that gather each expert's rows of one tile of columns, over all layers."""
    model = scenario.model
    assert isinstance(model, Transformer), "a U-Net has no experts"
    total = np.zeros(parts[0].placement.experts, dtype=np.int64)
    for part in parts:
        sources = int(part.traffic.rows.sum(axis=0).max())
        reading = scenario.plan.descriptors
        made = gathers(part.traffic.counts.tolist(), sources, model.hidden, reading, target)
        np.add.at(total, part.placement.expert_of_slot, made)
    return tuple(total.tolist())


def _imbalance(loads: NDArray[np.number]) -> float:
    """Largest load over the mean one, mean over the layers (layers, loads) that have any."""
    mean = loads.mean(axis=1)
    some = mean > 0
    return float((loads.max(axis=1)[some] / mean[some]).mean()) if some.any() else 1.0


def _slowest_layer(works: list[Ranks], run: GroupRun, gap: Seconds) -> tuple[int, tuple[Span, ...]]:
    """The MoE layer that takes longest, and what each rank does in it.

    A layer runs from the stage before its dispatch to the end of its combine; times count from
    its first kernel on any rank.
    """
    first = run.laps[0]
    count = (len(first[0]) - 1) // 2
    took = [
        max(laps[2 * layer + 1].end - laps[2 * layer].begin for laps in first)
        for layer in range(1, count)
    ]
    layer = 1 + took.index(max(took)) if took else 0
    start = min(laps[2 * layer].begin for batch in run.laps for laps in batch)
    spans: list[Span] = []
    for batch, (ranks, laps_of) in enumerate(zip(works, run.laps, strict=True)):
        suffix = f" {batch + 1}" if len(works) > 1 else ""
        lasts = meetings(ranks)
        for rank, (mine, laps) in enumerate(zip(ranks, laps_of, strict=True)):
            for stage in (2 * layer, 2 * layer + 1):
                work, lap = stages_of(mine)[stage], laps[stage]
                at = lap.begin - start
                for step, time in _steps(work, gap):
                    until = min(at + time, lap.computed - start)
                    spans.append(Span(rank=rank, lane="units", name=step, start=at, end=until))
                    at = until
                # A dispatch that kernels run beside holds up nobody, but still takes its time.
                ready, met = lap.computed - start, lap.met - start
                end = met + lasts[stage]
                name = ("dispatch", "combine")[stage % 2]
                if met > ready and len(works) == 1:
                    spans.append(Span(rank=rank, lane="wait", name="wait", start=ready, end=met))
                if end > met:
                    spans.append(
                        Span(rank=rank, lane="links", name=name + suffix, start=met, end=end)
                    )
    return layer, tuple(spans)


def _steps(works: list[Work], gap: Seconds) -> list[tuple[str, Seconds]]:
    """Kernels of a stage with the gaps behind them, joined by the step that they are part of."""
    joined: list[tuple[str, Seconds]] = []
    for work in works:
        if work.kernel is not None:
            step = step_of(work.priced.op) or "attention"
            before = joined.pop()[1] if joined and joined[-1][0] == step else 0.0
            joined.append((step, before + work.time + gap))
    return joined
