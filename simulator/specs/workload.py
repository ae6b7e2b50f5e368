"""The architecture of a model: what is run, as shapes.

Knows layer shapes, number formats and their source. Never touches hardware, batches, or how a
model is cut. Sizes are elements; a layer pattern is run-length encoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from simulator.specs.fields import BY_KIND, Amount, Checked, Count, Flag, Natural, Some
from simulator.specs.frozen import FrozenMap
from simulator.specs.hardware import Basis, Origins
from simulator.specs.precision import FormatName

Part = Literal[
    "default", "embedding", "head", "attention", "ffn", "experts", "shared_experts", "router",
    "norms", "convolution", "mtp",
]  # fmt: skip
"""Parts of a model whose weights may have a number format of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(Checked):
    """Multi-head, grouped-query or multi-query attention with declared head size."""

    kind: Literal["gqa"] = "gqa"
    heads: Count
    kv_heads: Count
    head_dim: Count
    window: Count | None = None
    """Tokens that a sliding window keeps, the current one included; None: all."""
    chunk: Count | None = None
    """Tokens of one attention chunk (tokens attend within their chunk); None: no chunks."""
    sinks: Flag = False
    """One learned sink logit per head."""
    qkv_bias: Flag = False
    out_bias: Flag = False
    qk_norm: Literal["none", "head", "full", "unweighted"] = "none"
    """Norm on queries and keys: per head (head_dim weights each), over all heads, or per head
    without weights (Llama 4)."""
    output_gate: Flag = False
    """The query projection also yields a gate of the size of the attention output."""
    shared_kv: Flag = False
    """Values are the keys: one projection, but both are cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): one latent cached per token."""

    kind: Literal["mla"] = "mla"
    heads: Count
    q_lora_rank: Count | None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseFFN:
    """A feed-forward network; gated ones have three matrices, others two."""

    kind: Literal["dense"] = "dense"
    width: Count
    gated: Flag = True
    bias: Flag = False
    activation: str = "silu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Router(Checked):
    """How tokens choose experts."""

    scoring: Literal["softmax", "sigmoid"] = "softmax"
    normalise: Flag = True
    """The chosen weights are scaled to sum to one."""
    bias: Flag = False
    """A per-expert bias that only the choice sees (auxiliary-loss-free balancing)."""
    linear_bias: Flag = False
    """The router's projection itself has a bias."""
    expert_scale: Flag = False
    """A learned scale per expert on the chosen weights (Gemma 4)."""
    groups: Count = 1
    top_groups: Count = 1
    """Experts are chosen inside the best ``top_groups`` of ``groups`` groups."""
    choice: Literal["token_choice", "expert_choice"] = "token_choice"
    """Each token takes its best experts, or each expert its best tokens (arXiv 2202.09368)."""
    scale: Amount = 1.0
    """Factor on the chosen weights."""
    on_input: Flag = False
    """The weights multiply what enters the experts, not what leaves them (Llama 4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoE(Checked):
    """A mixture-of-experts feed-forward network."""

    kind: Literal["moe"] = "moe"
    experts: Annotated[int, Field(strict=True, ge=1, le=1 << 20)]
    top_k: Count
    width: Count
    """Hidden width of one routed expert (one half of a gated pair)."""
    gated: Flag = True
    bias: Flag = False
    activation: str = "silu"
    shared_experts: Natural = 0
    shared_width: Natural = 0
    """Hidden width of all shared experts together."""
    shared_gate: Flag = False
    """A learned scalar gate on the shared experts' output."""
    router: Router = Router()
    routing: str = "uniform"
    """How tokens spread over experts, in a form of ``simulator.specs.routing``."""
    capacity_factor: Amount | None = None
    """An expert takes this times the mean load at most, and pairs beyond it are dropped; None: all.
    Where experts choose, each takes this times the mean load, or the mean load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One transformer layer; a part that the model leaves out is None."""

    attention: Annotated[Attention | LatentAttention, BY_KIND] | None
    ffn: Annotated[DenseFFN | MoE, BY_KIND] | None
    dense_ffn: DenseFFN | None = None
    """A dense network beside the experts of the same layer, both summed (Gemma 4)."""
    norms: Count = 2
    """Norms of the hidden size in this layer."""
    scaled: Flag = False
    """One learned scalar multiplies the layer's output (Gemma 4)."""
    formats: FrozenMap[Part, FormatName] = field(default_factory=FrozenMap)
    """Number formats of this layer's weights where they are not the model's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers that repeat in this order."""

    repeat: Count = 1
    layers: Some[Layer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer(Checked):
    """A decoder-only language model."""

    name: str
    kind: Literal["transformer"] = "transformer"
    description: str = ""
    aliases: tuple[str, ...] = ()
    basis: Basis = "vendor"
    """``vendor`` for a published configuration, ``assumed`` for one that nobody published."""
    hidden: Count
    vocab: Count
    groups: Some[LayerGroup]
    tied_embeddings: Flag = False
    head_bias: Flag = False
    norm_bias: Flag = False
    """Norms have a bias beside their scale (LayerNorm rather than RMSNorm)."""
    final_norm: Flag = True
    """A learned norm stands before the head."""
    mtp_layers: Natural = 0
    """Multi-token-prediction modules, each one layer like the last plus a 2h x h projection."""
    max_context: Count | None = None
    published_parameters: Amount | None = None
    """Total that the publisher prints, for a check; None where none is printed."""
    formats: FrozenMap[Part, FormatName] = field(
        default_factory=lambda: FrozenMap({"default": "bf16"})
    )
    """Number format of the weights by part; ``default`` for the others."""
    kv_format: FormatName = "bf16"
    activation_format: FormatName = "bf16"
    provenance: Origins = field(default=(), compare=False)

    def layers(self) -> Iterator[Layer]:
        """Every layer in order."""
        for group in self.groups:
            for _ in range(group.repeat):
                yield from group.layers

    def weight_format(self, part: Part, layer: Layer | None = None) -> str:
        """The number format of that part's weights, in that layer where one is given."""
        if layer is not None and part in layer.formats:
            return layer.formats[part]
        return self.formats.get(part, self.formats["default"])


@dataclass(frozen=True, slots=True, kw_only=True)
class UNetStage:
    """One resolution of a U-Net: residual blocks, each followed by transformer blocks."""

    channels: Count
    residual_blocks: Count
    transformer_depth: Natural = 0
    """Transformer blocks after each residual block; 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UNet(Checked):
    """A latent-diffusion U-Net (SDXL, arXiv 2307.01952): convolution and cross-attention."""

    name: str
    kind: Literal["unet"] = "unet"
    description: str = ""
    aliases: tuple[str, ...] = ()
    basis: Basis = "vendor"
    in_channels: Count
    out_channels: Count
    stages: Some[UNetStage]
    middle_transformer_depth: Count
    head_dim: Count
    context_dim: Count
    """Width of the text embedding that cross-attention reads."""
    context_tokens: Count
    time_embedding: Count
    added_embedding: Natural = 0
    """Width of the pooled text and size conditioning that joins the time embedding."""
    latent: Count = 128
    """Height and width of the latent image."""
    steps: Count = 30
    """Denoising steps of one sample."""
    guidance: Flag = True
    """Classifier-free guidance runs the batch twice."""
    published_parameters: Amount | None = None
    formats: FrozenMap[Part, FormatName] = field(
        default_factory=lambda: FrozenMap({"default": "fp16"})
    )
    activation_format: FormatName = "fp16"
    provenance: Origins = field(default=(), compare=False)


Model = Transformer | UNet
