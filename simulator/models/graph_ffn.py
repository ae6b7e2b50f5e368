"""The feed-forward network of one layer as operators: dense, or experts behind a router.

Never touches hardware, tiles or time. Chance (the routing) is passed in as a seed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simulator.mapping.routing import expert_counts
from simulator.models.graph_parts import Step, operand_format, product
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Op
from simulator.ops.pointwise import Function, Pointwise
from simulator.specs.workload import DenseFFN, MoE, Part, Transformer

_GATED: dict[str, Function] = {"gelu": "gelu_mul", "clamped_silu": "clamped_silu_mul"}
_PLAIN: dict[str, Function] = {"relu2": "relu2", "silu": "silu"}


def _activation(
    model: Transformer, name: str, rows: int, width: int, gated: bool, kind: str
) -> Pointwise:
    function = _GATED.get(kind, "silu_mul") if gated else _PLAIN.get(kind, "gelu")
    return Pointwise(
        name=name, function=function, rows=rows, cols=width, format=model.activation_format
    )


def dense(model: Transformer, net: DenseFFN, name: str, part: Part, rows: int) -> Iterator[Op]:
    up = (2 if net.gated else 1) * net.width
    label = "gate_up" if net.gated else "up"
    yield from product(model, part, f"{name}.{label}", rows, up, model.hidden, bias=net.bias)
    yield _activation(model, f"{name}.act", rows, net.width, net.gated, net.activation)
    yield from product(model, part, f"{name}.down", rows, model.hidden, net.width, bias=net.bias)


def experts(model: Transformer, net: MoE, step: Step) -> Iterator[Op]:
    rows, hidden = step.tokens, model.hidden
    counts = tuple(expert_counts(net, rows, np.random.default_rng(step.seed)).tolist())
    routed = sum(counts)
    operand = operand_format(model, "experts")
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
        half="gate_up" if net.gated else "up",
        tokens=rows,
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
        half="down" if net.gated else "plain_down",
        tokens=rows,
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
        yield from dense(model, shared, "moe.shared", "shared_experts", rows)
        yield Pointwise(
            name="moe.join",
            function="add",
            rows=rows,
            cols=hidden,
            format=model.activation_format,
        )
