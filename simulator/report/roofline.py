"""The roofline of results: where each operator lies under its roof, and how much that matters.

After Williams, Waterman and Patterson (2009): attainable FLOP/s = min(peak, intensity x bandwidth).
Size says time, colour what binds, shape the number format. A decade has one length on both axes,
so that a bandwidth is a line at 45 degrees. Pure layout; the pen draws it.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from simulator.errors import BoundsError, Fault, SpecError
from simulator.report import numbers, palette
from simulator.report.picture import TEXT, Axis, Ceiling, Key, Mark, Picture, Words
from simulator.report.placement import Box, Line, Sheet, Spot, around, text_width
from simulator.report.points import points
from simulator.report.ranking import of_roof, ranked
from simulator.report.table import title
from simulator.result import Bound, OpUse, Result

WIDE, NARROW = 960.0, 360.0
LARGEST, SMALLEST = 18.0, 4.0
"""Radius of the longest operator, and of the least that is still seen."""
NAMED, NUMBERED, DRAWN = 8, 30, 300
"""How many operators get a name, a rank, a mark."""

_LINE = 17.0
_SLACK = 1e-6
_DASHES = ("solid", "dashed", "dotted", "dashdot")


def picture(results: Sequence[Result], width: float = WIDE) -> Picture:
    """Lay out the roofline of one result, or of several with the first in front.

    ``width`` is in points; under 700 the legend goes below. Raises BoundsError where an operator
    is above its roof: the run is wrong.
    """
    assert results, "a roofline needs a result"
    for result in results:
        _check(result)
    return _Layout(results, width).picture()


def finding(result: Result) -> str:
    """What the picture shows, as sentences."""
    ops = [op for op in ranked(result) if op.time > 0]
    if not ops:
        return "No operator takes any time."
    whole = math.fsum(op.time for op in ops)
    seconds: dict[Bound, float] = {}
    for op in ops:
        seconds[op.bound_by] = seconds.get(op.bound_by, 0.0) + op.time
    most = max(seconds, key=lambda bound: seconds[bound])
    share = numbers.percent(seconds[most] / whole)
    text = f"{_BINDS[most]}: {share} of the operator time is in {_KIND[most]} operators."
    first = ops[0]
    reached = of_roof(first, result.roof)
    if reached is not None:
        name = numbers.cut(numbers.plain(first.name), 40)
        text += (
            f" The longest, {name} ({numbers.percent(first.time / whole)}), reaches"
            f" {numbers.percent(reached)} of its roof."
        )
    return text


_BINDS: dict[Bound, str] = {
    "compute": "Compute binds",
    "memory": "Memory binds",
    "link": "Links bind",
    "latency": "Launch and fill latency binds",
    "waiting": "Waiting binds",
}
_KIND: dict[Bound, str] = {
    "compute": "compute-bound",
    "memory": "memory-bound",
    "link": "link-bound",
    "latency": "latency-bound",
    "waiting": "waiting",
}


def write_roofline(results: Result | Sequence[Result], path: str | Path) -> Path:
    """Write the picture as .svg or .png, or its points as .csv, whole or not at all.

    The first result is drawn in front, others hollow with grey roofs. Raises SpecError where the
    name ends otherwise or cannot be written, BoundsError where a point is above its roof.
    """
    shown = [results] if isinstance(results, Result) else list(results)
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in {".svg", ".png", ".csv"}:
        found = f"ends in {suffix!r}" if suffix else "has no ending"
        raise SpecError([Fault(str(path), None, "", found, "end it in .svg, .png or .csv")])
    if suffix == ".csv":
        data = points(shown).encode()
    else:
        from simulator.report import pen

        layout = picture(shown)
        figure = pen.draw(layout)
        data = pen.svg(figure, layout).encode() if suffix == ".svg" else pen.png(figure, layout)
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(target)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise SpecError(
            [Fault(str(path), None, "", error.strerror or str(error), "name a file to write")]
        ) from None
    return target


class _Layout:
    """Computes places from the bottom up: caption, legend if below, strip, frame, title."""

    def __init__(self, results: Sequence[Result], width: float) -> None:
        self.results, self.width = results, width
        self.beside = width >= 700
        self.shapes = palette.marks(op.format for r in results for op in ranked(r))
        self.longest = max((op.time for r in results for op in r.ops), default=0.0)
        self.words: list[Words] = []
        self.keys: list[Key] = []
        self.leaders: list[Line] = []
        self.caption = self._caption()

    def picture(self) -> Picture:
        margin = 14.0
        left, right = (56.0, 262.0) if self.beside else (48.0, 12.0)
        wrap = int((self.width - 2 * margin) / (0.56 * TEXT))
        caption = textwrap.wrap(self.caption, wrap)
        heading = _title_lines(self.results, int((self.width - 2 * margin) / (0.62 * 14)))

        y = margin / 2
        for line in reversed(caption):
            self.words.append(Words(text=line, x=margin, y=y + _LINE / 2, colour=palette.INK))
            y += _LINE
        y += 8
        if not self.beside:
            y += self._legend_below(margin, y)
        moved = any(op.flops <= 0 < op.bytes and op.time > 0 for r in self.results for op in r.ops)
        strip_y = (y + 38, y + 82)
        y = (strip_y[1] if moved else y) + 44

        x_axis, y_axis = self._axes(left, self.width - left - right, y)
        strip = self._strip(left, self.width - left - right) if moved else None
        frame = Box(left, y, self.width - right, y_axis.start + y_axis.length)
        self.words += [
            Words(
                text="FLOP per byte of device memory",
                x=(frame.left + frame.right) / 2,
                y=y - 30,
                align="center",
            ),
            Words(text="FLOP/s of one device", x=margin, y=frame.top + 14),
        ]
        top = frame.top + 30
        for line in reversed(heading):
            self.words.append(Words(text=line, x=margin, y=top + 10, size=14.0, bold=True))
            top += 20

        marks = self._marks(x_axis, y_axis)
        ceilings, drops, labels = self._roofs(x_axis, y_axis)
        sheet = Sheet(bounds=Box(frame.left + 2, frame.bottom + 2, frame.right - 2, frame.top - 2))
        sheet.lines += [ceiling.line for ceiling in ceilings] + drops
        sheet.boxes += [_box(mark) for mark in marks]
        for text, colour, spots in labels:
            self._write(sheet, text, colour, spots)
        links = self._links(marks)
        self._name(sheet, marks)

        strip_marks: list[Mark] = []
        if strip is not None:
            strip_marks = self._strip_marks(strip, strip_y)
            band = Sheet(bounds=Box(frame.left, strip_y[0] + 1, frame.right, strip_y[1] - 1))
            band.boxes += [_box(mark) for mark in strip_marks]
            ceilings += self._strip_roofs(strip, strip_y, band)
            self._name(band, strip_marks)
            self.words.append(
                Words(
                    text="bytes/s of operators without FLOP",
                    x=(frame.left + frame.right) / 2,
                    y=strip_y[0] - 30,
                    align="center",
                )
            )
        if self.beside:
            self._legend_beside(frame.right + 22, frame.top, strip_y[0] if moved else frame.bottom)
        return Picture(
            width=self.width,
            height=top + margin / 2,
            x=x_axis,
            y=y_axis,
            strip=strip,
            strip_y=strip_y,
            ceilings=tuple(ceilings),
            drops=tuple(drops),
            links=tuple(links),
            leaders=tuple(self.leaders),
            marks=tuple(marks),
            strip_marks=tuple(strip_marks),
            words=tuple(self.words),
            keys=tuple(self.keys),
            title=", ".join(title(self.results[0])),
            caption=self.caption,
        )

    def _caption(self) -> str:
        text = finding(self.results[0])
        hidden = sum(1 for op in self.results[0].ops if not _drawable(op) and not _moves(op))
        if hidden:
            text += f" {numbers.count(hidden)} operators take no time or no bytes: not drawn."
        if len(self.results[0].ops) > DRAWN:
            text += f" The {DRAWN} longest are drawn."
        for warning in self.results[0].warnings:
            text += f" Warning: {numbers.plain(warning)}."
        return text.replace("..", ".")

    def _axes(self, left: float, length: float, bottom: float) -> tuple[Axis, Axis]:
        """Whole decades round the data and the ridges, of one length on both axes."""
        drawn = [op for r in self.results for op in ranked(r)[:DRAWN] if _drawable(op)]
        peaks = [rate for r in self.results for _, rate in _peaks(r)]
        ridges = [rate / r.roof.bandwidth for r in self.results for _, rate in _peaks(r)]
        xs = [op.intensity or 1.0 for op in drawn] + ridges
        ys = [op.rate or 1.0 for op in drawn] or [max(peaks) / 100]
        x_low, x_high = _padded(min(xs) / 1.5, max(xs) * 2)
        y_low, y_high = _padded(min(ys) / 1.5, max(*peaks, *ys) * 1.5, grow_up=False)
        least, most = (330.0, 540.0) if self.beside else (260.0, 400.0)
        decade = min(length / (x_high - x_low), most / (y_high - y_low))
        spare = length / decade - (x_high - x_low)
        x_low, x_high = x_low - spare / 2, x_high + spare / 2
        y_low = min(y_low, y_high - least / decade)
        return (
            Axis(low=10**x_low, high=10**x_high, start=left, length=length, unit="FLOP/B"),
            Axis(
                low=10**y_low,
                high=10**y_high,
                start=bottom,
                length=(y_high - y_low) * decade,
                unit="FLOP/s",
            ),
        )

    def _radius(self, time: float) -> float:
        return max(SMALLEST, LARGEST * math.sqrt(time / self.longest)) if self.longest else SMALLEST

    def _marks(self, x: Axis, y: Axis) -> list[Mark]:
        """Marks of each device, those of the first last, the longest below the shorter."""
        marks: list[Mark] = []
        for device in reversed(range(len(self.results))):
            found = [
                self._mark(op, rank, device, op.intensity or 1.0, op.rate or 1.0, x, y)
                for rank, op in enumerate(ranked(self.results[device]), start=1)
                if rank <= DRAWN and _drawable(op)
            ]
            marks += self._merged(found)
        return marks

    def _mark(
        self, op: OpUse, rank: int, device: int, at_x: float, at_y: float, x: Axis, y: Axis
    ) -> Mark:
        return Mark(
            gid=f"device-{device + 1}-operator-{rank}",
            name=numbers.plain(op.name),
            ranks=(rank,),
            device=device,
            x=at_x,
            y=at_y,
            place=(x.at(at_x), y.at(at_y)),
            radius=self._radius(op.time),
            bound=op.bound_by,
            shape=self.shapes[op.format],
            time=op.time,
        )

    def _merged(self, marks: list[Mark]) -> list[Mark]:
        """Marks of one look in one spot become one, with all their ranks."""
        spots: dict[tuple[object, ...], Mark] = {}
        for mark in marks:
            key = (*(round(at / 2) for at in mark.place), mark.bound, mark.shape)
            first = spots.get(key)
            if first is None:
                spots[key] = mark
            else:
                time = first.time + mark.time
                spots[key] = replace(
                    first,
                    ranks=first.ranks + mark.ranks,
                    time=time,
                    radius=min(LARGEST, self._radius(time)),
                )
        return list(spots.values())

    def _roofs(
        self, x: Axis, y: Axis
    ) -> tuple[list[Ceiling], list[Line], list[tuple[str, str, Iterator[Spot]]]]:
        """Roofs, ridge drops and their labels, most important label first."""
        ceilings: list[Ceiling] = []
        drops: list[Line] = []
        labels: list[tuple[str, str, Iterator[Spot]]] = []
        several = len(self.results) > 1
        for device, result in enumerate(self.results):
            front = device == 0
            colour = palette.INK if front else palette.OTHER
            text_colour = palette.INK if front else palette.FAINT
            owner = f"{numbers.plain(result.hardware)} " if several else ""
            dash = _DASHES[0] if front else _DASHES[1 + (device - 1) % 3]
            roof = result.roof
            peaks = _peaks(result)
            top = max(rate for _, rate in peaks)
            slope = _rising(x, y, roof.bandwidth, top)
            ceilings.append(_ceiling(slope, dash, colour, 1.6, f"roof-{device + 1}-memory"))
            text = f"{owner}memory {numbers.quantity(roof.bandwidth, 'B/s')}"
            if front and 0 < roof.achieved_bandwidth < roof.bandwidth:
                held = _rising(x, y, roof.achieved_bandwidth, top)
                ceilings.append(_ceiling(held, "dashed", colour, 1.0, "roof-1-memory-achieved"))
                text += f", achieved {numbers.quantity(roof.achieved_bandwidth, 'B/s')}"
            labels.append((text, text_colour, _along(slope, text)))
            held_rates = dict(roof.held)
            for name, rate in peaks:
                level = _level(x, y, rate, roof.bandwidth)
                slug = name.split(",")[0].replace(" ", "-")
                ceilings.append(_ceiling(level, dash, colour, 1.6, f"roof-{device + 1}-{slug}"))
                text = f"{owner}{name} {numbers.quantity(rate, 'FLOP/s')}"
                held_rate = held_rates.get(name.split(", ")[0], 0.0)
                if front and 0 < held_rate < rate:
                    lower = _level(x, y, held_rate, roof.achieved_bandwidth or roof.bandwidth)
                    ceilings.append(_ceiling(lower, "dashed", colour, 1.0, f"roof-1-{slug}-held"))
                    text += f", held {numbers.quantity(held_rate, 'FLOP/s')}"
                labels.append((text, text_colour, _above(level, text)))
                if front and "vector" not in name:
                    ridge = rate / roof.bandwidth
                    drop = Line(level.x0, y.start, level.x0, level.y0)
                    drops.append(drop)
                    text = f"ridge {numbers.digits(ridge)}"
                    labels.insert(0, (text, palette.FAINT, _beside(drop, text)))
        return ceilings, drops, labels

    def _links(self, marks: Sequence[Mark]) -> list[tuple[Line, str]]:
        """From each operator of the first device to the same one on the others."""
        front = {mark.name: mark for mark in marks if mark.device == 0}
        return [
            (Line(*front[mark.name].place, *mark.place), _DASHES[1 + (mark.device - 1) % 3])
            for mark in marks
            if mark.device and mark.name in front
        ]

    def _name(self, sheet: Sheet, marks: Sequence[Mark]) -> None:
        """Names of the longest, ranks of the next, where there is room."""
        front = sorted((mark for mark in marks if mark.device == 0), key=lambda mark: mark.ranks)
        for mark in front:
            rank, more = mark.ranks[0], len(mark.ranks) - 1
            if rank > NUMBERED:
                break
            tail = f" and {more} more" if more else ""
            name = numbers.cut(mark.name, 28 if self.beside else 16)
            texts = [f"{rank}{tail}"]
            if rank <= NAMED:
                texts.insert(0, f"{rank} {name}{tail}")
            any(
                self._write(sheet, text, palette.INK, around(*mark.place, mark.radius, text, TEXT))
                for text in texts
            )

    def _write(self, sheet: Sheet, text: str, colour: str, spots: Iterator[Spot]) -> bool:
        spot = sheet.place(text, TEXT, spots)
        if spot is None:
            return False
        self.words.append(
            Words(text=text, x=spot.x, y=spot.y, align="center", turn=spot.turn, colour=colour)
        )
        if spot.leader is not None:
            self.leaders.append(spot.leader)
        return True

    def _strip(self, left: float, length: float) -> Axis:
        """Axis of the operators that only move data."""
        rates = [op.bytes / op.time for r in self.results for op in r.ops if _moves(op)]
        limits = [r.roof.bandwidth for r in self.results]
        low, high = _padded(min(rates) / 1.5, max(limits) * 1.5, grow_up=False)
        return Axis(low=10**low, high=10**high, start=left, length=length, unit="B/s")

    def _strip_marks(self, axis: Axis, band: tuple[float, float]) -> list[Mark]:
        level = Axis(low=1.0, high=10.0, start=(band[0] + band[1]) / 2, length=1.0, unit="")
        marks: list[Mark] = []
        for device in reversed(range(len(self.results))):
            found = [
                self._mark(op, rank, device, op.bytes / op.time, 1.0, axis, level)
                for rank, op in enumerate(ranked(self.results[device]), start=1)
                if _moves(op)
            ]
            marks += self._merged([replace(m, radius=min(10.0, m.radius)) for m in found[:DRAWN]])
        return marks

    def _strip_roofs(self, axis: Axis, band: tuple[float, float], sheet: Sheet) -> list[Ceiling]:
        found: list[Ceiling] = []
        for device, result in enumerate(self.results):
            colour = palette.INK if device == 0 else palette.OTHER
            dash = _DASHES[0] if device == 0 else _DASHES[1 + (device - 1) % 3]
            rates = [(result.roof.bandwidth, dash, 1.6)]
            if device == 0:
                rates.append((result.roof.achieved_bandwidth, "dashed", 1.0))
            for rate, style, weight in rates:
                if rate > 0:
                    line = Line(axis.at(rate), band[0], axis.at(rate), band[1])
                    sheet.lines.append(line)
                    gid = f"strip-{device + 1}-{style}"
                    found.append(_ceiling(line, style, colour, weight, gid))
        return found

    def _legend(self) -> list[tuple[str, list[tuple[Key, str]]]]:
        """Groups of signs and their meaning; places are given later."""
        ops = [op for r in self.results for op in ranked(r)[:DRAWN] if op.time > 0]
        present = {op.bound_by for op in ops}
        groups: list[tuple[str, list[tuple[Key, str]]]] = [
            (
                "colour: what binds",
                [
                    (Key(colour=colour, shape="o"), bound)
                    for bound, colour in palette.BOUND.items()
                    if bound in present
                ],
            ),
            (
                "shape: number format",
                [
                    (Key(colour=palette.FAINT, shape=shape), numbers.plain(name))
                    for name, shape in self.shapes.items()
                ],
            ),
        ]
        if self.longest:
            times = [self.longest, self.longest / 10]
            groups.append(
                (
                    "area: total time",
                    [
                        (
                            Key(colour=palette.OTHER, shape="o", radius=self._radius(time)),
                            numbers.typeset(numbers.quantity(time, "s")),
                        )
                        for time in times
                    ],
                )
            )
        lines = [
            (Key(colour=palette.INK, dash="solid"), "peak"),
            (Key(colour=palette.INK, dash="dashed"), "held or achieved"),
        ]
        groups.append(("roofs", lines))
        if len(self.results) > 1:
            devices = [
                (
                    Key(
                        colour=palette.OTHER if device else palette.INK,
                        shape="o",
                        dash=_DASHES[0] if device == 0 else _DASHES[1 + (device - 1) % 3],
                        hollow=device > 0,
                    ),
                    numbers.plain(result.hardware),
                )
                for device, result in enumerate(self.results)
            ]
            groups.append(("device", devices))
        return groups

    def _legend_beside(self, left: float, top: float, bottom: float) -> None:
        """Groups under each other, then the operators by time as far as there is room."""
        y = top - 2
        for heading, entries in self._legend():
            self.words.append(Words(text=heading, x=left, y=y - 8, colour=palette.FAINT))
            y -= 21
            for key, text in entries:
                half = max(_LINE / 2, key.radius + 1)
                self.keys.append(replace(key, x=left + 18, y=y - half))
                self.words.append(Words(text=text, x=left + 44, y=y - half))
                y -= 2 * half
            y -= 8
        ops = ranked(self.results[0])
        rows = int((y - 21 - bottom) / _LINE)
        if rows < 2 or not ops:
            return
        whole = max(self.results[0].latency, math.fsum(op.time for op in ops))
        shares = numbers.shares([op.time for op in ops], whole)
        right = self.width - 14
        self.words.append(Words(text="operators by time", x=left, y=y - 8, colour=palette.FAINT))
        self.words.append(Words(text="%", x=right, y=y - 8, align="right", colour=palette.FAINT))
        y -= 21
        shown = len(ops) if len(ops) <= rows else rows - 1
        for rank, (op, share) in enumerate(zip(ops[:shown], shares, strict=False), start=1):
            name = numbers.plain(op.name)
            room = right - left - 34 - text_width(share, TEXT)
            while text_width(name, TEXT) > room:
                name = numbers.cut(name, len(name) - 1)
            self.words += [
                Words(text=str(rank), x=left + 16, y=y - _LINE / 2, align="right"),
                Words(text=name, x=left + 24, y=y - _LINE / 2),
                Words(text=share, x=right, y=y - _LINE / 2, align="right"),
            ]
            y -= _LINE
        if shown < len(ops):
            more = f"and {numbers.count(len(ops) - shown)} more"
            self.words.append(Words(text=more, x=left + 24, y=y - _LINE / 2, colour=palette.FAINT))

    def _legend_below(self, left: float, bottom: float) -> float:
        """Groups as lines of text that wrap; returns the height taken."""
        rows: list[list[tuple[float, Key | None, str]]] = []
        for heading, entries in self._legend():
            x = left
            row: list[tuple[float, Key | None, str]] = []
            items: list[tuple[Key | None, str]] = [(None, heading + ":"), *entries]
            for key, text in items:
                sign = 0.0 if key is None else (2 * key.radius if key.shape else 28.0) + 6
                if key is not None and key.dash and key.shape:
                    sign = 34.0
                taken = sign + text_width(text, TEXT) + 12
                if row and x + taken > self.width:
                    rows.append(row)
                    x, row = left + 14, []
                row.append((x, key, text))
                x += taken
            rows.append(row)
        heights = [max(_LINE + 3, *(2 * k.radius + 4 if k else 0 for _, k, _ in r)) for r in rows]
        y = bottom + sum(heights)
        for row, height in zip(rows, heights, strict=True):
            for x, key, text in row:
                sign = 0.0
                if key is not None:
                    half = key.radius if key.shape and not key.dash else 14.0
                    self.keys.append(replace(key, x=x + half, y=y - height / 2))
                    sign = 2 * half + 6
                colour = palette.FAINT if key is None else palette.INK
                self.words.append(Words(text=text, x=x + sign, y=y - height / 2, colour=colour))
            y -= height
        return sum(heights) + 4


def _drawable(op: OpUse) -> bool:
    return op.flops > 0 and op.bytes > 0 and op.time > 0


def _moves(op: OpUse) -> bool:
    return op.flops <= 0 < op.bytes and op.time > 0


def _peaks(result: Result) -> list[tuple[str, float]]:
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


def _padded(low: float, high: float, *, grow_up: bool = True) -> tuple[float, float]:
    """Powers of ten around two values, at least three decades."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    missing = max(0, 3 - (last - first))
    return (first, last + missing) if grow_up else (first - missing, last)


