"""What one tensor-parallel rank holds and multiplies of a model: the model with narrower layers.

Knows shapes and a degree. Never touches devices, batches or time. Heads, FFN widths and the
vocabulary are cut (Megatron-LM, arXiv 1909.08053); norms, routers, output biases and the latents
of latent attention are whole on every rank.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from simulator.errors import InputError
from simulator.specs.workload import (
    Attention,
    DenseFFN,
    LatentAttention,
    Layer,
    LayerGroup,
    MoE,
    Transformer,
)


def shard(model: Transformer, tp: int, *, split_experts: bool = True) -> Transformer:
    """The part of ``model`` on one of ``tp`` tensor-parallel ranks; ``model`` itself for one.

    Each rank has heads / tp, KV heads / tp or one (copied to tp / KV heads ranks), FFN widths / tp
    and 1 / tp of the vocabulary padded to a multiple of tp. ``split_experts=False`` leaves routed
    experts whole, as expert-parallel ranks hold them. Raises InputError where a size does not
    divide; ``plan_faults`` names all such sizes at once.
    """
    if tp == 1:
        return model
    return replace(
        model,
        vocab=padded_vocab(model.vocab, tp) // tp,
        groups=tuple(
            LayerGroup(
                repeat=group.repeat,
                layers=tuple(shard_layer(layer, tp, split_experts) for layer in group.layers),
            )
            for group in model.groups
        ),
    )


def shard_experts(model: Transformer, parts: int) -> Transformer:
    """The model with 1 / ``parts`` of the width of each routed expert, where several ranks of a
    tensor-parallel group share an expert. Raises InputError where widths do not divide."""

    def cut(layer: Layer) -> Layer:
        if not isinstance(layer.ffn, MoE):
            return layer
        width = _cut(layer.ffn.width, parts, "expert width")
        return replace(layer, ffn=replace(layer.ffn, width=width))

    groups = tuple(replace(group, layers=tuple(map(cut, group.layers))) for group in model.groups)
    return replace(model, groups=groups)


@lru_cache(maxsize=4096)
def shard_layer(layer: Layer, tp: int, split_experts: bool = True) -> Layer:
    """One layer as ``shard`` cuts it."""
    dense = layer.dense_ffn
    return replace(
        layer,
        attention=None if layer.attention is None else _attention(layer.attention, tp),
        ffn=None if layer.ffn is None else _ffn(layer.ffn, tp, split_experts),
        dense_ffn=None if dense is None else _dense(dense, tp),
    )


def padded_vocab(vocab: int, tp: int) -> int:
    """The vocabulary that ``tp`` ranks share equally.

    >>> padded_vocab(151_552, 6)
    151554
    """
    return -(-vocab // tp) * tp


def kv_copies(kv_heads: int, tp: int) -> int:
    """How many tensor-parallel ranks hold the same KV head.

    >>> kv_copies(8, 16), kv_copies(8, 4)
    (2, 1)
    """
    return max(1, tp // kv_heads)


def _attention(core: Attention | LatentAttention, tp: int) -> Attention | LatentAttention:
    heads = _cut(core.heads, tp, "attention heads")
    if isinstance(core, LatentAttention):
        return replace(core, heads=heads)
    copies = kv_copies(core.kv_heads, tp)
    return replace(core, heads=heads, kv_heads=_cut(core.kv_heads * copies, tp, "KV heads"))


def _ffn(net: DenseFFN | MoE, tp: int, split_experts: bool) -> DenseFFN | MoE:
    if isinstance(net, DenseFFN):
        return _dense(net, tp)
    return replace(
        net,
        width=_cut(net.width, tp, "expert width") if split_experts else net.width,
        shared_width=_cut(net.shared_width, tp, "width of the shared experts"),
    )


def _dense(net: DenseFFN, tp: int) -> DenseFFN:
    return replace(net, width=_cut(net.width, tp, "FFN width"))


def _cut(size: int, tp: int, what: str) -> int:
    if size % tp:
        raise InputError(f"{what} of {size:,} do not divide by tp {tp}")
    return size // tp
