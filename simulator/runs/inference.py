"""One forward pass, one decode step, or a whole batch of requests, on one device or on a group of
expert-parallel ranks.

Builds the operator graphs, has them run, and gathers the Result. Holds no cost formula and no
event of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from simulator.costs.energy import draw
from simulator.costs.target import Target
from simulator.engine.execute import Memo
from simulator.mapping.legality import plan_notes
from simulator.mapping.placement import memory_use, require_fit
from simulator.mapping.routing import notes, require_layers
from simulator.models.arithmetic import weight_bytes_by_part
from simulator.models.graph import Step
from simulator.models.graph_unet import build_unet_graph
from simulator.ops.exchange import Exchange
from simulator.result import (
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
from simulator.runs.experts import language_pass
from simulator.runs.fitted import busy, fused
from simulator.runs.line import Line
from simulator.runs.passes import Pass, one_device
from simulator.runs.prices import Prices
from simulator.runs.provenance import numbers_behind, weakest
from simulator.runs.roof_levels import roof_levels
from simulator.runs.spent import Spent, spent, together
from simulator.runs.training import training_pass
from simulator.runs.training_unet import unet_training_pass
from simulator.runs.without_effect import without_effect
from simulator.specs.scenario import Scenario
from simulator.specs.workload import Model, MoE, Transformer
from simulator.units import Seconds
from simulator.version import __version__

DECODE_SAMPLES = 9
"""Contexts at which the decode steps of a ``generate`` run are simulated; between them the step
time is taken as linear in the context, which it is but for steps of split and tile."""


def run_inference(
    scenario: Scenario,
    memo: Memo | None = None,
    told: Callable[[], None] | None = None,
    prices: Prices | None = None,
) -> Result:
    """Answer an inference scenario; ``told`` is called for each kernel that was found.

    ``prices`` are those of a scenario that differs in the degrees of its plan alone.

    Raises CapacityError where the device does not hold the model and its batch, SpecError where
    it has no way to compute in a needed number format, or a recorded routing names layers that
    the model does not have.
    """
    use = memory_use(scenario)
    require_fit(scenario, use)
    if isinstance(scenario.model, Transformer):
        layers = list(scenario.model.layers())
        for net in dict.fromkeys(layer.ffn for layer in layers if isinstance(layer.ffn, MoE)):
            require_layers(net, len(layers))
    target = Target(accelerator=scenario.hardware, stack=scenario.stack)
    if prices is None:
        prices = Prices(scenario, target, Memo() if memo is None else memo, told)
    prices = prices.under(scenario)  # which starts anew to gather what is asked of it
    passes = list(passes_of(prices))
    latency = sum(one.weight * one.latency for one in passes)
    ops = tuple(_gather(passes, target))
    matrix = _main_format(ops, scenario)
    demands = [(one.weight, one.demand) for one in passes]
    products = [op for op in ops if op.roof and not op.kind.startswith("pointwise")]
    formats = sorted({op.format for op in products})
    efficiency = scenario.stack.matmul.efficiency
    priced = [line.priced for one in passes for line in one.lines]
    behind = numbers_behind(
        scenario,
        formats,
        filter(None, (entry.known for entry in priced)),
        tiled=any(entry.known is None and entry.plan is not None for entry in priced),
    )
    by_phase = _spent(scenario, passes, ops, target)
    whole = together(list(by_phase.values()))
    image = not isinstance(scenario.model, Transformer)
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
        work=float(scenario.batch * yields(scenario)),
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
            levels=roof_levels(target, scenario.plan.devices),
        ),
        model_flops=sum(weight * demand.flops for weight, demand in demands),
        model_bytes=sum(weight * (demand.weights + demand.kv_read) for weight, demand in demands),
        phases=_phases(passes, scenario, by_phase),
        stream=tuple(one.stream for one in passes if one.training is None),
        experts=tuple(
            {one.phase: one.experts for one in passes if one.experts is not None}.values()
        ),
        training=next((one.training for one in passes if one.training is not None), None),
        devices=scenario.plan.devices,
        hardware_flops=sum(one.weight * (one.hardware_flops or 0.0) for one in passes) or None,
        energy=whole.energy,
        energy_parts=whole.parts,
        cost=whole.cost,
        events=sum(one.events for one in passes),
        warnings=(*_warnings(scenario), *without_effect(scenario, behind, prices)),
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


def yields(scenario: Scenario) -> int:
    """What one sequence (or image) of the batch gets out of one ``latency``."""
    if not isinstance(scenario.model, Transformer):
        return 1
    counts = {
        "prefill": scenario.input, "decode": 1, "generate": scenario.output,
        "train": scenario.input,
    }  # fmt: skip
    count = counts[scenario.phase]
    assert count is not None, "a scenario is complete"
    return count


def passes_of(prices: Prices) -> Iterator[Pass]:
    """Each pass that is simulated, with how often the run makes it."""
    scenario, model = prices.scenario, prices.scenario.model
    if not isinstance(model, Transformer):
        if scenario.phase == "train":
            yield unet_training_pass(prices)
            return
        replicas = scenario.plan.replicas
        graph = fused(build_unet_graph(model, -(-scenario.batch // replicas)), scenario.stack)
        done = one_device("denoise", float(model.steps), graph, prices)
        if replicas > 1:
            whole = build_unet_graph(model, scenario.batch).total()
            used = min(replicas, scenario.batch)
            demand = replace(whole, weights=used * whole.weights)
            done = replace(done, demand=demand)
        yield done
        return
    if scenario.phase == "train":
        yield training_pass(prices)
        return
    for phase, weight, step in steps(scenario):
        yield language_pass(phase, weight, step, prices)


def steps(scenario: Scenario) -> Iterator[tuple[str, float, Step]]:
    """(phase, how often, what is processed) of each pass of a language model."""
    batch, seed = scenario.batch, scenario.seed
    if scenario.phase in ("prefill", "generate"):
        assert scenario.input is not None
        yield (
            "prefill",
            1.0,
            Step(batch=batch, new=scenario.input, context=scenario.input, seed=seed),
        )
    if scenario.phase == "decode":
        assert scenario.context is not None
        yield "decode", 1.0, Step(batch=batch, new=1, context=scenario.context, seed=seed)
    if scenario.phase == "generate":
        assert scenario.input is not None
        assert scenario.output is not None
        for context, weight in decode_samples(scenario.input, scenario.output - 1):
            yield "decode", weight, Step(batch=batch, new=1, context=context, seed=seed)


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


UNFITTED = 0.5, 2.0
"""Factors of the 80 % interval of an operator that no fit covers, such as a kind that was never
measured: a plain roofline is off by a factor of two as often as not."""


def _interval(passes: list[Pass]) -> Interval:
    """The 80 % interval of the latency, from those of its operators.

    Errors of one family have one cause, the library, so they are added as they stand; errors of
    different families are independent, so their sums are combined as squares.
    """
    off: dict[str, list[float]] = {}
    for one in passes:
        for line in one.lines:
            known = line.priced.known
            family = "" if known is None else known.family
            low, high = UNFITTED if known is None else (known.lower, known.upper)
            time = one.weight * line.count * line.time
            ends = off.setdefault(family, [0.0, 0.0])
            ends[0] += time * (1 - low)
            ends[1] += time * (high - 1)
    latency = sum(one.weight * one.latency for one in passes)
    below, above = (math.hypot(*(ends[side] for ends in off.values())) for side in (0, 1))
    return Interval(lower=max(latency - below, 0.0), upper=latency + above)


def _gather(passes: list[Pass], target: Target) -> Iterator[OpUse]:
    """Operators of all passes by name and shape, longest first; then the time between kernels."""
    times: dict[tuple[str, str], dict[str, float]] = {}
    first: dict[tuple[str, str], Line] = {}
    between = launches = 0.0
    several = len({one.phase for one in passes}) > 1
    for one in passes:
        between += one.weight * one.between
        launches += one.weight * one.launches
        for line in one.lines:
            key = (line.priced.op.name, one.phase if several else "")
            first.setdefault(key, line)
            many = one.weight * line.count
            sums = times.setdefault(key, dict.fromkeys(_SUMS, 0.0))
            sums["count"] += many
            sums["time"] += many * line.time
            for part, time in busy(line, target).items():
                sums[part] += many * time
            if line.priced.plan is not None:
                sums["flops"] += many * line.priced.kernel.flops
                # What comes sooner than the memory could bring it was in a cache.
                brought = line.time * target.peak_bandwidth
                sums["bytes"] += many * min(line.priced.kernel.pipe_bytes, brought)
    for key in sorted(times, key=lambda key: (-times[key]["time"], key)):
        op, plan, sums = first[key].priced.op, first[key].priced.plan, times[key]
        yield OpUse(
            name=" ".join(filter(None, (key[1], key[0]))),
            kind=op.kind,
            count=round(sums["count"]),
            time=sums["time"],
            compute=sums["compute"],
            memory=sums["memory"],
            cache=sums["cache"],
            link=sums["link"],
            latency=sums["latency"],
            flops=sums["flops"],
            bytes=sums["bytes"],
            format=op.format if isinstance(op, Exchange) else plan.format if plan else "",
            roof=plan.roof if plan else 0.0,
            tile=str(plan.tiling) if plan else "",
            units=plan.kernel.units if plan else 0,
        )
    for name, bound, time in (wait for one in passes for wait in one.waits):
        if time > 0:
            yield OpUse(
                name=name, kind="wait", count=1, time=time, compute=0.0, memory=0.0,
                link=time if bound == "link" else 0.0, latency=0.0, flops=0.0, bytes=0.0,
                format="", roof=0.0,
            )  # fmt: skip
    if between > 0:
        yield OpUse(
            name="launch gaps", kind="launch", count=round(launches), time=between,
            compute=0.0, memory=0.0, latency=between, flops=0.0, bytes=0.0, format="", roof=0.0,
        )  # fmt: skip


_SUMS = ("count", "time", "compute", "memory", "cache", "link", "latency", "flops", "bytes")


_CORES = ("attention", "attention_backward")


def _main_format(ops: tuple[OpUse, ...], scenario: Scenario) -> str:
    """The matrix format of most FLOP among products with weights: attention cores, whose share
    grows with the context, count only where there is no other product."""
    formats = scenario.hardware.compute.matrix
    products = [op for op in ops if op.kind != "pointwise" and op.format in formats]
    weighted = [op for op in products if op.kind not in _CORES]
    work: dict[str, float] = {}
    for op in weighted or products:
        work[op.format] = work.get(op.format, 0.0) + op.flops
    return max(sorted(work), key=lambda name: work[name])


def _stored_format(model: Model) -> str:
    """The number format that most bytes of the model's weights are in."""
    sizes: dict[str, float] = {}
    for part, size in weight_bytes_by_part(model).items():
        name = model.formats.get(part, model.formats["default"])
        sizes[name] = sizes.get(name, 0.0) + size
    return max(sorted(sizes), key=lambda name: sizes[name])


