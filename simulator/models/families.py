"""What each family of models fixes in its code rather than in its config.json.

Knows, by ``model_type``, the rules that the reference implementation of that family applies where
a key is absent or does not exist. Never touches a file. Source of every row: the family's modelling
and configuration code in transformers 5.24 or, where that has none, the code beside the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True, slots=True)
class Key:
    """A flag that the configuration sets, and its value where the key is absent."""

    name: str
    default: bool = False


Flag = bool | Key
"""A flag that the family fixes, or that a key sets."""
Experts = Literal[
    "mixtral", "qwen2", "qwen3", "deepseek", "llama4", "granite", "gemma4", "ernie", "hunyuan"
]
Windows = Literal["none", "all", "late", "pattern", "no_rope"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The fixed part of an architecture."""

    tied: bool | None = False
    """Tied embeddings where the key is absent; None: the key must be there."""
    latent: bool = False
    """Multi-head latent attention."""
    multi_head: bool = False
    """As many KV heads as heads where the key is absent."""
    derive_head_dim: bool = True
    """The head size is hidden size / heads where the key is absent."""
    fixed_head_dim: bool = False
    """The code ignores a declared head size."""
    qkv_bias: Flag = False
    out_bias: Flag = False
    ffn_bias: Flag = False
    head_bias: Flag = False
    qk_norm: Literal["none", "head", "full", "unweighted"] = "none"
    qk_norm_key: Key | None = None
    """The flag that turns ``qk_norm`` on; None: always on."""
    sinks: bool = False
    gated: bool = True
    activation: str = "silu"
    """The activation where the key is absent."""
    clamped: bool = False
    """The gated activation is clamped (gpt-oss)."""
    norms: int = 2
    norm_bias: bool = False
    final_norm: bool = True
    windows: Windows = "none"
    """Which layers have the window where ``layer_types`` is absent: ``all``; ``late``, those from
    ``max_window_layers`` on; ``pattern``, all but every n-th; ``no_rope``, chunks but where a layer
    has no rotary positions."""
    window_needed: bool = False
    """``sliding_window`` must be there: absent, the code takes a size of its own."""
    windows_key: Key | None = None
    """The flag that turns windows on; None: a window that is given counts."""
    pattern: int = 0
    """The n of ``pattern`` where the key is absent; 0: the key must be there."""
    pattern_keys: tuple[str, ...] = ("sliding_window_pattern", "_sliding_window_pattern")
    last_full: bool = False
    """The last layer is full whatever the pattern says."""
    experts: Experts | None = None
    sigmoid: bool = False
    """The router scores with a sigmoid where the key is absent."""
    choice_bias: Flag = False
    """The router's choice has a correction bias, unless ``topk_method`` says otherwise."""
    expert_bias: bool = False
    mtp_keys: tuple[str, ...] = ()
    """Keys that count multi-token-prediction modules of the usual layout."""
    blocks: bool = False
    """Each layer has its own sizes in ``block_configs``."""
    expects: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    """Keys with the only values that are read right here."""
    inert: frozenset[str] = frozenset()
    """Keys of this family without effect on shapes, though their names suggest one."""


_LLAMA = Family(
    multi_head=True,
    qkv_bias=Key("attention_bias"),
    out_bias=Key("attention_bias"),
    ffn_bias=Key("mlp_bias"),
)
_MISTRAL = Family(windows="all")
_MIXTRAL = Family(windows="all", experts="mixtral")
_SWITCH = Key("use_sliding_window")
_QWEN2 = Family(qkv_bias=True, windows="late", windows_key=_SWITCH)
_QWEN2_MOE = replace(_QWEN2, qkv_bias=Key("qkv_bias", True), experts="qwen2")
_QWEN3 = Family(
    qkv_bias=Key("attention_bias"),
    out_bias=Key("attention_bias"),
    qk_norm="head",
    windows="late",
    windows_key=_SWITCH,
    derive_head_dim=False,
)
_QWEN3_MOE = replace(_QWEN3, experts="qwen3", derive_head_dim=True)
_DEEPSEEK_V3 = Family(
    latent=True,
    experts="deepseek",
    sigmoid=True,
    choice_bias=True,
    mtp_keys=("num_nextn_predict_layers",),
    expects={"attention_bias": (False,)},
)
_DEEPSEEK_V2 = replace(_DEEPSEEK_V3, sigmoid=False, choice_bias=False, mtp_keys=())
_GEMMA = Family(
    tied=True,
    derive_head_dim=False,
    qkv_bias=Key("attention_bias"),
    out_bias=Key("attention_bias"),
    activation="gelu",
    expects={"use_bidirectional_attention": (False, "vision")},
)
_GEMMA2 = replace(
    _GEMMA, norms=4, windows="pattern", pattern=2, inert=frozenset({"sliding_window_size"})
)
_GEMMA3 = replace(_GEMMA, norms=4, windows="pattern", pattern=6, qk_norm="head")
_PHI3 = Family(
    multi_head=True,
    windows="all",
    expects={"full_attn_mod": (1,), "attention_bias": (False,), "mlp_bias": (False,)},
)
_GLM = Family(derive_head_dim=False, qkv_bias=Key("attention_bias", True))
_GLM4_MOE = Family(
    qkv_bias=Key("attention_bias"),
    qk_norm="head",
    qk_norm_key=Key("use_qk_norm"),
    experts="deepseek",
    sigmoid=True,
    choice_bias=True,
    mtp_keys=("num_nextn_predict_layers",),
)
_GRANITE = Family(
    multi_head=True,
    qkv_bias=Key("attention_bias"),
    out_bias=Key("attention_bias"),
    ffn_bias=Key("mlp_bias"),
)
_OLMO2 = Family(
    multi_head=True,
    qkv_bias=Key("attention_bias"),
    out_bias=Key("attention_bias"),
    qk_norm="full",
)
_COHERE = Family(
    tied=True,
    multi_head=True,
    qkv_bias=Key("attention_bias"),
    out_bias=Key("attention_bias"),
    qk_norm="full",
    qk_norm_key=Key("use_qk_norm"),
    norms=1,
    expects={
        "use_parallel_block": (True,),
        "use_gated_activation": (True,),
        "use_embedding_sharing": (True,),
    },
)
_HUNYUAN = Family(
    qkv_bias=Key("attention_bias"),
    out_bias=Key("attention_bias"),
    ffn_bias=Key("mlp_bias"),
    qk_norm="head",
    expects={
        "use_qk_norm": (True,),
        "use_mla": (False,),
        "use_rotary_pos_emb": (True,),
        "norm_type": ("rms",),
        "mlp_bias": (False,),
    },
    inert=frozenset(
        {
            "cla_share_factor",
            "anyres_pooling_size",
            "group_limited_greedy",
            "max_image_size",
            "mask_init_id",
            "org_vocab_size",
            "add_classification_head",
            "pool_type",
            "n_group",
            "topk_group",
        }
    ),  # fmt: skip,
)

