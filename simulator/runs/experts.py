"""A pass of a language model, and what its router did to the machine.

Runs the pass on one device or on a group of ranks, and says who got which rows, what that moved
and what it cost against even loads. Holds no cost formula and no event of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from simulator.costs.target import Target
from simulator.engine.group import GroupRun
from simulator.expert_use import ExpertUse, Loss, Span
from simulator.mapping.dispatch import Dispatch, Even, Routed
from simulator.mapping.held import cut
from simulator.mapping.stages import stages
from simulator.models.graph import Step, build_graph
from simulator.models.graph_parts import operand_format
from simulator.ops.collective import Collective
from simulator.ops.exchange import Exchange
from simulator.result import Bounds
from simulator.runs.expert_phases import gathers, phases, step_of
from simulator.runs.fitted import fused
from simulator.runs.group import (
    Group,
    Ranks,
    Slice,
    Work,
    group_pass,
    meetings,
    run_ranks,
    scheduled,
    stages_of,
    sum_of,
    times,
)
from simulator.runs.line import Line, Priced
from simulator.runs.passes import Pass, one_device
from simulator.runs.prices import Prices
from simulator.specs.plan import Plan
from simulator.specs.precision import number_format
from simulator.specs.scenario import Scenario
from simulator.specs.workload import MoE, Transformer
from simulator.units import Seconds

EVENED: tuple[Even, ...] = ("volumes", "all")
"""What is evened, step by step, on the way to even loads."""


def language_pass(phase: str, weight: float, step: Step, prices: Prices) -> Pass:
    """One pass on as many devices as the plan takes.

    A batch passes the pipeline stages one after another, in as many micro-batches as there are
    stages: a prefill is over when the last one is through, and a decode step of all of them takes
    as long as one of them takes through all stages, or as the slowest stage takes for all.
    """
    scenario, plan = prices.scenario, prices.scenario.plan
    if plan.devices == 1:
        return _alone(phase, weight, step, prices)
    step = _exchanging(phase, step, scenario)
    model = scenario.model
    assert isinstance(model, Transformer), "a U-Net has no stages"
    line = _Line(prices, step, slices(model, plan), phase)
    found = line.pass_of(phase, weight)
    if not line.dispatches[0].layers:
        return found
    latencies = [found.latency, *(line.evened(even) for even in EVENED)]
    slowest = max(line.stages, key=lambda stage: _longest(stage.works, stage.run))
    _, layer = _longest(slowest.works, slowest.run)
    spans = _timeline(slowest.works, slowest.run, layer, scenario.stack.launch.gap)
    executed = (
        (work.priced, 1)
        for stage in line.stages
        for ranks in stage.works
        for mine in ranks
        for work in mine
    )
    use = _use(phase, scenario, line.dispatches, step, prices.target, line.stages[0].group)
    return replace(
        found,
        experts=replace(
            use,
            phases=phases(found.lines, executed, plan, prices.target),
            layer=slowest.group.part.before + layer,
            spans=spans,
            lost=_losses(latencies, ("unequal exchange", "unequal experts")),
        ),
    )


def quick_latency(phase: str, step: Step, prices: Prices) -> Seconds:
    """The latency of ``language_pass``, sooner found: of expert-parallel ranks the fullest one is
    run alone, and the routing of the first MoE layer stands for all. Exact without experts."""
    scenario, plan = prices.scenario, prices.scenario.plan
    model = scenario.model
    assert isinstance(model, Transformer), "a U-Net has no stages"
    if plan.devices == 1:
        dispatch = Dispatch(plan, ((step.tokens,),), step.seed, alike=True)
        graph = build_graph(model, step, partial(dispatch.share, rank=0))
        return one_device(phase, 1.0, fused(graph, scenario.stack), prices).latency
    step = _exchanging(phase, step, scenario)
    return _Line(prices, step, slices(model, plan), phase, lone=True).latency


def _exchanging(phase: str, step: Step, scenario: Scenario) -> Step:
    """The step with the form and the number formats of its exchanges."""
    plan = scenario.plan
    quick = plan.exchange == "low_latency" or (plan.exchange == "auto" and phase == "decode")
    return replace(
        step,
        exchange="ll" if quick else "ht",
        exchange_units=0 if quick else scenario.stack.exchange_units,
        dispatch=plan.dispatch,
        combine=plan.combine,
    )


@dataclass(frozen=True, slots=True)
class _Stage:
    """One pipeline stage of a pass, run."""

    group: Group
    works: list[Ranks]
    run: GroupRun


class _Line:
    """The stages of a pass, and what goes from one to the next."""

    def __init__(
        self, prices: Prices, step: Step, parts: tuple[Slice, ...], phase: str, lone: bool = False
    ) -> None:
        self._prices, self._step, self._parts, self._phase = prices, step, parts, phase
        self._lone = lone
        self.dispatches: list[Dispatch] = []
        self.stages = self._run("nothing")
        largest = self.stages[0].group.largest
        self._send: Priced | None = None
        plan, model = prices.scenario.plan, parts[0].model
        if plan.pp > 1:
            moved = number_format(model.activation_format).bytes(largest.tokens * model.hidden)
            self._send = prices[
                Collective(
                    name="stage.send", algorithm="send_recv", ranks=2, message=moved / plan.tp,
                    format=model.activation_format, stride=plan.devices // plan.pp,
                )
            ]  # fmt: skip
        self._micro_batches = max(1, min(plan.pp, -(-step.batch // plan.replicas)))

    def _run(self, even: Even) -> list[_Stage]:
        done = []
        for part in self._parts:
            group = Group(
                self._step, part, self._prices, self.dispatches or None, even, lone=self._lone
            )
            self.dispatches = group.dispatches
            works = scheduled(group, group.priced())
            done.append(_Stage(group, works, run_ranks(group, works)))
        return done

    @property
    def latency(self) -> Seconds:
        """Of all micro-batches through all stages."""
        return self._through([stage.run.latency for stage in self.stages])

    def evened(self, even: Even) -> Seconds:
        """The latency with loads spread evenly."""
        return self._through([stage.run.latency for stage in self._run(even)])

    def _through(self, times: list[Seconds]) -> Seconds:
        """From the times of one micro-batch on the stages to that of all of them."""
        sent = 0.0 if self._send is None else self._send.exchange[1] * (len(times) - 1)
        once, many = sum(times) + sent, self._micro_batches
        if self._phase == "decode":
            return max(once, many * max(times))
        return once + (many - 1) * max(times)

    def pass_of(self, phase: str, weight: float) -> Pass:
        """The pass of all stages."""
        each = [
            group_pass(phase, weight, stage.group, stage.works, stage.run) for stage in self.stages
        ]
        lines = [line for one in each for line in one.lines]
        if self._send is not None:
            time = self._send.exchange[1]
            lines.append(Line(priced=self._send, count=len(each) - 1, time=time))
        return Pass(
            phase=phase,
            weight=weight,
            lines=tuple(lines),
            latency=self._through([one.latency for one in each]),
            bounds=Bounds(
                lower=self._through([one.bounds.lower for one in each]),
                upper=self._through([one.bounds.upper for one in each]),
            ),
            events=sum(one.events for one in each),
            demand=times(sum_of(one.demand for one in each), self._micro_batches),
        )


def slices(model: Transformer, plan: Plan) -> tuple[Slice, ...]:
    """What each pipeline stage runs, cut over tensor-parallel ranks."""
    part = cut(model, plan)
    if plan.pp == 1:
        return (Slice(model=part),)
    parts, before = [], 0
    for stage in stages(part, replace(plan, virtual_stages=1)):
        parts.append(Slice(model=stage.of(part), first=stage.first, last=stage.last, before=before))
        before += sum(count for layer, count in stage.layers if isinstance(layer.ffn, MoE))
    return tuple(parts)


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
            _use(phase, scenario, [dispatch], step, target, None),
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
    return (Loss(name="even loads", time=latencies[-1]), *reversed(steps))


def _use(
    phase: str,
    scenario: Scenario,
    dispatches: list[Dispatch],
    step: Step,
    target: Target,
    group: Group | None,
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
    if group is None or ranks == 1:
        return use
    use = replace(
        use,
        ranks=ranks,
        domain=group.domain,
        redundant=plan.redundant_experts,
        placement=plan.placement,
        schedule=plan.schedule,
    )
    if not group.apart:
        return use
    return replace(
        use,
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


def _windows(works: tuple[Work, ...]) -> list[range]:
    """The stages of each MoE layer of a rank: up to its dispatch and to its combine, or up to the
    sum over the ranks that share its tokens."""
    found: list[range] = []
    begin = 0
    for stage, op in enumerate(work.priced.op for work in works if work.kernel is None):
        if isinstance(op, Exchange):
            if op.way == "dispatch":
                begin = stage
            else:
                found.append(range(begin, stage + 1))
        elif op.name == "moe.all_reduce":
            found.append(range(stage, stage + 1))
    return found


def _longest(works: list[Ranks], run: GroupRun) -> tuple[Seconds, int]:
    """How long the longest MoE layer of a stage takes, and which one it is.

    The first one of a model stands behind layers without experts, so it counts only if alone.
    """
    windows = _windows(works[0][0])
    took = [
        max(laps[window[-1]].end - laps[window[0]].begin for laps in run.laps[0])
        for window in windows
    ]
    if len(took) > 1:
        took[0] = 0.0
    return max(((time, layer) for layer, time in enumerate(took)), default=(0.0, 0))


def _timeline(works: list[Ranks], run: GroupRun, layer: int, gap: Seconds) -> tuple[Span, ...]:
    """What each rank does in one MoE layer; times count from its first kernel on any rank.

    Shared experts run behind a combine, so those of the layer before come first.
    """
    windows = _windows(works[0][0])
    if not windows:
        return ()
    window = windows[layer]
    start = min(laps[window[0]].begin for batch in run.laps for laps in batch)
    spans: list[Span] = []
    for batch, (ranks, laps_of) in enumerate(zip(works, run.laps, strict=True)):
        suffix = f" {batch + 1}" if len(works) > 1 else ""
        lasts = meetings(ranks)
        for rank, (mine, laps) in enumerate(zip(ranks, laps_of, strict=True)):
            left = True
            for stage in window:
                work, lap = stages_of(mine)[stage], laps[stage]
                at = lap.begin - start
                for step, time in _steps(work, gap):
                    until = min(at + time, lap.computed - start)
                    left = left and step == "shared"
                    name = f"{step}, layer before" if left else step
                    spans.append(Span(rank=rank, lane="units", name=name, start=at, end=until))
                    at = until
                # A dispatch that kernels run beside holds up nobody, but still takes its time.
                ready, met = lap.computed - start, lap.met - start
                end = met + lasts[stage]
                name = work[-1].priced.op.name.removeprefix("moe.") + suffix
                if met > ready and len(works) == 1:
                    spans.append(Span(rank=rank, lane="wait", name="wait", start=ready, end=met))
                if end > met:
                    spans.append(Span(rank=rank, lane="links", name=name, start=met, end=end))
    return tuple(spans)


def _steps(works: list[Work], gap: Seconds) -> list[tuple[str, Seconds]]:
    """Kernels of a stage with the gaps behind them, joined by the step that they are part of."""
    joined: list[tuple[str, Seconds]] = []
    for work in works:
        if work.kernel is not None:
            step = step_of(work.priced.op) or "attention"
            before = joined.pop()[1] if joined and joined[-1][0] == step else 0.0
            joined.append((step, before + work.time + gap))
    return joined
