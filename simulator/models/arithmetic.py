"""What a model holds: parameters, weight bytes and cache bytes, as functions of the model alone.

Knows shapes and number formats. Never touches hardware, batches or time. Counts of parameters are
exact integers; bytes include the scales of block formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from simulator.models.unet import unet_weights
from simulator.models.weights import Weight, model_weights, mtp_weights
from simulator.specs.precision import number_format
from simulator.specs.workload import Attention, LatentAttention, Model, Part, Transformer
from simulator.units import Bytes


def _weights(model: Model) -> Iterable[Weight]:
    return model_weights(model) if isinstance(model, Transformer) else unet_weights(model)


def parameters_by_part(model: Model) -> dict[Part, int]:
    """Parameters of each part that the model has, multi-token prediction apart."""
    totals: dict[Part, int] = {}
    for weight in _weights(model):
        totals[weight.part] = totals.get(weight.part, 0) + weight.elements
    return totals


def parameters(model: Model) -> int:
    """All parameters, once each: a tied embedding counts once, prediction modules do not count."""
    return sum(weight.elements for weight in _weights(model))


def active_parameters(model: Model) -> int:
    """Parameters that one token uses: all but the experts that its router leaves out."""
    return sum(weight.active_elements for weight in _weights(model))


def mtp_parameters(model: Model) -> int:
    """Parameters of the multi-token-prediction modules, which ``parameters`` leaves out."""
    if not isinstance(model, Transformer):
        return 0
    return sum(weight.elements for weight in mtp_weights(model))


def weight_bytes_by_part(model: Model) -> dict[Part, Bytes]:
    """Bytes of each part's weights in its number format, scales included.

    Biases, norms and sinks are kept in the format of the norms, as quantised checkpoints do.
    """
    totals: dict[Part, Bytes] = {}
    for weight in _weights(model):
        part: Part = "norms" if weight.is_vector else weight.part
        default = model.formats.get(part, model.formats["default"])
        entry = number_format(weight.format or default)
        totals[weight.part] = totals.get(weight.part, 0.0) + entry.bytes(weight.elements)
    return totals


def weight_bytes(model: Model) -> Bytes:
    """Bytes of all weights with their scales, each stored once."""
    return sum(weight_bytes_by_part(model).values())


def _cached_elements(attention: Attention | LatentAttention) -> int:
    """Elements that one token adds to one layer's cache while the layer keeps every token.

    Grouped-query attention caches keys and values of its KV heads; latent attention caches one
    latent and one rotary key whatever the number of heads (arXiv 2405.04434, section 2.1).
    """
    if isinstance(attention, LatentAttention):
        return attention.kv_lora_rank + attention.qk_rope_head_dim
    return 2 * attention.kv_heads * attention.head_dim


def _kept(attention: Attention | LatentAttention, tokens: float) -> float:
    """How many of ``tokens`` one layer keeps: a window or a chunk bounds it."""
    if isinstance(attention, LatentAttention):
        return tokens
    bounds = [bound for bound in (attention.window, attention.chunk) if bound is not None]
    return min([tokens, *bounds])


def _attentions(model: Model) -> Iterator[tuple[int, Attention | LatentAttention]]:
    """Each attention of the model with the number of layers that repeat it."""
    if isinstance(model, Transformer):
        for group in model.groups:
            for layer in group.layers:
                if layer.attention is not None:
                    yield group.repeat, layer.attention


def kv_bytes_per_token(model: Model) -> Bytes:
    """Cache bytes of one token while every layer still keeps all tokens (short contexts).

    Past the smallest window the cache grows slower: ask ``kv_bytes_at``. A U-Net has no cache.
    """
    return kv_bytes_at(model, 1)


def kv_bytes_at(model: Model, tokens: float) -> Bytes:
    """Cache bytes of one sequence of that many tokens; windows and chunks keep only their own."""
    if not isinstance(model, Transformer):
        return 0.0
    elements = sum(
        layers * _cached_elements(attention) * _kept(attention, tokens)
        for layers, attention in _attentions(model)
    )
    return number_format(model.kv_format).bytes(elements)


def tokens_that_fit(model: Model, capacity: Bytes) -> int | None:
    """The longest sequence whose cache fits in ``capacity`` bytes; None where any length fits.

    The inverse of ``kv_bytes_at``, which is not linear where layers have windows.
    """
    if kv_bytes_at(model, float("inf")) <= capacity:
        return None
    if kv_bytes_at(model, 1) > capacity:
        return 0
    bound = 1
    while kv_bytes_at(model, 2 * bound) <= capacity:
        bound *= 2
    low, high = bound, 2 * bound
    while high - low > 1:
        middle = (low + high) // 2
        if kv_bytes_at(model, middle) <= capacity:
            low = middle
        else:
            high = middle
    return low


def kv_bytes_per_token_per_rank(model: Model, tp: int) -> Bytes:
    """Cache bytes of one token on one of ``tp`` tensor-parallel ranks, short contexts.

    A rank holds max(1, KV heads / tp) heads, rounded up; the latent of latent attention has no
    heads to cut and is replicated on every rank.
    """
    if not isinstance(model, Transformer):
        return 0.0
    elements = 0
    for layers, attention in _attentions(model):
        if isinstance(attention, LatentAttention):
            elements += layers * _cached_elements(attention)
        else:
            elements += layers * 2 * -(-attention.kv_heads // tp) * attention.head_dim
    return number_format(model.kv_format).bytes(elements)


def max_context(model: Model) -> int | None:
    """Tokens that the model was made to attend to; None where nobody said, or for a U-Net."""
    return model.max_context if isinstance(model, Transformer) else None


def summary(model: Model, contexts: Iterable[int] = ()) -> dict[str, Any]:
    """The arithmetic of a model as plain data: what ``show`` prints and writes as JSON."""
    formats: dict[str, str] = {str(part): name for part, name in model.formats.items()}
    if isinstance(model, Transformer):
        formats["kv"] = model.kv_format
    return {
        "name": model.name,
        "parameters": parameters(model),
        "parameters_by_part": dict(parameters_by_part(model)),
        "active_parameters": active_parameters(model),
        "mtp_parameters": mtp_parameters(model),
        "weight_bytes": weight_bytes(model),
        "weight_bytes_by_part": dict(weight_bytes_by_part(model)),
        "formats": formats,
        "kv_bytes_per_token": kv_bytes_per_token(model),
        "kv_bytes_at": {str(tokens): kv_bytes_at(model, tokens) for tokens in contexts},
        "max_context": max_context(model),
    }
