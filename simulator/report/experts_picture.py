"""What a picture of experts consists of: rectangles, lines and words, each in its place in points.

Plain data between the layouts, which compute it from an ``ExpertUse``, and the pen. A layout
starts at the top left corner (0, 0) and goes down, so its heights are negative; the finished
picture has its origin at the bottom left, as all pictures here have.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from simulator.report import numbers, palette
from simulator.report.picture import TEXT, Words
from simulator.report.placement import text_width

Align = Literal["left", "center", "right"]

LINE = 17.0
"""Height of a line of text."""
MARGIN = 14.0


@dataclass(frozen=True, slots=True)
class Rect:
    """An upright rectangle; ``bottom`` is its lower edge."""

    left: float
    bottom: float
    width: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """Rectangles of one look, drawn as one shape, and an area within corners."""

    rects: tuple[Rect, ...] = ()
    corners: tuple[tuple[float, float], ...] = ()
    fill: str
    edge: str = ""
    hatched: bool = False
    """Whether ``fill`` is the colour of a hatch on nothing."""
    gid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stroke:
    """A line through points."""

    points: tuple[tuple[float, float], ...]
    colour: str = palette.INK
    weight: float = 1.0
    dash: str = "solid"
    under: bool = False
    """Whether patches hide it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """All that is to be drawn: lines under all, patches, lines, words."""

    width: float
    height: float
    patches: tuple[Patch, ...]
    strokes: tuple[Stroke, ...]
    words: tuple[Words, ...]
    title: str
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A linear axis: values ``low`` to ``high`` over ``length`` points from ``start``."""

    low: float = 0.0
    high: float
    start: float
    length: float

    def at(self, value: float) -> float:
        """Place of a value."""
        if self.high <= self.low:
            return self.start
        return self.start + self.length * (value - self.low) / (self.high - self.low)

    def ticks(self, gap: float, *, whole: bool = False) -> list[float]:
        """Multiples of 1, 2 or 5 times a power of ten, at least ``gap`` points apart."""
        reach = self.high - self.low
        if reach <= 0:
            return [self.low]
        least = reach * gap / abs(self.length)
        power = 10.0 ** math.floor(math.log10(least))
        step = next(power * part for part in (1, 2, 5, 10) if power * part >= least * (1 - 1e-9))
        if whole:
            step = max(1.0, step)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [place * step for place in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class Swatch:
    """One entry of a legend; hatched where it has no colour."""

    text: str
    colour: str
    height: float = 12.0


class Sketch:
    """A picture in the making, from its top edge down."""

    def __init__(self, width: float) -> None:
        self.width = width
        self.patches: list[Patch] = []
        self.strokes: list[Stroke] = []
        self.words: list[Words] = []

    def fill(self, rects: Iterable[Rect], colour: str, **look: object) -> None:
        """Rectangles of one look; those without any size are left out."""
        kept = tuple(rect for rect in rects if rect.width > 0 and rect.height > 0)
        if kept:
            self.patches.append(Patch(rects=kept, fill=colour, **look))  # type: ignore[arg-type]

    def area(self, corners: Iterable[tuple[float, float]], colour: str) -> None:
        """What lies within corners."""
        self.patches.append(Patch(corners=tuple(corners), fill=colour))

    def line(self, *points: tuple[float, float], **look: object) -> None:
        """A line through points."""
        self.strokes.append(Stroke(points=points, **look))  # type: ignore[arg-type]

    def frame(self, rect: Rect, **look: object) -> None:
        """The outline of a rectangle."""
        left, low = rect.left, rect.bottom
        right, high = left + rect.width, low + rect.height
        self.line((left, low), (right, low), (right, high), (left, high), (left, low), **look)

    def write(
        self,
        text: str,
        x: float,
        y: float,
        align: Align = "left",
        *,
        colour: str = palette.INK,
        bold: bool = False,
        room: float = math.inf,
    ) -> None:
        """One line of text around ``y``, its middle cut out where it is wider than ``room``."""
        text = fitted(numbers.typeset(text), room)
        self.words.append(Words(text=text, x=x, y=y, align=align, colour=colour, bold=bold))

    def legend(self, entries: Iterable[Swatch], y: float = 0.0) -> float:
        """Colours and what they stand for, from ``y`` down in as many lines as they need; returns
        the lower edge."""
        at = 0.0
        for entry in entries:
            needs = text_width(entry.text, TEXT) + 44
            if at and at + needs > self.width:
                at, y = 0.0, y - LINE - 3
            box = Rect(at, y - LINE / 2 - entry.height / 2, 18.0, entry.height)
            self.fill([box], entry.colour or palette.OTHER, hatched=not entry.colour)
            if not entry.colour:
                self.frame(box, colour=palette.FAINT, weight=0.7)
            self.write(entry.text, at + 24, y - LINE / 2, room=self.width - at - 24)
            at += needs
        return y - LINE

    def finish(self, height: float, title: str, caption: str) -> Drawing:
        """The picture, ``height`` points from the top edge to the bottom."""
        return Drawing(
            width=self.width,
            height=height,
            patches=tuple(_moved(patch, 0.0, height) for patch in self.patches),
            strokes=tuple(
                replace(line, points=tuple((x, y + height) for x, y in line.points))
                for line in self.strokes
            ),
            words=tuple(replace(words, y=words.y + height) for words in self.words),
            title=title,
            caption=caption,
        )


def fitted(text: str, room: float) -> str:
    """The text cut in the middle so that it is at most ``room`` points wide."""
    kept, letters = text, len(text)
    while letters > 1 and text_width(kept, TEXT) > room:
        letters -= 1
        kept = numbers.cut(text, letters)
    return kept


def wrapped(text: str, width: float) -> list[str]:
    """Lines of at most ``width`` points."""
    return textwrap.wrap(numbers.typeset(text), max(10, int(width / (0.57 * TEXT))))


def stacked(drawings: Sequence[tuple[str, Drawing]], title: str, width: float) -> Drawing:
    """Pictures under each other, each between its heading and its caption, under one title."""
    sheet, y = Sketch(width), -MARGIN
    for text in wrapped(title, 0.85 * (width - 2 * MARGIN)):
        sheet.write(text, MARGIN, y - LINE / 2, bold=True)
        y -= LINE + 2
    for place, (heading, drawing) in enumerate(drawings, start=1):
        y -= 14
        sheet.write(heading, MARGIN, y - LINE / 2, bold=True)
        y -= LINE + 6
        low = y - drawing.height
        sheet.patches += [
            replace(_moved(patch, MARGIN, low), gid=patch.gid and f"{place}-{patch.gid}")
            for patch in drawing.patches
        ]
        sheet.strokes += [
            replace(line, points=tuple((x + MARGIN, at + low) for x, at in line.points))
            for line in drawing.strokes
        ]
        sheet.words += [
            replace(words, x=words.x + MARGIN, y=words.y + low) for words in drawing.words
        ]
        y = low - 4
        for text in wrapped(drawing.caption, width - 2 * MARGIN):
            sheet.write(text, MARGIN, y - LINE / 2)
            y -= LINE
    caption = " ".join(drawing.caption for _, drawing in drawings)
    return sheet.finish(MARGIN - y, title, caption)


def _moved(patch: Patch, right: float, up: float) -> Patch:
    rects = (replace(rect, left=rect.left + right, bottom=rect.bottom + up) for rect in patch.rects)
    corners = tuple((x + right, y + up) for x, y in patch.corners)
    return replace(patch, rects=tuple(rects), corners=corners)