def _ceiling(line: Line, dash: str, colour: str, weight: float, gid: str) -> Ceiling:
    return Ceiling(line=line, dash=dash, colour=colour, weight=weight, gid=gid)


def _rising(x: Axis, y: Axis, bandwidth: float, top: float) -> Line:
    """The memory roof from where it enters the frame up to the highest compute roof."""
    low = max(x.low, y.low / bandwidth)
    high = top / bandwidth
    return Line(x.at(low), y.at(low * bandwidth), x.at(high), y.at(top))


def _level(x: Axis, y: Axis, rate: float, bandwidth: float) -> Line:
    """A compute roof from its ridge to the right edge."""
    return Line(x.at(max(x.low, rate / bandwidth)), y.at(rate), x.start + x.length, y.at(rate))


def _along(line: Line, text: str) -> Iterator[Spot]:
    """Places along a rising roof from its far end: above it, below it, then beside it, upright."""
    half, length = text_width(text, TEXT) / 2, math.hypot(line.x1 - line.x0, line.y1 - line.y0)
    root = math.sqrt(0.5)
    along = half + 10
    while along + half < length:
        x, y = line.x0 + along * root, line.y0 + along * root
        yield Spot(x=x - 11 * root, y=y + 11 * root, turn=45)
        along += 16
    along = half + 10
    while along + half < length:
        x, y = line.x0 + along * root, line.y0 + along * root
        yield Spot(x=x + 11 * root, y=y - 11 * root, turn=45)
        along += 16
    height = 10.0
    while line.y0 + height < line.y1:
        yield Spot(x=line.x0 + height + 26 + half, y=line.y0 + height)
        height += 16


