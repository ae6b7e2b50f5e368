"""The roofs of a roofline: where they run, what is written on them and where it may stand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from simulator.report import legend, numbers, palette
from simulator.report.picture import TEXT, Axis, Ceiling
from simulator.report.placement import Line, Spot, text_width
from simulator.report.ranking import ranked
from simulator.result import Result, RoofLevel

_THIN = 0.9
"""Weight of what is not the device memory's."""


@dataclass(frozen=True, slots=True)
class Label:
    """Texts for one line, the fullest first, and the places to try along it."""

    texts: list[str]
    colour: str
    line: Line
    spots: tuple[Callable[[Line, str], Iterator[Spot]], ...]


def build(
    results: Sequence[Result], x: Axis, y: Axis
) -> tuple[list[Ceiling], list[Line], list[Label]]:
    """Roofs, lines down from the ridges, and labels, most important first."""
    ceilings: list[Ceiling] = []
    drops: list[Line] = []
    ridges: list[Label] = []
    levels: list[Label] = []
    slopes: list[Label] = []
    inner: list[Label] = []
    for device, result in enumerate(results):
        front, roof, tops = device == 0, result.roof, peaks(result)
        ink, faint = (palette.INK, palette.INK) if front else (palette.OTHER, palette.FAINT)
        owner = f"{numbers.plain(result.hardware)} " if len(results) > 1 else ""
        held = dict(roof.held)

        def add(
            line: Line,
            what: str,
            dash: str,
            device: int = device,
            ink: str = ink,
            weight: float | None = None,
        ) -> None:
            if weight is None:
                weight = 1.0 if dash == "dashed" and device == 0 else 1.6
            gid = f"roof-{device + 1}-{what}"
            ceilings.append(Ceiling(line=line, dash=dash, colour=ink, weight=weight, gid=gid))

        solid = legend.stroke_of(device)
        top = max(rate for _, rate in tops)
        slope = _rising(x, y, roof.bandwidth, top)
        add(slope, "memory", solid)
        peak = numbers.quantity(roof.bandwidth, "B/s")
        texts = [f"{owner}memory {peak}", f"{owner}{peak}"]
        if front:
            for nearer in roof.levels:
                if not nearer.link or len(results) == 1:  # grey is the other devices' otherwise
                    inner += _level_roofs(x, y, nearer, top, add)
            if over := [one.bandwidth for one in roof.levels if not one.link]:
                start = max(x.low, top / max(over))
                line = Line(x.at(start), y.at(top), x.at(top / roof.bandwidth), y.at(top))
                add(line, "levels", solid, weight=_THIN)
        if front and 0 < roof.achieved_bandwidth < roof.bandwidth:
            reached = max(held.get(_format(name), rate) for name, rate in tops)
            add(_rising(x, y, roof.achieved_bandwidth, reached), "memory-achieved", "dashed")
            achieved = numbers.quantity(roof.achieved_bandwidth, "B/s")
            texts.insert(0, f"{texts[0]}, achieved {achieved}")
        slopes.append(Label(texts, faint, slope, (along, upright)))
        for place, (name, rate) in enumerate(tops, start=1):
            level = _level(x, y, rate, roof.bandwidth)
            add(level, f"compute-{place}", solid)
            texts = [f"{owner}{name} {numbers.quantity(rate, 'FLOP/s')}", f"{owner}{name}"]
            held_rate = held.get(_format(name), 0.0)
            if front and 0 < held_rate < rate:
                bandwidth = roof.achieved_bandwidth or roof.bandwidth
                add(_level(x, y, held_rate, bandwidth), f"compute-{place}-held", "dashed")
                texts.insert(0, f"{texts[0]}, held {numbers.quantity(held_rate, 'FLOP/s')}")
            levels.append(Label(texts, faint, level, (above,)))
            if front and "vector" not in name:
                drops.append(Line(level.x0, y.start, level.x0, level.y0))
                ridge = f"ridge {numbers.digits(rate / roof.bandwidth)}"
                texts = [f"{ridge} FLOP/B", ridge]
                ridges.append(Label(texts, palette.FAINT, drops[-1], (beside,)))
    return ceilings, drops, [*ridges, *levels, *slopes, *inner]


