"""The weight tensors of a transformer, one by one, with their part and what a token uses of them.

Knows the shapes that each kind of layer has. Never touches number formats, hardware or time.
Matrices are counted as (rows, columns) of the multiply; biases, norms and sinks are vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from simulator.specs.workload import (
    Attention,
    DenseFFN,
    LatentAttention,
    Layer,
    MoE,
    Part,
    Transformer,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """``count`` equal tensors of ``rows`` x ``columns``, of which a token uses ``active``."""

    name: str
    part: Part
    rows: int
    columns: int = 1
    count: int = 1
    active: int | None = None
    """None: all of them."""
    multiplied: bool = True
    """A token multiplies by it; False for vectors and for a table that is looked up."""
    format: str | None = None
    """Number format where the layer has one of its own."""

    @property
    def elements(self) -> int:
        """Elements of all copies."""
        return self.rows * self.columns * self.count

    @property
    def active_elements(self) -> int:
        """Elements that one token uses."""
        return self.rows * self.columns * (self.count if self.active is None else self.active)

    @property
    def is_vector(self) -> bool:
        """A bias, a norm or sinks: kept in the format of the norms, whatever its part's format."""
        return self.columns == 1 and not self.multiplied

    def times(self, copies: int) -> Weight:
        """The same tensor in that many layers."""
        active = None if self.active is None else self.active * copies
        return replace(self, count=self.count * copies, active=active)


def _vector(
    name: str, part: Part, length: int, count: int = 1, active: int | None = None
) -> Weight:
    return Weight(name=name, part=part, rows=length, count=count, active=active, multiplied=False)


def attention_weights(hidden: int, attention: Attention | LatentAttention) -> Iterator[Weight]:
    """Projections, biases, sinks and inner norms of one attention block."""
    if isinstance(attention, LatentAttention):
        yield from _latent_weights(hidden, attention)
        return
    queries = attention.heads * attention.head_dim
    keys = attention.kv_heads * attention.head_dim
    gated = 2 if attention.output_gate else 1
    projections = 1 if attention.shared_kv else 2
    yield Weight(name="q", part="attention", rows=gated * queries, columns=hidden)
    yield Weight(name="kv", part="attention", rows=keys, columns=hidden, count=projections)
    yield Weight(name="o", part="attention", rows=hidden, columns=queries)
    if attention.qkv_bias:
        yield _vector("qkv bias", "attention", gated * queries + projections * keys)
    if attention.out_bias:
        yield _vector("o bias", "attention", hidden)
    if attention.sinks:
        yield _vector("sinks", "attention", attention.heads)
    if attention.qk_norm == "head":
        yield _vector("qk norm", "norms", attention.head_dim, count=2)
    elif attention.qk_norm == "full":
        yield _vector("qk norm", "norms", queries + keys)


def _latent_weights(hidden: int, attention: LatentAttention) -> Iterator[Weight]:
    heads, rank, latent = attention.heads, attention.q_lora_rank, attention.kv_lora_rank
    qk = attention.qk_nope_head_dim + attention.qk_rope_head_dim
    if rank is None:
        yield Weight(name="q", part="attention", rows=heads * qk, columns=hidden)
    else:
        yield Weight(name="q down", part="attention", rows=rank, columns=hidden)
        yield _vector("q norm", "norms", rank)
        yield Weight(name="q up", part="attention", rows=heads * qk, columns=rank)
    yield Weight(
        name="kv down", part="attention", rows=latent + attention.qk_rope_head_dim, columns=hidden
    )
    yield _vector("kv norm", "norms", latent)
    yield Weight(
        name="kv up",
        part="attention",
        rows=heads * (attention.qk_nope_head_dim + attention.v_head_dim),
        columns=latent,
    )
    yield Weight(name="o", part="attention", rows=hidden, columns=heads * attention.v_head_dim)