def _above(line: Line, text: str) -> Iterator[Spot]:
    """Places along a level roof from its far end, above it and then below."""
    half = text_width(text, TEXT) / 2
    x = line.x1 - half - 6
    while x - half > line.x0 - 120:
        yield Spot(x=x, y=line.y0 + 10)
        yield Spot(x=x, y=line.y0 - 10)
        x -= 24


def _beside(line: Line, text: str) -> Iterator[Spot]:
    """Places along an upright line from its foot, right of it and then left."""
    half = text_width(text, TEXT) / 2
    y = line.y0 + 12
    while y < line.y1:
        yield Spot(x=line.x0 + half + 4, y=y)
        yield Spot(x=line.x0 - half - 4, y=y)
        y += 16


def _box(mark: Mark) -> Box:
    x, y, radius = *mark.place, mark.radius + 1
    return Box(x - radius, y - radius, x + radius, y + radius)


def _title_lines(results: Sequence[Result], letters: int) -> list[str]:
    parts = title(results[0])
    if len(results) > 1:
        others = " and ".join(numbers.plain(result.hardware) for result in results[1:])
        parts[0] += f", against {others}"
    lines = textwrap.wrap("Roofline: " + ", ".join(parts), letters)
    return [numbers.cut(line, letters) for line in lines[:4]]


def _check(result: Result) -> None:
    for op in result.ops:
        reached = of_roof(op, result.roof)
        if reached is not None and reached > 1 + _SLACK:
            raise BoundsError(
                f"{result.workload} on {result.hardware}: operator {op.name!r} reaches "
                f"{reached:.6g} of its roof; nothing can pass its roof"
            )
