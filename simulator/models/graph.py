"""A decoder-only model at one phase as operators in stream order.

Knows which operators real serving stacks launch for each kind of layer, and on which shapes.
Never touches hardware, tiles or time. Chance (the routing of experts) is passed in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from simulator.models.graph_attention import grouped_attention, latent_attention
from simulator.models.graph_ffn import dense, experts
from simulator.models.graph_parts import Step, norm, product
from simulator.ops.op import GraphSegment, Op, OpGraph
from simulator.ops.pointwise import Pointwise
from simulator.specs.frozen import FrozenMap
from simulator.specs.workload import (
    Attention,
    DenseFFN,
    LatentAttention,
    Layer,
    MoE,
    Transformer,
)

__all__ = ["Step", "build_graph"]


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
    yield norm(model, "final.norm", step.tokens, model.hidden, "add_rms_norm")
    yield from product(
        model, "head", "lm_head", step.batch, model.vocab, model.hidden, bias=model.head_bias
    )
    yield Pointwise(
        name="sample", function="softmax", rows=step.batch, cols=model.vocab, format="fp32"
    )


def _layer(model: Transformer, layer: Layer, label: tuple[str, str], step: Step) -> Iterator[Op]:
    if layer.formats:
        model = replace(model, formats=FrozenMap({**model.formats, **layer.formats}))
    rows, hidden = step.tokens, model.hidden
    if layer.attention is not None:
        yield norm(model, "attn.norm", rows, hidden, "add_rms_norm")
        if isinstance(layer.attention, LatentAttention):
            yield from latent_attention(model, layer.attention, label[0], step)
        else:
            yield from grouped_attention(model, layer.attention, label[0], step)
    if layer.ffn is not None:
        yield norm(model, "ffn.norm", rows, hidden, "add_rms_norm")
        if isinstance(layer.ffn, MoE):
            yield from experts(model, layer.ffn, step)
        else:
            yield from dense(model, layer.ffn, f"ffn{label[1]}", "ffn", rows)
    if layer.dense_ffn is not None:
        yield from dense(model, layer.dense_ffn, "ffn.dense", "ffn", rows)
        yield Pointwise(
            name="ffn.join",
            function="add",
            rows=rows,
            cols=hidden,
            format=model.activation_format,
        )
    for extra in range(layer.norms - 2):
        yield norm(model, f"post.norm{extra + 1}", rows, hidden, "rms_norm")
