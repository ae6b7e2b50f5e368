"""Two-dimensional convolution, as the implicit GEMM that libraries run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simulator.ops.op import Demand, Op
from simulator.specs.precision import number_format


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2d(Op):
    """(batch, height, width, in_channels) with a kernel x kernel filter, ``same`` padding."""

    kind: ClassVar[str] = "conv2d"
    batch: int
    height: int
    width: int
    in_channels: int
    out_channels: int
    kernel: int = 3
    stride: int = 1
    a: str = "fp16"
    b: str = "fp16"
    out: str = "fp16"
    bias: bool = True

    @property
    def m(self) -> int:
        """Rows of the implicit GEMM: output pixels."""
        return self.batch * -(-self.height // self.stride) * -(-self.width // self.stride)

    @property
    def n(self) -> int:
        """Columns of the implicit GEMM: output channels."""
        return self.out_channels

    @property
    def k(self) -> int:
        """Depth of the implicit GEMM: filter taps times input channels."""
        return self.kernel**2 * self.in_channels

    def demand(self) -> Demand:
        """2 m n k FLOP; the input image once, not its unfolded copies."""
        return Demand(
            flops=2.0 * self.m * self.n * self.k,
            vector_flops=float(self.m * self.n) if self.bias else 0.0,
            weights=number_format(self.b).bytes(self.k * self.n + (self.n if self.bias else 0)),
            read=number_format(self.a).bytes(
                self.batch * self.height * self.width * self.in_channels
            ),
            written=number_format(self.out).bytes(self.m * self.n),
        )
