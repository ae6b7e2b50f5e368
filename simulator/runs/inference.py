"""One forward pass, one decode step, or a whole batch of requests, on one device.

Builds the operator graph, maps it to kernels, runs them, and gathers the Result. Holds no cost
formula and no event of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from simulator.costs.bounds import bounds
from simulator.costs.lower import alternatives, lower
from simulator.costs.plan import KernelPlan
from simulator.costs.target import Target
from simulator.engine.execute import Memo, Segment, StreamRun, run_stream
from simulator.engine.machine import CommandProcessor, LaunchPolicy
from simulator.mapping.placement import memory_use, require_fit
from simulator.models.arithmetic import weight_bytes_by_part
from simulator.models.graph import Step, build_graph
from simulator.models.graph_unet import build_unet_graph
from simulator.ops.op import Op, OpGraph
from simulator.result import (
    Basis,
    Bound,
    Bounds,
    Interval,
    OpUse,
    Phase,
    Result,
    Roof,
    RunProvenance,
    breakdown,
)
from simulator.runs.fitted import busy, fastest, fused, held
from simulator.runs.provenance import numbers_behind, weakest
from simulator.specs.scenario import Scenario
from simulator.specs.stack import Stack
from simulator.specs.workload import Model, MoE, Transformer
from simulator.tables.alone import Alone, alone
from simulator.units import Seconds
from simulator.version import __version__

DECODE_SAMPLES = 9
"""Contexts at which the decode steps of a ``generate`` run are simulated; between them the step
time is taken as linear in the context, which it is but for steps of split and tile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """One simulated pass through the graph, and how many times the run makes it."""

    phase: str
    weight: float
    graph: OpGraph
    plans: dict[Op, KernelPlan]
    fitted: dict[Op, Alone | None]
    stream: StreamRun
    bounds: Bounds


def run_inference(scenario: Scenario, memo: Memo | None = None) -> Result:
    """Answer an inference scenario.

    Raises CapacityError where the device does not hold the model and its batch, SpecError where
    it has no way to compute in a needed number format.
    """
    use = memory_use(scenario)
    require_fit(scenario, use)
    target = Target(accelerator=scenario.hardware, stack=scenario.stack)
    known = Memo() if memo is None else memo
    passes = [
        _simulate(phase, weight, graph, target, scenario, known)
        for phase, weight, graph in _graphs(scenario)
    ]
    latency = sum(one.weight * one.stream.latency for one in passes)
    ops = tuple(_gather(passes, target))
    matrix = _main_format(ops, scenario)
    demands = [(one.weight, one.graph.total()) for one in passes]
    products = [op for op in ops if op.kind not in ("pointwise", "launch")]
    formats = sorted({op.format for op in products})
    efficiency = scenario.stack.matmul.efficiency
    fitted = [known for one in passes for known in one.fitted.values()]
    behind = numbers_behind(
        scenario, formats, filter(None, fitted), tiled=any(known is None for known in fitted)
    )
    rent = scenario.hardware.price.rent if scenario.hardware.price else None
    image = scenario.phase == "denoise"
    return Result(
        workload=scenario.model.name,
        hardware=scenario.hardware.name,
        stack=scenario.stack.name,
        phase=scenario.phase,
        batch=scenario.batch,
        input=scenario.input,
        output=scenario.output,
        context=scenario.context,
        dtype=matrix,
        weights=_stored_format(scenario.model),
        unit="samples" if image else "tokens",
        work=float(scenario.batch * _yield(scenario)),
        latency=latency,
        bounds=Bounds(
            lower=sum(one.weight * one.bounds.lower for one in passes),
            upper=sum(one.weight * one.bounds.upper for one in passes),
        ),
        interval=_interval(passes),
        ops=ops,
        memory=use,
        roof=Roof(
            compute=tuple((name, target.matrix_peak(name) * target.units) for name in formats),
            held=tuple(
                (name, target.matrix_rate(name, efficiency) * target.units) for name in formats
            ),
            bandwidth=target.peak_bandwidth,
            achieved_bandwidth=target.bandwidth,
        ),
        model_flops=sum(weight * demand.flops for weight, demand in demands),
        model_bytes=sum(weight * (demand.weights + demand.kv_read) for weight, demand in demands),
        phases=_phases(passes, scenario),
        cost=None if rent is None else rent / 3600 * latency,
        events=sum(one.stream.events for one in passes),
        warnings=(*_warnings(scenario), *_without_effect(scenario, behind)),
        provenance=RunProvenance(
            version=__version__,
            fidelity=scenario.fidelity,
            seed=scenario.seed,
            weakest=weakest(behind, _parts(ops, latency)),
            numbers=behind,
            overrides=scenario.overrides,
            command=scenario.command,
        ),
    )


