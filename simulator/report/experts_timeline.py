"""One MoE layer rank by rank: what compute units and links do, and who waits.

Slowest ranks first, each kind of work in a colour and with a number, waiting hatched. Pure
layout; the pen draws it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from simulator.expert_use import ExpertUse, Span
from simulator.report import numbers, palette
from simulator.report.experts import timeline_finding
from simulator.report.experts_lanes import Lane, lanes
from simulator.report.experts_picture import Drawing, Rect, Scale, Sketch, Swatch
from simulator.report.placement import text_width

DRAWN = 16
"""Lanes at most: half of them the slowest, half the fastest."""
RECTS = 2000
"""Rectangles at most; past it, more spans are merged."""
BAND = 16.0
"""Height of the units or of the links of a rank."""
OTHER = "other"

_EDGED = 4.0
"""Width from which a block has an edge in the paper's colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """Kinds of work with their number and colour, in order of their first start."""

    names: tuple[str, ...]

    def place(self, name: str) -> int:
        """Number of a kind from 0; what has no colour of its own is the last."""
        return self.names.index(name) if name in self.names else len(self.names) - 1

    def colour(self, name: str) -> str:
        """Fill of a kind."""
        return palette.SERIES[self.place(name)]


def kinds(shown: Iterable[Lane]) -> Kinds:
    """At most as many kinds as there are colours: the longest keep their name."""
    first: dict[str, float] = {}
    time: dict[str, float] = {}
    for lane in shown:
        for span in lane.spans:
            if span.lane != "wait":
                first[span.name] = min(first.get(span.name, math.inf), span.start)
                time[span.name] = time.get(span.name, 0.0) + span.end - span.start
    names = sorted(first, key=lambda name: (-time[name], name))
    if len(names) > len(palette.SERIES):
        kept = sorted(names[: len(palette.SERIES) - 1], key=lambda name: (first[name], name))
        return Kinds(names=(*kept, OTHER))
    return Kinds(names=tuple(sorted(names, key=lambda name: (first[name], name))))


def picture(use: ExpertUse, width: float) -> Drawing:
    """Lay out the lanes; needs spans."""
    found = lanes(use)
    half = DRAWN // 2
    cut = len(found) > DRAWN
    shown = [*found[:half], *found[-half:]] if cut else found
    named = kinds(shown)
    wide = width >= 700
    left = 124.0 if wide else 62.0
    x = Scale(
        high=max(lane.end for lane in found) or 1.0,
        start=left,
        length=math.floor(width - left - (84.0 if wide else 58.0)),
    )
    sketch = Sketch(width)
    y = sketch.legend(_legend(named, any(lane.waiting for lane in shown))) - 4
    sketch.write("waits", width - 4, y - 8, "right", colour=palette.FAINT)
    top = y = y - 20
    least = _least(shown, x)
    for place, lane in enumerate(shown):
        if cut and place == half:
            text = f"{_ranks(found[half:-half])} ranks between"
            sketch.write(text, x.start + x.length / 2, y - 10, "center", colour=palette.FAINT)
            y -= 24
        y = _lane(sketch, lane, named, x, y, least, wide=wide)
    values = x.ticks(70.0 if wide else 48.0)
    unit, texts, _ = numbers.ticks(values, "s")
    for at, text in zip(map(x.at, values), texts, strict=True):
        sketch.line((at, top), (at, y), colour=palette.RULE, weight=0.7, under=True)
        sketch.line((at, y), (at, y - 4), colour=palette.FAINT, weight=0.8)
        sketch.write(text, at, y - 13, "center", colour=palette.FAINT)
    sketch.line((x.start, y), (x.start + x.length, y), colour=palette.FAINT, weight=0.8)
    sketch.write(unit, x.start + x.length + 26, y - 13)
    caption = timeline_finding(use)
    if cut:
        slow, fast = _ranks(found[:half]), _ranks(found[-half:])
        caption += f" Drawn: the {slow} slowest and the {fast} fastest of {_ranks(found)} ranks."
    return sketch.finish(26 - y, f"MoE layer {use.layer} rank by rank", caption)


def _ranks(found: Iterable[Lane]) -> int:
    return sum(len(lane.ranks) for lane in found)


