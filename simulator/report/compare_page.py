"""A comparison of devices as a page, pictures and data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.report import compare_front, compare_picture, numbers
from simulator.report.compare import Comparison, curves, data
from simulator.report.compare_words import (
    Rows,
    faster,
    heading,
    notes,
    rate_rows,
    refusals,
    sheet_rows,
    use_rows,
    warnings,
)
from simulator.report.experts_page import Table
from simulator.report.study_page import Page, drawing_files, pictures, plate, write_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simulator.report.experts_picture import Drawing


def write_comparison(found: Comparison, directory: str | Path) -> list[Path]:
    """Write the page, its pictures and its data into ``directory``; returns the files.

    Raises SpecError where it cannot be written.
    """

    def ratios(width: float) -> tuple[Figure, Drawing]:
        from simulator.report import experts_pen

        drawing = compare_picture.picture(found, width)
        return experts_pen.draw(drawing), drawing

    def front(width: float) -> tuple[Figure, compare_front.Front]:
        return compare_front.draw(found, width)

    def titled(width: float) -> tuple[Figure, compare_front.Front]:
        return compare_front.draw(found, width, titled=True)

    several, curved = len(found.entries) > 1, any(entry.points for entry in found.entries)
    plates = []
    contents = {
        "compare.json": (json.dumps(found.to_dict(), indent=1, allow_nan=False) + "\n").encode(),
        "compare.csv": data(found).encode(),
    }
    if several:
        plates.append(plate("ratios", compare_picture.title(found), ratios))
        contents |= drawing_files("ratios", numbers.plain(found.about), ratios)
    if curved:
        plates.append(plate("curves", compare_front.TITLE, front))
        contents |= {"curves.csv": curves(found).encode()} | pictures("curves", titled)
    said = [f"{faster(found, one)}." for one in compare_picture.others(found)]
    runs = [entry.result for entry in found.entries if entry.result is not None]
    page = Page(
        title=f"Compared: {numbers.plain(found.about)}",
        about=f"{heading(found)}; ratios to {numbers.plain(found.base.hardware)}",
        findings=said,
        warnings=[*warnings(found)],
        notes=[*refusals(found), *notes(found)],
        plates=plates,
        tables=_tables(found),
        commands=[numbers.plain(text) for text in (found.command, *_commands(found))],
        data="Data: compare.csv and compare.json, beside this page, in base units."
        + (" Curves: curves.csv." if curved else "")
        + f" Version {numbers.plain(runs[0].provenance.version)}.",
    )
    return write_page(page, contents, directory)


def _commands(found: Comparison) -> list[str]:
    return [entry.result.provenance.command for entry in found.entries if entry.result is not None]


def _tables(found: Comparison) -> list[Table]:
    tables = [
        _table("Rates and ratios", rate_rows(found)),
        _table("What each takes", use_rows(found), "least: fewest devices that hold it."),
    ]
    if len(found.entries) > 1:
        note = "How much of the data sheet arrives: reached is the ratio of the runs, per device."
        tables.append(_table("Data sheets beside what is reached", sheet_rows(found), note))
    return tables


def _table(title: str, rows: Rows, note: str = "") -> Table:
    heads, cells, sides = rows
    words = tuple(place for place, side in enumerate(sides) if side == "l")
    return Table(
        title=title,
        head=[(head or "device", "") for head in heads],
        rows=cells,
        foot=[],
        note=note,
        words=words,
    )
