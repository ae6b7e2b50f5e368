"""The experts of a run on its page and among its files: pictures, what they say, and tables.

Lays out nothing itself. A result without experts has no section and no files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from simulator.expert_use import ExpertUse
from simulator.report import experts, numbers
from simulator.report.experts_lanes import lanes
from simulator.report.experts_picture import Drawing
from simulator.report.experts_sets import plates, sheet
from simulator.report.roofline import NARROW, WIDE
from simulator.result import Result

FILES = ("experts.csv", "experts.svg", "experts.png")
"""What the experts add to a report."""

RANKS = 64
"""Ranks in the table on the page; all of them are in the CSV."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plate:
    """A picture in both widths, or nothing but its caption."""

    heading: str
    caption: str
    wide: str = ""
    narrow: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table whose first column names its rows."""

    title: str
    head: list[tuple[str, str]]
    """Name and unit of each column."""
    rows: list[list[str]]
    foot: list[str]
    note: str = ""
    folded: bool = False
    words: tuple[int, ...] = (0,)
    """Columns of words, which stand to the left; the others are numbers."""
    raw: list[list[float | None]] = field(default_factory=list)
    """What each cell is sorted by; where left out, what can be read of its text."""
    filtered: str = ""
    """What rows are, where those with a word can be picked out."""

    @property
    def sorts(self) -> list[list[str]]:
        """What each cell is sorted by, as text; empty where it is absent."""
        raw = self.raw or [[numbers.read(cell) for cell in row] for row in self.rows]
        return [["" if value is None else repr(float(value)) for value in row] for row in raw]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One phase."""

    phase: str
    setting: str
    plates: list[Plate]
    tables: list[Table]


def sections(result: Result) -> list[Section]:
    """What the page shows of each phase, decode first."""
    return [
        Section(
            phase=numbers.plain(use.phase),
            setting=experts.setting(use),
            plates=_plates(use, f"experts-{place}"),
            tables=_tables(use),
        )
        for place, use in enumerate(experts.ordered(result), start=1)
    ]


def files(result: Result) -> dict[str, bytes]:
    """The experts' files and their contents."""
    if not result.experts:
        return {}
    from simulator.report import experts_pen, pen

    drawing = sheet(result, WIDE + 28)
    figure = experts_pen.draw(drawing)
    contents = (
        experts.data(result).encode(),
        pen.svg(figure, drawing).encode(),
        pen.png(figure, drawing),
    )
    return dict(zip(FILES, contents, strict=True))


def _plates(use: ExpertUse, prefix: str) -> list[Plate]:
    from simulator.report import experts_pen, pen

    def element(drawing: Drawing, kind: str, key: str) -> str:
        return pen.element(experts_pen.draw(drawing), drawing, kind, f"{kind}-{prefix}-{key}")

    found = []
    for plate in plates(use):
        widths = {"wide": WIDE, "narrow": NARROW} if plate.layout else {}
        found.append(
            Plate(
                heading=plate.heading,
                caption=plate.caption,
                **{
                    kind: element(plate.drawing(use, width), kind, plate.key)
                    for kind, width in widths.items()
                },
            )
        )
    return found


def _tables(use: ExpertUse) -> list[Table]:
    found = []
    if use.phases:
        found.append(_steps(use))
    if use.ranks > 1:
        found.append(_ranks(use))
    return found


def _steps(use: ExpertUse) -> Table:
    """Time and traffic of the steps of the MoE layers, in their own order."""
    times = [step.time for step in use.phases]
    sizes = [step.bytes for step in use.phases]
    whole = math.fsum(times), math.fsum(sizes)
    time_unit, time = numbers.column([*times, whole[0]], "s")
    size_unit, size = numbers.column([*sizes, whole[1]], "B")
    counts = [
        [getattr(step, kind) for step in use.phases]
        for kind in ("descriptors", "copies", "requests")
    ]
    columns = [
        [*(numbers.plain(step.name) for step in use.phases), "all steps"],
        _aligned(time),
        [*numbers.shares(times), "100.0" if whole[0] > 0 else numbers.ABSENT],
        _aligned(size),
        *([*map(numbers.count, kind), numbers.count(sum(kind))] for kind in counts),
    ]
    issues, slots = ([getattr(step, kind) for step in use.phases] for kind in ("issue", "slot"))
    issue_unit, issue = numbers.column([*issues, math.fsum(issues)], "s")
    slot_unit, slot = numbers.column([*slots, max(slots)], "B")
    columns += [_aligned(issue), _aligned(slot)]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return Table(
        title="Steps of the MoE layers",
        head=[
            ("step", ""),
            ("time", time_unit),
            ("share", "%"),
            ("moved", size_unit),
            ("descriptors", ""),
            ("copies", "by threads"),
            ("requests", "of 128 B"),
            ("issue", issue_unit),
            ("local", slot_unit),
        ],
        rows=rows[:-1],
        foot=rows[-1],
        note="All MoE layers together: time on the path of the slowest rank, where steps may"
        " overlap; moves over all ranks. Issue: the time in which the data mover of a unit is given"
        " its descriptors. Local memory: what the fullest gather of one column tile fills.",
    )


def _ranks(use: ExpertUse) -> Table:
    """Load, traffic and waiting of each rank."""
    sent, got = experts.links(use) if use.rows else ([0] * use.ranks, [0] * use.ranks)
    there = [copies * use.dispatch_row for copies in sent]
    here = [copies * use.dispatch_row for copies in got]
    unit, cells = numbers.column([*there, *here], "B")
    mean = sum(use.rank_load) / len(use.rank_load)
    waits = {
        rank: numbers.percent(lane.waiting / lane.end if lane.end > 0 else 0.0)
        for lane in lanes(use)
        for rank in lane.ranks
    }
    rows = [
        [
            f"rank {rank}",
            numbers.count(load),
            numbers.digits(load / mean) + "x" if mean else numbers.ABSENT,
            cells[rank],
            cells[use.ranks + rank],
            waits.get(rank, numbers.ABSENT),
        ]
        for rank, load in enumerate(use.rank_load)
    ]
    cut = max(0, len(rows) - RANKS)
    return Table(
        title="Rank by rank",
        head=[
            ("rank", ""),
            ("rows", ""),
            ("of the mean", ""),
            ("sends in dispatch", unit),
            ("receives in dispatch", unit),
            (f"waits in layer {use.layer}", ""),
        ],
        rows=rows[:RANKS],
        foot=[],
        note=f"The first {RANKS} of {len(rows)} ranks; all are in experts.csv." if cut else "",
        folded=True,
    )


def _aligned(cells: list[str]) -> list[str]:
    return numbers.align(cells, numbers.FIGURE_SPACE, numbers.POINT_SPACE)