def _spent(
    scenario: Scenario, passes: list[Pass], ops: tuple[OpUse, ...], target: Target
) -> dict[str, Spent]:
    """Energy and money of each phase; ``ops`` are those of all of them."""
    found: dict[str, Spent] = {}
    names = list(dict.fromkeys(one.phase for one in passes))
    for name in names:
        some = [one for one in passes if one.phase == name]
        own = ops if len(names) == 1 else tuple(_gather(some, target))
        found[name] = spent(scenario, own, sum(one.weight * one.latency for one in some))
    return found


def _phases(
    passes: list[Pass], scenario: Scenario, by_phase: Mapping[str, Spent]
) -> tuple[Phase, ...]:
    if scenario.phase != "generate":
        return ()
    totals: dict[str, Seconds] = {}
    for one in passes:
        totals[one.phase] = totals.get(one.phase, 0.0) + one.weight * one.latency
    tokens = {"prefill": float(scenario.batch * (scenario.input or 0))}
    tokens["decode"] = float(scenario.batch * ((scenario.output or 1) - 1))
    return tuple(
        Phase(
            name=name,
            latency=time,
            tokens=tokens[name],
            energy=by_phase[name].energy,
            cost=by_phase[name].cost,
        )
        for name, time in totals.items()
    )


_NARROW = re.compile(r"(?i)\b(nv|mx)?fp[48]|\bint[48]\b")
"""What names of quantised checkpoints carry."""


