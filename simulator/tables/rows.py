"""From a table as a user wrote it to queries that models answer, and what is wrong with the rest.

Every row is judged, so that one reading of the faults mends the table. Knows columns, defaults and
the kernels of a stack. Never touches files, formulas or constants.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.costs.families.model import Floats, Model, Query
from simulator.errors import nearest
from simulator.specs.stack import Stack
from simulator.tables.faults import RowFault
from simulator.tables.queries import NAMES, SIZES, Label, alike
from simulator.tables.shapes import (
    AT_MOST,
    AT_MOST_OF,
    DISTRIBUTIONS,
    DTYPES,
    LARGEST,
    LEAST,
    LIMITS,
    LIMITS_OF,
    SOLE_OP,
    SOURCES,
    UNKNOWN,
    defaults,
    formats,
    is_distribution,
    models_of,
)

if TYPE_CHECKING:
    import polars as pl

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

VALUES = 12
"""Unlike wrong values of a column that are named before the others are only counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A family's table: rows by query, and what stands in the way of the others."""

    groups: list[tuple[Rows, Query]]
    faults: list[RowFault]
    notes: list[str]
    """What was taken for granted."""


@dataclass(slots=True)
class _Check:
    family: str
    frame: pl.DataFrame
    stack: Stack
    faults: list[RowFault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def fault(self, rows: Rows, column: str, found: str, fix: str = "") -> None:
        if len(rows):
            self.faults.append(RowFault(rows=rows, column=column, found=found, fix=fix))


def ask(family: str, frame: pl.DataFrame, stack: Stack) -> Asked:
    """Judge every row of a table of a family; a row with a fault is in no group.

    Raises UnknownNameError for an unknown family.
    """
    owners = models_of(family)
    check = _Check(family, frame, stack)
    labels = _labels(check)
    every = np.arange(frame.height)
    known = _known(check, labels["op"], "op", every, owners, f"no operator of {family}")
    numbers: dict[str, _Numbers] = {}
    groups: list[tuple[Rows, Query]] = []
    for code, op in enumerate(labels["op"].values):
        rows = np.flatnonzero((labels["op"].codes == code) & known)
        if not len(rows):
            continue
        part = {name: label.take(rows) for name, label in labels.items()}
        good = _names_hold(check, part, owners[op], op, rows)
        sizes = _sizes(check, owners[op], op, rows, numbers, good)
        kept = np.flatnonzero(good)
        for chosen, names in alike({name: label.take(kept) for name, label in part.items()}):
            here = kept[chosen]
            columns = {name: column[here] for name, column in sizes.items()}
            groups.append((rows[here], Query(**names, sizes=columns)))
    return Asked(groups=groups, faults=check.faults, notes=check.notes)


def _labels(check: _Check) -> dict[str, Label]:
    """The columns of names, tidied and filled in."""
    family, rows = check.family, check.frame.height
    labels = {name: _tidy(check.frame, name) for name in NAMES}

    def fill(name: str, default: Label | str) -> None:
        other = Label.constant(default, rows) if isinstance(default, str) else default
        labels[name] = labels[name].filled(other)

    op, source = labels["op"], labels["source"]
    if family in SOLE_OP and "" in op.values:
        blank = int((op.codes == op.values.index("")).sum())
        some = f"{blank:,} rows name" if blank > 1 else "1 row names"
        check.notes.append(f"{some} no op: {SOLE_OP[family]} is meant")
        fill("op", SOLE_OP[family])
    strange = {name for name in source.values if not set(name.split("+")) <= {"", *SOURCES}}
    if strange:
        shown = ", ".join(repr(name[:40]) for name in sorted(strange)[:3])
        check.notes.append(f"source {shown} is not known: the operator alone is meant")
    labels["source"] = source.map(lambda name: "" if name in strange else name)
    fill("dtype", DTYPES.get(family, ""))
    if family == "attention":
        fill("kv_dtype", labels["dtype"])
    else:
        labels["kv_dtype"] = Label.constant("", rows)
    if family == "moe":
        fill("distribution", source.map(lambda name: "random" if "aiter" in name else "balanced"))
    else:
        labels["distribution"] = Label.constant("", rows)
    return labels


def _tidy(frame: pl.DataFrame, name: str) -> Label:
    """A column of names in lower case without blanks around it; empty where nothing is stated."""
    import polars as pl

    if name not in frame.columns:
        return Label.constant("", frame.height)
    column = frame[name]
    if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object):
        column = pl.Series([_text(entry) for entry in column.to_list()], dtype=pl.String)
    elif column.dtype != pl.String:
        column = column.cast(pl.String)
    tidy = Label.of(column).map(lambda text: text.strip().lower())
    return tidy.map(lambda text: "" if text == "-1" else text)


