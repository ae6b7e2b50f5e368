"""A study as data: what varies over which values, which points have an answer, what binds them.

Knows rows of a study and units. Never touches scenarios or models. A row is a mapping with an
index, the varied values as texts, and, in base units, ``latency`` with its 80 % interval,
``throughput``, ``bound_by`` and more; ``status`` is ``ok`` or says why there is no answer.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import pstdev
from typing import Any

from simulator import units
from simulator.report import numbers, palette
from simulator.result import Bound

Row = Mapping[str, Any]

LETTERS: dict[Bound, str] = {
    "compute": "C", "memory": "M", "cache": "H", "link": "K", "latency": "L", "waiting": "W",
}  # fmt: skip
"""What binds in one letter, for where a colour cannot stand."""
_UNITS = (
    units.BYTES, units.BYTES_PER_SECOND, units.FLOPS_PER_SECOND, units.HERTZ, units.SECONDS,
    units.WATTS, units.JOULES, units.BITS_PER_SECOND,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Varied:
    """A path and its values: numbers from small to large, words in order of their first row."""

    path: str
    texts: tuple[str, ...]
    values: tuple[float, ...] = ()
    """The numbers; empty where some value is none."""
    unit: str = ""
    """What all texts end with."""

    @property
    def name(self) -> str:
        """The path's end: ``hbm.bandwidth``."""
        return numbers.plain(".".join(self.path.rsplit(".", 2)[-2:]))

    @property
    def labels(self) -> list[str]:
        """The values without the unit that they share, long ones to three digits where that
        leaves them apart."""
        texts = [numbers.plain(text.removesuffix(self.unit).strip() or text) for text in self.texts]
        if self.values and self.unit and max(map(len, texts)) > 6:
            short = [numbers.digits(value) for value in self.values]
            return short if len(set(short)) == len(short) else texts
        return texts

    @property
    def heading(self) -> str:
        """The name with the unit: ``hbm.bandwidth, TB/s``."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    @property
    def by_ratio(self) -> bool:
        """Whether the values are spaced by ratio rather than by difference."""
        if len(self.values) < 3 or self.values[0] <= 0:
            return False

        def uneven(values: Sequence[float]) -> float:
            steps = [after - before for before, after in pairwise(values)]
            return pstdev(steps) * len(steps) / math.fsum(steps)

        return uneven([math.log(value) for value in self.values]) < uneven(self.values)

    def said(self, text: str) -> str:
        """A value with the name: ``batch 64``."""
        return f"{self.name} {self.value(text)}"

    def value(self, text: str) -> str:
        """A value with its unit."""
        return f"{self.labels[self.texts.index(text)]} {self.unit}".strip()


@dataclass(frozen=True, kw_only=True)
class Swept:
    """All points of a study, answered or not, in order of their index."""

    rows: tuple[Row, ...]
    paths: tuple[str, ...]
    front: tuple[Row, ...]
    """Points than which no other is as fast and has more throughput, fastest first."""
    base: str
    """Command of the scenario that is varied."""
    about: str
    """What is varied in a few words: workload, phase, device."""
    unit: str
    """Of the throughput: tok/s or samples/s."""
    name: str
    """Name of the study's file."""
    text: str
    """What the file says."""
    version: str

    @cached_property
    def varied(self) -> tuple[Varied, ...]:
        """Paths with more than one value."""
        found = (varied(path, [str(row[path]) for row in self.rows]) for path in self.paths)
        return tuple(one for one in found if len(one.texts) > 1)

    @cached_property
    def answered(self) -> tuple[Row, ...]:
        """Points with an answer."""
        return tuple(row for row in self.rows if row["status"] == "ok" and row["throughput"])

    @property
    def whole(self) -> bool:
        """Whether every combination of the varied values was run once, as in a grid."""
        places = {tuple(row[one.path] for one in self.varied) for row in self.rows}
        return len(places) == math.prod(len(one.texts) for one in self.varied)

    @property
    def best(self) -> Row | None:
        """The point with the most throughput."""
        return max(self.answered, key=lambda row: row["throughput"], default=None)

    @property
    def bounds(self) -> dict[Bound, int]:
        """How many answered points each resource binds, in the palette's order."""
        counts = Counter(row["bound_by"] for row in self.answered)
        return {bound: counts[bound] for bound in palette.BOUND if counts[bound]}

    @property
    def lacking(self) -> str:
        """What became of the points without an answer, in a few words; empty where all have one."""
        states = {str(row["status"]) for row in self.rows if row["status"] != "ok"}
        return numbers.plain(states.pop()) if len(states) == 1 else "no answer" if states else ""

    @property
    def warnings(self) -> list[str]:
        """What the runs warn of, and which paths are idle."""
        return warnings(self.rows, self.paths)

    def point(self, row: Row, but: Varied | None = None) -> str:
        """Where a row stands, ``but`` for one path: ``batch 64, hbm.bandwidth 12 TB/s``."""
        said = [one.said(str(row[one.path])) for one in self.varied if one is not but]
        return ", ".join(said) or "its only point"


