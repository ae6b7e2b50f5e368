"""The bars of a page: a whole cut into pieces, each with its name, value, share and colour.

Pure; the page draws them as elements of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulator.report import numbers, palette
from simulator.report.ranking import lines
from simulator.result import Result

ENERGY = {
    "idle": "free", "compute": "compute", "memory": "memory", "links": "link", "waiting": "waiting",
}  # fmt: skip
"""Colours of the parts of energy: of what binds meanwhile; hatched where it is drawn anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One piece of a bar: its name and value in words, its length, and its colour's variable."""

    name: str
    value: str
    share: str
    length: str
    colour: str
    note: str = ""


def resources(result: Result) -> list[Piece]:
    """The latency by what binds."""
    seconds = result.breakdown
    times = list(seconds.values())
    whole = max(result.latency, math.fsum(times))
    unit, cells = numbers.column(times, "s")
    return [
        Piece(
            name=bound,
            value=f"{cell} {unit}",
            share=share,
            length=numbers.length(time / whole if whole else 0.0),
            colour=bound,
        )
        for (bound, time), cell, share in zip(
            seconds.items(), cells, numbers.shares(times, whole), strict=True
        )
    ]


def operators(result: Result) -> list[Piece]:
    """The bars under the stacked one, longest first, on one scale."""
    entries = lines(result)
    unit, cells = numbers.column([entry.total for entry in entries], "s")
    longest = max((entry.total for entry in entries), default=0.0)
    return [
        Piece(
            name=entry.name,
            value=f"{cell} {unit}",
            share=entry.share,
            length=numbers.length(entry.total / longest if longest else 0.0),
            colour=entry.bound,
        )
        for entry, cell in zip(entries, cells, strict=True)
    ]


def memory(result: Result) -> list[Piece]:
    """What fills the memory, largest first, then what is free."""
    memory = result.memory
    parts = sorted((part for part in memory.parts if part.bytes > 0), key=lambda part: -part.bytes)
    free = max(0.0, memory.capacity - memory.total)
    sizes = [part.bytes for part in parts] + [free]
    whole = max(memory.capacity, memory.total)
    unit, cells = numbers.column(sizes, "B")
    shares = numbers.shares(sizes, whole)
    pieces = [
        Piece(
            name=numbers.plain(part.name),
            value=f"{cell} {unit}",
            share=share,
            length=numbers.length(part.bytes / whole),
            colour=f"series-{place % len(palette.SERIES) + 1}",
            note=numbers.plain(part.formula),
        )
        for place, (part, cell, share) in enumerate(zip(parts, cells, shares, strict=False))
    ]
    if free > 0:
        length = numbers.length(free / whole)
        free_value = f"{cells[-1]} {unit}"
        pieces.append(
            Piece(name="free", value=free_value, share=shares[-1], length=length, colour="free")
        )
    return pieces


def capacity(result: Result) -> dict[str, str]:
    """The capacity line, and in words whether the run fits under it."""
    memory = result.memory
    whole = max(memory.capacity, memory.total)
    spare = memory.capacity - memory.total
    return {
        "place": numbers.length(memory.capacity / whole),
        "text": numbers.quantity(memory.capacity, "B"),
        "total": numbers.quantity(memory.total, "B"),
        "over": numbers.quantity(-spare, "B") if spare < 0 else "",
        "over_length": numbers.length(max(0.0, -spare) / whole),
    }


def energy(result: Result) -> list[Piece]:
    """The energy by what it is drawn for, with the mean draw of one device."""
    parts = [part for part in result.energy_parts if part.energy > 0]
    whole = math.fsum(part.energy for part in parts)
    if not parts or result.work <= 0 or result.latency <= 0:
        return []
    unit, cells = numbers.column([part.energy / result.work for part in parts], "J")
    shares = numbers.shares([part.energy for part in parts], whole)
    return [
        Piece(
            name=numbers.plain(part.name),
            value=f"{cell} {unit}",
            share=share,
            length=numbers.length(part.energy / whole),
            colour=ENERGY.get(part.name, "other"),
            note=numbers.quantity(part.energy / result.latency / result.devices, "W"),
        )
        for part, cell, share in zip(parts, cells, shares, strict=True)
    ]
