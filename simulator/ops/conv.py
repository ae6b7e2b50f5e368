"""Two-dimensional convolution, as the implicit GEMM that libraries run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from simulator.ops.matmul import weights
from simulator.ops.op import Arrays, Demand, TensorOp
from simulator.ops.rounding import quantise, round_to
from simulator.specs.precision import number_format


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv2d(TensorOp):
    """(batch, height, width, in_channels) with a kernel x kernel filter, ``same`` padding.

    The result has ceil(height / stride) x ceil(width / stride) pixels. Where filters overlap,
    (kernel - 1) // 2 zeros stand before the first pixel, as ``padding`` of that size gives in
    torch for an odd kernel; filters that do not overlap start at the first pixel.
    """

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

    def __post_init__(self) -> None:
        sizes = (self.batch, self.height, self.width, self.in_channels, self.out_channels)
        self.require(min(*sizes, self.kernel, self.stride) >= 1, "every size is at least 1")

    @property
    def pixels(self) -> tuple[int, int]:
        """Height and width of the result."""
        return -(-self.height // self.stride), -(-self.width // self.stride)

    @property
    def padding(self) -> int:
        """Zeros before the first pixel of each axis."""
        return (self.kernel - 1) // 2 if self.stride < self.kernel else 0

    @property
    def m(self) -> int:
        """Rows of the implicit GEMM: output pixels."""
        high, wide = self.pixels
        return self.batch * high * wide

    @property
    def n(self) -> int:
        """Columns of the implicit GEMM: output channels."""
        return self.out_channels

    @property
    def k(self) -> int:
        """Depth of the implicit GEMM: filter taps times input channels."""
        return self.kernel**2 * self.in_channels

    def _seen(self, size: int) -> int:
        """Pixels along one axis that some filter covers."""
        last = (-(-size // self.stride) - 1) * self.stride
        if self.stride <= self.kernel:
            return min(size, last + self.kernel - self.padding)
        return last // self.stride * self.kernel + min(self.kernel, size - last)

    def inputs(self, rng: np.random.Generator) -> Arrays:
        """x (batch, height, width, in), b (kernel, kernel, in, out) and, with a bias, bias (out,).

        Block scales run along the channels, the innermost axis of k.
        """
        shape = (self.batch, self.height, self.width, self.in_channels)
        flat = weights(rng, (self.k, self.n), self.b)
        arrays = {
            "x": quantise(rng.standard_normal(shape), self.a),
            "b": flat.reshape(self.kernel, self.kernel, self.in_channels, self.n),
        }
        if self.bias:
            arrays["bias"] = round_to(rng.standard_normal(self.n), self.b)
        return arrays

    def reference(self, arrays: Arrays) -> NDArray[np.float64]:
        """The filter at each output pixel, (batch, height, width, out): a sum over its taps."""
        high, wide = self.pixels
        pad, stride = self.padding, self.stride
        after = self.kernel + stride  # more than any filter reaches past the last pixel
        x = np.pad(arrays["x"].astype(np.float64), ((0, 0), (pad, after), (pad, after), (0, 0)))
        result = np.zeros((self.batch, high, wide, self.n))
        for row in range(self.kernel):
            for column in range(self.kernel):
                pixels = x[:, row::stride, column::stride][:, :high, :wide]
                result += pixels @ arrays["b"][row, column].astype(np.float64)
        return result + arrays["bias"] if self.bias else result

    def demand(self) -> Demand:
        """2 m n k FLOP, padding included; each pixel that a filter covers once."""
        return Demand(
            flops=2.0 * self.m * self.n * self.k,
            vector_flops=float(self.m * self.n) if self.bias else 0.0,
            weights=number_format(self.b).bytes(self.k * self.n + (self.n if self.bias else 0)),
            read=number_format(self.a).bytes(
                self.batch * self._seen(self.height) * self._seen(self.width) * self.in_channels
            ),
            written=number_format(self.out).bytes(self.m * self.n),
        )
