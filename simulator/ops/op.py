"""What every operator answers: its name, what it multiplies, what it must move, what it computes.

Knows shapes and number formats. Never touches hardware, tiles or time. Traffic is compulsory:
each operand once; rereads belong to the cost of a tiling.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError
from simulator.units import Bytes, Flops

Bucket = Literal["weights", "kv", "activations"]
Arrays = dict[str, NDArray[Any]]
"""The tensors of one operator by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Work and compulsory traffic of one operator."""

    flops: Flops = 0.0
    """Matrix FLOP; one multiply-add is two."""
    vector_flops: Flops = 0.0
    weights: Bytes = 0.0
    """Weight bytes read."""
    kv_read: Bytes = 0.0
    kv_written: Bytes = 0.0
    read: Bytes = 0.0
    """Activation bytes read."""
    written: Bytes = 0.0
    """Activation bytes written."""

    @property
    def bytes(self) -> Bytes:
        """All compulsory traffic."""
        return self.weights + self.kv_read + self.kv_written + self.read + self.written


@dataclass(frozen=True, slots=True, kw_only=True)
class Op(ABC):
    """One operator on tensors. Subclasses are frozen shapes of one family each."""

    kind: ClassVar[str]
    name: str

    @abstractmethod
    def demand(self) -> Demand:
        """Work and compulsory traffic."""

    def require(self, holds: bool, what: str) -> None:
        """Refuse a shape that cannot be: raises InputError naming the operator."""
        if not holds:
            raise InputError(f"{self.kind} {self.name!r}: {what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorOp(Op):
    """An operator that can be computed on numpy arrays, not only counted."""

    @abstractmethod
    def inputs(self, rng: np.random.Generator) -> Arrays:
        """Operands of the right shapes, their values held by the operator's number formats."""

    @abstractmethod
    def reference(self, arrays: Arrays) -> NDArray[np.float64]:
        """The whole result in float64, before it is rounded to the format of the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSegment:
    """Operators in stream order, executed ``repeat`` times: a run of equal layers."""

    name: str
    repeat: int
    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpGraph:
    """A model at one phase as operators in stream order."""

    segments: tuple[GraphSegment, ...]

    def total(self) -> Demand:
        """Demand of the whole graph."""
        total = Demand()
        for segment in self.segments:
            for op in segment.ops:
                demand = op.demand()
                total = replace(
                    total,
                    **{
                        field: getattr(total, field) + segment.repeat * getattr(demand, field)
                        for field in Demand.__dataclass_fields__
                    },
                )
        return total