FAMILIES: Mapping[str, Family] = {
    "llama": _LLAMA,
    "mistral": replace(_MISTRAL, window_needed=True),
    "ministral": replace(_MISTRAL, window_needed=True),
    "ministral3": replace(_MISTRAL, derive_head_dim=False),
    "mixtral": _MIXTRAL,
    "qwen2": _QWEN2,
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": replace(_QWEN2, tied=None),
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": replace(_QWEN2, tied=None),
    "qwen2_5_omni_text": replace(_QWEN2, tied=None),
    "qwen2_moe": _QWEN2_MOE,
    "qwen3": _QWEN3,
    "qwen3_vl_text": replace(_QWEN3, tied=None),
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_moe_text": replace(_QWEN3_MOE, tied=None, derive_head_dim=False),
    "qwen3_omni_moe_text": replace(_QWEN3_MOE, tied=None),
    "deepseek": replace(_LLAMA, experts="deepseek"),
    "deepseek_v2": _DEEPSEEK_V2,
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "mistral4": _DEEPSEEK_V2,
    "minicpm3": Family(
        tied=True,
        latent=True,
        expects={"attention_bias": (False,), "mlp_bias": (False,)},
        inert=frozenset({"dim_model_base", "scale_depth"}),
    ),
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA3,
    "gemma4_text": replace(
        _GEMMA3,
        experts="gemma4",
        last_full=True,
        inert=frozenset({"vocab_size_per_layer_input"}),
    ),
    "gpt_oss": Family(
        derive_head_dim=False,
        qkv_bias=Key("attention_bias", True),
        out_bias=Key("attention_bias", True),
        sinks=True,
        clamped=True,
        windows="pattern",
        pattern=2,
        experts="mixtral",
        expert_bias=True,
        inert=frozenset({"initial_context_length"}),
    ),
    "llama4_text": Family(
        multi_head=True,
        qkv_bias=Key("attention_bias"),
        out_bias=Key("attention_bias"),
        qk_norm="unweighted",
        qk_norm_key=Key("use_qk_norm", True),
        windows="no_rope",
        experts="llama4",
        sigmoid=True,
        inert=frozenset({"for_llm_compressor", "no_rope_layers", "no_rope_layer_interval"}),
    ),
    "phi3": _PHI3,
    "phimoe": replace(
        _MIXTRAL,
        qkv_bias=Key("attention_bias"),
        out_bias=Key("attention_bias"),
        head_bias=Key("lm_head_bias"),
        norm_bias=True,
    ),
    "phi": Family(
        multi_head=True,
        qkv_bias=True,
        out_bias=True,
        ffn_bias=True,
        head_bias=True,
        gated=False,
        activation="gelu",
        norms=1,
        norm_bias=True,
        expects={"qk_layernorm": (False,)},
    ),
    "glm": _GLM,
    "glm4": replace(_GLM, norms=4),
    "glm4v_text": Family(tied=None, qkv_bias=True, norms=4),
    "glm4_moe": _GLM4_MOE,
    "glm4v_moe_text": replace(
        _GLM4_MOE, tied=None, qkv_bias=Key("attention_bias", True), qk_norm="none", mtp_keys=()
    ),
    "glm4_moe_lite": replace(_DEEPSEEK_V3, expects={"attention_bias": (False,)}),
    "granite": _GRANITE,
    "granitemoe": replace(_GRANITE, experts="granite"),
    "granitemoeshared": replace(_GRANITE, experts="granite"),
    "olmo": Family(
        multi_head=True,
        qkv_bias=Key("attention_bias"),
        out_bias=Key("attention_bias"),
        norms=0,
        final_norm=False,
    ),
    "olmo2": _OLMO2,
    "olmo3": replace(_OLMO2, windows="pattern", pattern=4),
    "olmoe": replace(_OLMO2, experts="mixtral"),
    "cohere": _COHERE,
    "cohere2": replace(
        _COHERE,
        qk_norm="none",
        qk_norm_key=None,
        fixed_head_dim=True,
        windows="pattern",
        pattern=4,
        pattern_keys=("sliding_window_pattern", "layer_switch"),
        expects={**_COHERE.expects, "order_of_interleaved_layers": ("local_attn_first",)},
    ),
    "gpt_neox": Family(
        multi_head=True,
        qkv_bias=Key("attention_bias", True),
        out_bias=Key("attention_bias", True),
        ffn_bias=True,
        gated=False,
        activation="gelu",
        norm_bias=True,
        inert=frozenset({"use_parallel_residual"}),
    ),
    "starcoder2": Family(
        tied=True,
        qkv_bias=Key("use_bias", True),
        out_bias=Key("use_bias", True),
        ffn_bias=Key("use_bias", True),
        gated=False,
        activation="gelu",
        norm_bias=True,
        windows="all",
        expects={"mlp_type": ("default",), "norm_type": ("layer_norm",)},
    ),
    "stablelm": Family(
        qkv_bias=Key("use_qkv_bias"),
        norm_bias=True,
        expects={"qk_layernorm": (False,), "use_parallel_residual": (False,)},
    ),
    "nemotron": Family(
        multi_head=True,
        qkv_bias=Key("attention_bias"),
        out_bias=Key("attention_bias"),
        ffn_bias=Key("mlp_bias"),
        gated=False,
        activation="relu2",
        norm_bias=True,
    ),
    "nemotron-nas": Family(
        qkv_bias=Key("attention_bias"),
        out_bias=Key("attention_bias"),
        ffn_bias=Key("mlp_bias"),
        blocks=True,
    ),
    "minimax_m2": Family(
        derive_head_dim=False,
        qk_norm="full",
        experts="mixtral",
        sigmoid=True,
        choice_bias=Key("use_routing_bias", True),
        mtp_keys=("num_mtp_modules",),
        expects={
            "use_qk_norm": (True,),
            "qk_norm_type": ("per_layer",),
            "mtp_transformer_layers": (1,),
            "use_mtp": (True,),
            "shared_intermediate_size": (0,),
        },
        inert=frozenset(
            {
                "attn_type_list",
                "layernorm_full_attention_beta",
                "layernorm_linear_attention_beta",
                "layernorm_mlp_beta",
                "mlp_intermediate_size",
                "shared_moe_mode",
            }
        ),
    ),
    "hunyuan_v1_dense": _HUNYUAN,
    "hunyuan_v1_moe": replace(_HUNYUAN, experts="hunyuan"),
    "ernie4_5": Family(
        tied=True,
        derive_head_dim=False,
        qkv_bias=Key("use_bias"),
        out_bias=Key("use_bias"),
        ffn_bias=Key("use_bias"),
        expects={"compression_ratio": (1.0,)},
    ),
    "ernie4_5_moe": Family(
        tied=True,
        experts="ernie",
        choice_bias=Key("moe_use_aux_free", True),
        expects={"use_bias": (False,), "compression_ratio": (1.0,)},
        inert=frozenset({"moe_capacity", "moe_gate", "moe_norm_min", "fuse_gate_detach_matmul"}),
    ),
    "dots1": Family(
        multi_head=True,
        qkv_bias=Key("attention_bias"),
        out_bias=Key("attention_bias"),
        qk_norm="head",
        windows="late",
        experts="deepseek",
        sigmoid=True,
        choice_bias=True,
    ),
    "smollm3": replace(
        _LLAMA,
        tied=True,
        expects={"use_sliding_window": (False,)},
        inert=frozenset({"no_rope_layers", "no_rope_layer_interval"}),
    ),
    "exaone4": Family(multi_head=True, qk_norm="head", windows="pattern"),
    "seed_oss": Family(
        derive_head_dim=False,
        qkv_bias=Key("attention_bias", True),
        out_bias=Key("attention_out_bias"),
        ffn_bias=Key("mlp_bias"),
    ),
    "arcee": replace(_LLAMA, gated=False, activation="relu2"),
    "internlm2": Family(multi_head=True, qkv_bias=Key("bias"), out_bias=Key("bias")),
    "internlm3": Family(
        qkv_bias=Key("qkv_bias"), out_bias=Key("bias"), ffn_bias=Key("bias"), derive_head_dim=False
    ),
    "baichuan": Family(multi_head=True),
}
"""Families whose configurations are read right, by ``model_type``."""
