"""A decoder-only model at one phase as operators in stream order.

Knows which operators real serving stacks launch for each kind of layer, and on which shapes.
Never touches hardware, tiles or time. The routing of experts is passed in, or its seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from simulator.mapping.dispatch import Dispatch, Share
from simulator.models.graph_attention import grouped_attention, latent_attention
from simulator.models.graph_ffn import dense, experts
from simulator.models.graph_parts import Step, norm, product, reduced
from simulator.ops.collective import Collective
from simulator.ops.op import GraphSegment, Op, OpGraph
from simulator.ops.pointwise import Pointwise
from simulator.specs.frozen import FrozenMap
from simulator.specs.plan import Plan
from simulator.specs.precision import number_format
from simulator.specs.workload import (
    Attention,
    DenseFFN,
    LatentAttention,
    Layer,
    MoE,
    Transformer,
)

__all__ = ["Shares", "Step", "build_graph"]

Shares = Callable[[MoE, int], Share]
"""The share of a rank of an MoE layer, by the layer's number among the MoE layers."""


def build_graph(model: Transformer, step: Step, shares: Shares | None = None) -> OpGraph:
    """The operators of one forward pass of ``model`` on one rank.

    Equal layers in a row form one segment. ``shares`` gives the rank's share of each MoE layer by
    its number among the MoE layers; without it one rank has all experts, each layer routed by
    ``step.seed``. A rank without tokens only serves its experts.
    """
    if shares is None:
        alone = Dispatch(Plan(), ((step.tokens,),), step.seed)

        def shares(net: MoE, layer: int) -> Share:
            return alone.share(net, layer, 0)

    segments: list[GraphSegment] = []
    if step.tokens and step.first:
        segments.append(GraphSegment(name="input", repeat=1, ops=tuple(_input(model, step))))
    labels = _labels(list(dict.fromkeys(layer for group in model.groups for layer in group.layers)))
    seen = 0
    for group in model.groups:
        routed = sum(isinstance(layer.ffn, MoE) for layer in group.layers)
        fixed = [tuple(_before(model, layer, labels[layer], step)) for layer in group.layers]
        for _ in range(group.repeat if routed else 1):
            ops: list[Op] = []
            for layer, before in zip(group.layers, fixed, strict=True):
                ops += before
                if isinstance(layer.ffn, MoE):
                    ops += experts(_own(model, layer), layer.ffn, step, shares(layer.ffn, seen))
                    seen += 1
                ops += _after(model, layer, step)
            _add(segments, tuple(ops), 1 if routed else group.repeat)
    if step.tokens and step.last:
        segments.append(GraphSegment(name="output", repeat=1, ops=tuple(_output(model, step))))
    return OpGraph(segments=tuple(segments))


def _add(segments: list[GraphSegment], ops: tuple[Op, ...], repeat: int) -> None:
    """Append layers, to the last segment where they are equal to it."""
    if segments and segments[-1].ops == ops:
        repeat += segments.pop().repeat
    if ops:
        segments.append(GraphSegment(name="layers", repeat=repeat, ops=ops))


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
    # A rank looks up the tokens of its part of the vocabulary; the others add zeros.
    yield Pointwise(
        name="embedding",
        function="gather",
        rows=step.tokens,
        cols=model.hidden,
        format=model.weight_format("embedding"),
        out=model.activation_format,
    )
    yield from reduced(model, step, "embedding", step.tokens)


def _output(model: Transformer, step: Step) -> Iterator[Op]:
    yield norm(model, "final.norm", step.tokens, model.hidden, "add_rms_norm")
    yield from product(
        model, "head", "lm_head", step.batch, model.vocab, model.hidden, bias=model.head_bias
    )
    if step.tp > 1:
        logits = number_format(model.activation_format).bytes(step.batch * model.vocab * step.tp)
        yield Collective(
            name="lm_head.all_gather",
            algorithm="all_gather",
            ranks=step.tp,
            message=logits,
            format=model.activation_format,
        )
    yield Pointwise(
        name="sample",
        function="softmax",
        rows=step.batch,
        cols=model.vocab * step.tp,
        format="fp32",
    )


def _own(model: Transformer, layer: Layer) -> Transformer:
    """The model with the formats of that layer."""
    if not layer.formats:
        return model
    return replace(model, formats=FrozenMap({**model.formats, **layer.formats}))


def _before(model: Transformer, layer: Layer, label: tuple[str, str], step: Step) -> Iterator[Op]:
    """One layer up to its experts; a dense network is part of it."""
    rows, hidden = step.tokens, model.hidden
    if not rows:
        return
    model = _own(model, layer)
    if layer.attention is not None:
        yield norm(model, "attn.norm", rows, hidden, "add_rms_norm")
        if isinstance(layer.attention, LatentAttention):
            yield from latent_attention(model, layer.attention, label[0], step)
        else:
            yield from grouped_attention(model, layer.attention, label[0], step)
        yield from reduced(model, step, "attn", rows)
    if layer.ffn is not None:
        yield norm(model, "ffn.norm", rows, hidden, "add_rms_norm")
    if isinstance(layer.ffn, DenseFFN):
        yield from dense(model, layer.ffn, f"ffn{label[1]}", "ffn", rows)
        yield from reduced(model, step, "ffn", rows)


def _after(model: Transformer, layer: Layer, step: Step) -> Iterator[Op]:
    """What follows the feed-forward network."""
    rows, hidden = step.tokens, model.hidden
    if not rows:
        return
    model = _own(model, layer)
    if layer.dense_ffn is not None:
        yield from dense(model, layer.dense_ffn, "ffn.dense", "ffn", rows)
        yield from reduced(model, step, "ffn.dense", rows)
        yield Pointwise(
            name="ffn.join",
            function="add",
            rows=rows,
            cols=hidden,
            format=model.activation_format,
        )
    for extra in range(layer.norms - 2):
        yield norm(model, f"post.norm{extra + 1}", rows, hidden, "rms_norm")
