"""The report of one run: a self-contained page, and the same answer as data and pictures.

The page works from a file, without script and without network: tables and pictures are in it as
text and SVG, and its content policy lets nothing else in. Same result, same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.report import (
    bars,
    experts_page,
    numbers,
    sensitivity_page,
    timeline_page,
    training_page,
)
from simulator.report.facts import devices, facts, title, trust
from simulator.report.files import write_files
from simulator.report.points import points
from simulator.report.ranking import of_roof, ranked, times_each
from simulator.report.roofline import NARROW, WIDE, caption, finding, picture
from simulator.report.sensitivity import Sensitivity, data
from simulator.report.spending import prices
from simulator.report.template import render
from simulator.result import Result

FILES = ("index.html", "result.json", "operators.csv", "roofline.svg", "roofline.png")
"""What every report consists of; the page needs none of the others."""

ADDED = (
    *experts_page.FILES, *training_page.FILES, *timeline_page.FILES, "sensitivity.csv",
)  # fmt: skip
"""What a report has besides where the run has experts, trains or repeats a layer, or where its
sensitivity was asked for."""

ROWS = 500
"""Operators on the page; all of them are in the CSV."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a table: its text, and the number that it is sorted by."""

    text: str
    sort: str = ""


def write_report(
    result: Result, directory: str | Path, found: Sensitivity | None = None
) -> list[Path]:
    """Write the report of ``result``, with its sensitivity if that was ``found``, into
    ``directory``, made if absent; returns the files.

    Files of an earlier report are replaced or removed, others left alone. Everything is drawn
    before anything is written. Raises SpecError where the directory cannot be written, BoundsError
    where an operator is above its roof.
    """
    return write_files(_contents(result, found), directory, {*FILES, *ADDED})


def render_page(result: Result, found: Sensitivity | None = None) -> str:
    """The page as HTML."""
    wide, wide_marks = _inlined(result, WIDE, "wide")
    narrow, narrow_marks = _inlined(result, NARROW, "narrow")
    return render(
        "page.html.j2",
        script="page.js",
        title=title(result),
        provenance=result.provenance,
        plain=numbers.plain,
        devices=devices(result),
        stack=result.stack,
        events=numbers.count(result.events),
        facts=facts(result),
        bound=result.bound_by,
        trust=trust(result),
        missing=_missing(result),
        warnings=[numbers.plain(text) for text in result.warnings],
        finding=finding(result),
        caption=caption(result, warnings=False),
        resources=bars.resources(result),
        operators=bars.operators(result),
        memory=bars.memory(result),
        capacity=bars.capacity(result),
        energy=bars.energy(result),
        prices=prices(result),
        one=("output " if result.phase == "generate" else "") + result.unit.removesuffix("s"),
        sets=_sets(result, found),
        head=_head(result),
        rows=_rows(result),
        count=numbers.count(len(result.ops)),
        cut=max(0, len(result.ops) - ROWS),
        wide=wide,
        narrow=narrow,
        marks=(wide_marks, narrow_marks),
        commands=[command(result), *([numbers.plain(found.command)] if found else [])],
    )


def command(result: Result) -> str:
    """The command that gives this result again."""
    return numbers.plain(result.provenance.command)


def _contents(result: Result, found: Sensitivity | None) -> dict[str, bytes]:
    from simulator.report import pen

    sheet = picture([result])
    figure = pen.draw(sheet)
    contents = {
        "index.html": render_page(result, found).encode(),
        "result.json": result.to_json().encode(),
        "operators.csv": points([result]).encode(),
        "roofline.svg": pen.svg(figure, sheet).encode(),
        "roofline.png": pen.png(figure, sheet),
    }
    for part in (experts_page, training_page, timeline_page):
        contents |= part.files(result)
    return contents | ({"sensitivity.csv": data(found).encode()} if found else {})