def _parts(ops: tuple[OpUse, ...], latency: Seconds) -> dict[Bound, float]:
    """Share of the latency by what binds."""
    parts = breakdown(ops, latency)
    return {bound: time / latency for bound, time in parts.items()} if latency else {}


def _yield(scenario: Scenario) -> int:
    """What one sequence (or image) of the batch gets out of one ``latency``."""
    counts = {"prefill": scenario.input, "decode": 1, "generate": scenario.output, "denoise": 1}
    count = counts[scenario.phase]
    assert count is not None, "a scenario is complete"
    return count


def _graphs(scenario: Scenario) -> Iterator[tuple[str, float, OpGraph]]:
    """(phase, how often, graph) of each pass that is simulated."""
    model, batch, seed = scenario.model, scenario.batch, scenario.seed
    if not isinstance(model, Transformer):
        yield "denoise", float(model.steps), build_unet_graph(model, batch)
        return
    if scenario.phase in ("prefill", "generate"):
        assert scenario.input is not None
        step = Step(batch=batch, new=scenario.input, context=scenario.input, seed=seed)
        yield "prefill", 1.0, build_graph(model, step)
    if scenario.phase == "decode":
        assert scenario.context is not None
        yield (
            "decode",
            1.0,
            build_graph(model, Step(batch=batch, new=1, context=scenario.context, seed=seed)),
        )
    if scenario.phase == "generate":
        assert scenario.input is not None
        assert scenario.output is not None
        for context, weight in decode_samples(scenario.input, scenario.output - 1):
            step = Step(batch=batch, new=1, context=context, seed=seed)
            yield "decode", weight, build_graph(model, step)


def decode_samples(prompt: int, steps: int) -> list[tuple[int, float]]:
    """Contexts to simulate for ``steps`` decode steps after ``prompt`` tokens, with weights.

    Step i sees prompt + i tokens, i = 1..steps. The weights add up to ``steps`` and give the sum
    over all steps exactly where the step time is linear between the contexts.

    >>> decode_samples(10, 2)
    [(11, 1.0), (12, 1.0)]
    """
    if steps < 1:
        return []
    count = min(steps, DECODE_SAMPLES)
    chosen = np.unique(np.linspace(1, steps, count).round().astype(int))
    weights = np.zeros(len(chosen))
    weights[0] = 1.0
    # Of the n steps after one sample, up to the next, the later has the shares 1/n, 2/n, ..., 1.
    between = np.diff(chosen)
    weights[1:] += (between + 1) / 2
    weights[:-1] += (between - 1) / 2
    return [(prompt + int(i), float(w)) for i, w in zip(chosen, weights, strict=True)]


