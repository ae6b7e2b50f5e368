"""Keys of config.json by what they mean for shapes: nothing, or something not read yet.

Knows names alone. Never touches a file. A key that no family reads, that is not listed here as
without effect, and that sounds like architecture is refused, so that nothing is misread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

UNSUPPORTED: Mapping[str, tuple[str, ...]] = {
    "an encoder": ("is_encoder_decoder", "num_encoder_layers", "encoder_layers"),
    "cross-attention": ("add_cross_attention", "cross_attention_layers"),
    "state-space (Mamba) layers": (
        "hybrid_override_pattern", "layers_block_type", "attn_layer_period", "mamba_num_heads",
        "mamba_n_heads", "mamba_d_state", "ssm_state_size", "ssm_cfg", "state_size",
    ),
    "linear attention": (
        "linear_num_value_heads", "linear_num_key_heads", "linear_attn_config",
        "full_attention_interval", "attn_type_list", "linear_conv_kernel_dim",
    ),
    "an indexer that selects tokens (sparse attention)": ("index_topk", "index_n_heads"),
    "a compressed cache": ("compress_ratios", "compress_ratio", "compress_rates"),
    "sparse attention": ("sparse_attention_config", "dual_chunk_attention_config"),
    "per-layer embeddings": ("hidden_size_per_layer_input",),
    "layers that share a cache": ("num_kv_shared_layers", "use_cla"),
    "a latent space for the experts": ("moe_latent_size",),
    "experts without weights": ("zero_expert_num",),
    "ALiBi positions": ("alibi",),
    "layers with sizes of their own": ("per_layer_config",),
}  # fmt: skip
"""What is not read yet, by the keys that announce it."""

_INERT = frozenset({
    "attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "attn_scale",
    "floor_scale", "_attn_implementation_internal", "attention_softmax_in_fp32",
    "scale_attention_softmax_in_fp32", "scale_attn_weights", "use_flash_attn",
    "attn_temperature_tuning", "chunk_size_feed_forward", "output_hidden_states",
    "output_attentions", "output_router_logits", "position_embedding_type",
    "query_pre_attn_scalar", "attention_multiplier", "embedding_multiplier",
    "residual_multiplier", "seq_aux", "ep_size", "num_logits_to_keep", "lm_head_dtype",
    "head_dtype", "router_dtype", "moe_router_dtype", "residual_in_fp32",
    "rescale_prenorm_residual", "max_window_layers", "cache_implementation", "image_size",
    "mamba_ssm_dtype", "use_cache", "encoder_no_repeat_ngram_size", "min_length",
    "length_penalty", "typical_p", "use_sliding_window", "num_beam_groups", "rotary_dim",
})  # fmt: skip
_INERT_FORM = re.compile(
    r".*(_token_id|_token_ids|_token_index|_eps|_epsilon|_coef|_loss|_jitter|_jitter_noise"
    r"|softcapping|_dtype|_std)$|.*(dropout|_pdrop|initializer|aux_loss|z_loss|dropoff)"
    r"|(vision|image|video|audio|mm|speech|visual|projector|tokenizer)_"
)
_SOUNDS = re.compile(
    r"attn|attention|layer|head|dim|size|width|rank|lora|expert|moe|window|block|ssm|mamba|conv|state"
    r"|compress|index|latent|mtp|kv|hidden|depth|mlp|ffn|vocab|group|chunk|sparse|shared|n_embd|inner"
    r"|recur|skip|bias|norm|router|gate"
)


def is_inert(name: str) -> bool:
    """Whether a key is known to have no effect on shapes."""
    return name in _INERT or _INERT_FORM.match(name) is not None


def sounds_like_architecture(name: str) -> bool:
    """Whether a key that nothing here knows may change shapes."""
    return _SOUNDS.search(name.lower()) is not None
