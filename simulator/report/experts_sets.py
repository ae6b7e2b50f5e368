"""The pictures of a run's experts: which ones there are, and what is said where none is needed.

Chooses pictures and words; lays out nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.expert_use import ExpertUse
from simulator.report import (
    experts,
    experts_loads,
    experts_lost,
    experts_matrix,
    experts_timeline,
    numbers,
)
from simulator.report.experts_picture import Drawing, stacked
from simulator.report.facts import title
from simulator.result import Result

Layout = Callable[[ExpertUse, float], Drawing]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plate:
    """One picture of a set, or the one line of text that takes its place."""

    key: str
    heading: str
    caption: str
    layout: Layout | None

    def drawing(self, use: ExpertUse, width: float) -> Drawing:
        """The picture."""
        assert self.layout is not None
        return self.layout(use, width)


def plates(use: ExpertUse) -> list[Plate]:
    """What is shown of one phase, in order; nothing where the run has no such data."""
    key = "loads" if use.ranks > 1 else "load"
    found = [_plate(key, experts.load_finding(use), experts_loads.picture, experts.even(use))]
    if use.ranks > 1 and use.rows:
        flat = experts.even_exchange(use) or not experts.exchanges(use)
        found.append(_plate("matrix", experts.exchange_finding(use), experts_matrix.picture, flat))
    elif use.ranks <= 1:
        found.append(_plate("matrix", "One rank: no token travels.", experts_matrix.picture, True))
    if use.spans:
        found.append(
            _plate("timeline", experts.timeline_finding(use), experts_timeline.picture, False)
        )
    share = experts.saved(use)
    if share is not None:
        small = abs(share) < 0.005
        found.append(_plate("lost", experts.lost_finding(use), experts_lost.picture, small))
    return found


def sheet(result: Result, width: float) -> Drawing:
    """All pictures of all phases under each other, decode first."""
    uses = experts.ordered(result)
    drawings: list[tuple[str, Drawing]] = []
    for use in uses:
        where = f"{numbers.plain(use.phase)}: " if len(uses) > 1 else ""
        for plate in plates(use):
            if plate.layout is None:
                drawing = Drawing(
                    width=width, height=0.0, patches=(), strokes=(), words=(),
                    title=plate.heading, caption=plate.caption,
                )  # fmt: skip
            else:
                drawing = plate.drawing(use, width - 28)
            drawings.append((where + plate.heading, drawing))
    return stacked(drawings, "Experts: " + ", ".join(title(result)), width)


_HEADINGS = {
    "load": "Load per expert",
    "loads": "Load per expert and per rank",
    "matrix": "Dispatch from rank to rank",
    "timeline": "One MoE layer, rank by rank",
    "lost": "Time lost to imbalance",
}


def _plate(key: str, caption: str, layout: Layout, words_do: bool) -> Plate:
    return Plate(
        key=key,
        heading=_HEADINGS[key],
        caption=caption,
        layout=None if words_do else layout,
    )
