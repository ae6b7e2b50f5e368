"""Places of everything on a roofline, computed from results; draws nothing.

From the bottom up: caption, legend where the sheet is narrow, strip of the operators that only
move data, frame, title. Roofs, ridges and names go where nothing else stands.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from simulator.report import legend, numbers, palette, roofs
from simulator.report.facts import title
from simulator.report.picture import TEXT, Axis, Ceiling, Key, Mark, Picture, Words
from simulator.report.placement import Box, Line, Sheet, Spot, around, text_width
from simulator.report.ranking import ranked
from simulator.result import OpUse, Result

LARGEST, SMALLEST = 18.0, 4.0
"""Radius of the longest operator, and of the least that is still seen."""
NAMED, NUMBERED, DRAWN = 8, 30, 300
"""How many operators get a name, a rank, a mark."""

_MARGIN = 14.0
_LINE = 17.0
_STRIP = 44.0
_BELOW_AXIS = 48.0
"""Room for the texts under an axis."""


class Layout:
    """One sheet in the making; ``picture`` is the finished one."""

    def __init__(
        self, results: Sequence[Result], width: float, caption: str, *, bare: bool
    ) -> None:
        self.results, self.width, self.caption, self.bare = results, width, caption, bare
        self.beside = width >= 700
        self.shapes = palette.marks(
            op.format for result in results for op in _first(result) if _drawable(op) or _moves(op)
        )
        self.longest = max((op.time for result in results for op in result.ops), default=0.0)
        self.words: list[Words] = []
        self.keys: list[Key] = []
        self.leaders: list[Line] = []

    def picture(self) -> Picture:
        """Everything in its place."""
        y = self._caption(_MARGIN / 2) + 8
        groups = legend.groups(self.results, self.shapes, self._radius)
        if not self.beside:
            keys, words, height = legend.below(groups, _MARGIN, self.width - _MARGIN, y)
            self.keys += keys
            self.words += words
            y += height + 4
        left = 56.0 if self.beside else 48.0
        right = self.width - (262.0 if self.beside else 24.0)
        moved = any(_moves(op) for result in self.results for op in result.ops)
        strip_y = (y + _BELOW_AXIS, y + _BELOW_AXIS + _STRIP)
        bottom = (strip_y[1] if moved else y) + _BELOW_AXIS

        x_axis, y_axis = self._axes(left, right - left, bottom)
        top = y_axis.start + y_axis.length
        marks = self._marks(x_axis, y_axis)
        sheet = Sheet(bounds=Box(left + 2, bottom + 2, right - 2, top - 2))
        sheet.boxes += [_box(mark) for mark in marks]
        ceilings, drops, labels = roofs.build(self.results, x_axis, y_axis)
        sheet.lines += [ceiling.line for ceiling in ceilings if ceiling.weight > 1]
        sheet.thin += [ceiling.line for ceiling in ceilings if ceiling.weight <= 1] + drops
        for label in labels:
            any(
                self._write(sheet, text, label.colour, spots(label.line, text))
                for spots in label.spots
                for text in label.texts
            )
        self._name(sheet, marks)
        self._axis_title("FLOP per byte of device memory", x_axis, bottom)

        strip, strip_marks = None, []
        if moved:
            strip = self._strip(left, right - left)
            strip_marks = self._strip_marks(strip, strip_y)
            ceilings += self._strip_roofs(strip, strip_y, strip_marks)
            self._axis_title("bytes/s of operators without FLOP", strip, strip_y[0])
        if self.beside:
            keys, words, end = legend.beside(groups, right + 22, top - 2)
            self.keys += keys
            self.words += words
            floor = strip_y[0] if moved else bottom
            list_right = self.width - _MARGIN
            self.words += legend.by_time(self.results[0], right + 22, list_right, end, floor)
        self.words.append(Words(text="FLOP/s of one device", x=_MARGIN, y=top + 16))
        return Picture(
            width=self.width,
            height=self._title(top + 32) + _MARGIN / 2,
            x=x_axis,
            y=y_axis,
            strip=strip,
            strip_y=strip_y,
            ceilings=tuple(ceilings),
            drops=tuple(drops),
            links=tuple(self._links(marks)),
            leaders=tuple(self.leaders),
            marks=tuple(marks),
            strip_marks=tuple(strip_marks),
            words=tuple(self.words),
            keys=tuple(self.keys),
            title=", ".join(title(self.results[0])),
            caption=self.caption,
        )

    def _caption(self, bottom: float) -> float:
        """Write the caption and return where it ends."""
        if self.bare:
            return bottom
        letters = int((self.width - 2 * _MARGIN) / (0.54 * TEXT))
        for text in reversed(textwrap.wrap(self.caption, letters)):
            self.words.append(Words(text=text, x=_MARGIN, y=bottom + _LINE / 2))
            bottom += _LINE
        return bottom

    def _title(self, bottom: float) -> float:
        """Write the title and return where it ends."""
        if self.bare:
            return bottom - 6
        size = TEXT + 2
        parts = title(self.results[0])
        if len(self.results) > 1:
            others = " and ".join(numbers.plain(result.hardware) for result in self.results[1:])
            parts[0] += f" against {others}"
        letters = int((self.width - 2 * _MARGIN) / (0.62 * size))
        for text in reversed(textwrap.wrap("Roofline: " + ", ".join(parts), letters)[:5]):
            self.words.append(Words(text=text, x=_MARGIN, y=bottom + 10, size=size, bold=True))
            bottom += 20
        return bottom

    def _axis_title(self, text: str, axis: Axis, bottom: float) -> None:
        middle = axis.start + axis.length / 2
        self.words.append(Words(text=text, x=middle, y=bottom - 34, align="center"))

    def _axes(self, left: float, length: float, bottom: float) -> tuple[Axis, Axis]:
        """Whole decades round the data and the ridges, of one length on both axes."""
        drawn = [op for result in self.results for op in _first(result) if _drawable(op)]
        peaks = [(rate, result) for result in self.results for _, rate in roofs.peaks(result)]
        xs = [rate / result.roof.bandwidth / 8 for rate, result in peaks]
        xs += [8 * ridge for ridge in xs]
        ys = [rate for rate, _ in peaks]
        xs += [op.flops / op.bytes for op in drawn]
        slow = min((op.flops / op.time for op in drawn), default=max(ys) / 100)
        x_low, x_high = _decades(min(xs) / 1.5, max(xs) * 2)
        y_low, y_high = _decades(slow / 1.5, max(ys) * 1.5, down=True)
        least, most = (320.0, 500.0) if self.beside else (260.0, 380.0)
        decade = min(length / (x_high - x_low), most / (y_high - y_low))
        spare = length / decade - (x_high - x_low)
        x_low, x_high = x_low - spare / 2, x_high + spare / 2
        y_high = max(y_high, math.log10(max(ys)) + 24 / decade)
        y_low = min(y_low, y_high - least / decade)
        height = (y_high - y_low) * decade
        return (
            Axis(low=10.0**x_low, high=10.0**x_high, start=left, length=length),
            Axis(low=10.0**y_low, high=10.0**y_high, start=bottom, length=height),
        )

    def _radius(self, time: float) -> float:
        share = time / self.longest if self.longest > 0 else 0.0
        return min(LARGEST, max(SMALLEST, LARGEST * math.sqrt(share)))

    def _marks(self, x: Axis, y: Axis) -> list[Mark]:
        """Marks of each device, those of the first last, shorter ones above longer."""
        marks: list[Mark] = []
        for device, result in reversed(list(enumerate(self.results))):
            found = [
                self._mark(op, rank, device, op.flops / op.bytes, op.flops / op.time, x, y)
                for rank, op in enumerate(_first(result), start=1)
                if _drawable(op)
            ]
            marks += self._merged(found)
        return marks

    def _mark(
        self, op: OpUse, rank: int, device: int, x: float, y: float, across: Axis, up: Axis
    ) -> Mark:
        return Mark(
            gid=f"device-{device + 1}-operator-{rank}",
            name=numbers.plain(op.name),
            ranks=(rank,),
            device=device,
            x=x,
            y=y,
            place=(across.at(x), up.at(y)),
            radius=self._radius(op.time),
            bound=op.bound_by,
            shape=self.shapes[op.format],
            time=op.time,
        )

    def _merged(self, marks: list[Mark]) -> list[Mark]:
        """Marks of one look in one spot become one, with all their ranks."""
        spots: dict[tuple[object, ...], Mark] = {}
        for mark in marks:
            key = (*(round(2 * at) for at in mark.place), mark.bound, mark.shape)
            first = spots.setdefault(key, mark)
            if first is not mark:
                time = first.time + mark.time
                ranks = first.ranks + mark.ranks
                spots[key] = replace(first, ranks=ranks, time=time, radius=self._radius(time))
        return list(spots.values())

    def _links(self, marks: Sequence[Mark]) -> Iterator[tuple[Line, str]]:
        """From each operator of the first device to the same one on the others."""
        front = {mark.name: mark for mark in marks if mark.device == 0}
        for mark in marks:
            if mark.device and mark.name in front:
                line = Line(*front[mark.name].place, *mark.place)
                yield line, legend.stroke_of(mark.device)

    def _name(self, sheet: Sheet, marks: Sequence[Mark]) -> None:
        """Names of the longest, ranks of the next, where there is room."""
        front = sorted((mark for mark in marks if mark.device == 0), key=lambda mark: mark.ranks)
        for mark in front:
            first, *others = mark.ranks
            if first > NUMBERED:
                break
            tail = "".join(f", {rank}" for rank in others)
            if len(others) > 3:
                tail = f" and {numbers.count(len(others))} more"
            texts = [f"{first}{tail}"]
            if first <= NAMED:
                texts.insert(
                    0, f"{first} {numbers.cut(mark.name, 28 if self.beside else 18)}{tail}"
                )
            any(
                self._write(sheet, text, palette.INK, around(*mark.place, mark.radius, text, TEXT))
                for text in texts
            )

    def _write(self, sheet: Sheet, text: str, colour: str, spots: Iterator[Spot]) -> bool:
        spot = sheet.place(text, TEXT, spots)
        if spot is None:
            return False
        shift = {"left": -0.5, "center": 0.0, "right": 0.5}[spot.align] * text_width(text, TEXT)
        self.words.append(
            Words(
                text=text,
                x=spot.x + shift,
                y=spot.y,
                align=spot.align,
                turn=spot.turn,
                colour=colour,
                backed=spot.over,
            )
        )
        if spot.leader is not None:
            self.leaders.append(spot.leader)
        return True

    def _strip(self, left: float, length: float) -> Axis:
        """Axis of the operators that only move data."""
        rates = [op.bytes / op.time for result in self.results for op in result.ops if _moves(op)]
        limits = [result.roof.bandwidth for result in self.results]
        low, high = _decades(min(rates) / 1.5, max(limits) * 1.5, down=True)
        return Axis(low=10.0**low, high=10.0**high, start=left, length=length)

    def _strip_marks(self, axis: Axis, band: tuple[float, float]) -> list[Mark]:
        middle = Axis(low=1.0, high=10.0, start=(band[0] + band[1]) / 2, length=1.0)
        marks: list[Mark] = []
        for device, result in reversed(list(enumerate(self.results))):
            found = [
                self._mark(op, rank, device, op.bytes / op.time, 1.0, axis, middle)
                for rank, op in enumerate(_first(result), start=1)
                if _moves(op)
            ]
            marks += [replace(m, radius=min(12.0, m.radius)) for m in self._merged(found)]
        return marks

    def _strip_roofs(
        self, axis: Axis, band: tuple[float, float], marks: Sequence[Mark]
    ) -> list[Ceiling]:
        """Bandwidths across the strip; names of the marks and of the first bandwidth."""
        found: list[Ceiling] = []
        for device, result in enumerate(self.results):
            rates = [(result.roof.bandwidth, legend.stroke_of(device), 1.6)]
            if device == 0 and result.roof.achieved_bandwidth > 0:
                rates.append((result.roof.achieved_bandwidth, "dashed", 1.0))
            for rate, dash, weight in rates:
                line = Line(axis.at(rate), band[0], axis.at(rate), band[1])
                colour = palette.OTHER if device else palette.INK
                gid = f"strip-{device + 1}-{dash}"
                found.append(Ceiling(line=line, dash=dash, colour=colour, weight=weight, gid=gid))
        sheet = Sheet(bounds=Box(axis.start, band[0] + 1, axis.start + axis.length, band[1] - 1))
        sheet.boxes += [_box(mark) for mark in marks]
        sheet.lines += [ceiling.line for ceiling in found if ceiling.weight > 1]
        sheet.thin += [ceiling.line for ceiling in found if ceiling.weight <= 1]
        text = numbers.quantity(self.results[0].roof.bandwidth, "B/s")
        self._write(sheet, text, palette.INK, roofs.beside(found[0].line, text))
        self._name(sheet, marks)
        return found


def _first(result: Result) -> tuple[OpUse, ...]:
    """The operators that can get a mark."""
    return ranked(result)[:DRAWN]


def _drawable(op: OpUse) -> bool:
    return op.flops > 0 and op.bytes > 0 and op.time > 0


def _moves(op: OpUse) -> bool:
    return op.flops <= 0 < op.bytes and op.time > 0


def _box(mark: Mark) -> Box:
    x, y, radius = *mark.place, mark.radius + 1
    return Box(x - radius, y - radius, x + radius, y + radius)


def _decades(low: float, high: float, *, down: bool = False) -> tuple[float, float]:
    """Powers of ten around two values, at least three decades."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    missing = max(0, 3 - (last - first))
    return (first - missing, last) if down else (first, last + missing)