def _simulate(
    phase: str, weight: float, graph: OpGraph, target: Target, scenario: Scenario, memo: Memo
) -> _Pass:
    graph = fused(graph, scenario.stack)
    plans: dict[Op, KernelPlan] = {}
    fitted: dict[Op, Alone | None] = {}
    for segment in graph.segments:
        for op in segment.ops:
            if op not in plans:
                known = alone(op, target)
                if known is None:
                    plan = fastest(alternatives(op, target), scenario.fidelity, memo)
                else:
                    plan = lower(op, target)
                    plan = replace(plan, kernel=held(plan.kernel, known, scenario, memo))
                plans[op], fitted[op] = plan, known
    segments = [
        Segment(
            name=segment.name,
            repeat=segment.repeat,
            kernels=tuple(plans[op].kernel for op in segment.ops),
        )
        for segment in graph.segments
    ]
    launch = launch_policy(scenario.stack)
    stream = run_stream(segments, launch, mode=scenario.fidelity, memo=memo)
    limits = {op: bounds(plan.kernel) for op, plan in plans.items()}
    ends = []
    for side in (0, 1):
        processor = CommandProcessor(launch)
        for segment in graph.segments:
            for _ in range(segment.repeat):
                for op in segment.ops:
                    processor.execute(limits[op][side])
        ends.append(processor.end)
    return _Pass(
        phase=phase,
        weight=weight,
        graph=graph,
        plans=plans,
        fitted=fitted,
        stream=stream,
        bounds=Bounds(lower=ends[0], upper=ends[1]),
    )


UNFITTED = 0.5, 2.0
"""Factors of the 80 % interval of an operator that no fit covers, such as a kind that was never
measured: a plain roofline is off by a factor of two as often as not."""


def _interval(passes: list[_Pass]) -> Interval:
    """The 80 % interval of the latency, from those of its operators.

    Errors of one family have one cause, the library, so they are added as they stand; errors of
    different families are independent, so their sums are combined as squares.
    """
    off: dict[str, list[float]] = {}
    for one in passes:
        for segment, runs in zip(one.graph.segments, one.stream.kernels, strict=True):
            for op, run in zip(segment.ops, runs, strict=True):
                known = one.fitted[op]
                family = "" if known is None else known.family
                low, high = UNFITTED if known is None else (known.lower, known.upper)
                time = one.weight * segment.repeat * run.makespan
                ends = off.setdefault(family, [0.0, 0.0])
                ends[0] += time * (1 - low)
                ends[1] += time * (high - 1)
    latency = sum(one.weight * one.stream.latency for one in passes)
    below, above = (math.hypot(*(ends[side] for ends in off.values())) for side in (0, 1))
    return Interval(lower=max(latency - below, 0.0), upper=latency + above)


def launch_policy(stack: Stack) -> LaunchPolicy:
    """How the stack's launches reach the device."""
    launch = stack.launch
    if stack.mode == "graph":
        return LaunchPolicy(mode="graph", gap=launch.gap, first=launch.graph)
    return LaunchPolicy(mode="eager", host=launch.host, gap=launch.gap)


def _gather(passes: list[_Pass], target: Target) -> Iterator[OpUse]:
    """Operators of all passes by name and shape, longest first; then the time between kernels."""
    times: dict[tuple[str, str], dict[str, float]] = {}
    plans: dict[tuple[str, str], tuple[Op, KernelPlan]] = {}
    gaps = launches = 0.0
    for one in passes:
        gaps += one.weight * (one.stream.latency - sum(one.stream.durations))
        launches += one.weight * len(one.stream.durations)
        for segment, runs in zip(one.graph.segments, one.stream.kernels, strict=True):
            for op, run in zip(segment.ops, runs, strict=True):
                plan = one.plans[op]
                key = (op.name, one.phase if len({p.phase for p in passes}) > 1 else "")
                plans.setdefault(key, (op, plan))
                many = one.weight * segment.repeat
                line = times.setdefault(key, dict.fromkeys(_SUMS, 0.0))
                line["count"] += many
                line["time"] += many * run.makespan
                for part, time in busy(plan, one.fitted[op], run.makespan, target).items():
                    line[part] += many * time
                line["flops"] += many * plan.kernel.flops
                line["bytes"] += many * plan.kernel.pipe_bytes
    for key in sorted(times, key=lambda key: (-times[key]["time"], key)):
        op, plan = plans[key]
        line = times[key]
        yield OpUse(
            name=" ".join(filter(None, (key[1], key[0]))),
            kind=op.kind,
            count=round(line["count"]),
            time=line["time"],
            compute=line["compute"],
            memory=line["memory"],
            cache=line["cache"],
            latency=line["latency"],
            flops=line["flops"],
            bytes=line["bytes"],
            format=plan.format,
            roof=plan.roof,
            tile=str(plan.tiling),
            units=plan.kernel.units,
        )
    if gaps > 0:
        yield OpUse(
            name="launch gaps", kind="launch", count=round(launches), time=gaps,
            compute=0.0, memory=0.0, latency=gaps, flops=0.0, bytes=0.0, format="", roof=0.0,
        )  # fmt: skip


