"""A model with its weights in another number format, as a quantisation recipe would store it."""

from __future__ import annotations

from dataclasses import replace

from simulator.specs.frozen import FrozenMap
from simulator.specs.precision import number_format
from simulator.specs.workload import Model, Part, Transformer

_QUANTISED: tuple[Part, ...] = ("attention", "ffn", "experts", "shared_experts", "convolution")
"""Parts that recipes quantise; embeddings, head, router and norms stay wide (DeepSeek-V3,
arXiv 2412.19437, section 3.3.1; the quantised checkpoints of Llama and Qwen do the same)."""


def with_dtype(model: Model, dtype: str) -> Model:
    """``model`` with its weights in ``dtype``.

    A format of 16 bits or more is used for every weight and for the activations. A narrower one
    is used for the products that quantisation recipes cover; the rest stays at 16 bits.
    Raises UnknownNameError for a format that is not known.
    """
    entry = number_format(dtype)
    wide = dtype if entry.bits >= 16 else model.activation_format
    parts: dict[Part, str] = {"default": wide}
    if entry.bits < 16:
        parts |= dict.fromkeys(_QUANTISED, dtype)
    changed = replace(model, formats=FrozenMap(parts), activation_format=wide)
    if not isinstance(changed, Transformer):
        return changed
    groups = tuple(
        replace(group, layers=tuple(replace(layer, formats=FrozenMap()) for layer in group.layers))
        for group in changed.groups
    )
    return replace(changed, groups=groups)
