"""Operators that touch each element a fixed number of times: norms, activations, copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from simulator.ops.functions import FUNCTIONS
from simulator.ops.op import Arrays, Demand, TensorOp
from simulator.ops.rounding import quantise, round_to
from simulator.specs.precision import number_format

Function = Literal[
    "rms_norm", "add_rms_norm", "layer_norm", "group_norm_silu", "silu_mul", "gelu_mul",
    "clamped_silu_mul", "relu2", "gelu", "silu", "add", "rope", "softmax", "top_k", "gather",
    "weighted_sum", "cache_write", "quantise", "sigmoid_mul",
]  # fmt: skip

COST: dict[str, tuple[float, float, float]] = {
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
"""(inputs, outputs, vector FLOP) per element of the (rows, cols) result, by function."""

GATED = frozenset({"silu_mul", "gelu_mul", "clamped_silu_mul", "sigmoid_mul"})
"""Functions of two halves of one (rows, 2 cols) tensor, as a product with both weights leaves."""
NORMS = frozenset({"rms_norm", "add_rms_norm", "layer_norm", "group_norm_silu"})
MOVES = frozenset({"gather", "cache_write"})
"""Functions that move whole rows to other places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointwise(TensorOp):
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

    def __post_init__(self) -> None:
        self.require(self.function in COST, f"no function {self.function!r}")
        self.require(
            min(self.rows, self.written_rows or 0, self.weights) >= 0, "a size is negative"
        )
        self.require(self.cols >= 1, "cols is at least 1")
        counted = self.function != "weighted_sum" or self.written_rows is not None
        self.require(counted, "a weighted sum states its written_rows")
        image = self.function != "group_norm_silu" or self.rows >= 1
        self.require(image, "an image has at least one row")

    @property
    def result(self) -> str:
        """Number format of the result."""
        return self.out or self.format

    @property
    def terms(self) -> int:
        """Rows that one row of the result adds up (weighted_sum)."""
        return -(-self.rows // (self.written_rows or self.rows or 1))

    def inputs(self, rng: np.random.Generator) -> Arrays:
        """x (rows, cols) and what else the function takes.

        Gated functions: x (rows, 2 cols), gate before value. Two inputs: y like x. Norms: scale
        and shift (cols,) as far as ``weights`` reaches. Moves: rows, the place that each row comes
        from or goes to. weighted_sum: rows and shares (written rows, terms); a row past the last
        is none.
        """
        width = self.cols * (2 if self.function in GATED else 1)
        arrays = {"x": quantise(rng.standard_normal((self.rows, width)), self.format)}
        if self.function in ("add", "add_rms_norm"):
            arrays["y"] = quantise(rng.standard_normal((self.rows, width)), self.format)
        if self.function in NORMS:
            for name, first in (("scale", self.cols), ("shift", 2 * self.cols)):
                if self.weights >= first:
                    arrays[name] = round_to(rng.standard_normal(self.cols), self.format)
        if self.function in MOVES:
            arrays["rows"] = rng.permutation(self.rows)
        if self.function == "weighted_sum":
            written = self.written_rows or self.rows
            places = np.full(written * self.terms, self.rows)
            places[: self.rows] = rng.permutation(self.rows)
            arrays["rows"] = places.reshape(self.terms, written).T.copy()
            arrays["shares"] = rng.random((written, self.terms)).astype(np.float32)
        return arrays

    def reference(self, arrays: Arrays) -> NDArray[np.float64]:
        """The function of whole rows, (rows, cols); add_rms_norm: the norm, then the sum."""
        wide = {
            name: array.astype(np.float64) if array.dtype.kind == "f" else array
            for name, array in arrays.items()
        }
        return np.asarray(FUNCTIONS[self.function](wide), dtype=np.float64)

    def demand(self) -> Demand:
        """Inputs and outputs of the function once each."""
        inputs, outputs, flops = COST[self.function]
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
