"""A decoder-only model at one phase as operators in stream order.

Knows which operators real serving stacks launch for each kind of layer, and on which shapes.
Never touches hardware, tiles or time. Chance (the routing of experts) is passed in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simulator.mapping.routing import expert_counts
from simulator.ops.attention import Attention as AttentionCore
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import GraphSegment, Op, OpGraph
from simulator.ops.pointwise import Function, Pointwise
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

_WEIGHT_ONLY = frozenset({"int4", "mxfp4"})
"""Formats whose activations stay as they are; the kernel widens the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Tokens of one forward pass: ``new`` per sequence on top of what the cache holds.

    ``context`` counts every token that the last query may see, the new ones included.
    """

    batch: int
    new: int
    context: int
    seed: int = 0

    @property
    def tokens(self) -> int:
        """Rows of every token-wise operator."""
        return self.batch * self.new


def build_graph(model: Transformer, step: Step) -> OpGraph:
    """The operators of one forward pass of ``model``.

    Equal layers in a row form one segment. One routing is drawn per kind of MoE layer from
    ``step.seed`` and shared by the layers of that kind.
    """
    segments = [GraphSegment(name="input", repeat=1, ops=tuple(_input(model, step)))]
    labels = _labels(list(dict.fromkeys(layer for group in model.groups for layer in group.layers)))
    segments.extend(
        GraphSegment(
            name="layers",
            repeat=group.repeat,
            ops=tuple(
                op for layer in group.layers for op in _layer(model, layer, labels[layer], step)
            ),
        )
        for group in model.groups
    )
    segments.append(GraphSegment(name="output", repeat=1, ops=tuple(_output(model, step))))
    return OpGraph(segments=tuple(segments))


def _labels(layers: list[Layer]) -> dict[Layer, tuple[str, str]]:
    """Suffixes that tell the attention and the FFN of unlike layers apart."""
    cores = list(dict.fromkeys(layer.attention for layer in layers if layer.attention))
    nets = list(dict.fromkeys(layer.ffn for layer in layers if layer.ffn))

    def core_label(core: Attention | LatentAttention) -> str:
        if len(cores) == 1:
            return ""
        if isinstance(core, Attention) and core.window is not None:
            return f" w{core.window}"
        if isinstance(core, Attention) and core.chunk is not None:
            return f" c{core.chunk}"
        same = [other for other in cores if not getattr(other, "window", None)]
        return " full" if len(same) == 1 else f" #{cores.index(core)}"

    def net_label(net: DenseFFN | MoE) -> str:
        dense = [other for other in nets if isinstance(other, DenseFFN)]
        return f" {net.width}" if isinstance(net, DenseFFN) and len(dense) > 1 else ""

    return {
        layer: (
            core_label(layer.attention) if layer.attention else "",
            net_label(layer.ffn) if layer.ffn else "",
        )
        for layer in layers
    }


def _input(model: Transformer, step: Step) -> Iterator[Op]:
    yield Pointwise(
        name="embedding",
        function="gather",
        rows=step.tokens,
        cols=model.hidden,
        format=model.weight_format("embedding"),
        out=model.activation_format,
    )


def _output(model: Transformer, step: Step) -> Iterator[Op]:
    yield _norm(model, "final.norm", step.tokens, model.hidden, "add_rms_norm")
    yield from _product(
        model, "head", "lm_head", step.batch, model.vocab, model.hidden, bias=model.head_bias
    )
    yield Pointwise(
        name="sample", function="softmax", rows=step.batch, cols=model.vocab, format="fp32"
    )


def _norm(model: Transformer, name: str, rows: int, cols: int, function: Function) -> Pointwise:
    return Pointwise(
        name=name,
        function=function,
        rows=rows,
        cols=cols,
        format=model.activation_format,
        weights=cols,
    )


def _operand(model: Transformer, part: Part) -> str:
    """Format in which the activations enter a product with that part's weights.

    8- and 4-bit formats with their own matrix rate quantise the activations to the same format;
    weight-only formats, and wider weights, leave them.
    """
    weight = number_format(model.weight_format(part))
    if weight.bits >= 16 or weight.name in _WEIGHT_ONLY:
        return model.activation_format
    return weight.name


def _product(
    model: Transformer,
    part: Part,
    name: str,
    m: int,
    n: int,
    k: int,
    *,
    batch: int = 1,
    bias: bool = False,
) -> Iterator[Op]:
    """A product with weights, after quantising its activations where the weights ask for it."""
    operand = _operand(model, part)
    if operand != model.activation_format:
        yield Pointwise(
            name=f"{name}.quantise",
            function="quantise",
            rows=m * batch,
            cols=k,
            format=model.activation_format,
            out=operand,
        )
    yield Matmul(
        name=name,
        m=m,
        n=n,
        k=k,
        batch=batch,
        a=operand,
        b=model.weight_format(part),
        out=model.activation_format,
        bias=bias,
    )


def _layer(model: Transformer, layer: Layer, label: tuple[str, str], step: Step) -> Iterator[Op]:
    rows, hidden = step.tokens, model.hidden
    if layer.attention is not None:
        yield _norm(model, "attn.norm", rows, hidden, "add_rms_norm")
        if isinstance(layer.attention, LatentAttention):
            yield from _latent(model, layer.attention, label[0], step)
        else:
            yield from _grouped(model, layer.attention, label[0], step)
    if layer.ffn is not None:
        yield _norm(model, "ffn.norm", rows, hidden, "add_rms_norm")
        if isinstance(layer.ffn, MoE):
            yield from _experts(model, layer.ffn, step)
        else:
            yield from _dense(model, layer.ffn, f"ffn{label[1]}", "ffn", rows)
    if layer.dense_ffn is not None:
        yield from _dense(model, layer.dense_ffn, "ffn.dense", "ffn", rows)
        yield Pointwise(
            name="ffn.join",
            function="add",
            rows=rows,
            cols=hidden,
            format=model.activation_format,
        )
    for extra in range(layer.norms - 2):
        yield _norm(model, f"post.norm{extra + 1}", rows, hidden, "rms_norm")


def _grouped(model: Transformer, core: Attention, label: str, step: Step) -> Iterator[Op]:
    rows, width = step.tokens, core.heads * core.head_dim
    kv_width = core.kv_heads * core.head_dim
    gate = width if core.output_gate else 0
    n = width + gate + (1 if core.shared_kv else 2) * kv_width
    name = f"attn{label}"
    yield from _product(
        model, "attention", f"{name}.qkv", rows, n, model.hidden, bias=core.qkv_bias
    )
    if core.qk_norm != "none":
        yield _norm(model, f"{name}.qk_norm", rows, width + kv_width, "rms_norm")
    yield Pointwise(
        name=f"{name}.rope",
        function="rope",
        rows=rows,
        cols=width + kv_width,
        format=model.activation_format,
    )
    yield _cache_write(model, f"{name}.cache", rows, 2 * kv_width)
    yield AttentionCore(
        name=f"{name}.core",
        batch=step.batch,
        q_len=step.new,
        kv_len=step.context,
        heads=core.heads,
        kv_heads=core.kv_heads,
        head_dim=core.head_dim,
        v_dim=core.head_dim,
        window=core.window,
        chunk=core.chunk,
        sinks=core.sinks,
        format=model.activation_format,
        kv_format=model.kv_format,
    )
    if core.output_gate:
        yield Pointwise(
            name=f"{name}.gate",
            function="sigmoid_mul",
            rows=rows,
            cols=width,
            format=model.activation_format,
        )
    yield from _product(
        model, "attention", f"{name}.out", rows, model.hidden, width, bias=core.out_bias
    )


def _cache_write(model: Transformer, name: str, rows: int, cols: int) -> Pointwise:
    return Pointwise(
        name=name,
        function="cache_write",
        rows=rows,
        cols=cols,
        format=model.activation_format,
        out=model.kv_format,
    )


def _latent(model: Transformer, core: LatentAttention, label: str, step: Step) -> Iterator[Op]:
    """Multi-head latent attention: expanded for a first prefill, absorbed otherwise.

    Absorption (DeepSeek-V2, arXiv 2405.04434, section 2.1.2) multiplies the key expansion into
    the query and the value expansion into the output, so that all heads attend to one latent.
    """
    rows, heads = step.tokens, core.heads
    latent = core.kv_lora_rank + core.qk_rope_head_dim
    qk = core.qk_nope_head_dim + core.qk_rope_head_dim
    name = f"attn{label}"
    if core.q_lora_rank is None:
        n = heads * qk + latent
        yield from _product(model, "attention", f"{name}.q_kv_a", rows, n, model.hidden)
    else:
        n = core.q_lora_rank + latent
        yield from _product(model, "attention", f"{name}.q_kv_a", rows, n, model.hidden)
        yield _norm(
            model, f"{name}.lora_norm", rows, core.q_lora_rank + core.kv_lora_rank, "rms_norm"
        )
        yield from _product(model, "attention", f"{name}.q_b", rows, heads * qk, core.q_lora_rank)
    yield Pointwise(
        name=f"{name}.rope",
        function="rope",
        rows=rows,
        cols=(heads + 1) * core.qk_rope_head_dim,
        format=model.activation_format,
    )
    yield _cache_write(model, f"{name}.cache", rows, latent)
    if step.new > 1 and step.context == step.new:
        expanded = heads * (core.qk_nope_head_dim + core.v_head_dim)
        yield from _product(model, "attention", f"{name}.kv_b", rows, expanded, core.kv_lora_rank)
        yield AttentionCore(
            name=f"{name}.core",
            batch=step.batch,
            q_len=step.new,
            kv_len=step.context,
            heads=heads,
            kv_heads=heads,
            head_dim=qk,
            v_dim=core.v_head_dim,
            format=model.activation_format,
            kv_format=model.activation_format,
            cached=False,
        )
    else:
        yield from _product(
            model, "attention", f"{name}.absorb_q", rows, core.kv_lora_rank,
            core.qk_nope_head_dim, batch=heads,
        )  # fmt: skip
        yield AttentionCore(
            name=f"{name}.core",
            batch=step.batch,
            q_len=step.new,
            kv_len=step.context,
            heads=heads,
            kv_heads=1,
            head_dim=latent,
            v_dim=core.kv_lora_rank,
            latent=True,
            format=model.activation_format,
            kv_format=model.kv_format,
        )
        yield from _product(
            model, "attention", f"{name}.absorb_v", rows, core.v_head_dim, core.kv_lora_rank,
            batch=heads,
        )  # fmt: skip
    yield from _product(
        model, "attention", f"{name}.out", rows, model.hidden, heads * core.v_head_dim
    )


_GATED: dict[str, Function] = {"gelu": "gelu_mul", "clamped_silu": "clamped_silu_mul"}
_PLAIN: dict[str, Function] = {"relu2": "relu2", "silu": "silu"}


def _activation(
    model: Transformer, name: str, rows: int, width: int, gated: bool, kind: str
) -> Pointwise:
    function = _GATED.get(kind, "silu_mul") if gated else _PLAIN.get(kind, "gelu")
    return Pointwise(
        name=name, function=function, rows=rows, cols=width, format=model.activation_format
    )


def _dense(model: Transformer, net: DenseFFN, name: str, part: Part, rows: int) -> Iterator[Op]:
    up = (2 if net.gated else 1) * net.width
    label = "gate_up" if net.gated else "up"
    yield from _product(model, part, f"{name}.{label}", rows, up, model.hidden, bias=net.bias)
    yield _activation(model, f"{name}.act", rows, net.width, net.gated, net.activation)
    yield from _product(model, part, f"{name}.down", rows, model.hidden, net.width, bias=net.bias)


def _experts(model: Transformer, net: MoE, step: Step) -> Iterator[Op]:
    rows, hidden = step.tokens, model.hidden
    counts = tuple(expert_counts(net, rows, np.random.default_rng(step.seed)).tolist())
    routed = sum(counts)
    operand = _operand(model, "experts")
    weight = model.weight_format("experts")
    yield Matmul(
        name="moe.router",
        m=rows,
        n=net.experts,
        k=hidden,
        a=model.activation_format,
        b=model.weight_format("router"),
        out="fp32",
        bias=net.router.linear_bias,
    )
    yield Pointwise(
        name="moe.top_k",
        function="top_k",
        rows=rows,
        cols=net.experts,
        format="fp32",
    )
    # Rows are quantised once per token and copied in expert order.
    yield Pointwise(
        name="moe.permute",
        function="gather",
        rows=routed,
        cols=hidden,
        format=model.activation_format,
        out=operand,
    )
    up = (2 if net.gated else 1) * net.width
    yield GroupedMatmul(
        name="moe.gate_up" if net.gated else "moe.up",
        counts=counts,
        n=up,
        k=hidden,
        a=operand,
        b=weight,
        out=model.activation_format,
        bias=net.bias,
    )
    yield _activation(model, "moe.act", routed, net.width, net.gated, net.activation)
    if operand != model.activation_format:
        yield Pointwise(
            name="moe.down.quantise",
            function="quantise",
            rows=routed,
            cols=net.width,
            format=model.activation_format,
            out=operand,
        )
    yield GroupedMatmul(
        name="moe.down",
        counts=counts,
        n=hidden,
        k=net.width,
        a=operand,
        b=weight,
        out=model.activation_format,
        bias=net.bias,
    )
    yield Pointwise(
        name="moe.combine",
        function="weighted_sum",
        rows=routed,
        cols=hidden,
        format=model.activation_format,
        written_rows=rows,
    )
    if net.shared_experts:
        shared = DenseFFN(width=net.shared_width, gated=net.gated, activation=net.activation)
        yield from _dense(model, shared, "moe.shared", "shared_experts", rows)
        yield Pointwise(
            name="moe.join",
            function="add",
            rows=rows,
            cols=hidden,
            format=model.activation_format,
        )