def _text(entry: object) -> str | None:
    """What stands in a cell of no plain type, to be judged as a name."""
    if isinstance(entry, bytes):
        return entry.decode(errors="replace")
    return None if entry is None else str(entry)


def _names_hold(check: _Check, labels: dict[str, Label], model: Model, op: str, rows: Rows) -> Mask:
    """Which rows of an operator have names that its model and the stack know."""
    stack, family = check.stack, check.family

    def known(
        name: str, names: Collection[str], kind: str, holds: Callable[[str], bool] | None = None
    ) -> Mask:
        return _known(check, labels[name], name, rows, names, kind, holds)

    good = known("dtype", formats(model, op), f"no number format of {op}")
    if family == "attention":
        good &= known("kv_dtype", formats(model, op), "no format of a cache")
    if family == "moe":
        good &= known("distribution", DISTRIBUTIONS, "no distribution", is_distribution)
    libraries = set(stack.libraries.get(model.name, ()))
    return good & known(
        "framework", libraries, f"no framework of {op} on {stack.name}",
        lambda name: set(name.split("+")) <= {"", *libraries},
    )  # fmt: skip


def _known(
    check: _Check,
    label: Label,
    name: str,
    rows: Rows,
    known: Collection[str],
    kind: str,
    holds: Callable[[str], bool] | None = None,
) -> Mask:
    """Which entries of a column of names are known; a fault for each that is not."""
    test = holds or (lambda value: value in known)
    wrong = np.array([not test(value) for value in label.values], dtype=bool)
    bad = wrong[label.codes]
    if not bad.any():
        return ~bad
    codes, first = np.unique(label.codes[bad], return_index=True)
    ordered = codes[np.argsort(first)]
    for code in ordered[:VALUES]:
        value, where = label.values[code], rows[label.codes == code]
        if value:
            near = nearest(value, known)
            fix = f"did you mean {' or '.join(near)}?" if near else f"known: {_listed(known)}"
            check.fault(where, name, f"{value[:40]!r} is {kind}", fix)
        elif name not in check.frame.columns:
            check.fault(where, name, *_lacking(check, name))
        else:
            check.fault(where, name, "has no value", f"known: {_listed(known)}")
    more = np.isin(label.codes, ordered[VALUES:])
    check.fault(rows[more], name, f"{len(ordered) - VALUES:,} more values are {kind}")
    return ~bad


def _listed(known: Collection[str]) -> str:
    shown = sorted(known)
    return ", ".join(shown[:24]) + (f" and {len(shown) - 24} more" if len(shown) > 24 else "")


def _lacking(check: _Check, name: str) -> tuple[str, str]:
    others = {column.strip().lower(): column for column in check.frame.columns}
    strange = [column for column in others if column == name or column not in (*NAMES, *SIZES)]
    near = nearest(name, strange)
    return "the column is missing", f"the table has {others[near[0]]!r}" if near else ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Numbers:
    """A column as numbers: NaN where there is none."""

    values: Floats
    absent: Mask
    text: Mask
    """Where something else stands than a number."""


