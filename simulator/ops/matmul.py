"""Matrix products: one GEMM, a batch of equal ones, or one per expert over its own rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from simulator.ops.op import Arrays, Demand, TensorOp
from simulator.ops.rounding import quantise, round_to
from simulator.specs.precision import number_format


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul(TensorOp):
    """``out[b] = a[b] @ w[b]`` with a (m, k), w (k, n); ``batch`` equal products."""

    kind: ClassVar[str] = "matmul"
    m: int
    n: int
    k: int
    batch: int = 1
    a: str = "bf16"
    b: str = "bf16"
    out: str = "bf16"
    bias: bool = False
    accumulate: bool = False
    """The result is added to what is there, as gradients of weights are."""

    def __post_init__(self) -> None:
        self.require(self.m >= 0, f"m is {self.m}")
        self.require(min(self.n, self.k, self.batch) >= 1, "n, k and batch are at least 1")

    def inputs(self, rng: np.random.Generator) -> Arrays:
        """a (batch, m, k), b (batch, k, n) and, with a bias, bias (batch, n)."""
        arrays = {
            "a": quantise(rng.standard_normal((self.batch, self.m, self.k)), self.a),
            "b": weights(rng, (self.batch, self.k, self.n), self.b),
        }
        if self.bias:
            arrays["bias"] = round_to(rng.standard_normal((self.batch, self.n)), self.out)
        return arrays

    def reference(self, arrays: Arrays) -> NDArray[np.float64]:
        """``a @ b + bias``, (batch, m, n)."""
        result = np.asarray(arrays["a"].astype(np.float64) @ arrays["b"].astype(np.float64))
        return result + arrays["bias"][:, None] if self.bias else result

    def demand(self) -> Demand:
        """2 m n k FLOP per product; both operands and the result once, nothing without rows."""
        used = self.batch if self.m else 0
        written = number_format(self.out).bytes(self.batch * self.m * self.n)
        return Demand(
            flops=2.0 * self.batch * self.m * self.n * self.k,
            vector_flops=float(self.batch * self.m * self.n) if self.bias else 0.0,
            weights=number_format(self.b).bytes(used * self.k * self.n)
            + (number_format(self.out).bytes(used * self.n) if self.bias else 0.0),
            read=number_format(self.a).bytes(self.batch * self.m * self.k)
            + (written if self.accumulate else 0.0),
            written=written,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedMatmul(TensorOp):
    """One product per expert: ``counts[e]`` rows times that expert's (k, n) weights."""

    kind: ClassVar[str] = "grouped_matmul"
    counts: tuple[int, ...]
    """Rows per expert, in expert order; an expert without rows costs nothing."""
    n: int
    k: int
    a: str = "bf16"
    b: str = "bf16"
    out: str = "bf16"
    bias: bool = False
    half: Literal["up", "gate_up", "down", "plain_down"] | None = None
    """Which product of a feed-forward network of experts it is; the second one of a network whose
    first is not gated is ``plain_down``. None for a product that is no part of one."""
    tokens: int | None = None
    """Tokens whose copies the rows are, where it is such a product."""

    def __post_init__(self) -> None:
        self.require(min(self.counts, default=0) >= 0, f"counts are {self.counts}")
        self.require(min(self.n, self.k) >= 1, "n and k are at least 1")

    @property
    def rows(self) -> int:
        """Rows over all experts."""
        return sum(self.counts)

    @property
    def active(self) -> int:
        """Experts with at least one row."""
        return sum(1 for count in self.counts if count)

    def inputs(self, rng: np.random.Generator) -> Arrays:
        """tokens (rows, k), the token of each routed row, b (experts, k, n), bias (experts, n).

        Routed rows stand in expert order; each names another token.
        """
        experts = len(self.counts)
        arrays = {
            "tokens": quantise(rng.standard_normal((self.rows, self.k)), self.a),
            "rows": rng.permutation(self.rows),
            "b": weights(rng, (experts, self.k, self.n), self.b),
        }
        if self.bias:
            arrays["bias"] = round_to(rng.standard_normal((experts, self.n)), self.out)
        return arrays

    def reference(self, arrays: Arrays) -> NDArray[np.float64]:
        """Each expert's rows times its weights, (rows, n) in expert order."""
        result = np.zeros((self.rows, self.n))
        first = 0
        for expert, count in enumerate(self.counts):
            mine = arrays["rows"][first : first + count]
            product = arrays["tokens"][mine].astype(np.float64) @ arrays["b"][expert]
            result[first : first + count] = product
            if self.bias:
                result[first : first + count] += arrays["bias"][expert]
            first += count
        return result

    def demand(self) -> Demand:
        """2 rows n k FLOP; the weights of the experts that are hit, each once."""
        return Demand(
            flops=2.0 * self.rows * self.n * self.k,
            vector_flops=float(self.rows * self.n) if self.bias else 0.0,
            weights=number_format(self.b).bytes(self.active * self.k * self.n)
            + (number_format(self.out).bytes(self.active * self.n) if self.bias else 0.0),
            read=number_format(self.a).bytes(self.rows * self.k),
            written=number_format(self.out).bytes(self.rows * self.n),
        )


def weights(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> NDArray[np.float32]:
    """Weights of shape (..., k, n) as ``name`` holds them, scaled to keep a result near one."""
    values = rng.standard_normal(shape) / np.sqrt(shape[-2])
    return quantise(values, name, axis=-2, square=True)
