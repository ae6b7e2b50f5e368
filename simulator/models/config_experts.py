"""Feed-forward networks of each layer from the keys of a config.json: dense, or experts.

Knows how the families name and place their experts. Never touches files or attention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.models.families import Experts, Family
from simulator.models.fields import Fields
from simulator.specs.workload import DenseFFN, MoE, Router

_EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "experts_per_token", "moe_k", "moe_topk", "top_k_experts")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Style:
    """How one naming of experts is read."""

    width: tuple[str, ...]
    """Keys of an expert's hidden width."""
    dense_width: tuple[str, ...] = ("intermediate_size",)
    shared: Callable[[Fields, int], tuple[int, int]] | None = None
    """Number of shared experts and their width together, from the expert width."""
    sparse: Callable[[Fields, int], Sequence[bool]] | None = None
    """Which layers have experts; None: all."""
    shared_gate: bool = False


def experts_by_layer(
    fields: Fields, family: Family, count: int, activation: str
) -> tuple[list[DenseFFN], list[MoE | None]]:
    """The dense network of each layer, and its experts or None. Faults are noted."""
    biased = fields.rule(family.ffn_bias)
    style = None if family.experts is None else _STYLES[family.experts]
    if style is None or not _is_sparse(fields, family):
        width = fields.whole("intermediate_size")
        dense = DenseFFN(width=width, gated=family.gated, bias=biased, activation=activation)
        return [dense] * count, [None] * count
    sparse = list(style.sparse(fields, count)) if style.sparse else [True] * count
    needed = not all(sparse) or family.experts == "gemma4"
    width = 1
    if needed:
        width = fields.whole(*style.dense_width)
    else:
        # A width that no layer has is named in many files all the same.
        fields.raw(*style.dense_width)
    dense = DenseFFN(width=width, gated=family.gated, bias=biased, activation=activation)
    moe = _experts(fields, family, style, activation)
    return [dense] * count, [moe if entry else None for entry in sparse]


def _is_sparse(fields: Fields, family: Family) -> bool:
    """Whether a family that may have experts has any here."""
    if family.experts == "gemma4":
        return fields.flag("enable_moe_block", default=False)
    if family.experts in ("hunyuan", "granite", "deepseek"):
        fields.known.update((*_EXPERTS, *_CHOSEN))
        present = any(name in fields.data for name in _EXPERTS)
        return not present or fields.has(*_EXPERTS)
    return True


def _experts(fields: Fields, family: Family, style: _Style, activation: str) -> MoE:
    experts = fields.whole(*_EXPERTS)
    top_k = _uniform(fields, *_CHOSEN)
    width = _uniform(fields, *style.width)
    shared, shared_width = style.shared(fields, width) if style.shared else (0, 0)
    if top_k > experts:
        fields.fault(fields.first(*_CHOSEN), f"{top_k} of {experts} experts")
        top_k = 1
    return MoE(
        experts=experts,
        top_k=top_k,
        width=width,
        gated=family.gated,
        bias=family.expert_bias,
        activation=activation,
        shared_experts=shared,
        shared_width=shared_width,
        shared_gate=style.shared_gate and shared > 0,
        router=_router(fields, family, experts),
    )


def _router(fields: Fields, family: Family, experts: int) -> Router:
    scoring = fields.text("scoring_func")
    if scoring not in (None, "softmax", "sigmoid"):
        fields.fault("scoring_func", f"{scoring!r} is not supported yet")
    sigmoid = family.sigmoid if scoring is None else scoring == "sigmoid"
    method = fields.text("topk_method")
    biased = fields.rule(family.choice_bias)
    if method is not None:
        biased = method == "noaux_tc"
    groups = fields.whole("n_group", default=1, least=0) or 1
    top_groups = fields.whole("topk_group", default=1, least=0) or 1
    if method in ("greedy", "gready"):
        groups = top_groups = 1
    if experts % groups or top_groups > groups:
        fields.fault("n_group", f"{top_groups} of {groups} groups of {experts} experts")
        groups = top_groups = 1
    return Router(
        scoring="sigmoid" if sigmoid else "softmax",
        normalise=fields.flag(
            "norm_topk_prob", default=family.experts not in ("qwen2", "qwen3", "llama4")
        ),
        bias=biased,
        linear_bias=family.expert_bias,
        expert_scale=family.experts == "gemma4",
        scale=fields.number("routed_scaling_factor", 1.0) or 1.0,
        on_input=family.experts == "llama4",
        groups=groups,
        top_groups=top_groups,
    )


def _uniform(fields: Fields, *names: str) -> int:
    """A number, or a list that gives each layer the same one."""
    value = fields.raw(*names)
    name = fields.first(*names)
    if isinstance(value, list):
        if not value or any(entry != value[0] for entry in value):
            fields.fault(name, "layers of unlike sizes are not supported yet")
            return 1
        entry: Any = value[0]
        if isinstance(entry, bool) or not isinstance(entry, int) or entry < 1:
            fields.fault(f"{name}[0]", f"{entry!r} is not a size")
            return 1
        return entry
    return fields.whole(*names)


