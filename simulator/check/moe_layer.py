"""An expert layer under test: what it is, its operators, and operands for it.

Knows the description of a model's experts and the operators that run them. Never touches blocks,
ranks or time. Formats, biases and functions are those of the model's own operators.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from simulator.models.graph_ffn import dense
from simulator.models.graph_parts import operand_format
from simulator.ops.matmul import GroupedMatmul, Matmul, weights
from simulator.ops.op import Arrays, Op
from simulator.ops.pointwise import Pointwise
from simulator.ops.rounding import quantise, round_to
from simulator.specs.frozen import FrozenMap
from simulator.specs.precision import FormatName
from simulator.specs.workload import DenseFFN, Layer, LayerGroup, Model, MoE, Part, Transformer

Operators = tuple[Op, ...]
_PARTS: tuple[Part, ...] = ("router", "experts", "shared_experts")


@dataclass(frozen=True, slots=True, kw_only=True)
class MoELayer:
    """The expert layer that ``net`` describes, on ``tokens`` tokens of ``hidden`` elements."""

    net: MoE
    tokens: int
    hidden: int
    format: FormatName = "bf16"
    """Format of activations between operators."""
    formats: FrozenMap[Part, FormatName] = field(
        default_factory=lambda: FrozenMap({"default": "bf16"})
    )
    """Formats of the weights by part."""

    @property
    def model(self) -> Transformer:
        """A model that has this layer alone."""
        group = LayerGroup(layers=(Layer(attention=None, ffn=self.net),))
        return Transformer(
            name="layer", hidden=self.hidden, vocab=1, groups=(group,),
            formats=self.formats, activation_format=self.format,
        )  # fmt: skip

    @property
    def operand(self) -> str:
        """Format in which tokens enter the routed experts."""
        return operand_format(self.model, "experts")

    def router(self, rows: int) -> Matmul:
        """Logits of every expert in fp32."""
        return Matmul(
            name="router", m=rows, n=self.net.experts, k=self.hidden,
            a=self.format, b=self.model.weight_format("router"), out="fp32",
            bias=self.net.router.linear_bias,
        )  # fmt: skip

    def shared_gate(self, rows: int) -> Matmul:
        """Logit of the shared experts' gate."""
        return replace(self.router(rows), name="shared_gate", n=1, bias=False)

    def routed(self, counts: tuple[int, ...]) -> Operators:
        """The experts over ``counts`` rows each, in stream order: up, function, down.

        Operands are quantised before a product where its weights ask for it.
        """
        net = self.net
        one = DenseFFN(
            width=net.width, gated=net.gated, bias=net.bias, activation=net.activation
        )  # fmt: skip
        return tuple(
            GroupedMatmul(
                name=op.name, counts=counts, n=op.n, k=op.k,
                a=op.a, b=op.b, out=op.out, bias=op.bias,
            )
            if isinstance(op, Matmul)
            else op
            for op in dense(self.model, one, "experts", "experts", sum(counts))
        )  # fmt: skip

    @property
    def function(self) -> str:
        """The function between the two products of an expert."""
        operators = self.routed((0,) * self.net.experts)
        between = (op.function for op in operators if isinstance(op, Pointwise))
        return next(name for name in between if name != "quantise")

    def shared(self, rows: int) -> Operators:
        """The shared experts as one network; empty where there are none."""
        net = self.net
        if not net.shared_experts:
            return ()
        one = DenseFFN(width=net.shared_width, gated=net.gated, activation=net.activation)
        return tuple(dense(self.model, one, "shared", "shared_experts", rows))

    def rows_sum(self, name: str, rows: int, written: int) -> Pointwise:
        """``written`` sums of ``rows`` rows of the hidden size, each times its share."""
        return Pointwise(
            name=name, function="weighted_sum", rows=rows, cols=self.hidden,
            written_rows=written, format=self.format,
        )  # fmt: skip

    def inputs(self, rng: np.random.Generator) -> Arrays:
        """Tokens and weights; what the layer has not is absent.

        x (tokens, hidden), router (hidden, experts), router_bias, choice_bias and expert_scale
        (experts,), up (experts, hidden, width or 2 width), down (experts, width, hidden), up_bias
        and down_bias (experts, columns), shared_up, shared_down, shared_gate (hidden, 1).
        """
        net, model, experts = self.net, self.model, self.net.experts
        halves = 2 if net.gated else 1
        arrays: Arrays = {
            "x": quantise(rng.standard_normal((self.tokens, self.hidden)), self.format)
        }
        shapes: dict[str, tuple[tuple[int, ...], Part]] = {
            "router": ((self.hidden, experts), "router"),
            "up": ((experts, self.hidden, halves * net.width), "experts"),
            "down": ((experts, net.width, self.hidden), "experts"),
        }
        if net.shared_experts:
            shapes["shared_up"] = (self.hidden, halves * net.shared_width), "shared_experts"
            shapes["shared_down"] = (net.shared_width, self.hidden), "shared_experts"
        if net.shared_gate:
            shapes["shared_gate"] = (self.hidden, 1), "router"
        for name, (shape, part) in shapes.items():
            arrays[name] = weights(rng, shape, model.weight_format(part))
        if net.router.linear_bias:
            arrays["router_bias"] = round_to(rng.standard_normal(experts), "fp32")
        if net.router.bias:
            arrays["choice_bias"] = round_to(rng.normal(0, 0.2, experts), "fp32")
        if net.router.expert_scale:
            arrays["expert_scale"] = round_to(rng.uniform(0.5, 1.5, experts), "fp32")
        if net.bias:
            # Wide enough that a clamp at 7 binds.
            for name, spread in (("up", 4.0), ("down", 1.0)):
                drawn = rng.normal(0, spread, (experts, arrays[name].shape[-1]))
                arrays[f"{name}_bias"] = round_to(drawn, self.format)
        return arrays


def expert_layers(model: Model) -> tuple[MoELayer, ...]:
    """Each kind of expert layer of a model, small enough to compute in Python.

    Router, groups, biases, functions, formats and shared experts are the model's; sizes are cut.
    """
    return tuple(dict.fromkeys(_reduced(model))) if isinstance(model, Transformer) else ()


def _reduced(model: Transformer) -> Iterator[MoELayer]:
    for layer in dict.fromkeys(model.layers()):
        net = layer.ffn
        if not isinstance(net, MoE):
            continue
        formats: dict[Part, FormatName] = {
            part: model.weight_format(part, layer) for part in ("default", *_PARTS)
        }
        yield MoELayer(
            net=_small(net),
            tokens=37,
            hidden=min(model.hidden, 160),
            format=model.activation_format,
            formats=FrozenMap(formats),
        )


def _small(net: MoE) -> MoE:
    """At most 16 experts, or eight groups of four; a choice of eight at most."""
    router, experts = net.router, min(net.experts, 16)
    if router.groups > 1:
        groups = min(router.groups, 8)
        top = max(1, router.top_groups * groups // router.groups)
        experts = groups * min(net.experts // router.groups, 4)
        router = replace(router, groups=groups, top_groups=top)
    kept = experts // router.groups * router.top_groups
    return replace(
        net,
        experts=experts,
        top_k=min(net.top_k, 8, kept),
        width=min(net.width, 96),
        shared_width=min(net.shared_width, 64),
        router=router,
        routing="uniform",
    )