def ffn_weights(hidden: int, ffn: DenseFFN | MoE) -> Iterator[Weight]:
    """Matrices and biases of one feed-forward network, router included."""
    inner = 2 if ffn.gated else 1
    if isinstance(ffn, DenseFFN):
        yield Weight(name="up", part="ffn", rows=ffn.width, columns=hidden, count=inner)
        yield Weight(name="down", part="ffn", rows=hidden, columns=ffn.width)
        if ffn.bias:
            yield _vector("ffn bias", "ffn", inner * ffn.width + hidden)
        return
    experts, chosen = ffn.experts, ffn.top_k
    yield Weight(name="router", part="router", rows=experts, columns=hidden)
    if ffn.router.bias:
        yield _vector("router choice bias", "router", experts)
    if ffn.router.linear_bias:
        yield _vector("router bias", "router", experts)
    if ffn.router.expert_scale:
        yield _vector("expert scale", "router", experts)
    yield Weight(
        name="experts up",
        part="experts",
        rows=ffn.width,
        columns=hidden,
        count=experts * inner,
        active=chosen * inner,
    )
    yield Weight(
        name="experts down",
        part="experts",
        rows=hidden,
        columns=ffn.width,
        count=experts,
        active=chosen,
    )
    if ffn.bias:
        yield _vector("experts bias", "experts", inner * ffn.width + hidden, experts, chosen)
    if ffn.shared_width:
        yield Weight(
            name="shared up",
            part="shared_experts",
            rows=ffn.shared_width,
            columns=hidden,
            count=inner,
        )
        yield Weight(
            name="shared down", part="shared_experts", rows=hidden, columns=ffn.shared_width
        )
    if ffn.shared_gate:
        yield Weight(name="shared gate", part="shared_experts", rows=1, columns=hidden)


def layer_weights(model: Transformer, layer: Layer) -> Iterator[Weight]:
    """Every weight of one layer of that model."""
    for weight in _layer_weights(model, layer):
        own = layer.formats.get("norms" if weight.is_vector else weight.part)
        yield weight if own is None else replace(weight, format=own)


def _layer_weights(model: Transformer, layer: Layer) -> Iterator[Weight]:
    if layer.attention is not None:
        yield from attention_weights(model.hidden, layer.attention)
    for ffn in (layer.dense_ffn, layer.ffn):
        if ffn is not None:
            yield from ffn_weights(model.hidden, ffn)
    if layer.norms:
        yield _norm(model, layer.norms)
    if layer.scaled:
        yield _vector("layer scale", "norms", 1)


def mtp_weights(model: Transformer) -> Iterator[Weight]:
    """The multi-token-prediction modules: one layer like the last, a 2h x h projection, 3 norms.

    Embedding and head are the main model's (DeepSeek-V3, arXiv 2412.19437, section 2.2).
    """
    if not model.mtp_layers:
        return
    last = model.groups[-1].layers[-1]
    module = [
        *layer_weights(model, last),
        Weight(name="projection", part="mtp", rows=model.hidden, columns=2 * model.hidden),
        _norm(model, 3),
    ]
    for weight in module:
        yield replace(weight.times(model.mtp_layers), part="mtp")


def model_weights(model: Transformer) -> Iterator[Weight]:
    """Every weight of the main model; the multi-token-prediction modules are not among them."""
    yield Weight(
        name="embedding",
        part="embedding",
        rows=model.vocab,
        columns=model.hidden,
        multiplied=model.tied_embeddings,
    )
    for group in model.groups:
        for layer in group.layers:
            for weight in layer_weights(model, layer):
                yield weight.times(group.repeat)
    if model.final_norm:
        yield _norm(model, 1)
    if not model.tied_embeddings:
        yield Weight(name="head", part="head", rows=model.vocab, columns=model.hidden)
    if model.head_bias:
        yield _vector("head bias", "head", model.vocab)


def _norm(model: Transformer, count: int) -> Weight:
    return _vector("norm", "norms", model.hidden, count=count * (2 if model.norm_bias else 1))
