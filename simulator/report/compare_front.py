"""Tokens per second of a user against those of a device, a line for each device over batches.

Object interface of matplotlib only; the same comparison gives the same bytes. Only points that
were simulated are marked, those on the Pareto front with their batch; others are small and grey.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from simulator.report import numbers, palette
from simulator.report.compare import Comparison, Entry, front
from simulator.report.experts_picture import Scale
from simulator.report.pen import style
from simulator.report.placement import Box, Line, Sheet, around, text_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES = 6
"""Devices that are drawn at most."""
LEFT, RIGHT, TOP, BOTTOM = 70.0, 18.0, 16.0, 52.0
RADIUS, NEAR = 4.5, 26.0
"""Points: of a mark, and from a mark of another device within which batches stay unsaid."""
TITLE = "What a user gets against what a device does"


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The picture's words."""

    title: str
    caption: str


def drawn(found: Comparison) -> tuple[Entry, ...]:
    """The devices with lines."""
    return tuple(entry for entry in found.entries if entry.points)[:LINES]


def caption(found: Comparison) -> str:
    """What the picture says, and what its marks mean."""
    entries = drawn(found)
    pool = [(entry, point) for entry in entries for point in entry.points]
    best = set(front(point for _, point in pool))
    parts = []
    for entry in entries:
        if mine := sum(point in best for point in entry.points):
            parts.append(f"{mine} of {numbers.plain(entry.hardware)}")
    left = sum(bool(entry.points) for entry in found.entries) - len(entries)
    more = f" {left} more devices are in the data." if left else ""
    return (
        f"Better is up and to the right. Runs that no other run here beats in both rates: "
        f"{', '.join(parts)}. Each mark is a run, with its batch where there is room; small grey "
        f"marks are beaten in both rates by another batch of the same device.{more}"
    )


def draw(found: Comparison, width: float, *, titled: bool = False) -> tuple[Figure, Front]:
    """The picture as a figure whose unit is the point, and its words; ``titled`` has what runs
    above it, for where no page says so."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.transforms import Affine2D

    wide = width >= 700
    title = 30.0 if titled else 0.0
    height = (460.0 if wide else 340.0) + title
    entries = drawn(found)
    points = [point for entry in entries for point in entry.points]
    x = Scale(high=1.1 * max(p.user for p in points), start=LEFT, length=width - LEFT - RIGHT)
    y = Scale(high=1.1 * max(p.device for p in points), start=BOTTOM, length=height - BOTTOM - TOP)
    with style():
        figure = Figure(figsize=(width / 72, height / 72), facecolor=palette.PAPER)
        transform = Affine2D().scale(1 / 72) + figure.dpi_scale_trans

        def stroke(places: Sequence[tuple[float, float]], **look: Any) -> None:
            xs, ys = zip(*places, strict=True)
            figure.add_artist(Line2D(xs, ys, transform=transform, **look))

        def write(text: str, at: tuple[float, float], **look: Any) -> None:
            look = {"color": palette.FAINT, "ha": "center", "va": "center"} | look
            figure.text(*at, numbers.typeset(text), transform=transform, **look)

        if titled:
            at = LEFT, height - 20.0
            text = numbers.plain(found.about)
            write(text, at, ha="left", color=palette.INK, fontweight="bold", fontsize=13)
        _axes(found, x, y, stroke, write)
        sheet = Sheet(bounds=Box(LEFT + 2, BOTTOM + 2, width - 2, height - title - 2))
        for entry in entries:
            places = [(x.at(p.user), y.at(p.device)) for p in entry.points]
            sheet.boxes += [_box(*place) for place in places]
            sheet.thin += [Line(*start, *end) for start, end in pairwise(places)]
        for number, entry in enumerate(entries):
            colour, mark = palette.SERIES[number], palette.MARKS[number]
            strong = entry.front
            line = [(x.at(p.user), y.at(p.device)) for p in strong]
            stroke(line, color=colour, linewidth=1.8, zorder=3)
            for point in entry.points:
                on = point in strong
                look = {"marker": mark, "markersize": 2 * RADIUS, "markeredgecolor": palette.INK}
                grey = {"marker": mark, "markersize": RADIUS, "markeredgewidth": 0.0}
                stroke(
                    [(x.at(point.user), y.at(point.device))],
                    color=colour if on else palette.OTHER,
                    linestyle="none",
                    zorder=5 if on else 4,
                    gid=f"batch-{number + 1}-{point.batch}",
                    **(look if on else grey),
                )
        for entry in entries:
            _name(sheet, entry, x, y, stroke, write)
        marks = {(entry.hardware, x.at(p.user), y.at(p.device)) for entry in entries
                 for p in entry.points}  # fmt: skip
        for entry in entries:
            for point in entry.front:
                at = x.at(point.user), y.at(point.device)
                # A number between marks of two devices would be read as either's.
                if any(who != entry.hardware and math.dist(at, to) < NEAR for who, *to in marks):
                    continue
                text = numbers.count(point.batch)
                near = (spot for spot in around(*at, RADIUS, text, 11.0) if spot.leader is None)
                spot = sheet.place(text, 11.0, near)
                if spot is not None:
                    write(text, (spot.x, spot.y), fontsize=11, zorder=7)
    return figure, Front(title=TITLE, caption=caption(found))


def _axes(found: Comparison, x: Scale, y: Scale, stroke: Any, write: Any) -> None:
    """Both axes from zero, with their names."""
    end_x, end_y = x.start + x.length, y.start + y.length
    grid = {"color": palette.RULE, "linewidth": 0.7, "zorder": 1}
    values = x.ticks(64.0)
    unit, texts, _ = numbers.ticks(values, f"{found.unit}/s")
    for value, text in zip(values, texts, strict=True):
        stroke([(x.at(value), y.start), (x.at(value), end_y)], **grid)
        write(text, (x.at(value), y.start - 13))
    write(f"{unit} of one user", ((x.start + end_x) / 2, y.start - 36))
    values = y.ticks(44.0)
    unit, texts, _ = numbers.ticks(values, f"{found.unit}/s")
    for value, text in zip(values, texts, strict=True):
        stroke([(x.start, y.at(value)), (end_x, y.at(value))], **grid)
        write(text, (x.start - 8, y.at(value)), ha="right")
    middle = (y.start + end_y) / 2
    write(f"{unit} of one device", (14.0, middle), rotation=90, rotation_mode="anchor")


def _name(sheet: Sheet, entry: Entry, x: Scale, y: Scale, stroke: Any, write: Any) -> None:
    """The device beside an end of its line, with a leader where it is crowded."""
    text = numbers.plain(entry.hardware)
    bold = f"{text}  "
    for point in (entry.front[-1], entry.front[0]):
        for leader in (False, True):
            at = x.at(point.user), y.at(point.device)
            spots = (s for s in around(*at, RADIUS, bold, 12.0) if leader or s.leader is None)
            spot = sheet.place(bold, 12.0, spots)
            if spot is not None:
                if (lead := spot.leader) is not None:
                    ends_of = (lead.x0, lead.y0), (lead.x1, lead.y1)
                    stroke(ends_of, color=palette.FAINT, linewidth=0.8, zorder=6)
                edge = {"right": 1, "left": -1, "center": 0}[spot.align]
                half = text_width(bold, 12.0) / 2
                align = "center" if edge == 0 else spot.align
                write(
                    text, (spot.x + edge * half, spot.y), ha=align, color=palette.INK,
                    fontweight="bold", fontsize=12, zorder=7,
                )  # fmt: skip
                return


def _box(x: float, y: float) -> Box:
    return Box(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS)
