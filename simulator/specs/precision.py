"""Number formats: bits per element and the scales that block formats carry.

Sources: OCP Microscaling Formats (MX) v1.0 for the mx formats (one E8M0 byte per 32 elements);
NVIDIA PTX ISA for nvfp4 (one E4M3 byte per 16 elements); DeepSeek-V3 report (arXiv 2412.19437)
section 3.3 for fp8_block (one fp32 per 128 x 128 weights, one per 1 x 128 activations);
QLoRA (arXiv 2305.14314) for nf4 (one fp32 per 64 weights, one byte where quantised twice). The
int4 formats are GPTQ's and AWQ's, one fp16 per group of 128, 64 or 32 weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic_core import CoreSchema, core_schema

from simulator.errors import UnknownNameError
from simulator.units import Bytes


@dataclass(frozen=True, slots=True)
class Names:
    """Metadata of a text that is one of ``known``, such as a number format."""

    kind: str
    known: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.literal_schema(list(self.known))


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFormat:
    """A number format; ``block`` elements share ``scale_bits`` bits of scale."""

    name: str
    bits: int
    block: int = 1
    scale_bits: int = 0
    compute: str = ""
    """The matrix rate that multiplies it, where it has another name in a data sheet."""
    row_block: int = 0
    """Elements of a row of activations that share a scale; 0: ``block``, as weights do."""

    @property
    def bits_per_element(self) -> float:
        """Bits per element, its share of the scale included."""
        return self.bits + self.scale_bits / self.block

    def bytes(self, elements: float) -> Bytes:
        """Bytes of that many elements with their scales.

        >>> FORMATS["mxfp4"].bytes(32)
        17.0
        """
        return elements * self.bits_per_element / 8

    def row_bytes(self, elements: float) -> Bytes:
        """Bytes of a row of activations with its scales.

        >>> FORMATS["fp8_block"].row_bytes(7168)
        7392.0
        """
        return elements * (self.bits + self.scale_bits / (self.row_block or self.block)) / 8


FORMATS = {
    entry.name: entry
    for entry in (
        NumberFormat(name="fp64", bits=64),
        NumberFormat(name="fp32", bits=32),
        NumberFormat(name="tf32", bits=32),
        NumberFormat(name="fp16", bits=16),
        NumberFormat(name="bf16", bits=16),
        NumberFormat(name="fp8", bits=8),
        NumberFormat(
            name="fp8_block",
            bits=8,
            block=128 * 128,
            scale_bits=32,
            compute="fp8",
            row_block=128,
        ),
        NumberFormat(name="int8", bits=8),
        NumberFormat(name="mxfp8", bits=8, block=32, scale_bits=8, compute="fp8"),
        NumberFormat(name="mxfp6", bits=6, block=32, scale_bits=8, compute="fp6"),
        NumberFormat(name="mxfp4", bits=4, block=32, scale_bits=8, compute="fp4"),
        NumberFormat(name="nvfp4", bits=4, block=16, scale_bits=8, compute="fp4"),
        NumberFormat(name="int4", bits=4, block=128, scale_bits=16, compute="fp16"),
        NumberFormat(name="int4_g64", bits=4, block=64, scale_bits=16, compute="fp16"),
        NumberFormat(name="int4_g32", bits=4, block=32, scale_bits=16, compute="fp16"),
        NumberFormat(name="nf4", bits=4, block=64, scale_bits=32, compute="bf16"),
        NumberFormat(name="nf4_double", bits=4, block=64, scale_bits=8, compute="bf16"),
        NumberFormat(name="fp6", bits=6),
        NumberFormat(name="fp4", bits=4),
    )
}

FormatName = Annotated[str, Names("number format", tuple(FORMATS))]
FormatOrDefault = Annotated[str, Names("number format", (*FORMATS, "default"))]


def number_format(name: str) -> NumberFormat:
    """The format of that name; raises UnknownNameError with the near names."""
    try:
        return FORMATS[name]
    except KeyError:
        raise UnknownNameError("number format", name, FORMATS) from None
