"""Which rank holds which expert, and which copy of an expert serves a token.

Knows counts of experts and ranks. Never touches weights, links or time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ExpertPlacement:
    """Experts on ranks: ``slots[r]`` names the expert of each slot of rank r, in slot order.

    An expert with several slots has as many copies, and its rows go to them in turn.
    """

    experts: int
    slots: tuple[tuple[int, ...], ...]

    @property
    def ranks(self) -> int:
        """How many ranks hold experts."""
        return len(self.slots)

    @property
    def redundant(self) -> int:
        """Slots beyond one for each expert."""
        return sum(map(len, self.slots)) - self.experts

    @cached_property
    def _copies(self) -> tuple[Ints, Ints, Ints]:
        """Slots in expert order as one list, where each expert's begin, and how many it has."""
        flat = np.array([expert for rank in self.slots for expert in rank], dtype=np.int64)
        order = np.argsort(flat, kind="stable")
        many = np.bincount(flat, minlength=self.experts)
        return order, np.cumsum(many) - many, many

    @cached_property
    def rank_of_slot(self) -> Ints:
        """Rank of each slot, slots of all ranks in order."""
        return np.repeat(np.arange(self.ranks), [len(rank) for rank in self.slots])

    def serve(self, token: Ints, expert: Ints) -> Ints:
        """The slot, counted over all ranks, that serves each routed row.

        Tokens take the copies of an expert in turn, by their number.
        """
        order, begin, many = self._copies
        found: Ints = order[begin[expert] + token % many[expert]]
        return found


def place(
    experts: int,
    ranks: int,
    *,
    redundant: int = 0,
    policy: str = "contiguous",
    loads: Sequence[float] | None = None,
) -> ExpertPlacement:
    """Put ``experts`` experts and ``redundant`` further copies on ``ranks`` ranks.

    Every rank gets as many slots. Raises InputError where they do not divide, naming the counts
    that would.
    """
    if (experts + redundant) % ranks:
        raise InputError(f"{experts} experts and {redundant} copies do not divide by {ranks} ranks")
    each = (experts + redundant) // ranks
    flat = [slot % experts for slot in range(experts + redundant)]
    return ExpertPlacement(
        experts=experts,
        slots=tuple(tuple(flat[r * each : (r + 1) * each]) for r in range(ranks)),
    )
