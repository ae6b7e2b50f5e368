"""Operators that touch each element a fixed number of times: norms, activations, copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from simulator.ops.op import Demand, Op
from simulator.specs.precision import number_format

Function = Literal[
    "rms_norm", "add_rms_norm", "layer_norm", "group_norm_silu", "silu_mul", "gelu_mul",
    "clamped_silu_mul", "relu2", "gelu", "silu", "add", "rope", "softmax", "top_k", "gather",
    "weighted_sum", "cache_write", "quantise", "sigmoid_mul",
]  # fmt: skip

# (inputs, outputs, vector FLOP) per element of the (rows, cols) result.
_COST: dict[str, tuple[float, float, float]] = {
    "rms_norm": (1, 1, 4),
    "add_rms_norm": (2, 2, 5),  # the sum is kept for the next residual
    "layer_norm": (1, 1, 7),
    "group_norm_silu": (1, 1, 11),
    "silu_mul": (2, 1, 5),
    "gelu_mul": (2, 1, 9),
    "clamped_silu_mul": (2, 1, 8),
    "relu2": (1, 1, 2),
    "gelu": (1, 1, 8),
    "silu": (1, 1, 4),
    "sigmoid_mul": (2, 1, 4),
    "add": (2, 1, 1),
    "rope": (1, 1, 3),
    "softmax": (1, 1, 5),
    "top_k": (1, 0, 4),
    "gather": (1, 1, 0),
    "cache_write": (1, 1, 0),
    "quantise": (1, 1, 3),
    "weighted_sum": (1, 0, 2),  # the result has rows / terms rows, charged by ``written_rows``
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointwise(Op):
    """``function`` over a (rows, cols) tensor."""

    kind: ClassVar[str] = "pointwise"
    function: Function
    rows: int
    cols: int
    format: str = "bf16"
    out: str | None = None
    """Format of the result where it differs."""
    weights: int = 0
    """Weight elements read (a norm's scale)."""
    written_rows: int | None = None
    """Rows of the result where it has fewer than the input (top_k, weighted_sum)."""

    def demand(self) -> Demand:
        """Inputs and outputs of the function once each."""
        inputs, outputs, flops = _COST[self.function]
        elements = self.rows * self.cols
        written = outputs * elements if self.written_rows is None else self.written_rows * self.cols
        moved = number_format(self.out or self.format).bytes(written)
        cache = self.function == "cache_write"
        return Demand(
            vector_flops=flops * elements,
            weights=number_format(self.format).bytes(self.weights),
            read=number_format(self.format).bytes(inputs * elements),
            written=0.0 if cache else moved,
            kv_written=moved if cache else 0.0,
        )
