"""The legend of a roofline: colours, shapes, sizes, strokes, and the operators by time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from simulator.report import numbers, palette
from simulator.report.picture import TEXT, Key, Words
from simulator.report.placement import text_width
from simulator.report.ranking import ranked
from simulator.result import Result

Group = tuple[str, list[tuple[Key, str]]]
"""A heading, and signs with their meaning."""

_LINE = 17.0
_STROKE = 14.0
"""Half the length of a stroke."""


def stroke_of(device: int) -> str:
    """Stroke of the roofs of a device, the first solid."""
    return "solid" if device == 0 else ("dashed", "dotted", "dashdot")[(device - 1) % 3]


def groups(
    results: Sequence[Result], shapes: Mapping[str, str], radius: Callable[[float], float]
) -> list[Group]:
    """What the picture's colours, shapes, sizes and strokes mean."""
    ops = [op for result in results for op in result.ops if op.time > 0]
    present = {op.bound_by for op in ops}
    colours = [
        (Key(colour=colour, shape="o"), str(bound))
        for bound, colour in palette.BOUND.items()
        if bound in present
    ]
    formats = [
        (Key(colour=palette.FAINT, shape=shape), numbers.plain(name))
        for name, shape in shapes.items()
    ]
    longest = max((op.time for op in ops), default=0.0)
    sizes = [
        (Key(colour=palette.OTHER, shape="o", radius=radius(time)), _seconds(time))
        for time in (longest, longest / 10)
        if longest > 0
    ]
    roofs = [
        (Key(colour=palette.INK, dash="solid"), "peak"),
        (Key(colour=palette.INK, dash="dashed"), "held or achieved"),
    ]
    found: list[Group] = [
        ("colour: what binds", colours),
        ("shape: number format", formats),
        ("area: total time", sizes),
        ("roofs", roofs),
    ]
    if len(results) > 1:
        devices = [
            (
                Key(
                    colour=palette.OTHER if device else palette.INK,
                    shape="o",
                    dash=stroke_of(device),
                    hollow=device > 0,
                ),
                numbers.plain(result.hardware),
            )
            for device, result in enumerate(results)
        ]
        found.insert(0, ("device", devices))
    return [group for group in found if group[1]]


def beside(found: Sequence[Group], left: float, top: float) -> tuple[list[Key], list[Words], float]:
    """The groups under each other, and where they end."""
    keys: list[Key] = []
    words: list[Words] = []
    y = top
    for heading, entries in found:
        words.append(Words(text=heading, x=left, y=y - 8, colour=palette.FAINT))
        y -= 21
        for key, text in entries:
            half = max(_LINE / 2, key.radius + 1)
            keys.append(replace(key, x=left + 18, y=y - half))
            words.append(Words(text=text, x=left + 44, y=y - half))
            y -= 2 * half
        y -= 8
    return keys, words, y


def by_time(result: Result, left: float, right: float, top: float, bottom: float) -> list[Words]:
    """Ranks, names and shares of the longest operators, as many as there is room for."""
    ops = ranked(result)
    rows = int((top - 21 - bottom) / _LINE)
    if rows < 2 or not ops:
        return []
    whole = max(result.latency, math.fsum(op.time for op in ops))
    shares = numbers.shares([op.time for op in ops], whole)
    faint = palette.FAINT
    words = [
        Words(text="operators by time", x=left, y=top - 8, colour=faint),
        Words(text="%", x=right, y=top - 8, align="right", colour=faint),
    ]
    shown = len(ops) if len(ops) <= rows else rows - 1
    y = top - 21 - _LINE / 2
    for rank, (op, share) in enumerate(zip(ops[:shown], shares, strict=False), start=1):
        room = right - left - 34 - text_width(share, TEXT)
        name = numbers.plain(op.name)
        letters = len(name)
        while text_width(name, TEXT) > room:
            letters -= 1
            name = numbers.cut(numbers.plain(op.name), letters)
        words += [
            Words(text=str(rank), x=left + 16, y=y, align="right"),
            Words(text=name, x=left + 24, y=y),
            Words(text=share, x=right, y=y, align="right"),
        ]
        y -= _LINE
    if shown < len(ops):
        more = f"and {numbers.count(len(ops) - shown)} more"
        words.append(Words(text=more, x=left + 24, y=y, colour=faint))
    return words


def below(
    found: Sequence[Group], left: float, right: float, bottom: float
) -> tuple[list[Key], list[Words], float]:
    """The groups as rows that wrap, and the height that they take."""
    rows: list[list[tuple[float, Key | None, str]]] = []
    for x, key, text in _flow(found, left, right):
        if x == left or (rows and x <= rows[-1][-1][0]):
            rows.append([])
        rows[-1].append((x, key, text))
    heights = [
        max(_LINE + 3, *(2 * key.radius + 4 for _, key, _ in row if key is not None), 0.0)
        for row in rows
    ]
    keys: list[Key] = []
    words: list[Words] = []
    y = bottom + sum(heights)
    for row, height in zip(rows, heights, strict=True):
        middle = y - height / 2
        for x, key, text in row:
            if key is None:
                words.append(Words(text=text, x=x, y=middle, colour=palette.FAINT))
            else:
                keys.append(replace(key, x=x + _half(key), y=middle))
                words.append(Words(text=text, x=x + 2 * _half(key) + 6, y=middle))
        y -= height
    return keys, words, sum(heights)


def _flow(
    found: Sequence[Group], left: float, right: float
) -> Iterator[tuple[float, Key | None, str]]:
    for heading, entries in found:
        x = left
        items: list[tuple[Key | None, str]] = [(None, heading + ":"), *entries]
        for key, text in items:
            taken = (0.0 if key is None else 2 * _half(key) + 6) + text_width(text, TEXT)
            if x > left and x + taken > right:
                x = left + 14
            yield x, key, text
            x += taken + 12


def _half(key: Key) -> float:
    """Half the width of a sign."""
    return _STROKE if key.dash else key.radius


def _seconds(time: float) -> str:
    return numbers.typeset(numbers.quantity(time, "s"))
