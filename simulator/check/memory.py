"""Device memory under test: tensors in buffers, moved by descriptors, with every byte counted.

Knows descriptors and numpy arrays. Never touches operators, devices or time. Mutable, and used
for one operator only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simulator.mapping.descriptors import Layout, TensorDescriptor, lower
from simulator.mapping.moves import fetch, put, touch
from simulator.specs.hardware import DataMover
from simulator.specs.precision import number_format
from simulator.units import Bytes

Array = NDArray[Any]
Bucket = Literal["weights", "kv_read", "kv_written", "read", "written", "table"]
"""Which part of an operator's stated traffic a tensor belongs to; a table belongs to none."""


@dataclass(slots=True)
class Operand:
    """One tensor: its buffer, where its elements lie, and how often each one moved."""

    buffer: Array
    layout: Layout
    format: str
    bucket: Bucket
    moves: NDArray[np.int32]

    @property
    def touched(self) -> Bytes:
        """Bytes of the elements that moved at least once, block scales included."""
        return number_format(self.format).bytes(float(np.count_nonzero(self.moves)))


@dataclass(slots=True)
class Memory:
    """The tensors of one operator, and what was moved through which descriptors."""

    mover: DataMover | None
    operands: dict[str, Operand] = field(default_factory=dict)
    descriptors: int = 0
    copies: int = 0
    moved: Bytes = 0.0
    """All bytes that crossed the memory, rereads included."""

    def add(
        self, name: str, array: Array, format_: str, bucket: Bucket, *, turned: bool = False
    ) -> None:
        """Put a tensor into memory, row-major; ``turned`` swaps the last two axes in the buffer.

        Weights are turned: (k, n) lies with k innermost, as matrix units want both operands.
        """
        bits = number_format(format_).bits
        if turned:
            buffer = np.ascontiguousarray(array.swapaxes(-1, -2)).reshape(-1)
            stored = Layout.of(array.swapaxes(-1, -2).shape, bits)
            strides = (*stored.strides[:-2], stored.strides[-1], stored.strides[-2])
            layout = Layout(shape=array.shape, strides=strides, bits=bits)
        else:
            buffer, layout = array.flatten(), Layout.of(array.shape, bits)
        self._keep(name, buffer, layout, format_, bucket)

    def result(
        self, name: str, shape: tuple[int, ...], format_: str, bucket: Bucket, dtype: np.dtype[Any]
    ) -> None:
        """Room for a result. It starts as NaN, so that what no block writes is found."""
        buffer = np.full(int(np.prod(shape)), np.nan, dtype=dtype)
        layout = Layout.of(shape, number_format(format_).bits)
        self._keep(name, buffer, layout, format_, bucket)

    def _keep(self, name: str, buffer: Array, layout: Layout, format_: str, bucket: Bucket) -> None:
        moves = np.zeros(buffer.size, dtype=np.int32)
        self.operands[name] = Operand(buffer, layout, format_, bucket, moves)

    def load(
        self,
        name: str,
        start: tuple[int, ...],
        box: tuple[int, ...],
        rows: NDArray[np.integer[Any]] | None = None,
    ) -> Array:
        """A tile of that tensor, zeros outside of it."""
        made = self._move(name, start, box, rows)
        return fetch(made, self.operands[name].buffer, box)

    def store(
        self,
        name: str,
        start: tuple[int, ...],
        tile: Array,
        rows: NDArray[np.integer[Any]] | None = None,
    ) -> None:
        """Write a tile of that tensor; what lies outside of it is dropped."""
        made = self._move(name, start, tile.shape, rows)
        put(made, self.operands[name].buffer, tile)

    def _move(
        self,
        name: str,
        start: tuple[int, ...],
        box: tuple[int, ...],
        rows: NDArray[np.integer[Any]] | None,
    ) -> tuple[TensorDescriptor, ...]:
        operand = self.operands[name]
        chosen = None if rows is None else rows.tolist()
        made = lower(operand.layout, start, box, self.mover, rows=chosen)
        entry = number_format(operand.format)
        for descriptor in made:
            self.descriptors += descriptor.descriptors
            self.copies += descriptor.copies
            self.moved += entry.bytes(descriptor.bytes * 8 / operand.layout.bits)
            touch(descriptor, operand.moves)
        return made

    def touched(self, bucket: Bucket) -> Bytes:
        """Bytes of a part of the traffic, each element once however often it moved."""
        return sum(o.touched for o in self.operands.values() if o.bucket == bucket)

    def written_twice(self, name: str) -> int:
        """Elements of a result that more than one block wrote."""
        return int((self.operands[name].moves > 1).sum())
