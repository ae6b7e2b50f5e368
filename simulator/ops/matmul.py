"""Matrix products: one GEMM, a batch of equal ones, or one per expert over its own rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simulator.ops.op import Demand, Op
from simulator.specs.precision import number_format


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul(Op):
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

    def demand(self) -> Demand:
        """2 m n k FLOP per product; both operands and the result once."""
        return Demand(
            flops=2.0 * self.batch * self.m * self.n * self.k,
            vector_flops=float(self.batch * self.m * self.n) if self.bias else 0.0,
            weights=number_format(self.b).bytes(self.batch * self.k * self.n)
            + (number_format(self.out).bytes(self.batch * self.n) if self.bias else 0.0),
            read=number_format(self.a).bytes(self.batch * self.m * self.k),
            written=number_format(self.out).bytes(self.batch * self.m * self.n),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedMatmul(Op):
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

    @property
    def rows(self) -> int:
        """Rows over all experts."""
        return sum(self.counts)

    @property
    def active(self) -> int:
        """Experts with at least one row."""
        return sum(1 for count in self.counts if count)

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
