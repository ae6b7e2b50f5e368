"""What a drawing consists of: axes, roofs, marks and words, each with its place in points.

Plain data between the layout, which computes it from results, and the pen, which draws it. The
origin is at the bottom left; 72 points are an inch and one point is one pixel of the page.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.report import palette
from simulator.report.placement import Line
from simulator.result import Bound

TEXT = 12.0

_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A logarithmic axis: values ``low`` to ``high`` over ``length`` points from ``start``."""

    low: float
    high: float
    start: float
    length: float

    @property
    def decade(self) -> float:
        """Length of one decade."""
        return self.length / math.log10(self.high / self.low)

    def at(self, value: float) -> float:
        """Place of a value."""
        return self.start + self.decade * math.log10(value / self.low)

    def value(self, place: float) -> float:
        """Value at a place."""
        return float(self.low * 10 ** ((place - self.start) / self.decade))

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Decades, thinned to at least 42 points, with their texts."""
        step = math.ceil(42.0 / self.decade)
        first, last = math.ceil(_log(self.low)), math.floor(_log(self.high))
        return [
            (10.0**power, _decade(power)) for power in range(first, last + 1) if power % step == 0
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """A roof: level at a compute rate, or rising with a bandwidth."""

    line: Line
    dash: str
    colour: str
    weight: float
    gid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One operator, or several in one place."""

    gid: str
    name: str
    ranks: tuple[int, ...]
    device: int
    x: float
    y: float
    """FLOP per byte and FLOP/s; in the strip below, bytes/s and nothing."""
    place: tuple[float, float]
    radius: float
    bound: Bound
    shape: str
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """One text: its middle left, middle or middle right, by ``align``."""

    text: str
    x: float
    y: float
    align: str = "left"
    size: float = TEXT
    turn: float = 0.0
    colour: str = palette.INK
    bold: bool = False
    backed: bool = False
    """Whether it hides the line below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A sign of the legend: a mark with ``shape``, a stroke with ``dash``, or both."""

    x: float = 0.0
    y: float = 0.0
    colour: str
    shape: str = ""
    radius: float = 5.0
    dash: str = ""
    hollow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """All that is to be drawn, in order."""

    width: float
    height: float
    x: Axis
    y: Axis
    strip: Axis | None
    strip_y: tuple[float, float]
    ceilings: tuple[Ceiling, ...]
    drops: tuple[Line, ...]
    """From each ridge down to the axis."""
    links: tuple[tuple[Line, str], ...]
    """From an operator to the same one on another device."""
    leaders: tuple[Line, ...]
    marks: tuple[Mark, ...]
    strip_marks: tuple[Mark, ...]
    words: tuple[Words, ...]
    keys: tuple[Key, ...]
    title: str
    caption: str


def _log(value: float) -> float:
    return round(math.log10(value), 9)


def _decade(power: int) -> str:
    """Text of ten to a power: 0.01, 1, 100 k."""
    if 0 > power >= -3:
        return f"{10.0**power:.{-power}f}"
    if 0 <= power < 3 * len(_PREFIXES):
        return f"{10 ** (power % 3)} {_PREFIXES[power // 3]}".rstrip()
    return f"10^{power}"