def varied(path: str, texts: Sequence[str]) -> Varied:
    """The distinct values of a path; as numbers where all are numbers of one kind.

    >>> varied("batch", ["64", "8", "64"]).values, varied("dtype", ["fp8", "bf16"]).values
    ((8.0, 64.0), ())
    """
    distinct = list(dict.fromkeys(texts))
    parts = [part for text in distinct if (part := units.number_and_unit(text))]
    names = {unit for _, unit in parts}
    values: list[float] | None = None
    if len(parts) == len(distinct) and len(names) == 1:
        values = [value for value, _ in parts]
    else:
        names = {""}
        values = next(filter(None, (_quantities(distinct, unit) for unit in _UNITS)), None)
    if values is None or len(set(values)) < len(values) or not all(map(math.isfinite, values)):
        return Varied(path=path, texts=tuple(distinct))
    order = sorted(range(len(values)), key=values.__getitem__)
    return Varied(
        path=path,
        texts=tuple(distinct[place] for place in order),
        values=tuple(values[place] for place in order),
        unit=names.pop(),
    )


def _quantities(texts: Sequence[str], unit: units.Unit) -> list[float] | None:
    try:
        return [units.parse(text, unit) for text in texts]
    except units.QuantityError:
        return None


def throughput_ends(row: Row) -> tuple[float, float] | None:
    """The 80 % interval of the throughput: equal work over the ends of the latency."""
    low, high, at = row["latency_lower"], row["latency_upper"], row["latency"]
    if not low or not high:
        return None
    return row["throughput"] * at / high, row["throughput"] * at / low


def reasons(rows: Sequence[Row]) -> list[tuple[int, str, str]]:
    """How many points have no answer, what became of them, and the first one's reason; those that
    differ in sizes alone are of one kind. The most first."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["status"] != "ok":
            reason = numbers.plain((str(row["reason"] or "").splitlines() or [""])[0])
            kind = row["status"], re.sub("[0-9][0-9,.]*", "0", reason)
            kinds.setdefault(kind, []).append(reason)
    found = [(len(all_), status, all_[0]) for (status, _), all_ in kinds.items()]
    return sorted(found, key=lambda kind: -kind[0])


def warnings(rows: Sequence[Row], paths: Sequence[str]) -> list[str]:
    """What runs warn of, said once for warnings that differ in numbers alone, and the paths whose
    value changes no answer."""
    kinds: dict[str, list[str]] = {}
    for row in rows:
        for text in filter(None, str(row.get("warnings") or "").split(" | ")):
            kinds.setdefault(re.sub("[0-9][0-9,.]*", "0", text), []).append(text)
    of = sum(row["status"] == "ok" for row in rows)
    said = [
        numbers.plain(texts[0] + (f" ({len(texts):,} of {of:,} points)" if len(texts) < of else ""))
        for texts in kinds.values()
    ]
    return said + [numbers.plain(f"{path} changes no answer") for path in idle(rows, paths)]


def idle(rows: Sequence[Row], paths: Sequence[str]) -> list[str]:
    """Paths whose value changes nothing: points that differ in it alone have one answer."""
    found = []
    for path in paths:
        first: dict[tuple[str, ...], Row] = {}
        compared = False
        for row in rows:
            other = first.setdefault(tuple(str(row[one]) for one in paths if one != path), row)
            if any(row[name] != other[name] for name in row if name not in ("index", *paths)):
                break
            compared |= row["status"] == "ok" and row[path] != other[path]
        else:
            found += [path] if compared else []
    return found


def data(rows: Sequence[Row]) -> str:
    """The rows as CSV, base units."""
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(rows[0])
    writer.writerows(row.values() for row in rows)
    return sheet.getvalue()
