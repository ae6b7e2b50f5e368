"""What the backward pass needs of the forward: the tensors that one layer keeps, one by one.

Knows shapes, number formats and a plan. Never touches devices or time. Sizes are bytes per token
of a micro-batch on one rank of a tensor-parallel group.

The method is that of Korthikanti et al. (arXiv 2205.05198, section 4.1): an operator keeps what
its gradient reads. Their 34 bytes per hidden element of a GPT layer are these tensors and two
dropout masks of one byte, which no model here has. Fused kernels are assumed: attention keeps no
scores, SwiGLU keeps gate, up and their product, and the weights of the router are applied inside
the experts, so that no expert's output is kept (Megatron Core).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simulator.mapping.held import expert_parts
from simulator.models.graph_parts import operand_format
from simulator.specs.plan import Plan
from simulator.specs.precision import number_format
from simulator.specs.workload import (
    Attention,
    DenseFFN,
    LatentAttention,
    Layer,
    MoE,
    Part,
    Transformer,
)
from simulator.units import Bytes

FP32: Bytes = 4.0


@dataclass(frozen=True, slots=True)
class Saved:
    """One tensor that is kept for the backward pass."""

    name: str
    elements: float
    """Per token of the micro-batch."""
    each: Bytes
    """Bytes of one element."""

    @property
    def bytes(self) -> Bytes:
        """Bytes per token."""
        return self.elements * self.each


def layer_saved(
    part: Transformer, layer: Layer, plan: Plan, *, keys: int | None = None
) -> tuple[Saved, ...]:
    """What one layer of ``part`` keeps when nothing is computed again but, under selective
    recompute, the core of attention.

    ``part`` is the model of one tensor-parallel rank in the number formats of its products.
    ``keys`` is None for fused attention; unfused attention keeps the scores of each query with
    that many keys, in two bytes (the 5as/h of the paper less its dropout, 2as/h).
    """
    kept = _Kept(part, plan)
    names = [f"input of norm {index + 1}" for index in range(layer.norms)]
    tensors = [kept.tokens(name) for name in names]
    if isinstance(layer.attention, LatentAttention):
        tensors += kept.latent(layer.attention)
    elif layer.attention is not None:
        tensors += kept.grouped(layer.attention)
    if layer.attention is not None:
        tensors += kept.core(layer.attention, keys)
    if layer.dense_ffn is not None:
        tensors += kept.dense(layer.dense_ffn)
    if isinstance(layer.ffn, MoE):
        tensors += kept.experts(layer.ffn)
    elif layer.ffn is not None:
        tensors += kept.dense(layer.ffn)
    return tuple(tensors)


def head_saved(part: Transformer, plan: Plan) -> tuple[Saved, ...]:
    """What final norm, head and loss keep: their inputs, and the softmax of logits in fp32."""
    kept = _Kept(part, plan)
    return (
        kept.tokens("input of the final norm"),
        kept.tokens("input of the head"),
        Saved("logits", part.vocab, FP32),
    )


def stream_bytes(part: Transformer, plan: Plan) -> Bytes:
    """Bytes per token of the stream between layers on one rank: what full recompute keeps."""
    return _Kept(part, plan).tokens("stream").bytes


class _Kept:
    """The tensors of the parts of a layer."""

    def __init__(self, part: Transformer, plan: Plan) -> None:
        self.part, self.plan = part, plan
        self.shared = plan.tp if plan.sequence_parallel else 1
        self.wide = number_format(part.activation_format).bytes(1)

    def tokens(self, name: str, width: int | None = None, product: Part | None = None) -> Saved:
        """A tensor that sequence parallelism splits by token; else every rank has all of it."""
        elements = (self.part.hidden if width is None else width) / self.shared
        return Saved(name, elements, self.wide if product is None else self.operand(product))

    def operand(self, product: Part) -> Bytes:
        """Bytes of one element of what enters a product with that part's weights."""
        return number_format(operand_format(self.part, product)).row_bytes(1)

    def grouped(self, core: Attention) -> Iterator[Saved]:
        """Input, queries, keys and values; before their norm too, where they have one."""
        queries, keys = core.heads * core.head_dim, core.kv_heads * core.head_dim
        yield self.tokens("input of attention", product="attention")
        if core.qk_norm != "none":
            yield Saved("queries and keys before their norm", queries + keys, self.wide)
        yield Saved("queries", queries, self.wide)
        yield Saved("keys and values", 2 * keys, self.wide)
        if core.output_gate:
            yield Saved("gate and what it multiplies", 2 * queries, self.wide)

    def latent(self, core: LatentAttention) -> Iterator[Saved]:
        """Input, latents before and after their norm, and the queries, keys and values of heads."""
        rope = core.qk_rope_head_dim
        yield self.tokens("input of attention", product="attention")
        for what, rank in (("query", core.q_lora_rank), ("KV", core.kv_lora_rank)):
            if rank is not None:
                yield self.tokens(f"{what} latent", rank)
                yield self.tokens(f"normed {what} latent", rank, "attention")
        yield Saved("queries", core.heads * (core.qk_nope_head_dim + rope), self.wide)
        keys = core.heads * (core.qk_nope_head_dim + rope + core.v_head_dim)
        yield Saved("keys and values", keys, self.wide)

    def core(self, core: Attention | LatentAttention, keys: int | None) -> Iterator[Saved]:
        """What the core of attention gives to the output product, and what its gradient reads."""
        size = core.v_head_dim if isinstance(core, LatentAttention) else core.head_dim
        operand = self.operand("attention")
        again = self.plan.recompute == "selective"
        yield Saved("input of the output product", core.heads * size, operand)
        if again:
            return
        if keys is not None:
            yield Saved("scores", core.heads * keys, self.wide)
            return
        yield Saved("statistics of the softmax", core.heads, FP32)
        gated = isinstance(core, Attention) and core.output_gate
        if operand != self.wide and not gated:
            yield Saved("output of attention", core.heads * size, self.wide)

    def dense(self, net: DenseFFN) -> Iterator[Saved]:
        yield self.tokens("input of the FFN", product="ffn")
        yield from self._inner("FFN", net.width, net.gated, "ffn")

    def experts(self, net: MoE) -> Iterator[Saved]:
        """Of balanced experts: a rank has its share of the rows of all expert-parallel ranks."""
        yield self.tokens("input of the router")
        yield Saved("scores of experts", net.experts / self.shared, FP32)
        rows = net.top_k * expert_parts(self.plan) / self.plan.tp
        yield Saved("rows of experts", rows * self.part.hidden, self.operand("experts"))
        yield from self._inner("experts", rows * net.width, net.gated, "experts")
        if net.shared_width:
            if self.operand("shared_experts") != self.wide:
                yield self.tokens("input of the shared experts", product="shared_experts")
            yield from self._inner("shared experts", net.shared_width, net.gated, "shared_experts")

    def _inner(self, name: str, width: float, gated: bool, part: Part) -> Iterator[Saved]:
        what = "gate and up" if gated else "up"
        yield Saved(f"{what} of the {name}", (2 if gated else 1) * width, self.wide)
        yield Saved(f"input of the last product of the {name}", width, self.operand(part))
