"""The record of a forward pass from which the backward pass is read: operator by operator.

Knows operators, their gradients, and what collectives turn into on the way back. Never touches
models' layers, hardware or time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from simulator.ops.attention import Attention
from simulator.ops.backward import (
    BACKWARD,
    AttentionBackward,
    Cast,
    ConvGradient,
    PointwiseBackward,
    grouped_input_gradient,
    grouped_weight_gradient,
    input_gradient,
    model_flops,
    weight_gradient,
)
from simulator.ops.collective import Collective, CollectiveName
from simulator.ops.conv import Conv2d
from simulator.ops.exchange import Exchange
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Op
from simulator.ops.pointwise import Pointwise
from simulator.specs.precision import number_format
from simulator.units import Bytes, Flops

Way = Literal["input", "weights"]
"""Which gradient an operator of the backward pass serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPass:
    """What one rank runs for one layer and one micro-batch, each in stream order."""

    forward: tuple[Op, ...]
    backward: tuple[Op, ...]
    """``dgrad`` and ``wgrad`` as they follow one another when nothing is put off."""
    dgrad: tuple[Op, ...]
    """What the layer before waits for: gradients of inputs, with their collectives."""
    wgrad: tuple[Op, ...]
    """What only the update waits for: gradients of weights, which may be put off."""
    recomputed: tuple[Op, ...] = ()
    """Operators of the forward pass that run again before the backward pass."""

    @property
    def model_flops(self) -> Flops:
        """Matrix FLOP of forward and backward, without anything computed again (MFU)."""
        return sum(map(model_flops, (*self.forward, *self.backward)))

    @property
    def hardware_flops(self) -> Flops:
        """``model_flops`` and what ``recomputed`` adds (HFU). Scores that the kernel of the
        attention's backward pass computes again are in neither, as publications count."""
        return self.model_flops + sum(map(model_flops, self.recomputed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The tensor-parallel ranks that share a layer."""

    ranks: int
    sequence_parallel: bool

    @property
    def scattered(self) -> bool:
        """Norms and residuals have a part of the tokens each."""
        return self.ranks > 1 and self.sequence_parallel


class Tape:
    """A forward pass under way.

    ``wide`` is the format of activations and of their gradients, ``kept`` that of the gradients
    of weights. The conjugate pairs of collectives are those of Megatron-LM (arXiv 1909.08053,
    section 3) and of sequence parallelism (Korthikanti et al., arXiv 2205.05198, section 4.2.2).
    """

    def __init__(self, group: Group, *, wide: str, kept: str) -> None:
        self.group, self.wide, self.kept = group, wide, kept
        self._forward: list[Op] = []
        self._backward: list[list[tuple[Way, Op]]] = []
        self._entered: tuple[str, Bytes] | None = None

    def run(self, op: Op) -> None:
        """Record ``op`` and its gradient. Caches are not written in training."""
        if isinstance(op, Matmul):
            self._product(op)
        elif isinstance(op, GroupedMatmul):
            turned = self._turned(op.name, op.rows, op.n, op.a)
            turned.append(("input", replace(grouped_input_gradient(op), out=self.wide)))
            self._add(op, [*turned, ("weights", grouped_weight_gradient(op, self.kept))])
        elif isinstance(op, Conv2d):
            back = ConvGradient(name=f"{op.name}.dgrad", forward=op, of="input", out=self.wide)
            kept = ConvGradient(name=f"{op.name}.wgrad", forward=op, of="weights", out=self.kept)
            self._add(op, [("input", back), ("weights", kept)])
        elif isinstance(op, Attention):
            self._add(op, [("input", AttentionBackward(name=f"{op.name}.grad", forward=op))])
        elif isinstance(op, Pointwise):
            self._pointwise(op)
        else:
            raise TypeError(f"no gradient of {op.kind} is known")

    def enter(self, name: str, elements: float) -> None:
        """Ranks begin to work on their part of the weights; the whole input has ``elements``.

        With sequence parallelism the input is gathered, and again for the gradient of weights,
        for each rank keeps its part; the gradient of the input is summed over the ranks.
        """
        if self.group.ranks > 1:
            self._entered = (name, number_format(self.wide).bytes(elements))
            if self.group.scattered:
                self._forward.append(self._collective(name, "all_gather", self._entered[1]))
                self._backward.append([])

    def leave(self, name: str, elements: float) -> None:
        """Sum the parts of the ranks, to all of them or to each its part of the tokens."""
        if self.group.ranks > 1:
            size = number_format(self.wide).bytes(elements)
            if self.group.scattered:
                back = self._collective(f"{name}.grad", "all_gather", size)
                self._add(self._collective(name, "reduce_scatter", size), [("input", back)])
            else:
                self._add(self._collective(name, "all_reduce", size), [])

    def gathered_core(self, core: Attention, ranks: int, stride: int, parts: list[Op]) -> None:
        """Attention cores of ``ranks`` context-parallel ranks: keys and values are gathered, and
        again for the backward pass, which scatters the sums of their gradients (Llama 3, arXiv
        2407.21783, section 3.3.2; a ring moves as much)."""
        size = number_format(core.kv_format).bytes(
            core.batch * core.kv_len * core.kv_heads * (core.head_dim + core.v_dim)
        )

        def moved(name: str, algorithm: CollectiveName) -> Collective:
            return Collective(
                name=f"{core.name}.{name}", algorithm=algorithm, ranks=ranks, message=size,
                format=core.kv_format, stride=stride,
            )  # fmt: skip

        self._add(moved("kv.all_gather", "all_gather"), [("input", moved("dkv", "reduce_scatter"))])
        for part in parts:
            self.run(part)
        self._backward.append([("input", moved("kv.again", "all_gather"))])

    def permute(self, op: Pointwise, tokens: int) -> None:
        """Copy rows in expert order; gradients of the copies of a token are summed."""
        back = replace(
            op, name=f"{op.name}.grad", function="weighted_sum", out=None, written_rows=tokens
        )
        self._add(replace(op, out=None), [("input", back)])
        if number_format(op.result).bits < 16:
            self._cast(f"{op.name}.quantise", op.rows, op.cols, op.result)

    def exchange(self, op: Exchange, back: Exchange) -> None:
        """An exchange; its gradient travels as the exchange of the other way does."""
        self._add(op, [("input", replace(back, name=f"{op.name}.grad"))])

    def add(self, op: Op, *back: tuple[Way, Op]) -> None:
        """Record ``op`` with the backward operators that are given, in stream order."""
        self._add(op, list(back))

    def finish(self) -> LayerPass:
        """Both passes."""
        backward = [step for steps in reversed(self._backward) for step in steps]
        return LayerPass(
            forward=tuple(self._forward),
            backward=tuple(op for _, op in backward),
            dgrad=tuple(op for way, op in backward if way == "input"),
            wgrad=tuple(op for way, op in backward if way == "weights"),
        )

    def _add(self, op: Op, back: list[tuple[Way, Op]]) -> None:
        self._forward.append(op)
        self._backward.append(back)

    def _product(self, op: Matmul) -> None:
        entered, self._entered = self._entered, None
        back = self._turned(op.name, op.m * op.batch, op.n, op.a)
        if entered is not None and self.group.scattered:
            again = self._collective(f"{entered[0]}.again", "all_gather", entered[1])
            back.append(("weights", again))
        back.append(("input", input_gradient(op, self.wide)))
        if entered is not None:
            how: CollectiveName = "reduce_scatter" if self.group.scattered else "all_reduce"
            back.append(("input", self._collective(f"{entered[0]}.grad", how, entered[1])))
        self._add(op, [*back, ("weights", weight_gradient(op, self.kept))])

    def _pointwise(self, op: Pointwise) -> None:
        if op.function == "cache_write":
            return
        if op.function == "quantise":
            self._cast(op.name, op.rows, op.cols, op.result)
        elif op.function == "add":
            self._add(op, [])  # the gradient of a sum is that of both terms
        else:
            assert op.function in BACKWARD, f"no gradient of {op.function}"
            back = PointwiseBackward(name=f"{op.name}.grad", forward=op)
            self._add(op, [("input", back)])

    def _cast(self, name: str, rows: int, cols: int, out: str) -> None:
        """An activation in both layouts; gradients pass a cast as they are."""
        self._add(Cast(name=name, rows=rows, cols=cols, format=self.wide, out=out), [])

    def _turned(self, name: str, rows: int, cols: int, operand: str) -> list[tuple[Way, Op]]:
        """The gradient of a result as both products take it: cast where they are narrow."""
        if number_format(operand).bits >= 16:
            return []
        cast = Cast(
            name=f"{name}.grad.quantise", rows=rows, cols=cols, format=self.wide, out=operand
        )
        return [("input", cast)]

    def _collective(self, name: str, algorithm: CollectiveName, message: Bytes) -> Collective:
        return Collective(
            name=f"{name}.{algorithm}", algorithm=algorithm, ranks=self.group.ranks,
            message=message, format=self.wide,
        )  # fmt: skip
