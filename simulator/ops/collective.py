"""Collectives among equal ranks: all-reduce, its halves, all-to-all, and one rank to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from simulator.ops.op import Demand, Op
from simulator.units import Bytes

CollectiveName = Literal["all_reduce", "all_gather", "reduce_scatter", "alltoall", "send_recv"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective(Op):
    """One rank's part of a collective of ``ranks`` ranks.

    ``message`` is the whole buffer of a rank: what all-reduce leaves, all-gather gathers,
    reduce-scatter and all-to-all take, send-receive sends. The ranks stand ``stride`` devices
    apart, which says how many of them share a scale-up domain.
    """

    kind: ClassVar[str] = "collective"
    algorithm: CollectiveName
    ranks: int
    message: Bytes
    format: str = "bf16"
    stride: int = 1

    def __post_init__(self) -> None:
        self.require(self.ranks > 1, f"{self.ranks} ranks have nothing to exchange")
        self.require(self.stride >= 1, f"the stride is {self.stride}")
        self.require(self.message >= 0, f"the message has {self.message} bytes")

    def demand(self) -> Demand:
        """The buffer is read once and written once."""
        return Demand(read=self.message, written=self.message)

    @property
    def sent(self) -> Bytes:
        """Bytes that leave a rank: (n - 1)/n of the message, twice for an all-reduce."""
        share = 1.0 if self.algorithm == "send_recv" else 1 - 1 / self.ranks
        return share * self.message * (2 if self.algorithm == "all_reduce" else 1)
