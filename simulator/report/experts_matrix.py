"""Bytes from rank to rank in dispatch as a heat map, with what each rank sends and receives.

Sources are rows, destinations columns. Many ranks are shown by scale-up domain, or by equal
groups of neighbours. Pure layout; the pen draws it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from simulator.expert_use import ExpertUse
from simulator.report import numbers, palette
from simulator.report.experts import exchange_finding
from simulator.report.experts_picture import LINE, Drawing, Rect, Scale, Sketch
from simulator.report.placement import text_width

CELLS, FEW = 64, 32
"""Rows of the map at most, on a wide and on a narrow sheet."""
LEVELS = 32
"""Shades of the map."""
BESIDE = 700.0
"""Width from which the legend stands beside the map."""
BUSIEST = 8
"""Pairs that are listed."""

_BAR = 64.0
"""Length of the longest bar of a sum."""
_ROOMY = 44.0
"""Side of a cell that has room for its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes between groups of ranks, what stays on a rank left out."""

    cells: tuple[tuple[float, ...], ...]
    """From group (row) to group (column)."""
    group: int
    """Ranks of a group."""
    outlined: int
    """Groups of a scale-up domain, or 0 where there is nothing to outline."""

    def name(self, place: int) -> str:
        """The first rank of a group, or all where it has several."""
        return str(place * self.group)


def traffic(use: ExpertUse, most: int) -> Traffic:
    """The matrix in at most ``most`` groups: ranks, else domains, else equal runs of ranks."""
    ranks = len(use.rows)
    group = 1
    if ranks > most:
        group = use.domain if 1 < use.domain < ranks else 2
        group = max(group, math.ceil(ranks / most / group) * group)
    count = math.ceil(ranks / group)
    cells = [[0.0] * count for _ in range(count)]
    for source, row in enumerate(use.rows):
        for target, copies in enumerate(row):
            if source != target:
                cells[source // group][target // group] += copies * use.dispatch_row
    domain = use.domain // group if use.domain % group == 0 else 0
    return Traffic(
        cells=tuple(map(tuple, cells)),
        group=group,
        outlined=domain if 1 < domain < count else 0,
    )


def picture(use: ExpertUse, width: float) -> Drawing:
    """Lay out the map; needs ranks that exchange something."""
    beside = width >= BESIDE
    found = traffic(use, CELLS if beside else FEW)
    count = len(found.cells)
    sketch = Sketch(width)
    left, top = 44.0, -46.0
    room = 430.0 if beside else width - left - _BAR - 60
    cell = min(48.0, float(max(4, math.floor(room / count))))
    side = cell * count
    most = max(map(max, found.cells))
    cells = "" if found.group == 1 else f", {found.group} to a cell"
    sketch.write(f"to rank{cells}", left + side / 2, top + 30, "center")
    sketch.write("from", left - 8, top + 30, "right")
    _cells(sketch, found, left, top, cell, most)
    _names(sketch, found, left, top, cell)
    low = top - side
    _sums(sketch, found, left, top, cell)
    low -= _BAR + (50 if cell >= _ROOMY else 34)
    if beside:
        right = left + side + _BAR + 110
        end = _legend(sketch, found, right, top - 8, min(260.0, width - right - 20), most)
        end = _busiest(sketch, found, right, end - 22, width - right - 10)
        low = min(low, end)
    else:
        low = _legend(sketch, found, left, low - 12, min(220.0, width - left - 40), most)
    return sketch.finish(6 - low, "Bytes from rank to rank in dispatch", exchange_finding(use))


def _cells(
    sketch: Sketch, found: Traffic, left: float, top: float, cell: float, most: float
) -> None:
    shades: dict[int, list[Rect]] = {}
    for row, line in enumerate(found.cells):
        run: tuple[int, int] | None = None
        for column, moved in enumerate((*line, None)):
            home = found.group == 1 and row == column
            shade = None if moved is None or home else math.ceil(LEVELS * moved / most)
            if run and run[0] == shade:
                continue
            if run and run[0]:
                shades.setdefault(run[0], []).append(
                    Rect(
                        left + cell * run[1],
                        top - cell * (row + 1),
                        cell * (column - run[1]),
                        cell,
                    )
                )
            run = None if shade is None else (shade, column)
    for shade, rects in sorted(shades.items()):
        sketch.fill(rects, palette.magnitude(shade / LEVELS), gid=f"shade-{shade}")
    count = len(found.cells)
    if found.group == 1:
        home_cells = [
            Rect(left + cell * place, top - cell * (place + 1), cell, cell)
            for place in range(count)
        ]
        sketch.fill(home_cells, palette.OTHER, hatched=True, gid="home")
    sketch.frame(Rect(left, top - cell * count, cell * count, cell * count), colour=palette.FAINT)
    if found.outlined:
        for first in range(0, count, found.outlined):
            last = min(count, first + found.outlined)
            size = cell * (last - first)
            block = Rect(left + cell * first, top - cell * last, size, size)
            sketch.frame(block, colour=palette.INK, weight=2.0)
    if cell >= _ROOMY:
        _, texts = numbers.column([moved for line in found.cells for moved in line], "B")
        for place, text in enumerate(texts):
            row, column = divmod(place, count)
            if row == column and found.group == 1:
                continue
            shade = math.ceil(LEVELS * found.cells[row][column] / most)
            fill = palette.magnitude(shade / LEVELS)
            sketch.write(
                text,
                left + cell * (column + 0.5),
                top - cell * (row + 0.5),
                "center",
                colour=palette.on(fill) if shade else palette.INK,
            )


def _names(sketch: Sketch, found: Traffic, left: float, top: float, cell: float) -> None:
    count = len(found.cells)
    widest = text_width(found.name(count - 1), 12.0) + 8
    across = next(n for n in (1, 2, 4, 8, 16, 32, 64) if n * cell >= max(widest, 16.0))
    for place in range(0, count, across):
        middle = (place + 0.5) * cell
        sketch.write(found.name(place), left + middle, top + 11, "center", colour=palette.FAINT)
        sketch.write(found.name(place), left - 6, top - middle, "right", colour=palette.FAINT)


def _sums(sketch: Sketch, found: Traffic, left: float, top: float, cell: float) -> None:
    """What each group sends, at the right, and receives, below, on one scale."""
    count = len(found.cells)
    side = cell * count
    sent = [math.fsum(row) for row in found.cells]
    got = [math.fsum(row[place] for row in found.cells) for place in range(count)]
    scale = Scale(high=max(*sent, *got), start=0.0, length=_BAR)
    gap = min(6.0, 0.2 * cell)
    edge, low = left + side + 10, top - side - 10
    sketch.fill(
        (
            Rect(edge, top - cell * (place + 1) + gap / 2, scale.at(moved), cell - gap)
            for place, moved in enumerate(sent)
        ),
        palette.OTHER,
        gid="sent",
    )
    sketch.fill(
        (
            Rect(
                left + cell * place + gap / 2,
                low - scale.at(moved),
                cell - gap,
                scale.at(moved),
            )
            for place, moved in enumerate(got)
        ),
        palette.OTHER,
        gid="received",
    )
    sketch.line((edge, top), (edge, top - side), colour=palette.FAINT, weight=0.8)
    sketch.line((left, low), (left + side, low), colour=palette.FAINT, weight=0.8)
    unit, texts = numbers.column([*sent, *got], "B")
    sketch.write(f"sends, {unit}", edge, top + 11)
    if cell < _ROOMY:
        most = numbers.quantity(max(got), "B")
        sketch.write(f"receives, at most {most}", left, low - _BAR - 12)
        return
    for place, (there, here) in enumerate(zip(texts[:count], texts[count:], strict=True)):
        middle = (place + 0.5) * cell
        sketch.write(there, edge + scale.at(sent[place]) + 6, top - middle)
        sketch.write(here, left + middle, low - scale.at(got[place]) - 10, "center")
    sketch.write(f"receives, {unit}", left, low - _BAR - 30)


def _legend(
    sketch: Sketch, found: Traffic, left: float, top: float, length: float, most: float
) -> float:
    """Shades with their bytes, and what else is in the map; returns where it ends."""
    sketch.write("bytes in dispatch, all layers", left, top - LINE / 2)
    low = top - LINE - 20
    step = length / LEVELS
    for shade in range(1, LEVELS + 1):
        rect = Rect(left + step * (shade - 1), low, step, 14.0)
        sketch.fill([rect], palette.magnitude(shade / LEVELS), gid=f"key-shade-{shade}")
    scale = Scale(high=most, start=left, length=length)
    values = scale.ticks(56.0)
    unit, texts, _ = numbers.ticks(values, "B")
    for value, text in zip(values, texts, strict=True):
        at = scale.at(value)
        sketch.line((at, low), (at, low - 4), colour=palette.FAINT, weight=0.8)
        sketch.write(text, at, low - 13, "center", colour=palette.FAINT)
    sketch.write(unit, left + length + 8, low + 7)
    low -= 30
    if found.group == 1:
        box = Rect(left, low - 12, 18.0, 12.0)
        sketch.fill([box], palette.OTHER, hatched=True)
        sketch.frame(box, colour=palette.FAINT, weight=0.7)
        sketch.write("stays on its rank: on no link", left + 26, low - 6)
        low -= 20
    if found.outlined:
        sketch.frame(Rect(left + 1, low - 12, 16.0, 12.0), weight=2.0)
        ranks = found.outlined * found.group
        sketch.write(f"scale-up domain of {ranks} ranks", left + 26, low - 6)
        low -= 20
    return low


def _busiest(sketch: Sketch, found: Traffic, left: float, top: float, width: float) -> float:
    """The pairs that move most, as bars; returns where the list ends."""
    pairs = sorted(
        (
            (-moved, row, column)
            for row, line in enumerate(found.cells)
            for column, moved in enumerate(line)
            if moved > 0
        ),
    )[:BUSIEST]
    names = [f"{found.name(row)} to {found.name(column)}" for _, row, column in pairs]
    unit, cells = numbers.column([-moved for moved, _, _ in pairs], "B")
    what = "pairs" if found.group == 1 else "cells"
    sketch.write(f"busiest {what}, {unit}", left, top - LINE / 2)
    top -= LINE + 4
    label = max(text_width(name, 12.0) for name in names) + 8
    scale = Scale(high=-pairs[0][0], start=0.0, length=width - label - 60)
    _list(sketch, names, cells, [-moved for moved, _, _ in pairs], (left, top, label), scale)
    return top - (LINE + 1) * len(pairs)


def _list(
    sketch: Sketch,
    names: Sequence[str],
    cells: Sequence[str],
    sizes: Sequence[float],
    place: tuple[float, float, float],
    scale: Scale,
) -> None:
    left, top, label = place
    bars = []
    for row, (name, cell, size) in enumerate(zip(names, cells, sizes, strict=True)):
        y = top - (row + 0.5) * (LINE + 1)
        sketch.write(name, left + label - 8, y, "right")
        bars.append(Rect(left + label, y - 6, scale.at(size), 12.0))
        sketch.write(cell, left + label + scale.at(size) + 6, y)
    sketch.fill(bars, palette.OTHER, gid="busiest")
