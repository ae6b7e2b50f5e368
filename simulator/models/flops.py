"""Floating-point operations of one token, under named conventions.

Knows weights and attention shapes. Never touches hardware, batches or time. Published figures
differ by convention more than by anything else, so each one has a name here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from simulator.models.weights import Weight, model_weights, mtp_weights
from simulator.specs.workload import Attention, LatentAttention, Transformer
from simulator.units import Flops

Convention = Literal[
    "forward_weights", "forward", "forward_full", "decode", "training", "training_full", "megatron"
]
CONVENTIONS: dict[Convention, str] = {
    "forward_weights": "2 per multiplied weight; no attention products",
    "forward": "forward_weights plus causal attention, mean over the tokens of the sequence",
    "forward_full": "forward_weights plus attention of every token to every token",
    "decode": "forward_weights plus attention of one new token to the whole sequence",
    "training": "3 x forward: backward costs twice the forward",
    "training_full": "3 x forward_full",
    "megatron": "6 x (active parameters - input embedding) plus causal attention, prediction "
    "modules included",
}


def flops_per_token(model: Transformer, sequence: int, convention: Convention = "forward") -> Flops:
    """FLOPs of one token of a sequence of that many tokens, see ``CONVENTIONS``.

    A multiply and an add are two operations. Causal attention counts half of the square
    (sequence / 2 keys per query), as Megatron-LM and the published tables do; norms, softmax and
    activations count nothing. The ``megatron`` rule lands within 0.4 % of the per-GPU TFLOP/s in
    the Megatron-Bridge performance tables (Llama 3.1, Qwen3-235B-A22B, DeepSeek-V3).

    Raises ValueError for an unknown convention or a sequence below one token.
    """
    if convention not in CONVENTIONS:
        raise ValueError(f"no FLOP convention {convention!r}; known: {', '.join(CONVENTIONS)}")
    if sequence < 1:
        raise ValueError(f"a sequence has at least one token, not {sequence}")
    if convention == "megatron":
        return _megatron(model, sequence)
    weights = 2.0 * sum(w.active_elements for w in model_weights(model) if w.multiplied)
    if convention == "forward_weights":
        return weights
    pairs = {"forward": _causal, "training": _causal, "decode": _last}.get(convention, _full)
    forward = weights + attention_flops_per_token(model, sequence, pairs)
    return 3 * forward if convention.startswith("training") else forward


def attention_flops_per_token(
    model: Transformer, sequence: int, keys: Callable[[int, int | None, int | None], float]
) -> Flops:
    """FLOPs of the two attention products of one token, all layers.

    Each query meets ``keys(sequence, window, chunk)`` keys; a pair costs 2 x (query size + value
    size) per head: 4 x head_dim, or 2 x (192 + 128) in expanded latent attention of DeepSeek-V3.
    """
    return sum(
        group.repeat * _pair(layer.attention) * _keys(layer.attention, sequence, keys)
        for group in model.groups
        for layer in group.layers
        if layer.attention is not None
    )


def _pair(attention: Attention | LatentAttention) -> int:
    """FLOPs of one query-key pair over all heads, both products."""
    if isinstance(attention, LatentAttention):
        size = attention.qk_nope_head_dim + attention.qk_rope_head_dim + attention.v_head_dim
        return 2 * attention.heads * size
    return 4 * attention.heads * attention.head_dim


def _keys(
    attention: Attention | LatentAttention,
    sequence: int,
    keys: Callable[[int, int | None, int | None], float],
) -> float:
    if isinstance(attention, LatentAttention):
        return keys(sequence, None, None)
    return keys(sequence, attention.window, attention.chunk)


def _causal(sequence: int, window: int | None, chunk: int | None) -> float:
    """Mean keys per query below the diagonal: half the square, cut by a window or into chunks.

    >>> _causal(4096, None, None)
    2048.0
    """
    if chunk is not None and chunk < sequence:
        whole, rest = divmod(sequence, chunk)
        spans = whole * chunk * _causal(chunk, window, None)
        return (spans + rest * _causal(rest, window, None) if rest else spans) / sequence
    if window is not None and window < sequence:
        return window - window * window / (2 * sequence)
    return sequence / 2


def _full(sequence: int, window: int | None, chunk: int | None) -> float:
    """Keys per query with no causal mask."""
    return float(min(bound for bound in (sequence, window, chunk) if bound is not None))


def _last(sequence: int, window: int | None, chunk: int | None) -> float:
    """Keys that the last token of the sequence meets, itself among them."""
    if chunk is not None:
        sequence = (sequence - 1) % chunk + 1
    return float(sequence if window is None else min(sequence, window))


def _megatron(model: Transformer, sequence: int) -> Flops:
    """6 FLOPs per active parameter without the input embedding, plus causal attention.

    A tied embedding is multiplied at the head, so only a lookup is left out. A prediction module
    adds its own weights, its attention and one more pass of the head.
    """
    counted = sum(w.active_elements for w in model_weights(model) if not _lookup(w))
    attention = attention_flops_per_token(model, sequence, _causal)
    if model.mtp_layers:
        counted += sum(w.active_elements for w in mtp_weights(model))
        counted += model.mtp_layers * model.vocab * model.hidden
        last = model.groups[-1].layers[-1].attention
        if last is not None:
            attention += model.mtp_layers * _pair(last) * _keys(last, sequence, _causal)
    return 6.0 * counted + 3 * attention


def _lookup(weight: Weight) -> bool:
    return weight.part == "embedding" and not weight.multiplied
