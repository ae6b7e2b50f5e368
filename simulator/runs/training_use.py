"""What a user sees of a training step beside its time: stages, parts, memory and traffic.

Gathers what the step has found. Holds no cost formula, and never touches reports.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from simulator.costs.fabric import fabric
from simulator.costs.target import Target
from simulator.engine.pipeline import PipelineRun, Span
from simulator.mapping.training_memory import stage_memories
from simulator.memory_use import MemoryUse
from simulator.ops.collective import Collective
from simulator.ops.exchange import Exchange
from simulator.result import Bound
from simulator.runs.line import Line
from simulator.specs.plan import Plan
from simulator.specs.workload import Transformer
from simulator.training_use import StageSpan, StepPart, Traffic, TrainingUse
from simulator.units import Bytes, Seconds

if TYPE_CHECKING:
    from simulator.runs.training import TrainingRun

Group: TypeAlias = Literal["forward", "recompute", "backward", "update"]
Worked: TypeAlias = tuple[Group, Line]
"""An operator of the step, and what it is for."""
Wait: TypeAlias = tuple[str, Bound, Seconds]

SPANS = 2500
"""Spans that a result keeps; where there are more, those of the steady state are joined."""

KINDS = {
    "matmul": "products",
    "grouped_matmul": "expert products",
    "grouped_weight_gradient": "expert products",
    "conv2d": "convolutions",
    "conv2d_gradient": "convolutions",
    "attention": "attention",
    "attention_backward": "attention",
}
"""Kinds of operators by name; the others only move data."""

ROUNDING = 1e-6
"""Share of the step below which what is left over is rounding."""

WAITS = {
    "stage.send": "sends between stages",
    "gradients and weights": "gradient and weight exchanges",
    "shared links": "contention for links",
}
"""What waits are called."""


def training_use(
    run: TrainingRun, played: PipelineRun, worked: Sequence[Worked], waits: Iterable[Wait]
) -> TrainingUse:
    """The step as ``played``; ``worked`` and ``waits`` are the path of the busiest stage."""
    spans, folded = joined(played.spans, len(run.ranks), run.micro_batches, played.makespan)
    scenario = run.prices.scenario
    memory: tuple[MemoryUse, ...] = ()
    if isinstance(scenario.model, Transformer):
        memory = tuple(
            stage_memories(
                scenario.model, run.plan, sequence=run.sequence, batch=scenario.batch,
                capacity=scenario.hardware.dram.capacity,
                framework=scenario.stack.framework_memory,
            )
        )  # fmt: skip
    return TrainingUse(
        plan=tuple(_plan(run.plan)),
        micro_batches=run.micro_batches,
        bubble=played.bubble_over_total,
        spans=spans,
        folded=folded,
        parts=tuple(_parts(run, played, worked, waits)),
        memory=memory,
        traffic=tuple(_traffic(run, played, worked)),
    )


def _plan(plan: Plan) -> Iterator[tuple[str, str]]:
    for name in ("tp", "pp", "cp", "ep", "micro_batch", "zero", "recompute"):
        yield name, str(getattr(plan, name))
        if name == "cp":
            yield "dp", str(plan.replicas)
    order = "interleaved" if plan.virtual_stages > 1 else plan.pipeline
    yield "schedule", "merged" if plan.merged else order
    if plan.virtual_stages > 1:
        yield "virtual_stages", str(plan.virtual_stages)
    yield "gradients", plan.gradients
    yield "recipe", plan.recipe
    for name in ("sequence_parallel", "overlap", "overlap_exchanges"):
        yield name, "yes" if getattr(plan, name) else "no"


def _parts(
    run: TrainingRun, played: PipelineRun, worked: Sequence[Worked], waits: Iterable[Wait]
) -> Iterator[StepPart]:
    """Operators by what they are for and of which kind, launch gaps, and what else passes."""
    sums: dict[tuple[Group, str], Seconds] = {}
    gaps = 0.0
    for group, line in worked:
        key = group, _kind(run, group, line)
        sums[key] = sums.get(key, 0.0) + line.count * line.time
        gaps += line.count * run.gap
    for (group, kind), time in sums.items():
        yield StepPart(
            name=kind, group=group, bound="link" if "exchange" in kind else "compute", time=time
        )
    named = 0.0
    for name, bound, time in waits:
        named += time
        if time > ROUNDING * played.makespan:
            yield StepPart(
                name=WAITS.get(name, name), group="exposed",
                bound="link" if bound == "link" else "waiting", time=time,
            )  # fmt: skip
    rest = played.makespan - named - math.fsum(sums.values())
    if rest > ROUNDING * played.makespan:
        yield StepPart(name="launch gaps", group="exposed", bound="latency", time=rest)


def _kind(run: TrainingRun, group: Group, line: Line) -> str:
    op = line.priced.op
    if group == "update":
        return "optimizer"
    if isinstance(op, Exchange):
        return "expert exchanges"
    if isinstance(op, Collective):
        return f"{_axis(run.plan, op)} exchanges"
    return KINDS.get(op.kind, "norms, activations, casts")


def _axis(plan: Plan, op: Collective) -> str:
    return "tp" if op.stride == 1 and op.ranks == plan.tp else "cp"


def _traffic(run: TrainingRun, played: PipelineRun, worked: Sequence[Worked]) -> Iterator[Traffic]:
    """Bytes that a device of the busiest stage sends in a step, degree by degree of the plan."""
    plan, target = run.plan, run.prices.target
    stage = max(range(len(run.ranks)), key=lambda rank: played.busy[rank])
    sent: dict[str, list[tuple[float, Collective | Exchange]]] = {}
    for group, line in worked:
        op = line.priced.op
        if group != "update" and isinstance(op, Collective | Exchange):
            axis = "ep" if isinstance(op, Exchange) else _axis(plan, op)
            sent.setdefault(axis, []).append((line.count, op))
    last = plan.pp * len(run.ranks[stage]) - 1
    for number, piece in enumerate(run.ranks[stage]):
        if plan.pp > 1:
            place = number * plan.pp + stage
            ways = (place > 0) + (place < last)
            sent.setdefault("pp", []).append((ways * run.micro_batches, run.send))
        gathered, reduced = run.reductions(piece)
        for ops, each in ((gathered, plan.zero == 3), (reduced, plan.zero >= 2)):
            times = run.micro_batches if each else 1
            # Under ZeRO 3 weights are gathered for the forward pass and again for the backward.
            twice = 2 if each and ops is gathered else 1
            sent.setdefault("dp", []).extend(
                (times * twice, op) for op in ops if isinstance(op, Collective)
            )
    for axis in ("tp", "cp", "ep", "pp", "dp"):
        if found := sent.get(axis, []):
            tiers = [(count, *_tiers(op, target)) for count, op in found]
            yield Traffic(
                name=axis,
                ranks=max(op.ranks for _, op in found),
                near=sum(count * near for count, near, _ in tiers),
                far=sum(count * far for count, _, far in tiers),
            )


def _tiers(op: Collective | Exchange, target: Target) -> tuple[Bytes, Bytes]:
    """Bytes that a mean device sends inside its domain and out of it, in one execution.

    A ring leaves each domain once, so that one of its ``size`` devices there sends out; in an
    all-to-all each device sends as much to each other one.
    """
    if isinstance(op, Exchange):
        return op.crossing * op.row, op.far * op.row
    links = fabric(target, np.array([float(op.ranks)]), np.array([-1.0]), np.array([op.stride]))
    size = float(links.size[0])
    if float(links.islands[0]) <= 1:
        return op.sent, 0.0
    if op.algorithm == "alltoall":
        far = op.sent * (1 - (size - 1) / (op.ranks - 1))
    else:
        far = op.sent / size
    return op.sent - far, far


def joined(
    spans: Sequence[Span], stages: int, micro_batches: int, end: Seconds, most: int = SPANS
) -> tuple[tuple[StageSpan, ...], tuple[Seconds, Seconds] | None]:
    """The spans by stage and start, at most about ``most``; and from when to when they are joined.

    Warm-up and cool-down, as long as three micro-batches more than there are stages, stay as they
    are. Between them the time of each kind is added up in equal slices of time.
    """
    ordered = sorted(spans, key=lambda span: (span.stage, span.start, span.end, span.kind))
    edge = (stages + 3) * end / max(1, micro_batches)
    start, stop = edge, end - edge
    if len(ordered) <= most or start >= stop:
        return tuple(map(_whole, ordered)), None
    inner = [start <= span.start and span.end <= stop for span in ordered]
    found = [_whole(span) for span, within in zip(ordered, inner, strict=True) if not within]
    kinds = {span.kind for span, within in zip(ordered, inner, strict=True) if within}
    slices = max(8, max(most - len(found), most // 4) // (stages * max(1, len(kinds))))
    width = (stop - start) / slices
    sums: dict[tuple[int, int, str], Seconds] = {}
    for span, within in zip(ordered, inner, strict=True):
        place = int((span.start - start) / width)
        low = span.start
        while within and low < span.end:
            high = min(span.end, start + (place + 1) * width) if place < slices - 1 else span.end
            key = span.stage, place, span.kind
            sums[key] = sums.get(key, 0.0) + max(0.0, high - low)
            low, place = max(low, high), place + 1
    found += [
        StageSpan(
            stage=stage, kind=kind, micro_batch=-1, start=start + place * width,
            end=start + (place + 1) * width, share=min(1.0, time / width),
        )
        for (stage, place, kind), time in sums.items()
    ]  # fmt: skip
    if len(found) >= len(ordered):
        return tuple(map(_whole, ordered)), None
    found.sort(key=lambda span: (span.stage, span.start, span.end, span.kind))
    return tuple(found), (start, stop)


def _whole(span: Span) -> StageSpan:
    return StageSpan(
        stage=span.stage, kind=span.kind, micro_batch=span.micro_batch, start=span.start,
        end=span.end,
    )  # fmt: skip
