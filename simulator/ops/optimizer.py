"""The update of weights: Adam as traffic, and the norm of gradients that clips it.

Knows elements and number formats. Never touches models, plans, hardware or time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simulator.ops.backward import Derived
from simulator.ops.op import Demand
from simulator.ops.pointwise import Pointwise
from simulator.specs.precision import number_format

ROW = 4096
"""Elements of one row of a flat buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamUpdate(Derived):
    """One step of Adam on ``elements`` weights in mixed precision (arXiv 1710.03740, 1412.6980).

    Per weight: the gradient is read; the master weight and both moments, fp32 each, are read and
    written; the copy that is multiplied is written. 30 bytes with fp32 gradients and a bf16 copy.
    """

    kind: ClassVar[str] = "adam_update"
    elements: int
    gradients: str = "fp32"
    weights: str = "bf16"
    states: str = "fp32"

    def __post_init__(self) -> None:
        self.require(self.elements >= 0, f"{self.elements} elements")

    @property
    def priced_as(self) -> Pointwise:
        """A sum of two flat fp32 buffers."""
        return flat(self.name, self.elements)

    @property
    def factor(self) -> float:
        """Bytes over those of the sum."""
        return self.demand().bytes / max(self.priced_as.demand().bytes, 1.0)

    def demand(self) -> Demand:
        """Gradient and three states in, three states and the copy out."""
        states = 3 * number_format(self.states).bytes(self.elements)
        return Demand(
            vector_flops=14.0 * self.elements,
            read=states + number_format(self.gradients).bytes(self.elements),
            written=states + number_format(self.weights).bytes(self.elements),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientNorm(Derived):
    """The sum of squares of ``elements`` gradients: one read."""

    kind: ClassVar[str] = "gradient_norm"
    elements: int
    gradients: str = "fp32"

    def __post_init__(self) -> None:
        self.require(self.elements >= 0, f"{self.elements} elements")

    @property
    def priced_as(self) -> Pointwise:
        """A sum of two flat fp32 buffers."""
        return flat(self.name, self.elements)

    @property
    def factor(self) -> float:
        """Bytes over those of the sum."""
        return self.demand().bytes / max(self.priced_as.demand().bytes, 1.0)

    def demand(self) -> Demand:
        """Each gradient once."""
        return Demand(
            vector_flops=2.0 * self.elements,
            read=number_format(self.gradients).bytes(self.elements),
        )


def flat(name: str, elements: int) -> Pointwise:
    """The sum of two flat fp32 buffers of that many elements, in whole rows."""
    rows = -(-elements // ROW)
    return Pointwise(name=name, function="add", rows=rows, cols=ROW, format="fp32")
