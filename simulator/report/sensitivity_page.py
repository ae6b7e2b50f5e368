"""The sensitivity of a run as a page, a picture and data."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.report import numbers, sensitivity_picture
from simulator.report.experts_page import Plate, Section, Table
from simulator.report.facts import devices, title, trust
from simulator.report.sensitivity import Sensitivity, data, finding, kinks, signed
from simulator.report.study_page import Page, drawing_files, plate, write_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simulator.report.experts_picture import Drawing


def write_sensitivity(found: Sensitivity, directory: str | Path) -> list[Path]:
    """Write the page, the picture and the data into ``directory``; returns the files.

    Raises SpecError where it cannot be written.
    """
    parts = title(found.result)
    page = Page(
        title=f"Sensitivity of {parts[0]}",
        about=", ".join([*parts[1:], devices(found.result)]),
        findings=[finding(found), f"Trust: {trust(found.result)}."],
        warnings=[numbers.plain(text) for text in found.result.warnings],
        notes=[numbers.plain(text) for text in found.notes],
        plates=[_tornado(found)],
        tables=[_numbers(found), *_left(found)],
        commands=[numbers.plain(text) for text in (found.command,) if text],
        data="Data: sensitivity.csv and sensitivity.json, beside this page, in base units.",
    )
    contents = {
        "sensitivity.json": (
            json.dumps(found.to_dict(), indent=1, allow_nan=False) + "\n"
        ).encode(),
        "sensitivity.csv": data(found).encode(),
        **drawing_files("sensitivity", ", ".join(parts), partial(_draw, found)),
    }
    return write_page(page, contents, directory)


def section(found: Sensitivity) -> Section:
    """The same inside the page of a run."""
    setting = " ".join(map(numbers.plain, found.notes))
    tables = [_numbers(found), *_left(found)]
    return Section(phase="", setting=setting, plates=[_tornado(found)], tables=tables)


def _tornado(found: Sensitivity) -> Plate:
    return plate("tornado", sensitivity_picture.TITLE, partial(_draw, found))


def _draw(found: Sensitivity, width: float) -> tuple[Figure, Drawing]:
    from simulator.report import experts_pen

    drawing = sensitivity_picture.picture(found, width)
    return experts_pen.draw(drawing), drawing


def _numbers(found: Sensitivity) -> Table:
    entries = found.felt
    slopes = numbers.align(
        [numbers.digits(one.elasticity) for one in entries],
        numbers.FIGURE_SPACE,
        numbers.POINT_SPACE,
    )
    rows, raw = [], []
    for one, slope in zip(entries, slopes, strict=True):
        gains = [one.gain(side) for side in (one.less, one.more)]
        cells = [numbers.ABSENT if gain is None else signed(gain) for gain in gains]
        why = [side.refused for side in (one.less, one.more) if side.refused]
        rows.append([one.name, one.path, slope, *cells, "; ".join([*kinks(one), *why])])
        raw.append([None, None, one.elasticity, *gains, None])
    return Table(
        title="Every number that the throughput feels",
        head=[
            ("number", ""), ("path", ""), ("elasticity", "% per %"), ("less", ""), ("more", ""),
            ("what turns, or is refused", ""),
        ],
        rows=rows,
        raw=raw,
        foot=[],
        words=(0, 1, 5),
        note=f"Less and more: throughput with {found.step * 100:g} % of each number less and more.",
    )  # fmt: skip


def _left(found: Sensitivity) -> list[Table]:
    rows = [[one.path, "elasticity under 0.005"] for one in found.small]
    rows += [[path, numbers.plain(why)] for path, why in found.fixed]
    rows += [[path, "not used in this run"] for path in found.unused]
    if not rows:
        return []
    head = [("path", ""), ("why", "")]
    return [
        Table(title="The other numbers", head=head, rows=rows, foot=[], folded=True, words=(0, 1))
    ]