def _numbers(column: pl.Series) -> _Numbers:
    import polars as pl

    if column.dtype.is_numeric() and not column.null_count():
        whole = column.cast(pl.Float64).to_numpy()
        return _Numbers(
            values=whole, absent=whole == UNKNOWN, text=np.zeros(len(whole), dtype=bool)
        )
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        tidy = column.cast(pl.String).str.strip_chars()
        cast = tidy.cast(pl.Float64, strict=False)
        absent = (tidy.is_null() | (tidy == "")).fill_null(True)
    elif column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
        cast = column.cast(pl.Float64)
        absent = cast.is_null()
    else:
        cast = pl.Series([None], dtype=pl.Float64).new_from_index(0, len(column))
        absent = column.is_null()
    values = cast.fill_null(float("nan")).to_numpy()
    return _Numbers(
        values=values,
        absent=absent.to_numpy() | (values == UNKNOWN),
        text=(cast.is_null() & ~absent).to_numpy(),
    )


def _sizes(
    check: _Check, model: Model, op: str, rows: Rows, known: dict[str, _Numbers], good: Mask
) -> dict[str, Floats]:
    """The sizes of an operator's rows, defaults filled in; ``good`` loses the rows with faults."""
    optional = defaults(op, check.family)
    least = {name: LEAST.get(name, 1.0) for name in optional}
    least |= {column.name: column.least for column in model.columns[op]}
    most = {**LIMITS, **LIMITS_OF.get(op, {})}
    given: dict[str, Floats] = {}
    for name in least:
        if name in check.frame.columns:
            if name not in known:
                known[name] = _numbers(check.frame[name])
            numbers = known[name]
            values = numbers.values[rows].copy()
            absent = numbers.absent[rows]
            ends = least[name], most.get(name, LARGEST)
            bad = _out_of_range(check, name, rows, values, absent, numbers.text[rows], ends)
            good &= ~bad
            values[absent] = np.nan
            values[bad] = np.inf  # neither absent nor good
            given[name] = values
        else:
            given[name] = np.full(len(rows), np.nan)
    sizes: dict[str, Floats] = {}
    for name, values in given.items():
        default = optional.get(name)
        if default is None:
            sizes[name] = values
        else:
            other = given[default] if isinstance(default, str) else default
            sizes[name] = np.where(np.isnan(values), other, values)
    for name in sizes:
        lost = np.isnan(sizes[name])
        if name not in check.frame.columns:
            check.fault(rows[lost], name, *_lacking(check, name))
        else:
            check.fault(rows[lost], name, f"has no value, which {op} needs")
        good &= ~lost
    for smaller, larger in (*AT_MOST, *AT_MOST_OF.get(op, ())):
        if smaller in sizes and larger in sizes:
            over = good & (sizes[smaller] > sizes[larger])
            check.fault(rows[over], smaller, f"is more than {larger}")
            good &= ~over
    return sizes


def _out_of_range(
    check: _Check, name: str, rows: Rows, values: Floats, absent: Mask, text: Mask,
    ends: tuple[float, float],
) -> Mask:  # fmt: skip
    """Which entries are no size that makes sense; a fault for each kind."""
    least, most = ends
    bad = np.zeros(len(rows), dtype=bool)
    with np.errstate(invalid="ignore"):
        kinds = (
            (text, "is no number"),
            (np.isnan(values) & ~text, "is not a number (NaN)"),
            (np.isinf(values), "is infinite"),
            (values != np.floor(values), "is not a whole number"),
            (values < least, f"is less than {least:g}"),
            (values > most, f"is more than {most:,.0f}"),
        )
        for which, words in kinds:
            found = which & ~absent & ~bad
            if found.any():
                first = check.frame[name][int(rows[found.argmax()])]
                check.fault(rows[found], name, f"{str(first)[:40]!r} {words}")
                bad |= found
    return bad