def _warnings(scenario: Scenario) -> Iterator[str]:
    hardware, model = scenario.hardware, scenario.model
    yield from scenario.notes
    yield from plan_notes(model, scenario.plan, phase=scenario.phase)
    if hardware.status in ("projection", "article", "announced"):
        kind = {"projection": "a projection", "article": "as an article printed it"}
        yield (
            f"{hardware.name} is {kind.get(hardware.status, 'announced, not shipping')}; "
            "its numbers are not a vendor's data sheet"
        )
    power = hardware.power
    if power is not None and power.limit < (moving := draw(replace(power, cap=None), "memory")):
        yield (
            f"a cap of {power.limit:.4g} W is below the {moving:.4g} W that work bound by memory "
            "draws; how much slower that gets is not modelled"
        )
    price = hardware.price
    if price is not None and price.rent is not None and price.purchase is not None:
        yield (
            f"{hardware.name} has a rent and a purchase price; costs are those of the rent "
            "(--set price.rent=null: of the purchase)"
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
        nets = [layer.ffn for layer in model.layers() if isinstance(layer.ffn, MoE)]
        tokens = {step.tokens for _, _, step in steps(scenario)}
        yield from dict.fromkeys(
            note
            for some in sorted(tokens)
            for number, net in enumerate(nets)
            for note in notes(net, some, layer=number, layers=len(nets))
        )
    else:
        yield "text encoders and the image decoder are not included"
