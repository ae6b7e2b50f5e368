"""What one rank of a plan holds of a model: its weights tensor by tensor, and its share of caches.

Knows shapes, number formats and a plan. Never touches batches, gradients or time. Replicated
tensors count on every rank that has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from simulator.mapping.shard import shard, shard_experts
from simulator.mapping.stages import Stage, stages
from simulator.models.arithmetic import kv_bytes_at
from simulator.models.weights import Weight, layer_weights, model_weights, mtp_weights
from simulator.specs.plan import Plan
from simulator.specs.precision import number_format
from simulator.specs.workload import Layer, MoE, Part, Transformer
from simulator.units import Bytes


def cut(model: Transformer, plan: Plan) -> Transformer:
    """``model`` on one tensor-parallel rank; expert-parallel ranks have whole experts, or share
    them where they are fewer than the tensor-parallel ones."""
    part = shard(model, plan.tp, split_experts=plan.ep == 1)
    return shard_experts(part, expert_parts(plan)) if 1 < plan.ep < plan.tp else part


def expert_parts(plan: Plan) -> int:
    """Ranks that share the width of one routed expert."""
    return max(1, plan.tp // plan.ep)


def by_rank(model: Transformer, plan: Plan) -> tuple[tuple[Stage, ...], ...]:
    """The pieces of each pipeline rank, rank by rank."""
    pieces = stages(model, plan)
    return tuple(pieces[rank :: plan.pp] for rank in range(plan.pp))


def is_routed(weight: Weight) -> bool:
    """Whether it belongs to a routed expert, in a layer or in a prediction module."""
    return weight.name in ("experts up", "experts down", "experts bias")


def layer_held(part: Transformer, plan: Plan, layer: Layer) -> Iterator[Weight]:
    """Weights of one layer of ``part``, a model that ``cut`` has cut, on one rank.

    An expert-parallel rank has (experts + redundant copies) / ep of the routed experts.
    """
    for weight in layer_weights(part, layer):
        yield _own(weight, plan, layer)


def ends_held(
    part: Transformer, plan: Plan, pieces: Sequence[Stage], *, mtp: bool
) -> Iterator[Weight]:
    """Embedding, final norm, head and prediction modules that the rank of ``pieces`` holds.

    Where the head is the embedding, or prediction modules look tokens up, the last of several
    stages holds a copy of the embedding (Megatron-LM).
    """
    first, last = pieces[0].first, pieces[-1].last
    for weight in model_weights(replace(part, groups=())):
        if weight.name != "embedding":
            if last:
                yield weight
        elif first or (last and (part.tied_embeddings or (mtp and part.mtp_layers))):
            yield weight
    if last and mtp:
        layer = part.groups[-1].layers[-1]
        for weight in mtp_weights(part):
            if (
                weight.name == "projection"
            ):  # its outputs are split, as those of every first product
                weight = replace(weight, rows=-(-weight.rows // plan.tp))
            yield _own(weight, plan, layer)


def rank_weights(
    part: Transformer, plan: Plan, pieces: Sequence[Stage], *, mtp: bool = False
) -> Iterator[Weight]:
    """Every weight of the rank with those pieces of ``part``, a model that ``cut`` has cut."""
    for piece in pieces:
        for layer, count in piece.layers:
            for weight in layer_held(part, plan, layer):
                yield weight.times(count)
    yield from ends_held(part, plan, pieces, mtp=mtp)


def inference_weights(model: Transformer, plan: Plan) -> Bytes:
    """Bytes of the weights of the fullest rank, scales of block formats included."""
    part = cut(model, plan)
    return max(
        sum(_bytes(part, weight) for weight in rank_weights(part, plan, pieces))
        for pieces in by_rank(part, plan)
    )


def kv_bytes_per_rank(model: Transformer, plan: Plan, tokens: int) -> Bytes:
    """Cache bytes of one sequence of that many tokens on the fullest rank of its replica.

    A rank has max(1, KV heads / tp) heads of the layers of its stage and 1 / cp of the tokens; the
    latent of latent attention has no heads to cut and is whole on every tensor-parallel rank.
    """
    part, own = cut(model, plan), -(-tokens // plan.cp)
    return max(
        sum(kv_bytes_at(piece.of(part), own) for piece in pieces if piece.layers)
        for pieces in by_rank(part, plan)
    )


def _own(weight: Weight, plan: Plan, layer: Layer) -> Weight:
    if not is_routed(weight) or not isinstance(layer.ffn, MoE):
        return weight
    slots = -(-(layer.ffn.experts + plan.redundant_experts) // plan.ep)
    return replace(weight, count=weight.count * slots // layer.ffn.experts, active=None)


def _bytes(model: Transformer, weight: Weight) -> Bytes:
    kind: Part = "norms" if weight.is_vector else weight.part
    return number_format(weight.format or model.weight_format(kind)).bytes(weight.elements)
