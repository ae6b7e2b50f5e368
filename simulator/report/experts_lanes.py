"""The ranks of one MoE layer in the order in which they are looked at: slowest first.

Ranks that do the same at the same times are one lane. Knows spans and draws nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.expert_use import ExpertUse, Span
from simulator.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """What one rank does in the layer, or several alike."""

    ranks: tuple[int, ...]
    spans: tuple[Span, ...]
    """Of the first of the ranks, ascending by start."""

    @property
    def end(self) -> Seconds:
        """When the last span ends."""
        return max(span.end for span in self.spans)

    @property
    def done(self) -> Seconds:
        """When its own work ends, waiting not counted."""
        return max((span.end for span in self.spans if span.lane != "wait"), default=0.0)

    @property
    def waiting(self) -> Seconds:
        """Time spent waiting."""
        return math.fsum(span.end - span.start for span in self.spans if span.lane == "wait")


def lanes(use: ExpertUse) -> list[Lane]:
    """The ranks that have spans: last to finish first, then least waiting, then by number."""
    spans: dict[int, list[Span]] = {}
    for span in use.spans:
        spans.setdefault(span.rank, []).append(span)
    alike: dict[tuple[object, ...], list[int]] = {}
    for rank, own in sorted(spans.items()):
        own.sort(key=lambda span: (span.start, span.end, span.lane, span.name))
        key = tuple((span.lane, span.name, span.start, span.end) for span in own)
        alike.setdefault(key, []).append(rank)
    found = [Lane(ranks=tuple(ranks), spans=tuple(spans[ranks[0]])) for ranks in alike.values()]
    unit = max((lane.end for lane in found), default=0.0) * 1e-9 or 1.0
    return sorted(
        found, key=lambda lane: (-round(lane.done / unit), round(lane.waiting / unit), lane.ranks)
    )