def _level_roofs(
    x: Axis, y: Axis, level: RoofLevel, top: float, add: Callable[..., None]
) -> list[Label]:
    """A thin roof for the bytes of one level, its achieved one, and its label."""
    name, line = numbers.plain(level.name), _clipped(x, y, level.bandwidth, top)
    if line is None:
        return []
    gid, ink = name.lower().replace(" ", "-"), palette.OTHER if level.link else palette.INK
    add(line, f"level-{gid}", "solid", ink=ink, weight=_THIN)
    peak = numbers.quantity(level.bandwidth, "B/s")
    texts = [
        f"{name} {peak}, ridge {numbers.digits(top / level.bandwidth)}",
        f"{name} {peak}",
        name,
    ]
    if level.achieved is not None and 0 < level.achieved < level.bandwidth:
        reached = _clipped(x, y, level.achieved, top)
        if reached is not None:
            add(reached, f"level-{gid}-achieved", "dashed", ink=ink, weight=_THIN)
            texts.insert(0, f"{texts[1]}, achieved {numbers.quantity(level.achieved, 'B/s')}")
    return [Label(texts, palette.FAINT, line, (along,))]


def _clipped(x: Axis, y: Axis, bandwidth: float, top: float) -> Line | None:
    """A rising roof inside the frame, or None where none of it is."""
    low, high = max(x.low, y.low / bandwidth), min(x.high, top / bandwidth)
    if low >= high:
        return None
    return Line(x.at(low), y.at(low * bandwidth), x.at(high), y.at(high * bandwidth))


def peaks(result: Result) -> list[tuple[str, float]]:
    """Ceilings that the operators work under; formats with one rate share one."""
    matrix = dict(result.roof.compute)
    found: dict[float, list[str]] = {}
    for op in ranked(result):
        if op.roof <= 0 or op.flops <= 0:
            continue
        same = math.isclose(matrix.get(op.format, op.roof), op.roof, rel_tol=1e-3)
        name = numbers.plain(op.format if same else f"{op.format} vector")
        rate = next((rate for rate in found if math.isclose(rate, op.roof, rel_tol=1e-3)), op.roof)
        names = found.setdefault(rate, [])
        if name not in names:
            names.append(name)
    if not found:
        rate = matrix.get(result.dtype) or max(matrix.values(), default=1.0)
        found[rate] = [numbers.plain(result.dtype)]
    return sorted(((", ".join(names), rate) for rate, names in found.items()), key=lambda p: -p[1])


def _rising(x: Axis, y: Axis, bandwidth: float, top: float) -> Line:
    """The memory roof from where it enters the frame up to the highest compute roof."""
    low = max(x.low, y.low / bandwidth)
    high = top / bandwidth
    return Line(x.at(low), y.at(low * bandwidth), x.at(high), y.at(top))


def _level(x: Axis, y: Axis, rate: float, bandwidth: float) -> Line:
    """A compute roof from its ridge to the right edge."""
    return Line(x.at(max(x.low, rate / bandwidth)), y.at(rate), x.start + x.length, y.at(rate))


def along(line: Line, text: str) -> Iterator[Spot]:
    """Places along a rising roof from its far end, above it and then below."""
    half, length = text_width(text, TEXT) / 2, math.hypot(line.x1 - line.x0, line.y1 - line.y0)
    root = math.sqrt(0.5)
    place = half + 10
    while place + half < length:
        x, y = line.x0 + place * root, line.y0 + place * root
        yield Spot(x=x - 11 * root, y=y + 11 * root, turn=45)
        place += 16
    place = half + 10
    while place + half < length:
        x, y = line.x0 + place * root, line.y0 + place * root
        yield Spot(x=x + 11 * root, y=y - 11 * root, turn=45)
        place += 16


def upright(line: Line, text: str) -> Iterator[Spot]:
    """Places at the right of a rising roof, not turned."""
    half = text_width(text, TEXT) / 2
    height = 10.0
    while line.y0 + height < line.y1:
        yield Spot(x=line.x0 + height + 26 + half, y=line.y0 + height)
        height += 16


def above(line: Line, text: str) -> Iterator[Spot]:
    """Places along a level roof from its far end, above it and then below, clear of all lines and
    then over thin ones."""
    half = text_width(text, TEXT) / 2
    for over in (False, True):
        x = line.x1 - half - 6
        while x - half > line.x0 - 120:
            yield Spot(x=x, y=line.y0 + 10, over=over)
            yield Spot(x=x, y=line.y0 - 10, over=over)
            x -= 24


def beside(line: Line, text: str) -> Iterator[Spot]:
    """Places along an upright line from its foot, right of it and then left, clear of all lines
    and then over thin ones."""
    half = text_width(text, TEXT) / 2
    for over in (False, True):
        y = line.y0 + 12
        while y < line.y1:
            yield Spot(x=line.x0 + half + 4, y=y, over=over)
            yield Spot(x=line.x0 - half - 4, y=y, over=over)
            y += 16


def _format(name: str) -> str:
    """The number format that a roof is named after."""
    return name.split(", ")[0]