def _sets(
    result: Result, found: Sensitivity | None
) -> list[tuple[str, str, list[experts_page.Section]]]:
    """Ids, headings and contents of the sections with sets of pictures."""
    sets = [
        ("timeline", "Timeline", timeline_page.sections(result)),
        ("training", "Training step", training_page.sections(result)),
        ("experts", "Experts", experts_page.sections(result)),
        ("sensitivity", "What would help", [sensitivity_page.section(found)] if found else []),
    ]
    return [entry for entry in sets if entry[2]]


def _inlined(result: Result, width: float, prefix: str) -> tuple[str, dict[int, str]]:
    """The roofline as an element of the page, in the page's colours, its ids its own; and for each
    operator's rank the id of its mark there."""
    from simulator.report import pen

    sheet = picture([result], width, bare=True)
    ids = {
        rank: f"{prefix}-{mark.gid}"
        for mark in (*sheet.marks, *sheet.strip_marks)
        for rank in mark.ranks
    }
    return pen.element(pen.draw(sheet), sheet, prefix, prefix), ids


def _missing(result: Result) -> list[str]:
    """Questions that this run leaves open."""
    answers = {"interval": result.interval, "energy": result.energy, "cost": result.cost}
    return [name for name, answer in answers.items() if answer is None]


def _head(result: Result) -> list[tuple[str, str, bool]]:
    """Columns of the operator table: name, unit, and whether it holds numbers."""
    ops = ranked(result)
    return [
        ("#", "", True),
        ("operator", "", False),
        ("count", "", True),
        ("each", times_each(ops)[0], True),
        ("total", numbers.column([op.time for op in ops], "s")[0], True),
        ("share", "%", True),
        ("bound", "", False),
        ("of roof", "", True),
        ("", "FLOP/B", True),
        ("", numbers.column([op.rate for op in ops], "FLOP/s")[0], True),
        ("", numbers.column([_moved(op.bytes, op.time) for op in ops], "B/s")[0], True),
        ("format", "", False),
        ("tile", "", False),
    ]


def _rows(result: Result) -> list[list[Cell]]:
    """The operator table, longest first."""
    ops = ranked(result)
    whole = max(result.latency, math.fsum(op.time for op in ops))
    each = [op.time_each for op in ops]
    total = [op.time for op in ops]
    rate = [op.rate for op in ops]
    moved = [_moved(op.bytes, op.time) for op in ops]
    roof = [of_roof(op, result.roof) for op in ops]
    intensity = [op.intensity if op.flops > 0 else None for op in ops]
    columns: list[list[Cell]] = [
        _cells(map(str, range(1, len(ops) + 1)), range(1, len(ops) + 1)),
        [Cell(text=numbers.plain(op.name)) for op in ops],
        _cells((numbers.count(op.count) for op in ops), (op.count for op in ops)),
        _cells(_aligned(times_each(ops)[1]), each),
        _cells(_aligned(numbers.column(total, "s")[1]), total),
        _cells(numbers.shares(total, whole), total),
        [Cell(text=op.bound_by) for op in ops],
        _cells(map(numbers.percent, roof), roof),
        _cells(_aligned(list(map(numbers.digits, intensity))), intensity),
        _cells(_aligned(numbers.column(rate, "FLOP/s")[1]), rate),
        _cells(_aligned(numbers.column(moved, "B/s")[1]), moved),
        [Cell(text=numbers.plain(op.format)) for op in ops],
        [Cell(text=numbers.plain(op.tile)) for op in ops],
    ]
    return [list(row) for row in zip(*(column[:ROWS] for column in columns), strict=True)]


def _moved(moved: float, time: float) -> float | None:
    return moved / time if moved > 0 and time > 0 else None


def _aligned(cells: Sequence[str]) -> list[str]:
    return numbers.align(cells, numbers.FIGURE_SPACE, numbers.POINT_SPACE)


def _cells(texts: Iterable[str], values: Iterable[float | None]) -> list[Cell]:
    return [
        Cell(text=text, sort="" if value is None else repr(float(value)))
        for text, value in zip(texts, values, strict=True)
    ]