def _lane(
    sketch: Sketch, lane: Lane, named: Kinds, x: Scale, top: float, least: float, *, wide: bool
) -> float:
    """Units above links; returns where the lane ends."""
    many = len(lane.ranks) > 1
    name = f"{len(lane.ranks)} ranks" if many else f"rank {lane.ranks[0]}"
    middle = top - BAND - 1
    sketch.write(
        name, x.start - (58 if wide else 8), middle if wide else top - 9, "right", bold=True
    )
    if wide:
        sketch.write("units", x.start - 8, top - BAND / 2, "right", colour=palette.FAINT)
        sketch.write("links", x.start - 8, middle - BAND / 2, "right", colour=palette.FAINT)
    share = numbers.percent(lane.waiting / (lane.end or 1.0))
    sketch.write(share, sketch.width - 4, top - BAND / 2, "right")
    gid = f"rank-{lane.ranks[0]}"
    for row, which in ((top - BAND, "units"), (middle - BAND, "links")):
        own = [span for span in lane.spans if span.lane == which]
        filled: dict[int, float] = {}
        for place, kind in enumerate(named.names):
            spans = [span for span in own if named.place(span.name) == place]
            whole, thin = blocks(spans, x, least)
            boxes = [Rect(start, row, end - start, BAND) for start, end in whole]
            mark = f"{gid}-{which}-{place + 1}"
            roomy = [box for box in boxes if box.width >= _EDGED]
            slim = [box for box in boxes if box.width < _EDGED]
            sketch.fill(roomy, named.colour(kind), edge=palette.PAPER, gid=mark)
            sketch.fill(slim, named.colour(kind), gid=f"{mark}-slim")
            columns = _columns(thin, row, least, filled)
            sketch.fill(columns, named.colour(kind), gid=f"{mark}-merged")
            for box in boxes:
                _label(sketch, kind, named, box)
    waits = [span for span in lane.spans if span.lane == "wait"]
    whole, _ = blocks(waits, x, least)
    boxes = [Rect(start, top - BAND, end - start, BAND) for start, end in whole]
    sketch.fill(boxes, palette.OTHER, hatched=True, gid=f"{gid}-wait")
    low = middle - BAND
    sketch.line((x.start, low - 4), (x.start + x.length, low - 4), colour=palette.RULE, weight=0.7)
    return low - 8


def _label(sketch: Sketch, kind: str, named: Kinds, rect: Rect) -> None:
    """The name of a kind inside a block that has room for it, else its number."""
    number = str(named.place(kind) + 1)
    for text in (numbers.plain(kind), number):
        if text_width(text, 12.0) + 4 <= rect.width:
            colour = palette.on(named.colour(kind))
            at = rect.left + rect.width / 2
            sketch.write(text, at, rect.bottom + rect.height / 2, "center", colour=colour)
            return


def blocks(
    spans: list[Span], x: Scale, least: float
) -> tuple[list[tuple[float, float]], dict[int, float]]:
    """Ends of the spans of one kind in points; those narrower than ``least`` points as columns.

    Spans that touch are one. A column is as wide as ``least`` and has the share of it that is
    busy, so that no span is ever widened.
    """
    joined: list[tuple[float, float]] = []
    for span in spans:
        start, end = x.at(span.start), x.at(span.end)
        if joined and start - joined[-1][1] < 0.05:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    whole = [(start, end) for start, end in joined if end - start >= least]
    busy: dict[int, float] = {}
    for start, end in joined:
        while end - start < least and start < end:
            column = math.floor(start / least)
            stop = min(end, (column + 1) * least)
            busy[column] = busy.get(column, 0.0) + max(0.0, stop - start) / least
            start = stop if stop > start else end
    return whole, busy


def _columns(
    busy: dict[int, float], bottom: float, least: float, filled: dict[int, float]
) -> list[Rect]:
    """Columns on top of those that other kinds filled."""
    found = []
    for column, share in sorted(busy.items()):
        base = filled.get(column, 0.0)
        share = min(share, 1.0 - base)
        found.append(Rect(column * least, bottom + BAND * base, least, BAND * share))
        filled[column] = base + share
    return found


def _least(shown: list[Lane], x: Scale) -> float:
    """The narrowest span that is drawn as such, in points: 1, or more where there are many."""
    least = 1.0
    while least < x.length:
        count = 0
        for lane in shown:
            for name in {(span.lane, span.name) for span in lane.spans}:
                own = [span for span in lane.spans if (span.lane, span.name) == name]
                count += sum(map(len, blocks(own, x, least)))
        if count <= RECTS:
            break
        least *= 2
    return least


def _legend(named: Kinds, waits: bool) -> list[Swatch]:
    """Numbers, colours and names of the kinds."""
    entries = [
        Swatch(f"{place} {numbers.plain(name)}", palette.SERIES[place - 1])
        for place, name in enumerate(named.names, start=1)
    ]
    return [*entries, Swatch("waiting", "")] if waits else entries