_SUMS = ("count", "time", "compute", "memory", "cache", "latency", "flops", "bytes")


def _main_format(ops: tuple[OpUse, ...], scenario: Scenario) -> str:
    """The matrix format that most of the work is done in."""
    work: dict[str, float] = {}
    for op in ops:
        if op.kind != "pointwise" and op.format in scenario.hardware.compute.matrix:
            work[op.format] = work.get(op.format, 0.0) + op.flops
    return max(sorted(work), key=lambda name: work[name])


def _stored_format(model: Model) -> str:
    """The number format that most bytes of the model's weights are in."""
    sizes: dict[str, float] = {}
    for part, size in weight_bytes_by_part(model).items():
        name = model.formats.get(part, model.formats["default"])
        sizes[name] = sizes.get(name, 0.0) + size
    return max(sorted(sizes), key=lambda name: sizes[name])


def _phases(passes: list[_Pass], scenario: Scenario) -> tuple[Phase, ...]:
    if scenario.phase != "generate":
        return ()
    totals: dict[str, Seconds] = {}
    for one in passes:
        totals[one.phase] = totals.get(one.phase, 0.0) + one.weight * one.stream.latency
    tokens = {"prefill": float(scenario.batch * (scenario.input or 0))}
    tokens["decode"] = float(scenario.batch * ((scenario.output or 1) - 1))
    return tuple(
        Phase(name=name, latency=time, tokens=tokens[name]) for name, time in totals.items()
    )


def _without_effect(scenario: Scenario, behind: tuple[Basis, ...]) -> Iterator[str]:
    """What was given or set by hand and had no say."""
    for name in scenario.ignored:
        yield f"{name} was given, but has no say in a {scenario.phase} run"
    used = {number.path for number in behind}
    for spec in (scenario.hardware, scenario.stack):
        for entry in spec.provenance:
            if entry.source == "--set" and f"{spec.name}.{entry.path}" not in used:
                yield f"{entry.path} was set, but has no say in this run"


_NARROW = re.compile(r"(?i)\b(nv|mx)?fp[48]|\bint[48]\b")
"""What names of quantised checkpoints carry."""


def _warnings(scenario: Scenario) -> Iterator[str]:
    hardware, model = scenario.hardware, scenario.model
    if hardware.status in ("projection", "article", "announced"):
        kind = {"projection": "a projection", "article": "as an article printed it"}
        yield (
            f"{hardware.name} is {kind.get(hardware.status, 'announced, not shipping')}; "
            "its numbers are not a vendor's data sheet"
        )
    if model.basis == "assumed":
        yield f"{model.name} is an assumed architecture; nobody published it"
    if isinstance(model, Transformer):
        said = _NARROW.search(model.name)
        if said and _stored_format(model) in ("bf16", "fp16"):
            yield (
                f"the name says {said[0]}, but the file states no quantisation; its weights are "
                f"taken as {_stored_format(model)}: --dtype changes that"
            )
        if any(isinstance(layer.ffn, MoE) for layer in model.layers()):
            yield "one routing of tokens to experts is drawn and shared by all MoE layers"
    else:
        yield "text encoders and the image decoder are not included"
