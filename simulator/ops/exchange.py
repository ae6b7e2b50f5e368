"""Exchanges between ranks: dispatch of tokens to experts, and combine, their way back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from simulator.ops.op import Demand, Op
from simulator.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange(Op):
    """One rank's part of a dispatch or combine among ``ranks`` ranks.

    ``ht`` sends a token once to each rank that holds one of its experts, ``ll`` once for each
    expert, unless its library merges copies. Volumes are rows of ``row`` bytes
    (``mapping.exchange.Volume``).
    """

    kind: ClassVar[str] = "exchange"
    way: Literal["dispatch", "combine"]
    form: Literal["ht", "ll"]
    ranks: int
    tokens: int
    """Tokens that live on this rank."""
    hidden: int
    top_k: int
    experts: int
    """Slots of experts over all ranks."""
    format: str
    row: Bytes
    units: int = 0
    """Compute units that move rows in the throughput form; 0: as many as it takes."""
    near: int
    crossing: int
    far: int
    handled: int
    leaving: int

    def __post_init__(self) -> None:
        self.require(self.ranks > 1, f"{self.ranks} ranks have nothing to exchange")
        volumes = (
            self.tokens, self.near, self.crossing, self.far, self.handled, self.leaving,
        )  # fmt: skip
        self.require(min(volumes) >= 0, f"volumes are {volumes}")

    def demand(self) -> Demand:
        """Rows read where they leave and written where they arrive."""
        moved = (self.near + self.far) * self.row
        return Demand(read=moved, written=moved)

    @property
    def sent(self) -> Bytes:
        """Bytes that leave this rank over links in dispatch; in combine as many come."""
        return self.leaving * self.row
