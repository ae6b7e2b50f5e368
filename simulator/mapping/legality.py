"""Whether a plan can cut a model: every broken rule at once, each with the values that would do.

Knows shapes, degrees and batches. Never touches memory or time. Degrees below one are refused by
``Plan`` itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import get_args

from simulator.errors import Fault
from simulator.mapping.held import expert_parts
from simulator.mapping.shard import kv_copies, padded_vocab
from simulator.mapping.stages import imbalance, stages
from simulator.models.recipes import PRODUCTS, in_recipe
from simulator.specs.hardware import Accelerator
from simulator.specs.plan import Plan, Recipe
from simulator.specs.precision import number_format
from simulator.specs.workload import Attention, DenseFFN, Layer, Model, MoE, Transformer

MOST_PASSES = 1 << 17
"""Most micro-batches of a step, times pieces of the model: beyond any that is trained."""
_SHOWN = 12
"""Valid values that a message lists, those nearest to the wrong one."""
_TRAINING = (
    "virtual_stages",
    "pipeline",
    "micro_batch",
    "zero",
    "recompute",
    "gradients",
    "recipe",
    "sequence_parallel",
    "overlap",
    "overlap_exchanges",
)


def plan_faults(
    model: Model,
    plan: Plan,
    *,
    phase: str,
    batch: int,
    sequence: int | None = None,
    devices: int | None = None,
) -> list[Fault]:
    """Every rule that ``plan`` breaks for ``model``; none where it is legal.

    ``batch`` is the global batch in sequences, ``sequence`` the new tokens of each (None in
    decode), ``devices`` how many there are. Rules of the batch and its micro-batches hold for the
    phase ``train``.
    """
    faults = list(_model_faults(model, plan))
    if devices is not None and plan.devices > devices:
        found = (
            f"tp {plan.tp} x cp {plan.cp} x pp {plan.pp} x dp {plan.replicas} are "
            f"{plan.devices:,} ranks on {devices:,} devices"
        )
        room = devices // (plan.devices // plan.replicas)
        fix = f"give {plan.devices:,} devices or more, or lower a degree"
        faults.append(_fault("dp", found, f"{fix}: dp {room} fits" if room else fix))
    if sequence is not None:
        faults += _sequence_faults(plan, phase, sequence)
    if phase == "train":
        faults += _training_faults(plan, batch)
        faults += _exchange_faults(plan, batch)
    return faults


def _model_faults(model: Model, plan: Plan) -> Iterator[Fault]:
    if not isinstance(model, Transformer):
        for name in ("tp", "pp", "cp", "ep", "virtual_stages"):
            if getattr(plan, name) > 1:
                fix = "leave it at 1: only data-parallel replicas run a U-Net"
                yield _fault(name, f"{model.name} has no layers that {name} could cut", fix)
        return
    layers = [layer for group in model.groups for layer in group.layers]
    yield from _tensor_faults(layers, plan)
    yield from _expert_faults(model, layers, plan)
    total = sum(group.repeat * len(group.layers) for group in model.groups)
    if plan.pp * plan.virtual_stages > total:
        found = f"{plan.pp} x {plan.virtual_stages} pieces of {total} layers"
        name = "pp" if plan.virtual_stages == 1 else "virtual_stages"
        yield _fault(name, found, f"pp x virtual_stages of at most {total}")
    if plan.virtual_stages > 1 and plan.pp == 1:
        found = f"{plan.virtual_stages} pieces on one stage interleave nothing"
        yield _fault("virtual_stages", found, "1, or pp 2 or more")
    if plan.virtual_stages > 1 and plan.pipeline == "zero_bubble":
        found = "zero_bubble has one piece on each stage"
        yield _fault("virtual_stages", found, "1, or pipeline 1f1b")


def _tensor_faults(layers: Iterable[Layer], plan: Plan) -> Iterator[Fault]:
    """Sizes that tensor-parallel ranks do not share equally, each size once."""
    sizes: dict[tuple[str, int], None] = {}
    for layer in layers:
        if layer.attention is not None:
            sizes["attention heads", layer.attention.heads] = None
        if isinstance(layer.attention, Attention):
            sizes["KV heads", layer.attention.kv_heads] = None
        for net in (layer.ffn, layer.dense_ffn):
            if isinstance(net, DenseFFN):
                sizes["FFN width", net.width] = None
            elif net is not None:
                sizes["expert width", net.width] = None
                if net.shared_width:
                    sizes["width of the shared experts", net.shared_width] = None
    for what, size in sizes:
        if what == "KV heads":
            if size % plan.tp and plan.tp % size:
                valid = [*divisors(size), *range(2 * size, 2 * plan.tp + size, size)]
                found = f"{size} {what} neither divide by tp {plan.tp} nor repeat over it"
                yield _fault("tp", found, f"tp is one of {_near(valid, plan.tp)}")
            continue
        parts, by = plan.tp, "tp"
        if what == "expert width":
            parts, by = expert_parts(plan), "tp" if plan.ep == 1 else "tp / ep"
        if size % parts:
            found = f"{what} of {size:,} do not divide by {by} {parts}"
            yield _fault("tp", found, f"{by} is one of {_near(divisors(size), parts)}")


def _expert_faults(model: Transformer, layers: Iterable[Layer], plan: Plan) -> Iterator[Fault]:
    counts = {layer.ffn.experts: None for layer in layers if isinstance(layer.ffn, MoE)}
    if not counts:
        if plan.ep > 1:
            fix = "leave ep out, or take a model with experts"
            yield _fault("ep", f"{model.name} has no experts to spread", fix)
        return
    copies = plan.redundant_experts
    for experts in counts:
        if (experts + copies) % plan.ep:
            slots = math.ceil((experts + copies) / plan.ep) * plan.ep
            more = f" and {copies} redundant" if copies else ""
            yield _fault(
                "ep",
                f"{experts} experts{more} do not divide by ep {plan.ep}",
                f"{slots - experts} redundant experts make {slots} = {plan.ep} x "
                f"{slots // plan.ep}, or ep is one of "
                f"{_near(divisors(experts + copies), plan.ep)}",
            )
        elif copies > experts * (plan.ep - 1):
            found = f"{copies} copies of {experts} experts on {plan.ep} ranks repeat some on a rank"
            fix = f"at most {experts * (plan.ep - 1)}, one of each expert on each other rank"
            yield _fault("redundant_experts", found, fix)
    if plan.tp % plan.ep and plan.ep % plan.tp:
        found = f"ep {plan.ep} neither divides tp {plan.tp} nor is a multiple of it"
        valid = [*divisors(plan.tp), *range(2 * plan.tp, 2 * plan.ep + plan.tp, plan.tp)]
        yield _fault("ep", found, f"ep is one of {_near(valid, plan.ep)}")
    ranks = plan.tp * plan.cp * plan.replicas
    if ranks % plan.ep:
        yield _fault(
            "ep",
            f"the {ranks:,} ranks of a stage (tp x cp x dp) do not divide by ep {plan.ep}",
            f"ep is one of {_near(divisors(ranks), plan.ep)}, or tp x cp x dp a multiple of "
            f"{plan.ep}",
        )


def _sequence_faults(plan: Plan, phase: str, sequence: int) -> Iterator[Fault]:
    if sequence < 1:
        yield _fault("input", f"{sequence}", "1 or more")
        return
    if plan.cp > 1 and sequence % (2 * plan.cp):
        found = f"{sequence:,} tokens are not {2 * plan.cp} equal parts, two for each of cp"
        yield _fault("cp", found, f"a sequence of {_multiples(sequence, 2 * plan.cp)} tokens")
    if phase == "train" and plan.sequence_parallel and plan.tp > 1:
        parts = plan.tp * plan.cp
        if sequence % parts:
            found = f"{sequence:,} tokens do not divide by tp x cp = {parts}"
            fix = f"a sequence of {_multiples(sequence, parts)} tokens, or no sequence_parallel"
            yield _fault("sequence_parallel", found, fix)


def _training_faults(plan: Plan, batch: int) -> Iterator[Fault]:
    if number_format(plan.gradients).bits < 16:
        found = f"{plan.gradients} is too narrow to add gradients in"
        yield _fault("gradients", found, "fp32, bf16 or fp16")
    once = plan.replicas * plan.micro_batch
    if batch < 1:
        yield _fault("batch", f"{batch}", "1 or more")
        return
    if batch % once:
        yield _fault(
            "micro_batch",
            f"a global batch of {batch:,} does not divide by dp {plan.replicas} x micro_batch "
            f"{plan.micro_batch}",
            f"a global batch of {_multiples(batch, once)}",
        )
        return
    passes = plan.pp * plan.virtual_stages * (batch // once)
    if passes > MOST_PASSES:
        found = f"{batch // once:,} micro-batches on {plan.pp * plan.virtual_stages} pieces"
        fix = f"one by the other at most {MOST_PASSES:,}: raise dp or micro_batch"
        yield _fault("micro_batch", found, fix)
    if plan.virtual_stages > 1 and batch // once % plan.pp:
        fix = f"a global batch of {_multiples(batch, once * plan.pp)}, or virtual_stages 1"
        found = f"{batch // once} micro-batches do not divide by pp {plan.pp}, as interleaving asks"
        yield _fault("virtual_stages", found, fix)


def recipe_faults(model: Model, plan: Plan, device: Accelerator) -> list[Fault]:
    """A training recipe that the device has no matrix rate for; none where it has, or where the
    recipe is that of the model, whose formats run in the next wider one."""
    if plan.recipe == "model" or not isinstance(model, Transformer):
        return []

    def rate(recipe: str) -> str:
        name = number_format("fp8" if recipe == "dynamic" else recipe)
        return name.compute or name.name

    if rate(plan.recipe) in device.compute.matrix:
        return []
    others = (one for one in get_args(Recipe) if one != "model")
    known = ["model", *(one for one in others if rate(one) in device.compute.matrix)]
    found = f"{device.name} has no matrix rate for {rate(plan.recipe)}"
    return [_fault("recipe", found, f"one of {', '.join(known)}")]


def _exchange_faults(plan: Plan, batch: int) -> Iterator[Fault]:
    """A forward and the backward beside it are of two micro-batches, in the middle of an order."""
    if not plan.overlap_exchanges:
        return
    once = plan.replicas * plan.micro_batch
    if batch == once:
        found = "a single micro-batch has none beside it that would hide its exchanges"
        fix = f"a global batch of {2 * once:,} or more, or no overlap_exchanges"
        yield _fault("overlap_exchanges", found, fix)
    if plan.pp > 1 and plan.virtual_stages == 1:
        found = f"pp {plan.pp} with one piece on each stage puts no forward beside a backward"
        yield _fault("overlap_exchanges", found, "virtual_stages 2 or more, or pp 1")


def plan_notes(model: Model, plan: Plan, *, phase: str) -> tuple[str, ...]:
    """What a legal plan pads, copies, leaves unequal, or states without effect; for warnings."""
    return tuple(_notes(model, plan, phase))


def _notes(model: Model, plan: Plan, phase: str) -> Iterator[str]:
    if phase != "train":
        for name in _TRAINING:
            if getattr(plan, name) != getattr(_DEFAULT, name):
                yield f"{name} has no effect in {phase}"
    elif plan.zero and plan.replicas * plan.cp == 1:
        yield f"zero {plan.zero} has no effect: one replica has nobody to share with"
    if phase == "train" and plan.overlap_exchanges and plan.ep == 1:
        yield "overlap_exchanges has no effect: with ep 1 no rows go to other ranks"
    if phase == "train" and plan.pipeline != "1f1b" and plan.pp * plan.cp * plan.replicas == 1:
        yield f"pipeline {plan.pipeline} has no effect: one stage alone has no bubble"
    if phase == "train" and plan.devices == 1 and not plan.overlap:
        yield "overlap has no effect on one device"
    if not isinstance(model, Transformer):
        return
    if phase == "train":
        if plan.tp == 1 and not plan.sequence_parallel:
            yield "sequence_parallel has no effect with tp 1"
        yield from _wide_notes(model, plan)
    padded = padded_vocab(model.vocab, plan.tp)
    if padded != model.vocab:
        yield (
            f"the vocabulary of {model.vocab:,} is padded to {padded:,}, a multiple of tp {plan.tp}"
        )
    heads = {
        layer.attention.kv_heads
        for group in model.groups
        for layer in group.layers
        if isinstance(layer.attention, Attention)
    }
    for count in sorted(heads):
        if (copies := kv_copies(count, plan.tp)) > 1:
            yield f"each of {count} KV heads is held by {copies} tensor-parallel ranks"
    uneven = imbalance(stages(model, plan))
    if uneven > 0:
        yield f"the fullest pipeline stage has {uneven:.0%} more layers than a mean one"


_DEFAULT = Plan()


def _wide_notes(model: Transformer, plan: Plan) -> Iterator[str]:
    """Formats of weights that have no gradients, so that training multiplies wider ones."""
    told = {
        (model.weight_format(part, layer), in_recipe(model, layer, plan.recipe).weight_format(part))
        for group in model.groups
        for layer in group.layers
        for part in PRODUCTS
        if plan.recipe == "model"
    }
    for stored, used in sorted(told):
        if stored != used:
            yield f"weights in {stored} have no gradients: they train in {used}"


def divisors(number: int) -> list[int]:
    """The divisors of a positive number, in order."""
    low = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*low, *(number // d for d in low)})


def _near(valid: list[int], wrong: int) -> str:
    """The values nearest to the wrong one by ratio, in order."""
    kept = sorted(valid, key=lambda value: abs(math.log(value / wrong)))[:_SHOWN]
    return ", ".join(f"{value:,}" for value in sorted(kept))


def _multiples(number: int, of: int) -> str:
    below = number // of * of
    return f"{below:,} or {below + of:,}" if below else f"{of:,}"


def _fault(path: str, found: str, fix: str) -> Fault:
    return Fault("plan", None, path, found, fix)
