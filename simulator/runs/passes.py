"""One simulated pass: what each operator took on the path that decides, and its proven limits.

Prices operators, runs them on one device, and says what a result needs of a pass. Holds no cost
formula, and never touches reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from simulator.costs.bounds import bounds
from simulator.costs.exchange import exchange_seconds
from simulator.costs.expert_queue import issued, queued
from simulator.costs.lower import alternatives, lower
from simulator.costs.plan import KernelPlan
from simulator.costs.target import Target
from simulator.engine.execute import Memo, Segment, look_up, run_stream
from simulator.engine.machine import CommandProcessor, LaunchPolicy
from simulator.ops.exchange import Exchange
from simulator.ops.matmul import GroupedMatmul
from simulator.ops.op import Demand, Op, OpGraph
from simulator.policies.order import EXPERT_ORDERS
from simulator.result import Bounds, ExpertUse
from simulator.runs.fitted import fastest, held
from simulator.runs.line import Line, Priced
from simulator.specs.plan import Plan
from simulator.specs.scenario import Scenario
from simulator.specs.stack import Stack
from simulator.tables.alone import alone
from simulator.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One simulated pass through the graph, and how many times the run makes it.

    Lines are those of one device, the slowest where devices differ; ``demand`` is of all devices.
    """

    phase: str
    weight: float
    lines: tuple[Line, ...]
    latency: Seconds
    bounds: Bounds
    events: int
    demand: Demand
    experts: ExpertUse | None = None

    @property
    def between(self) -> Seconds:
        """Time in no line: launch gaps, and on several devices waiting for others."""
        return self.latency - sum(line.count * line.time for line in self.lines)

    @property
    def launches(self) -> int:
        """Kernels and exchanges that were started."""
        return sum(line.count for line in self.lines)


def price(
    ops: Iterable[Op], target: Target, scenario: Scenario, memo: Memo, known: dict[Op, Priced]
) -> None:
    """Price each operator that is not ``known`` yet.

    Its kernel is held to the fitted time, or is the fastest one where no fit says the time; what
    the plan changes about it, the order of experts or how rows are gathered, comes on top.
    """
    for op in ops:
        if op not in known:
            known[op] = _priced(op, target, scenario, memo)


def _priced(op: Op, target: Target, scenario: Scenario, memo: Memo) -> Priced:
    fitted = alone(op, target)
    if isinstance(op, Exchange):
        begin, transfer = exchange_seconds(op, target)
        if fitted is not None:
            begin = min(fitted.parts["latency"], fitted.seconds)
            transfer = fitted.seconds - begin
        return Priced(op=op, plan=None, known=fitted, exchange=(begin, begin + transfer))
    if fitted is None:
        plan = fastest(alternatives(op, target), scenario.fidelity, memo)
    else:
        plan = lower(op, target)
        plan = replace(plan, kernel=held(plan.kernel, fitted, scenario, memo))
    if isinstance(op, GroupedMatmul):
        plan = _as_planned(plan, op, target, scenario.plan)
    run, _, _ = look_up(plan.kernel, scenario.fidelity, memo)
    return Priced(op=op, plan=plan, known=fitted, run=run)


def _as_planned(plan: KernelPlan, op: GroupedMatmul, target: Target, wanted: Plan) -> KernelPlan:
    article = wanted.descriptors == "article"
    kernel = issued(plan.kernel, op, plan.tiling, target, article=article)
    if wanted.expert_order != "expert":
        order = EXPERT_ORDERS[wanted.expert_order](op.counts)
        kernel = queued(kernel, op, plan.tiling, order)
    return replace(plan, kernel=kernel)


def launch_policy(stack: Stack) -> LaunchPolicy:
    """How the stack's launches reach the device."""
    launch = stack.launch
    if stack.mode == "graph":
        return LaunchPolicy(mode="graph", gap=launch.gap, first=launch.graph)
    return LaunchPolicy(mode="eager", host=launch.host, gap=launch.gap)


def one_device(
    phase: str,
    weight: float,
    graph: OpGraph,
    target: Target,
    scenario: Scenario,
    memo: Memo,
    prices: dict[Op, Priced] | None = None,
) -> Pass:
    """The pass of a device that holds the whole model."""
    ops = (op for segment in graph.segments for op in segment.ops)
    priced = {} if prices is None else prices
    price(ops, target, scenario, memo, priced)
    segments = [
        Segment(
            name=segment.name,
            repeat=segment.repeat,
            kernels=tuple(priced[op].kernel for op in segment.ops),
        )
        for segment in graph.segments
    ]
    launch = launch_policy(scenario.stack)
    stream = run_stream(segments, launch, mode=scenario.fidelity, memo=memo)
    limits = {op: bounds(entry.kernel) for op, entry in priced.items()}
    ends = []
    for side in (0, 1):
        processor = CommandProcessor(launch)
        for segment in graph.segments:
            for _ in range(segment.repeat):
                for op in segment.ops:
                    processor.execute(limits[op][side])
        ends.append(processor.end)
    return Pass(
        phase=phase,
        weight=weight,
        lines=tuple(
            Line(priced=priced[op], count=segment.repeat, time=run.makespan)
            for segment, runs in zip(graph.segments, stream.kernels, strict=True)
            for op, run in zip(segment.ops, runs, strict=True)
        ),
        latency=stream.latency,
        bounds=Bounds(lower=ends[0], upper=ends[1]),
        events=stream.events,
        demand=graph.total(),
    )


def all_ops(graph: OpGraph) -> Iterator[Op]:
    """Operators in stream order, repeats written out."""
    for segment in graph.segments:
        for _ in range(segment.repeat):
            yield from segment.ops