def _each(fields: Fields, width: int) -> tuple[int, int]:
    """Shared experts, each as wide as a routed one."""
    names = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    shared = fields.whole(*names, default=0, least=0)
    return shared, shared * width


def _own_width(*names: str) -> Callable[[Fields, int], tuple[int, int]]:
    """One shared expert with a width of its own; absent or zero: none."""

    def shared(fields: Fields, width: int) -> tuple[int, int]:
        own = fields.whole(*names, default=0, least=0)
        return int(own > 0), own

    return shared


def _required_width(name: str) -> Callable[[Fields, int], tuple[int, int]]:
    """One shared expert whose width the file must give."""

    def shared(fields: Fields, width: int) -> tuple[int, int]:
        return 1, fields.whole(name)

    return shared


def _llama4_shared(fields: Fields, width: int) -> tuple[int, int]:
    """One shared expert beside every routed layer, as wide as a routed one."""
    return 1, width


def _hunyuan_shared(fields: Fields, width: int) -> tuple[int, int]:
    if not fields.flag("use_mixed_mlp_moe", default=True):
        return 0, 0
    shared = _uniform(fields, "num_shared_expert")
    return shared, shared * width


def _hunyuan_layers(fields: Fields, count: int) -> Sequence[bool]:
    first = fields.whole("moe_layer_num_skipped", default=0, least=0)
    return [index >= first for index in range(count)]


def _deepseek_layers(fields: Fields, count: int) -> Sequence[bool]:
    """Leading dense layers, then experts in every ``moe_layer_freq``-th layer."""
    kinds = fields.items("mlp_layer_types")
    if kinds is not None:
        fields.raw("first_k_dense_replace", "moe_layer_freq")
        return _listed(fields, kinds, count)
    first = fields.whole("first_k_dense_replace", least=0)
    every = fields.whole("moe_layer_freq", default=1)
    return [index >= first and index % every == 0 for index in range(count)]


def _listed(fields: Fields, kinds: Sequence[Any], count: int) -> Sequence[bool]:
    if len(kinds) != count or any(kind not in ("dense", "sparse") for kind in kinds):
        fields.fault("mlp_layer_types", f"not {count} entries of 'dense' or 'sparse'")
        return [True] * count
    return [kind == "sparse" for kind in kinds]


def _qwen_layers(fields: Fields, count: int) -> Sequence[bool]:
    """Experts in every ``decoder_sparse_step``-th layer but those that are listed as dense."""
    every = fields.whole("decoder_sparse_step", default=1)
    dense = fields.items("mlp_only_layers") or []
    if any(isinstance(entry, bool) or not isinstance(entry, int) for entry in dense):
        fields.fault("mlp_only_layers", "not a list of layer numbers")
        dense = []
    return [index not in dense and (index + 1) % every == 0 for index in range(count)]


def _llama4_layers(fields: Fields, count: int) -> Sequence[bool]:
    """Experts in the last of every ``interleave_moe_layer_step`` layers, or in those listed."""
    listed = fields.items("moe_layers")
    every = fields.whole("interleave_moe_layer_step", least=0 if listed is not None else 1)
    if listed is not None:
        return [index in listed for index in range(count)]
    return [(index + 1) % every == 0 for index in range(count)]


def _ernie_layers(fields: Fields, count: int) -> Sequence[bool]:
    every = fields.whole("moe_layer_interval", default=1)
    first = fields.whole("moe_layer_start_index", least=0)
    last = fields.whole("moe_layer_end_index", default=-1, least=-1)
    last = count - 1 if last == -1 else last
    return [(index + 1) % every == 0 and first <= index <= last for index in range(count)]


_STYLES: dict[Experts, _Style] = {
    "mixtral": _Style(width=("intermediate_size",)),
    "qwen2": _Style(
        width=("moe_intermediate_size",),
        shared=_required_width("shared_expert_intermediate_size"),
        sparse=_qwen_layers,
        shared_gate=True,
    ),
    "qwen3": _Style(width=("moe_intermediate_size",), sparse=_qwen_layers),
    "deepseek": _Style(width=("moe_intermediate_size",), shared=_each, sparse=_deepseek_layers),
    "llama4": _Style(
        width=("intermediate_size",),
        dense_width=("intermediate_size_mlp",),
        shared=_llama4_shared,
        sparse=_llama4_layers,
    ),
    "granite": _Style(width=("intermediate_size",), shared=_own_width("shared_intermediate_size")),
    "gemma4": _Style(width=("moe_intermediate_size",)),
    "ernie": _Style(width=("moe_intermediate_size",), shared=_each, sparse=_ernie_layers),
    "hunyuan": _Style(
        width=("moe_intermediate_size",),
        shared=_hunyuan_shared,
        sparse=_hunyuan_layers,
    ),
}
