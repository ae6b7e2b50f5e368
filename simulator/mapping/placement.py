"""What occupies device memory, and whether it fits.

Knows a model, a batch and a capacity. Never touches time. Sizes are bytes per device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from simulator.errors import CapacityError, SpecError
from simulator.mapping.held import inference_weights, kv_bytes_per_rank
from simulator.mapping.legality import plan_faults
from simulator.mapping.training_memory import training_memory
from simulator.mapping.unet_memory import unet_training_memory
from simulator.memory_use import MemoryPart, MemoryUse
from simulator.models.arithmetic import kv_bytes_at, weight_bytes
from simulator.models.graph_parts import operand_format
from simulator.specs.plan import Plan
from simulator.specs.precision import number_format
from simulator.specs.scenario import Scenario
from simulator.specs.workload import DenseFFN, MoE, Transformer, UNet
from simulator.units import Bytes

_LOGIT = 4.0  # bytes of one fp32 logit


def memory_use(scenario: Scenario) -> MemoryUse:
    """Weights, cache, live activations and the runtime of the device with most sequences.

    Each replica has its share of the sequences. Its ranks share heads, widths, layers and routed
    experts, and have room for the rows that they exchange.
    """
    model, plan = scenario.model, scenario.plan
    if scenario.phase == "train":
        if isinstance(model, UNet):
            return unet_training_memory(
                model, plan, capacity=scenario.hardware.dram.capacity,
                framework=scenario.stack.framework_memory,
            )  # fmt: skip
        assert scenario.input is not None, "a training step has a sequence"
        return training_memory(
            model, plan, sequence=scenario.input, batch=scenario.batch,
            capacity=scenario.hardware.dram.capacity,
            framework=scenario.stack.framework_memory,
        )  # fmt: skip
    batch = -(-scenario.batch // plan.replicas)
    parts = [_weights(scenario)]
    if isinstance(model, Transformer):
        tokens = scenario.context or (scenario.input or 0) + (scenario.output or 0)
        new = scenario.input if scenario.phase in ("prefill", "generate") else 1
        assert new is not None
        alone = plan.devices == 1
        each = kv_bytes_at(model, tokens) if alone else kv_bytes_per_rank(model, plan, tokens)
        parts.append(
            MemoryPart(
                name="KV cache",
                bytes=batch * each,
                formula=f"{batch:,} sequences x {tokens:,} tokens, {each / tokens:,.0f} B/token",
            )
        )
        parts.append(_transformer_activations(model, batch, new))
        if plan.ep > plan.tp:
            parts.append(_exchange_buffers(model, plan, batch * new))
    else:
        parts.append(_unet_activations(model, batch))
    parts.append(
        MemoryPart(
            name="runtime",
            bytes=scenario.stack.framework_memory,
            formula=f"what {scenario.stack.name} holds",
        )
    )
    return MemoryUse(parts=tuple(parts), capacity=scenario.hardware.dram.capacity)


def _weights(scenario: Scenario) -> MemoryPart:
    model, plan = scenario.model, scenario.plan
    copies = plan.redundant_experts
    if not isinstance(model, Transformer) or (plan.devices == 1 and not copies):
        return MemoryPart(name="weights", bytes=weight_bytes(model), formula="every weight once")
    said = [f"1 / {plan.tp} of heads and widths"] if plan.tp > 1 else []
    said += [f"the fullest of {plan.pp} stages"] if plan.pp > 1 else []
    experts = next((net.ffn.experts for net in model.layers() if isinstance(net.ffn, MoE)), 0)
    if experts and (plan.ep > 1 or copies):
        slots = (experts + copies) // plan.ep
        said.append(f"{slots:,} of {experts:,} experts in each MoE layer")
    said.append("every other weight")
    return MemoryPart(name="weights", bytes=inference_weights(model, plan), formula=", ".join(said))


def _exchange_buffers(model: Transformer, plan: Plan, tokens: int) -> MemoryPart:
    """Room for the most rows that may come: every token of every rank, to go and to come back."""
    net = next(layer.ffn for layer in model.layers() if isinstance(layer.ffn, MoE))
    tokens = -(-tokens // plan.tp)
    rows = tokens * min(plan.ep * net.top_k, net.experts + plan.redundant_experts)
    sent = plan.dispatch or operand_format(model, "experts")
    each = sum(number_format(name).row_bytes(model.hidden) for name in (sent, plan.combine))
    return MemoryPart(
        name="exchange buffers",
        bytes=rows * each,
        formula=f"{rows:,} rows x {each:,.0f} B there and back",
    )


def _transformer_activations(model: Transformer, batch: int, new: int) -> MemoryPart:
    """Residual, normed input and the widest intermediate of one layer, plus the logits.

    Layers run one after another and reuse the same buffers.
    """
    widest = 0
    for group in model.groups:
        for layer in group.layers:
            net = layer.ffn
            if isinstance(net, DenseFFN):
                widest = max(widest, (3 if net.gated else 2) * net.width)
            elif isinstance(net, MoE):
                rows = net.top_k * (model.hidden + (3 if net.gated else 2) * net.width)
                widest = max(widest, rows)
    element = number_format(model.activation_format)
    held = element.bytes(batch * new * (2 * model.hidden + widest))
    return MemoryPart(
        name="activations",
        bytes=held + _LOGIT * batch * model.vocab,
        formula=f"{batch * new:,} tokens x {2 * model.hidden + widest:,} elements, and logits",
    )


def _unet_activations(model: UNet, batch: int) -> MemoryPart:
    """The skip tensors of the way down and four buffers of the widest resolution."""
    images = batch * (2 if model.guidance else 1)
    size, elements = model.latent, 4 * model.latent**2 * model.stages[0].channels
    for stage in model.stages:
        elements += (stage.residual_blocks + 1) * size**2 * stage.channels
        size = -(-size // 2)
    return MemoryPart(
        name="activations",
        bytes=number_format(model.activation_format).bytes(images * elements),
        formula=f"{images:,} latents x {elements:,} elements: skips and four working buffers",
    )


def require_fit(scenario: Scenario, use: MemoryUse) -> None:
    """Raise CapacityError, with the shortfall and what would fit, unless ``use`` fits."""
    if use.total <= use.capacity:
        return
    name, model = scenario.hardware.name, scenario.model
    parts = ", ".join(f"{part.name} {_gb(part.bytes)}" for part in use.parts if part.bytes)
    lines = [
        f"{model.name} does not fit on {scenario.plan.devices} x {name}: it needs {_gb(use.total)}"
        f"{' on each' if scenario.plan.devices > 1 else ''} ({parts}) of "
        f"{_gb(use.capacity)}, {_gb(use.total - use.capacity)} short"
    ]
    if scenario.phase == "train":
        raise CapacityError("; ".join([*lines, *_training_plans(scenario)]))
    plan = scenario.plan
    free = use.capacity - (use.total - _shared(use))
    if free <= 0:
        lines.append(
            f"activations and runtime alone take {_gb(use.total - _shared(use))}, so no count of "
            f"{name} holds it: take a smaller batch or input"
        )
    else:
        if plan.ep == 1:
            whole = memory_use(replace(scenario, plan=replace(plan, tp=1, pp=1)))
            ranks = math.ceil(_shared(whole) / free)
            lines.append(
                f"by capacity {plan.replicas * ranks} x {name} hold it"
                f"{_tensor_parallel(scenario, ranks)}"
            )
        lines += _expert_parallel(scenario)
        if batch := _largest_batch(scenario, use):
            lines.append(f"on {plan.devices} x {name} the largest batch that fits is {batch:,}")
    raise CapacityError("; ".join(lines))


_DOUBLED = 10
"""How often the nearest plan may double the devices."""


def _training_plans(scenario: Scenario) -> Iterator[str]:
    """The nearest plan that fits a training step: first what costs no device, then more of them."""
    plan, batch, link = scenario.plan, scenario.batch, scenario.hardware.scale_up
    most = max(plan.tp, (link.peers if link else None) or 8)  # out of its domain tp is of no use
    wider = (
        replace(plan, tp=plan.tp << doubled - stages, pp=plan.pp << stages)
        for doubled in range(_DOUBLED + 1)
        for stages in range(doubled + 1)
        if plan.tp << doubled - stages <= most
    )
    for base in wider:
        for zero in range(plan.zero, 4):
            for recompute in dict.fromkeys((plan.recompute, "full")):
                found = replace(base, zero=zero, recompute=recompute)
                legal = not plan_faults(
                    scenario.model, found, phase="train", batch=batch, sequence=scenario.input
                )
                if (
                    legal
                    and (use := memory_use(replace(scenario, plan=found))).total <= use.capacity
                ):
                    changed = [
                        f"--{name.replace('_', '-')} {getattr(found, name)}"
                        for name in ("tp", "pp", "zero", "recompute")
                        if getattr(found, name) != getattr(plan, name)
                    ]
                    yield f"{' '.join(changed)} fits, with {_gb(use.total)} on each"
                    return
    yield "no plan near it fits: take a smaller micro-batch or sequence"


def _shared(use: MemoryUse) -> Bytes:
    """What more ranks of a replica would share: its weights and its cache."""
    return sum(part.bytes for part in use.parts if part.name in ("weights", "KV cache"))


def _tensor_parallel(scenario: Scenario, ranks: int) -> str:
    """The devices of the least tensor-parallel degree of at least ``ranks`` that holds it."""
    model, plan = scenario.model, scenario.plan
    if not isinstance(model, Transformer):
        return ""
    heads = [layer.attention.heads for layer in model.layers() if layer.attention is not None]
    for degree in range(ranks, max(heads, default=0) + 1):
        if any(count % degree for count in heads):
            continue
        found = replace(scenario, plan=replace(plan, tp=degree, pp=1))
        if (use := memory_use(found)).total <= use.capacity:
            return f", {found.plan.devices} with tensor parallelism"
    return ""


def _expert_parallel(scenario: Scenario) -> Iterator[str]:
    """The fewest expert-parallel ranks that hold a model with experts."""
    model, plan = scenario.model, scenario.plan
    if not isinstance(model, Transformer):
        return
    counts = {layer.ffn.experts for layer in model.layers() if isinstance(layer.ffn, MoE)}
    for ep in range(plan.ep + 1, min(counts, default=0) + 1):
        if any((count + plan.redundant_experts) % ep for count in counts):
            continue
        wider = replace(plan, ep=ep)
        if plan_faults(
            model, wider, phase=scenario.phase, batch=scenario.batch, sequence=scenario.input
        ):
            continue
        try:
            use = memory_use(replace(scenario, plan=wider))
        except SpecError:  # such as a batch too small to be halved on so many ranks
            continue
        if use.total <= use.capacity:
            yield f"--ep {ep} fits, with {_gb(use.total)} on each"
            return


def _largest_batch(scenario: Scenario, use: MemoryUse) -> int:
    """The largest batch whose cache and activations fit beside weights and runtime; 0 if none."""
    fixed = sum(part.bytes for part in use.parts if part.name in ("weights", "runtime"))
    replicas = scenario.plan.replicas
    each = (use.total - fixed) / -(-scenario.batch // replicas)
    return replicas * max(0, int((use.capacity - fixed) // each)) if each else 0


def _gb(size: Bytes) -> str:
    return f"{size / 1e9:,.1f} GB"
