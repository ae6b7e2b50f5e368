"""Where text can stand in a picture: greedy, in a fixed order, never on top of anything.

Works in points with the origin at the bottom left. Knows no data and draws nothing. The point
feature labelling heuristic of Christensen, Marks and Shieber (1995): most important label first,
first free candidate position, dropped where there is none.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_NARROW = frozenset("ijlrI.,:;|'!()[]f t/-")
_WIDE = frozenset("mwMW@%")


@dataclass(frozen=True, slots=True)
class Box:
    """An upright rectangle."""

    left: float
    bottom: float
    right: float
    top: float

    def hits(self, other: Box) -> bool:
        """Whether the two share any area."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.bottom < other.top
            and other.bottom < self.top
        )

    def inside(self, other: Box) -> bool:
        """Whether no part of this lies outside the other."""
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.bottom >= other.bottom
            and self.top <= other.top
        )

    def crossed(self, line: Line) -> bool:
        """Whether the line passes through (Liang and Barsky 1984)."""
        start, end = 0.0, 1.0
        dx, dy = line.x1 - line.x0, line.y1 - line.y0
        for step, room in (
            (-dx, line.x0 - self.left),
            (dx, self.right - line.x0),
            (-dy, line.y0 - self.bottom),
            (dy, self.top - line.y0),
        ):
            if step == 0:
                if room < 0:
                    return False
            elif step < 0:
                start = max(start, room / step)
            else:
                end = min(end, room / step)
        return start < end


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line between two places."""

    x0: float
    y0: float
    x1: float
    y1: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One candidate for a text: its middle, its turn, and a leader where it stands apart.

    ``align`` is the side of the text that is held where the face is narrower than reckoned.
    """

    x: float
    y: float
    turn: float = 0.0
    align: str = "center"
    over: bool = False
    """Whether the text may cover a thin line."""
    leader: Line | None = None


@dataclass(slots=True)
class Sheet:
    """What is taken already."""

    bounds: Box
    boxes: list[Box] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    thin: list[Line] = field(default_factory=list)
    """Lines that a text may cover where its spot says so."""
    texts: list[Box] = field(default_factory=list)
    """The boxes of ``boxes`` that hold text: a leader may pass over a mark, never over these."""

    def place(self, text: str, size: float, spots: Iterable[Spot]) -> Spot | None:
        """Take the first spot where the text is free of all that is there, or none."""
        width, height = text_width(text, size), 1.16 * size
        for spot in spots:
            boxes = _cover(spot, width, height)
            if all(box.inside(self.bounds) for box in boxes) and not self._taken(boxes, spot):
                self.boxes += boxes
                self.texts += boxes
                if spot.leader is not None:
                    self.lines.append(spot.leader)
                return spot
        return None

    def _taken(self, boxes: list[Box], spot: Spot) -> bool:
        lines = self.lines if spot.over else self.lines + self.thin
        return (
            any(box.hits(other) for box in boxes for other in self.boxes)
            or any(box.crossed(line) for box in boxes for line in lines)
            or (spot.leader is not None and any(box.crossed(spot.leader) for box in self.texts))
        )


def text_width(text: str, size: float) -> float:
    """Width of a text in a wide sans-serif face, never less than what DejaVu Sans takes."""
    return size * sum(map(_letter, text))


def around(x: float, y: float, radius: float, text: str, size: float) -> Iterator[Spot]:
    """Eight places beside a mark, clear of all lines and then over thin ones; then rings further
    out with a leader back to the mark."""
    half_w, half_h = text_width(text, size) / 2, 0.58 * size
    rings = [(0.0, False), (14.0, False), (0.0, True), (14.0, True)]
    rings += [(reach, False) for reach in (30.0, 50.0, 75.0, 105.0, 140.0, 180.0)]
    for reach, over in rings:
        for angle in (0, 180, 45, 315, 135, 225, 90, 270):
            across, up = math.cos(math.radians(angle)), math.sin(math.radians(angle))
            away = radius + 3.0 + reach
            leader = None
            if reach:
                leader = Line(
                    x + across * radius,
                    y + up * radius,
                    x + across * (away - 1.0),
                    y + up * (away - 1.0),
                )
            yield Spot(
                x=x + across * away + half_w * _sign(across),
                y=y + up * away + half_h * _sign(up),
                align=("right", "center", "left")[round(_sign(across)) + 1],
                over=over,
                leader=leader,
            )


def _sign(value: float) -> float:
    return 0.0 if abs(value) < 1e-9 else math.copysign(1.0, value)


def _cover(spot: Spot, width: float, height: float) -> list[Box]:
    """Upright boxes that cover the text: one, or a chain along a turned one."""
    if spot.turn == 0:
        half_w, half_h = width / 2, height / 2
        return [Box(spot.x - half_w, spot.y - half_h, spot.x + half_w, spot.y + half_h)]
    across, up = math.cos(math.radians(spot.turn)), math.sin(math.radians(spot.turn))
    half, steps = 0.42 * height, max(1, math.ceil(width / (0.7 * height)))
    places = (width * (step / steps - 0.5) for step in range(steps + 1))
    return [
        Box(
            spot.x + along * across - half,
            spot.y + along * up - half,
            spot.x + along * across + half,
            spot.y + along * up + half,
        )
        for along in places
    ]


def _letter(letter: str) -> float:
    if letter in _NARROW:
        return 0.42
    if letter in _WIDE:
        return 1.0
    if letter.isascii():
        return 0.79 if letter.isupper() else 0.64
    return 1.05 if unicodedata.east_asian_width(letter) in "WF" else 0.85
