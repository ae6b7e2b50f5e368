"""Numbers as a format can hold them: round to nearest even, block scales included.

Knows number formats and numpy arrays. Never touches operators or hardware. Values stay float32
(float64 for fp64), whatever the format, so that arithmetic on them is the caller's choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.specs.precision import number_format

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Grid:
    """The finite values of a binary format: mantissa bits, least exponent, largest value.

    Sources: IEEE 754-2019; OCP FP8 (E4M3: 448) and Microscaling v1.0 (E2M3: 7.5, E2M1: 6); tf32
    keeps 10 mantissa bits of fp32 (NVIDIA A100 white paper). Integers step by one.
    """

    mantissa: int
    least: int
    largest: float

    @property
    def roundoff(self) -> float:
        """Half the distance from one to the next value: the relative error of one rounding."""
        return 2.0 ** -(self.mantissa + 1)

    @property
    def smallest(self) -> float:
        """Half the least distance of two values: the absolute error of one rounding near zero."""
        return 2.0 ** (self.least - self.mantissa - 1)


_E4M3 = Grid(3, -6, 448.0)
_GRIDS = {
    "fp64": Grid(52, -1022, float(np.finfo(np.float64).max)),
    "fp32": Grid(23, -126, float(np.finfo(np.float32).max)),
    "tf32": Grid(10, -126, float(np.finfo(np.float32).max)),
    "fp16": Grid(10, -14, 65504.0),
    "bf16": Grid(7, -126, (2.0 - 2.0**-7) * 2.0**127),
    "fp8": _E4M3,
    "fp8_block": _E4M3,
    "mxfp8": _E4M3,
    "mxfp6": Grid(3, 0, 7.5),
    "fp6": Grid(3, 0, 7.5),
    "mxfp4": Grid(1, 0, 6.0),
    "nvfp4": Grid(1, 0, 6.0),
    "fp4": Grid(1, 0, 6.0),
    "int8": Grid(0, 0, 127.0),
    "int4": Grid(0, 0, 7.0),
    "int4_g64": Grid(0, 0, 7.0),
    "int4_g32": Grid(0, 0, 7.0),
    # Levels of NF4 lie up to 0.304 apart, so half a step is within this grid's.
    "nf4": Grid(1, 0, 1.0),
    "nf4_double": Grid(1, 0, 1.0),
}
_INTEGERS = frozenset({"int8", "int4", "int4_g64", "int4_g32"})
_NF4 = np.array(
    [-1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0,
     0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0]
)  # fmt: skip
"""Levels of NF4: quantiles of a normal distribution (QLoRA, arXiv 2305.14314, appendix E)."""


def grid(name: str) -> Grid:
    """The grid of a format's elements; raises UnknownNameError for an unknown format."""
    return _GRIDS[number_format(name).name]


def round_to(values: Array, name: str) -> Array:
    """Each value at the nearest one of the format, ties to even, past the largest at the largest.

    Block formats round as their elements do, without scales: see ``quantise``.

    >>> round_to(np.array([1.0 + 2**-8, 3.0 + 2**-6]), "bf16").tolist()
    [1.0, 3.015625]
    """
    entry = grid(name)
    kept = np.float64 if name == "fp64" else np.float32
    if name in ("fp64", "fp32"):
        return values.astype(kept)
    wide = values.astype(np.float64)
    if name in _INTEGERS:
        return np.clip(np.rint(wide), -entry.largest, entry.largest).astype(kept)
    if name.startswith("nf4"):
        between = (_NF4[1:] + _NF4[:-1]) / 2
        return _NF4[np.searchsorted(between, wide)].astype(kept)
    exponent = np.maximum(np.frexp(wide)[1] - 1, entry.least)
    step = np.ldexp(1.0, exponent - entry.mantissa)
    rounded: Array = np.clip(np.rint(wide / step) * step, -entry.largest, entry.largest)
    return rounded.astype(kept)


def quantise(values: Array, name: str, *, axis: int = -1, square: bool = False) -> Array:
    """Values as the format stores them: elements times the scales of their blocks.

    A block is the format's run of elements along ``axis``: a power of two scales it (mxfp,
    Microscaling v1.0 section 6.3), an E4M3 value (nvfp4), an fp16 value (int4), an fp32 value
    (nf4), one of 8 bits below the tensor's largest (nf4_double), or an fp32 value (fp8_block: 128
    elements, or with ``square`` 128 x 128 over the last two axes, as DeepSeek-V3 keeps weights).
    int8 has one scale per row along ``axis``. Other formats have no scale.
    """
    entry = number_format(name)
    if square and name == "fp8_block":
        return _scaled_square(values, 128)
    if name == "int8":
        block = max(1, values.shape[axis])
    else:
        block = 128 if name == "fp8_block" else entry.block
    if block == 1:
        return round_to(values, name)
    moved = np.moveaxis(values, axis, -1).astype(np.float64)
    length = moved.shape[-1]
    padded = np.pad(moved, [(0, 0)] * (moved.ndim - 1) + [(0, -length % block)])
    blocks = padded.reshape(*moved.shape[:-1], padded.shape[-1] // block, block)
    scale = _scale(np.abs(blocks).max(axis=-1, keepdims=True), name)
    kept = (round_to(blocks / scale, name) * scale).reshape(padded.shape)[..., :length]
    return np.ascontiguousarray(np.moveaxis(kept, -1, axis)).astype(np.float32)


def _scaled_square(values: Array, side: int) -> Array:
    """Blocks of side x side over the last two axes, one fp32 scale each."""
    kept = np.empty(values.shape, dtype=np.float32)
    for row in range(0, values.shape[-2], side):
        for column in range(0, values.shape[-1], side):
            part = (..., slice(row, row + side), slice(column, column + side))
            largest = np.abs(values[part]).max(axis=(-2, -1), keepdims=True)
            scale = _scale(largest.astype(np.float64), "fp8_block")
            kept[part] = round_to(values[part] / scale, "fp8") * scale
    return kept


def _scale(largest: Array, name: str) -> Array:
    """The scale of blocks whose largest magnitude is given; one for a block of zeros."""
    entry = grid(name)
    safe = np.where(largest > 0, largest, entry.largest)
    if name.startswith("mx"):
        top = np.floor(np.log2(entry.largest))
        return np.asarray(np.exp2(np.floor(np.log2(safe)) - top))
    scale = safe / entry.largest
    if name == "nvfp4":
        return np.maximum(round_to(scale, "fp8"), 2.0**-9).astype(np.float64)
    if name == "nf4_double":
        top = scale.max(initial=0.0) / _E4M3.largest
        return np.asarray(np.maximum(round_to(scale / top, "fp8"), 2.0**-9).astype(float) * top)
    if name.startswith("int4"):
        return np.maximum(round_to(scale, "fp16"), 2.0**-24).astype(np.float64)
    return scale.astype(np.float32).astype(np.float64)
