"""What every layer of a transformer is made of: products with weights, norms, and the step.

Knows number formats of weights and activations. Never touches hardware, tiles or time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from simulator.ops.collective import Collective
from simulator.ops.matmul import Matmul
from simulator.ops.op import Op
from simulator.ops.pointwise import Function, Pointwise
from simulator.specs.precision import number_format
from simulator.specs.workload import Part, Transformer

_WEIGHT_ONLY = frozenset({"int4", "int4_g64", "int4_g32", "nf4", "nf4_double", "mxfp4"})
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
    ranks: int = 1
    """Ranks among which experts are spread; the step is that of one of them."""
    exchange: Literal["ht", "ll"] = "ht"
    exchange_units: int = 0
    """Compute units that move rows in the throughput form."""
    dispatch: str | None = None
    """Format of rows on their way to the experts; None: that of the experts' operands."""
    combine: str = "bf16"
    tp: int = 1
    """Tensor-parallel ranks, among which this one has its share of every product."""
    first: bool = True
    """The layers begin with the embedding."""
    last: bool = True
    """The layers end with the head."""

    @property
    def apart(self) -> bool:
        """Experts lie on more ranks than share the tokens, so tokens travel to them."""
        return self.ranks > self.tp

    @property
    def tokens(self) -> int:
        """Rows of every token-wise operator."""
        return self.batch * self.new


def reduced(model: Transformer, step: Step, name: str, rows: int) -> Iterator[Op]:
    """The sum over the tensor-parallel ranks of rows of the hidden size; none on one rank."""
    if step.tp > 1 and rows:
        element = number_format(model.activation_format)
        yield Collective(
            name=f"{name}.all_reduce",
            algorithm="all_reduce",
            ranks=step.tp,
            message=element.bytes(rows * model.hidden),
            format=model.activation_format,
        )


def norm(model: Transformer, name: str, rows: int, cols: int, function: Function) -> Pointwise:
    return Pointwise(
        name=name,
        function=function,
        rows=rows,
        cols=cols,
        format=model.activation_format,
        weights=cols,
    )


def operand_format(model: Transformer, part: Part) -> str:
    """Format in which the activations enter a product with that part's weights.

    8- and 4-bit formats with their own matrix rate quantise the activations to the same format;
    weight-only formats, and wider weights, leave them.
    """
    weight = number_format(model.weight_format(part))
    if weight.bits >= 16 or weight.name in _WEIGHT_ONLY:
        return model.activation_format
    return weight.name


def product(
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
    operand = operand_format(model, part)
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
