"""The feed-forward network of one layer as operators: dense, or experts behind a router.

Never touches hardware, tiles or time. The routing is passed in as the share of one rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from simulator.mapping.dispatch import Share
from simulator.models.graph_parts import Step, operand_format, product, reduced
from simulator.ops.collective import Collective
from simulator.ops.exchange import Exchange
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Op
from simulator.ops.pointwise import Function, Pointwise
from simulator.specs.precision import number_format
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


def experts(model: Transformer, net: MoE, step: Step, share: Share) -> Iterator[Op]:
    """The experts of one layer on one rank: what its tokens need and what its slots get.

    Where experts lie on more ranks than share the tokens, a tensor-parallel rank routes its part
    of them and gathers the results; elsewhere every rank has all tokens, and sums go around.
    """
    rows, hidden = step.tokens, model.hidden
    own = -(-rows // step.tp) if step.apart else rows
    operand = operand_format(model, "experts")
    if own:
        yield Matmul(
            name="moe.router",
            m=own,
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
            rows=own,
            cols=net.experts,
            format="fp32",
        )
    yield from _exchange(model, net, step, share, "dispatch", step.dispatch or operand, own)
    if sum(share.counts):
        yield from _routed(model, net, share)
    yield from _exchange(model, net, step, share, "combine", step.combine, own)
    if step.apart and step.tp > 1 and rows:
        yield Collective(
            name="moe.all_gather",
            algorithm="all_gather",
            ranks=step.tp,
            message=number_format(model.activation_format).bytes(rows * hidden),
            format=model.activation_format,
        )
    if net.shared_experts and rows:
        shared = DenseFFN(width=net.shared_width, gated=net.gated, activation=net.activation)
        yield from dense(model, shared, "moe.shared", "shared_experts", rows)
        if step.apart:
            yield from reduced(model, step, "moe.shared", rows)
        yield Pointwise(
            name="moe.join",
            function="add",
            rows=rows,
            cols=hidden,
            format=model.activation_format,
        )
    if not step.apart:
        yield from reduced(model, step, "moe", rows)


def _routed(model: Transformer, net: MoE, share: Share) -> Iterator[Op]:
    """The rows of the rank's slots through its experts."""
    hidden, received = model.hidden, sum(share.counts)
    operand = operand_format(model, "experts")
    weight = model.weight_format("experts")
    # Rows are quantised once per token and copied in expert order.
    yield Pointwise(
        name="moe.permute",
        function="gather",
        rows=received,
        cols=hidden,
        format=model.activation_format,
        out=operand,
    )
    up = (2 if net.gated else 1) * net.width
    yield GroupedMatmul(
        name="moe.gate_up" if net.gated else "moe.up",
        counts=share.counts,
        n=up,
        k=hidden,
        a=operand,
        b=weight,
        out=model.activation_format,
        bias=net.bias,
        half="gate_up" if net.gated else "up",
        tokens=share.arrived,
    )
    yield _activation(model, "moe.act", received, net.width, net.gated, net.activation)
    if operand != model.activation_format:
        yield Pointwise(
            name="moe.down.quantise",
            function="quantise",
            rows=received,
            cols=net.width,
            format=model.activation_format,
            out=operand,
        )
    yield GroupedMatmul(
        name="moe.down",
        counts=share.counts,
        n=hidden,
        k=net.width,
        a=operand,
        b=weight,
        out=model.activation_format,
        bias=net.bias,
        half="down" if net.gated else "plain_down",
        tokens=share.arrived,
    )
    yield Pointwise(
        name="moe.unpermute",
        function="weighted_sum",
        rows=received,
        cols=hidden,
        format=model.activation_format,
        written_rows=share.arrived,
    )


def _exchange(
    model: Transformer,
    net: MoE,
    step: Step,
    share: Share,
    way: Literal["dispatch", "combine"],
    name: str,
    tokens: int,
) -> Iterator[Op]:
    volume = share.volume
    if volume is not None:
        yield Exchange(
            name=f"moe.{way}",
            way=way,
            form=step.exchange,
            ranks=step.ranks,
            tokens=tokens,
            hidden=model.hidden,
            top_k=net.top_k,
            experts=share.slots,
            format=name,
            row=number_format(name).row_bytes(model.hidden),
            units=step.exchange_units,
            near=volume.near,
            crossing=volume.crossing,
            far=volume.far,
            handled=volume.handled,
            leaving=volume.leaving,
        )
