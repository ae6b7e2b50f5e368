"""Gradients of operators: what the backward pass runs for each operator of the forward pass.

Knows shapes and number formats. Never touches hardware, tiles or time. Gradients of products are
products; other operators have classes of their own, which name the operator whose kernel is like
theirs and the factor between both times.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from simulator.ops.attention import Attention
from simulator.ops.conv import Conv2d
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Demand, Op
from simulator.ops.pointwise import Pointwise
from simulator.specs.precision import number_format
from simulator.units import Bytes, Flops

BACKWARD: dict[str, tuple[float, float, float]] = {
    "rms_norm": (2, 1, 8),
    "add_rms_norm": (3, 1, 9),  # the gradient of the sum comes in beside that of the norm
    "layer_norm": (2, 1, 13),
    "group_norm_silu": (2, 1, 22),
    "silu_mul": (3, 2, 11),
    "gelu_mul": (3, 2, 18),
    "clamped_silu_mul": (3, 2, 16),
    "sigmoid_mul": (3, 2, 8),
    "relu2": (2, 1, 3),
    "gelu": (2, 1, 16),
    "silu": (2, 1, 8),
    "rope": (1, 1, 3),
    "softmax": (1, 1, 2),  # of the cross entropy: probabilities less the one-hot target
    "top_k": (2, 1, 4),
    "weighted_sum": (2, 1, 2),  # gradients of rows, and of shares from the rows that were summed
    "gather": (2, 1, 1),  # adds each row to the gradient of the row that it came from
}
"""(inputs, outputs, vector FLOP) per element of the forward's (rows, cols), by function. Inputs
are the gradient that comes in and what the forward kept."""

_Half = Literal["up", "gate_up", "down", "plain_down"]
_TURNED: dict[_Half, _Half] = {
    "up": "plain_down", "gate_up": "plain_down", "down": "up", "plain_down": "up",
}  # fmt: skip
"""The product of plain experts that the input gradient of one of theirs is shaped like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived(Op):
    """An operator that takes ``factor`` times as long as the operator ``priced_as``."""

    @property
    @abstractmethod
    def priced_as(self) -> Op:
        """The operator whose kernel is like this one's."""

    @property
    @abstractmethod
    def factor(self) -> float:
        """Time of this operator over that of ``priced_as``, at the same rate."""

    @property
    def more(self) -> Bytes:
        """Bytes of memory traffic beyond ``factor`` times those of ``priced_as``."""
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionBackward(Derived):
    """Gradients of an attention core, scores computed again from the statistics of its softmax.

    Five products for the two of the forward (FlashAttention-2, arXiv 2307.08691):
    scores, dQ and dK over the key size, dP and dV over the value size; 2.5 times the FLOPs where
    both sizes are the same. So nothing of the core is kept but its output and two numbers per row.
    """

    kind: ClassVar[str] = "attention_backward"
    forward: Attention

    @property
    def priced_as(self) -> Attention:
        """The forward core."""
        return self.forward

    @property
    def factor(self) -> float:
        """FLOPs over the forward's."""
        core = self.forward
        return (3 * core.head_dim + 2 * core.v_dim) / (core.head_dim + core.v_dim)

    @property
    def model_flops(self) -> Flops:
        """FLOPs without the scores that are computed again: twice the forward's."""
        return 2 * self.forward.demand().flops

    def demand(self) -> Demand:
        """q, k, v, the output and its gradient are read, the gradients of q, k, v written."""
        core, forward = self.forward, self.forward.demand()
        entry = number_format(core.format)
        pairs = float(core.batch * core.heads * core.pairs())
        queries = entry.bytes(core.batch * core.q_len * core.heads * core.head_dim)
        keys = forward.read + forward.kv_read - queries
        return Demand(
            flops=2.0 * pairs * (3 * core.head_dim + 2 * core.v_dim),
            vector_flops=7.0 * pairs,  # exponential, scale, subtraction, product
            weights=forward.weights,
            read=queries + keys + 2 * forward.written,
            written=queries + keys,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvGradient(Derived):
    """One gradient of a convolution, itself a convolution of as many FLOPs.

    Of the input: gradients of the output under the turned filter, spread over the stride. Of the
    filter: the input under the gradients of the output, summed over the batch. Priced in the
    forward's time; libraries have kernels of their own for both, whose rates are not fitted.
    """

    kind: ClassVar[str] = "conv2d_gradient"
    forward: Conv2d
    of: Literal["input", "weights"]
    out: str
    """Format of the gradient."""

    @property
    def priced_as(self) -> Conv2d:
        """The forward convolution."""
        return self.forward

    @property
    def factor(self) -> float:
        """The same FLOPs."""
        return 1.0

    def demand(self) -> Demand:
        """Each of input, filter and output is read or written once; filters' are added to."""
        op, entry = self.forward, number_format(self.out)
        forward, operand = op.demand(), number_format(op.a)
        result = operand.bytes(op.m * op.n)
        if self.of == "input":
            pixels = op.batch * op.height * op.width * op.in_channels
            return Demand(
                flops=forward.flops, weights=number_format(op.b).bytes(op.k * op.n), read=result,
                written=entry.bytes(pixels),
            )  # fmt: skip
        kept = entry.bytes(op.k * op.n)
        return Demand(flops=forward.flops, read=forward.read + result + kept, written=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointwiseBackward(Derived):
    """Gradient of a pointwise operator, as its traffic goes."""

    kind: ClassVar[str] = "pointwise_backward"
    forward: Pointwise
    kept: str | None = None
    """Format of the gradient that a gather adds to; None: that of the forward."""

    def __post_init__(self) -> None:
        known = self.forward.function in BACKWARD
        self.require(known, f"{self.forward.function!r} has no gradient")

    @property
    def priced_as(self) -> Pointwise:
        """The forward; rows that were summed come from anywhere, as a gather reads them."""
        if self.forward.function != "weighted_sum":
            return self.forward
        return replace(self.forward, function="gather", written_rows=None)

    @property
    def factor(self) -> float:
        """Bytes over those of ``priced_as``."""
        return self.demand().bytes / max(self.priced_as.demand().bytes, 1.0)

    def demand(self) -> Demand:
        """Inputs and outputs once each; the gradient of a norm's scale is one row."""
        inputs, outputs, flops = BACKWARD[self.forward.function]
        elements = self.forward.rows * self.forward.cols
        entry = number_format(self.forward.format)
        grown = number_format(self.kept or self.forward.format)
        into = grown.bytes(elements) if self.kept else 0.0
        return Demand(
            vector_flops=flops * elements,
            weights=entry.bytes(self.forward.weights),
            read=entry.bytes((inputs - bool(self.kept)) * elements) + into,
            written=(into or entry.bytes(outputs * elements)) + entry.bytes(self.forward.weights),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast(Derived):
    """A cast to a narrow format in both layouts, so that both products of a pass over the tensor
    find their inner dimension contiguous, as matrix units of 8 bits ask (Transformer Engine)."""

    kind: ClassVar[str] = "cast"
    rows: int
    cols: int
    format: str
    """What is read."""
    out: str

    @property
    def priced_as(self) -> Pointwise:
        """The cast in one layout."""
        return Pointwise(
            name=self.name, function="quantise", rows=self.rows, cols=self.cols,
            format=self.format, out=self.out,
        )  # fmt: skip

    @property
    def factor(self) -> float:
        """Bytes over those of the cast in one layout."""
        return self.demand().bytes / max(self.priced_as.demand().bytes, 1.0)

    def demand(self) -> Demand:
        """Read once, written twice."""
        once = self.priced_as.demand()
        return replace(once, written=2 * once.written)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedWeightGradient(Derived):
    """Gradients of the weights of experts: rows x gradients of each expert, added to what is kept.

    As many FLOPs as ``forward``, in whose time it is priced; the inner dimension is the rows.
    """

    kind: ClassVar[str] = "grouped_weight_gradient"
    forward: GroupedMatmul
    out: str = "fp32"

    @property
    def priced_as(self) -> GroupedMatmul:
        """The forward product."""
        return self.forward

    @property
    def factor(self) -> float:
        """The same FLOPs."""
        return 1.0

    @property
    def more(self) -> Bytes:
        """Gradients are read and written, where the forward product reads weights."""
        return max(0.0, self.demand().bytes - self.forward.demand().bytes)

    def demand(self) -> Demand:
        """Rows and their gradients are read, the gradients of active experts read and written."""
        op = self.forward
        kept = number_format(self.out).bytes(op.active * op.k * op.n)
        operand = number_format(op.a)
        return Demand(
            flops=2.0 * op.rows * op.n * op.k,
            read=operand.bytes(op.rows * (op.k + op.n)) + kept,
            written=kept,
        )


def input_gradient(op: Matmul, out: str) -> Matmul:
    """``dx = dy w^T``: (m, n, k) becomes (m, k, n), operands in the formats of the forward."""
    return replace(op, name=f"{op.name}.dgrad", n=op.k, k=op.n, out=out, bias=False)


def weight_gradient(op: Matmul, kept: str) -> Matmul:
    """``dw += x^T dy``: (m, n, k) becomes (k, n, m), both operands in the activations' format.

    Added to gradients in the format ``kept``. The gradient of a bias leaves the same kernel.
    """
    return replace(
        op, name=f"{op.name}.wgrad", m=op.k, k=op.m, b=op.a, out=kept, bias=False, accumulate=True
    )


def grouped_input_gradient(op: GroupedMatmul) -> GroupedMatmul:
    """``dx = dy w^T`` of each expert: n and k change places."""
    half = None if op.half is None else _TURNED[op.half]
    return replace(op, name=f"{op.name}.dgrad", n=op.k, k=op.n, bias=False, half=half)


def grouped_weight_gradient(op: GroupedMatmul, kept: str) -> GroupedWeightGradient:
    """``dw += x^T dy`` of each expert."""
    return GroupedWeightGradient(name=f"{op.name}.wgrad", forward=replace(op, bias=False), out=kept)


def model_flops(op: Op) -> Flops:
    """Matrix FLOP that the model asks for: those of a core that are computed again left out."""
    return op.model_flops if isinstance(op, AttentionBackward) else op.demand().flops
