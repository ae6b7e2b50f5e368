"""A study as a page, pictures and data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.report import numbers, sweep_bars, sweep_front, sweep_line, sweep_map
from simulator.report.experts_page import Table
from simulator.report.study_page import Page, Source, drawing_files, plate, write_page
from simulator.report.sweep import Row, Swept, Varied, data, reasons, throughput_ends
from simulator.report.sweep_front import NUMBERED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simulator.report.experts_picture import Drawing

ROWS = 500
"""Points on the page; all of them are in the CSV."""
INTERVAL = "From and to are the 80 % interval of the latency."
VALUES = 100
"""Values of a path that have rows of their own at most."""
FOLDED = 24
"""Rows beyond which a table is folded."""
FILES = tuple(f"{name}.{kind}" for name in ("sweep", "front") for kind in ("svg", "png"))
"""Pictures that a study may have."""

Column = tuple[str, str, list[str], Sequence[float | None] | None]
"""Name, unit, cells, and the numbers that they stand for; None for words."""


def write_sweep(found: Swept, directory: str | Path) -> list[Path]:
    """Write the page, its pictures and the rows into ``directory``; returns the files.

    Raises SpecError where it cannot be written.
    """
    plates = []
    contents = {"rows.csv": data(found.rows).encode()}
    title = f"{numbers.plain(found.about)}: {', '.join(one.name for one in found.varied)}"
    for key, heading, layout in _layouts(found):
        draw = _drawn(layout, found)
        plates.append(plate(key, heading, draw))
        contents |= drawing_files(key, title, draw)
    page = Page(
        title=f"Study: {title}",
        about=f"{', '.join(_ways(found))}; {len(found.rows):,} points",
        findings=findings(found),
        warnings=[f"{text}." for text in found.warnings],
        notes=[numbers.plain(f"Base: {found.base}. Version {found.version}.")],
        plates=plates,
        tables=[*_best(found), *_unanswered(found), *_by_value(found), _points(found)],
        commands=[numbers.plain(f"tilecast sweep {found.name} -o rows.csv --report report")],
        data="Data: rows.csv, beside this page; answers in base units, varied values as written.",
        sources=[Source(name=numbers.plain(found.name), text=found.text)],
    )
    return write_page(page, contents, directory, stale=FILES)


def findings(found: Swept) -> list[str]:
    """What the study says: how much of it has an answer, the best points, and what binds where."""
    many, of = len(found.answered), len(found.rows)
    said = [f"{many:,} of {of:,} points have an answer ({numbers.percent(many / of)})."]
    best = found.best
    if best is None:
        return said
    rate = _rate(best, found.unit)
    said.append(
        f"Most throughput: {rate} at {found.point(best)}, in "
        f"{numbers.quantity(best['latency'], 's')}, bound by {best['bound_by']}."
    )
    fastest = min(found.answered, key=lambda row: row["latency"])
    if fastest is not best:
        said.append(
            f"Shortest latency: {_time(fastest)} at {found.point(fastest)}, with "
            f"{numbers.count(fastest['throughput'])} {found.unit}, bound by {fastest['bound_by']}."
        )
    parts = []
    for bound, count in sorted(found.bounds.items(), key=lambda item: -item[1]):
        where = _where([row for row in found.answered if row["bound_by"] == bound], found)
        share = numbers.percent(count / many)
        parts.append(f"{bound} {share}" + (f" ({where})" if where else ""))
    return [*said, f"What binds, by share of the answers: {'; '.join(parts)}."]


def _where(rows: Sequence[Row], found: Swept) -> str:
    """The part of each axis of numbers that rows keep to, where it is not all of it."""
    parts = []
    for one in found.varied:
        if one.values:
            order = {text: place for place, text in enumerate(one.texts)}
            places = [order[str(row[one.path])] for row in rows]
            low, high = min(places), max(places)
            if (low, high) != (0, len(one.texts) - 1):
                first = f"{one.labels[low]} .. " if low < high else ""
                parts.append(f"{one.name} {first}{one.value(one.texts[high])}")
    return ", ".join(parts)


def _rate(row: Row, unit: str) -> str:
    ends = throughput_ends(row)
    if ends is None:
        return f"{numbers.count(row['throughput'])} {unit}"
    return f"{numbers.interval(row['throughput'], *ends, unit)}"


def _time(row: Row) -> str:
    low, high = row["latency_lower"], row["latency_upper"]
    if not low or not high:
        return numbers.quantity(row["latency"], "s")
    return numbers.interval(row["latency"], low, high, "s")


def _ways(found: Swept) -> list[str]:
    """What is varied, and over how many values."""
    return [f"{one.name} over {len(one.texts):,} values" for one in found.varied] or ["one point"]


def _layouts(found: Swept) -> list[tuple[str, str, Callable[[Swept, float], Drawing]]]:
    """Keys, headings and layouts of the pictures that tell most of this study."""
    if not found.answered or not found.varied:
        return []
    pictures: list[tuple[str, str, Callable[[Swept, float], Drawing]]] = []
    if len(found.varied) == 1:
        module = sweep_line if found.varied[0].values else sweep_bars
        return [("sweep", module.TITLE, module.picture)]
    if found.whole:
        pictures.append(("sweep", sweep_map.TITLE, sweep_map.picture))
    return [*pictures, ("front", sweep_front.TITLE, sweep_front.picture)]


def _drawn(
    layout: Callable[[Swept, float], Drawing], found: Swept
) -> Callable[[float], tuple[Figure, Drawing]]:
    def draw(width: float) -> tuple[Figure, Drawing]:
        from simulator.report import experts_pen

        drawing = layout(found, width)
        return experts_pen.draw(drawing), drawing

    return draw


def _best(found: Swept) -> list[Table]:
    rows = found.front[:NUMBERED]
    if len(found.answered) < 2:
        return []
    more = len(found.front) - len(rows)
    note = f"No other point is as fast and has more throughput. {INTERVAL}"
    if more > 0:
        note += f" The fastest {NUMBERED}; {more:,} more are in rows.csv."
    count = [str(place) for place in range(1, len(rows) + 1)]
    first: Column = ("#", "", count, [float(text) for text in count])
    return [_table("Best points", [first, *_columns(rows, found)], note)]


def _unanswered(found: Swept) -> list[Table]:
    kinds = reasons(found.rows)
    if not kinds:
        return []
    columns: list[Column] = [
        ("points", "", [numbers.count(many) for many, _, _ in kinds],
         [float(many) for many, _, _ in kinds]),
        ("what", "", [status for _, status, _ in kinds], None),
        ("why, of the first", "", [reason for _, _, reason in kinds], None),
    ]  # fmt: skip
    return [_table("Points without an answer", columns)]


def _by_value(found: Swept) -> list[Table]:
    """The best of each value of what is varied, where more than one thing is."""
    if len(found.varied) < 2:
        return []
    lines: list[tuple[Varied, str, list[Row]]] = []
    left = []
    for one in found.varied:
        if len(one.texts) > VALUES:
            left.append(one.name)
            continue
        rows: dict[str, list[Row]] = {text: [] for text in one.texts}
        for row in found.answered:
            rows[str(row[one.path])].append(row)
        lines += [(one, text, rows[text]) for text in one.texts]
    note = f"Without {' and '.join(left)}, of more than {VALUES} values." if left else ""
    tops = [max(rows, key=lambda row: row["throughput"], default=None) for *_, rows in lines]
    rates = [float(top["throughput"]) if top else None for top in tops]
    counts = [float(len(rows)) for *_, rows in lines]
    columns: list[Column] = [
        ("what", "", [one.name for one, *_ in lines], None),
        ("value", "", [one.value(text) for one, text, _ in lines], None),
        ("answers", "", [numbers.count(count) for count in counts], counts),
        ("most throughput", found.unit, [numbers.count(rate) for rate in rates], rates),
        (
            "at",
            "",
            [
                found.point(top, one) if top else ""
                for (one, *_), top in zip(lines, tops, strict=True)
            ],
            None,
        ),
        ("bound", "", [str(top["bound_by"]) if top else "" for top in tops], None),
    ]
    return [_table("Best of each value", columns, note)] if lines else []


def _points(found: Swept) -> Table:
    rows = found.rows[:ROWS]
    more = len(found.rows) - len(rows)
    note = f"The first {ROWS} of {len(found.rows):,}; all are in rows.csv. " if more else ""
    index = [float(row["index"]) for row in rows]
    columns: list[Column] = [
        ("#", "", [numbers.count(place) for place in index], index),
        *_columns(rows, found),
        ("status", "", [numbers.plain(str(row["status"])) for row in rows], None),
    ]
    return _table("All points", columns, note + INTERVAL, filtered="points")


def _columns(rows: Sequence[Row], found: Swept) -> list[Column]:
    """Varied values and metrics; those that no row has are left out."""
    columns: list[Column] = []
    for one in found.varied:
        texts = [str(row[one.path]) for row in rows]
        labels = dict(zip(one.texts, one.labels, strict=True))
        values = dict(zip(one.texts, one.values, strict=False))
        raw = [values.get(text) for text in texts] if values else None
        columns.append((one.name, one.unit, [labels[text] for text in texts], raw))

    def column(name: str, unit: str, raw: list[float | None], cells: list[str]) -> None:
        if any(value is not None for value in raw):
            columns.append((name, unit, _aligned(cells), raw))

    for name, key in (("latency", "latency"), ("from", "latency_lower"), ("to", "latency_upper")):
        raw = [row[key] for row in rows]
        unit, cells = numbers.column(raw, "s", [row["latency"] for row in rows])
        column(name, unit, raw, cells)
    rates = [row["throughput"] for row in rows]
    column("throughput", found.unit, rates, list(map(numbers.count, rates)))
    columns.append(("bound", "", [str(row["bound_by"] or "") for row in rows], None))
    for key in ("mfu", "mbu"):
        raw = [row[key] for row in rows]
        column(key.upper(), "%", raw, list(map(numbers.points, raw)))
    for name, key, base in (("memory", "memory_bytes", "B"), ("energy", "energy", "J")):
        raw = [row[key] for row in rows]
        unit, cells = numbers.column(raw, base)
        column(name, unit, raw, cells)
    devices = [row["devices"] for row in rows]
    if len(set(devices) - {None}) > 1:
        column("devices", "", devices, list(map(numbers.count, devices)))
    dollars = [
        1e6 * row["cost"] / (row["throughput"] * row["latency"])
        if row["cost"] is not None and row["throughput"]
        else None
        for row in rows
    ]
    column("cost", f"$/M {found.unit.partition('/')[0]}", dollars,
           list(map(numbers.digits, dollars)))  # fmt: skip
    return columns


def _aligned(cells: Sequence[str]) -> list[str]:
    return numbers.align(cells, numbers.FIGURE_SPACE, numbers.POINT_SPACE)


def _table(title: str, columns: Sequence[Column], note: str = "", filtered: str = "") -> Table:
    return Table(
        title=title,
        head=[(name, unit) for name, unit, *_ in columns],
        rows=[list(row) for row in zip(*(cells for _, _, cells, _ in columns), strict=True)],
        raw=[
            list(row)
            for row in zip(*(raw or [None] * len(cells) for _, _, cells, raw in columns),
                           strict=True)
        ],
        foot=[],
        note=note,
        folded=len(columns[0][2]) > FOLDED,
        words=tuple(place for place, column in enumerate(columns) if column[3] is None),
        filtered=filtered,
    )  # fmt: skip
