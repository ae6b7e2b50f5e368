"""The page of a validation: Markdown with its pictures beside it.

Rounds through ``numbers`` alone. Knows cases and scores. Never touches models or measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simulator.errors import Fault, SpecError
from simulator.report import numbers
from simulator.report.validation import HEADS, Case, cells, grouped, score

WORST = 3
"""Rows of an operator and format that are listed as the furthest off."""

PAGE = "validation.md"

Grouping = tuple[tuple[str, ...], tuple[str, ...]]
"""Heads of columns, and the fields of a case that they show."""

SUMMARIES: tuple[Grouping, ...] = (
    (("family", "class"), ("family", "distance")),
    (("operator", "format", "class"), ("op", "dtype", "distance")),
)
DETAILS: Grouping = (
    ("operator", "format", "device", "class"),
    ("op", "dtype", "device", "distance"),
)

EXPLAINED = (
    "Errors in percent. *mean* is the mean absolute error relative to the measured time, *median* "
    "its median, *ratio* the geometric mean of predicted over measured. Where several serving "
    "frameworks were measured, the prediction stands against their median; *band* is its mean "
    "distance outside the span from the fastest to the slowest of them. *in 80 %* is the share of "
    "measured times inside the 80 % interval. *plain* is the mean error of the plain roofline on "
    "the same rows: operations over the data sheet's peak, or bytes over its bandwidth, whichever "
    "takes longer."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Cases of one protocol."""

    name: str
    """Of its pictures' files."""
    title: str
    protocol: str
    cases: list[Case]


def page(studies: Sequence[Study], *, date: str, data: str, pictures: Mapping[str, str]) -> str:
    """The Markdown page: what was judged and how, scores, pictures and the rows furthest off.

    ``pictures`` maps the name of a file beside the page to its caption.
    """
    lines = [
        "# Predicted against measured",
        "",
        f"Date: {date}. Data: {data}.",
        "",
        EXPLAINED,
        "",
    ]
    for name, caption in pictures.items():
        lines += [f"![{caption}]({name})", "", f"*{caption}*", ""]
    for study in studies:
        lines += [f"## {study.title}", "", study.protocol, ""]
        for heads, by in SUMMARIES:
            lines += _table(heads, study.cases, by)
        lines += ["### By device", "", *_table(DETAILS[0], study.cases, DETAILS[1])]
        lines += ["### Rows furthest off", "", *_worst(study.cases)]
    return "\n".join(lines).rstrip() + "\n"


def _table(heads: Sequence[str], cases: Sequence[Case], by: Sequence[str]) -> list[str]:
    pools = list(grouped(cases, *by))
    if by[0] == "op":
        pools.sort(key=lambda pool: pool[0])
    rows = [(*name, *cells(score(pool))) for name, pool in pools]
    return _markdown((*heads, *HEADS), rows, left=len(heads))


def _markdown(heads: Sequence[str], rows: Iterable[Sequence[str]], *, left: int) -> list[str]:
    rule = ["---" if place < left else "---:" for place in range(len(heads))]
    return [f"| {' | '.join(row)} |" for row in (heads, rule, *rows)] + [""]


def _worst(cases: Sequence[Case]) -> list[str]:
    """The rows of each operator and format that are furthest off, with their shapes."""
    rows = []
    for (op, dtype), pool in grouped(cases, "op", "dtype"):
        ratios = [np.log(case.predicted / case.measured) for case in pool]
        which = np.concatenate([np.full(len(part), place) for place, part in enumerate(ratios)])
        inside = np.concatenate([np.arange(len(part)) for part in ratios])
        order = np.argsort(-np.abs(np.concatenate(ratios)), kind="stable")[:WORST]
        for place in order:
            case, row = pool[which[place]], int(inside[place])
            ratio = float(case.predicted[row] / case.measured[row])
            rows.append(
                (
                    op,
                    dtype,
                    case.device,
                    _shape(case, row),
                    numbers.digits(float(case.predicted[row])),
                    numbers.digits(float(case.measured[row])),
                    f"{numbers.digits(ratio)}x",
                )
            )
    heads = ("operator", "format", "device", "shape", "predicted us", "measured us", "ratio")
    return _markdown(heads, rows, left=4)


def _shape(case: Case, row: int) -> str:
    parts = [(name, column[row]) for name, column in case.sizes.items()]
    return " ".join(f"{name} {value:.0f}" for name, value in parts if value >= 0)


def ready(directory: Path) -> None:
    """Make the directory; raises SpecError where nothing can be written in it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        part = directory / f".{PAGE}.part"
        part.touch()
        part.unlink()
    except OSError as error:
        fix = "name a directory that can be written, or a new one"
        found = error.strerror or str(error)
        raise SpecError([Fault(str(directory), None, "", found, fix)]) from None


def write_validation(
    studies: Sequence[Study], directory: Path, *, date: str, data: str
) -> list[Path]:
    """Write the page and its pictures; returns the files.

    Everything is drawn before anything is written. Raises SpecError where it cannot be written.
    """
    from simulator.report.validation_picture import CAPTIONS, by_size, predicted

    contents: dict[str, bytes] = {}
    captions: dict[str, str] = {}
    for study in studies:
        for kind, draw in (("predicted", predicted), ("by_size", by_size)):
            name = f"{study.name}-{kind.replace('_', '-')}.png"
            contents[name] = draw(study.cases, study.title)
            captions[name] = f"{study.title}. {CAPTIONS[kind]}"
    text = page(studies, date=date, data=data, pictures=captions)
    contents[PAGE] = text.encode()
    ready(directory)
    for name, content in contents.items():
        part = directory / f".{name}.part"
        try:
            part.write_bytes(content)
            part.replace(directory / name)
        except OSError as error:
            found = error.strerror or str(error)
            raise SpecError([Fault(str(directory / name), None, "", found)]) from None
        finally:
            part.unlink(missing_ok=True)
    return [directory / name for name in contents]
