"""A quantisation recipe applied to the layers of a model: a number format per part.

Knows under which names the matrices of a layer are stored. Never touches files or sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from simulator.models.fields import Fields
from simulator.models.quantization import Recipe
from simulator.specs.frozen import FrozenMap
from simulator.specs.workload import LatentAttention, Layer, MoE, Part

_PREFIXES = (
    "model.layers.{}.",
    "language_model.model.layers.{}.",
    "model.language_model.layers.{}.",
)
Names = tuple[tuple[str, ...], ...]
"""The matrices of one part, each under every name that a checkpoint may give it."""

_GROUPED: Names = (
    ("self_attn.q_proj", "self_attn.qkv_proj"),
    ("self_attn.k_proj", "self_attn.qkv_proj"),
    ("self_attn.v_proj", "self_attn.qkv_proj"),
    ("self_attn.o_proj",),
)
_LATENT: Names = (
    ("self_attn.q_a_proj", "self_attn.q_proj", "self_attn.fused_qkv_a_proj_with_mqa"),
    ("self_attn.q_b_proj", "self_attn.q_proj"),
    ("self_attn.kv_a_proj_with_mqa", "self_attn.fused_qkv_a_proj_with_mqa"),
    ("self_attn.kv_b_proj",),
    ("self_attn.o_proj",),
)


def _gated(*stems: str) -> Names:
    """Gate, up and down under each stem, fused or not."""
    return (
        tuple(f"{stem}.{name}" for stem in stems for name in ("gate_proj", "gate_up_proj", "w1")),
        tuple(f"{stem}.{name}" for stem in stems for name in ("up_proj", "gate_up_proj", "w3")),
        tuple(f"{stem}.{name}" for stem in stems for name in ("down_proj", "w2")),
    )


_DENSE = _gated("mlp", "feed_forward")
_EXPERTS = _gated(
    "mlp.experts.0",
    "mlp.experts",
    "block_sparse_moe.experts.0",
    "feed_forward.experts.0",
    "feed_forward.experts",
    "experts",
)
_SHARED = _gated("mlp.shared_experts", "mlp.shared_expert", "feed_forward.shared_expert")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantised:
    """Layers and formats after a recipe."""

    layers: tuple[Layer, ...]
    formats: FrozenMap[Part, str]


def quantise(
    layers: Sequence[Layer], recipe: Recipe, default: str, mtp_layers: int, fields: Fields
) -> Quantised:
    """The format of every part; where layers differ, the odd ones carry theirs.

    A part of one layer whose matrices have unlike formats is noted as a fault.
    """
    found: list[dict[Part, str]] = []
    for index, layer in enumerate(layers):
        mine: dict[Part, str] = {}
        for part, names in _parts(layer):
            formats = {_format(recipe, index, alternatives, default) for alternatives in names}
            if len(formats) > 1:
                where = f"the {part} of layer {index}"
                listed = " and ".join(sorted(formats))
                fields.note(recipe.path, f"{where} has {listed} matrices: not supported yet")
                return Quantised(layers=tuple(layers), formats=FrozenMap({"default": default}))
            mine[part] = formats.pop()
        found.append(mine)
    counts: dict[Part, Counter[str]] = {}
    for mine in found:
        for part, short in mine.items():
            counts.setdefault(part, Counter())[short] += 1
    usual: dict[Part, str] = {
        part: max(tally, key=lambda short: (tally[short], short != default))
        for part, tally in counts.items()
    }
    head = recipe.format_of("lm_head") if recipe.head else None
    if head is not None:
        usual["head"] = head
    if mtp_layers:
        usual["mtp"] = _format(recipe, len(layers), ("mlp.experts.0.up_proj",), default)
    own = tuple(
        replace(layer, formats=FrozenMap({p: s for p, s in mine.items() if usual[p] != s}))
        for layer, mine in zip(layers, found, strict=True)
    )
    named: dict[Part, str] = {"default": default}
    named.update({part: short for part, short in usual.items() if short != default})
    return Quantised(layers=own, formats=FrozenMap(named))


def _parts(layer: Layer) -> Iterator[tuple[Part, Names]]:
    if layer.attention is not None:
        yield "attention", _LATENT if isinstance(layer.attention, LatentAttention) else _GROUPED
    if isinstance(layer.ffn, MoE):
        yield "experts", _EXPERTS
        if layer.ffn.shared_width:
            yield "shared_experts", _SHARED
    elif layer.ffn is not None:
        yield "ffn", _DENSE
    if layer.dense_ffn is not None:
        yield "ffn", _DENSE


def _format(recipe: Recipe, index: int, names: Sequence[str], default: str) -> str:
    """The format of one matrix: left alone if the recipe leaves out any of its names."""
    full = [prefix.format(index) + name for prefix in _PREFIXES for name in names]
    if any(recipe.excluded.matches(name) for name in full):
        return default
    formats = (recipe.format_of(name) for name in full)
    return next((short for short in formats if short is not None), default)
