"""From a table as a user wrote it to queries that models answer, and what is wrong with the rest.

Every row is judged, so that one reading of the faults mends the table. Knows columns, defaults and
the kernels of a stack. Never touches files, formulas or constants.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.costs.families.model import Floats, Model, Query
from simulator.errors import nearest
from simulator.specs.stack import Stack
from simulator.tables.faults import RowFault
from simulator.tables.queries import NAMES, SIZES, alike
from simulator.tables.shapes import (
    AT_MOST,
    DISTRIBUTIONS,
    DTYPES,
    LARGEST,
    LEAST,
    LIMITS,
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
    ops = labels["op"]
    known = _known(check, ops, np.arange(len(ops)), owners, f"no operator of {family}")
    numbers: dict[str, _Numbers] = {}
    groups: list[tuple[Rows, Query]] = []
    for op in sorted(set(ops.unique().to_list()) & set(owners)):
        rows = np.flatnonzero((ops == op).to_numpy() & known)
        good = _names_hold(check, labels, owners[op], op, rows)
        sizes = _sizes(check, owners[op], op, rows, numbers, good)
        kept = np.flatnonzero(good)
        for chosen, names in alike(labels[rows[kept]]):
            part = kept[chosen]
            columns = {name: column[part] for name, column in sizes.items()}
            groups.append((rows[part], Query(**names, sizes=columns)))
    return Asked(groups=groups, faults=check.faults, notes=check.notes)


def _labels(check: _Check) -> pl.DataFrame:
    """The columns of names, tidied and filled in."""
    import polars as pl

    frame, family = check.frame, check.family
    empty = pl.lit("", dtype=pl.String)
    labels = pl.DataFrame([_tidy(frame, name) for name in NAMES])
    blank = int((labels["op"] == "").sum())
    if blank and family in SOLE_OP:
        some = f"{blank:,} rows name" if blank > 1 else "1 row names"
        check.notes.append(f"{some} no op: {SOLE_OP[family]} is meant")

    def filled(name: str, value: pl.Expr) -> pl.Expr:
        return pl.when(pl.col(name) == "").then(value).otherwise(pl.col(name)).alias(name)

    source = pl.col("source")
    sources = labels["source"].unique().to_list()
    strange = [name for name in sources if not set(name.split("+")) <= {"", *SOURCES}]
    if strange:
        shown = ", ".join(repr(name[:40]) for name in sorted(strange)[:3])
        check.notes.append(f"source {shown} is not known: the operator alone is meant")
    routed = (
        pl.when(source.str.contains("aiter")).then(pl.lit("random")).otherwise(pl.lit("balanced"))
    )
    return labels.with_columns(
        filled("op", pl.lit(SOLE_OP.get(family, ""))),
        filled("dtype", pl.lit(DTYPES.get(family, ""))),
        filled("kv_dtype", pl.col("dtype")) if family == "attention" else empty.alias("kv_dtype"),
        filled("distribution", routed) if family == "moe" else empty.alias("distribution"),
        pl.when(source.is_in(strange)).then(empty).otherwise(source).alias("source"),
    ).with_columns(
        filled("kv_dtype", pl.col("dtype")) if family == "attention" else pl.col("kv_dtype")
    )


def _tidy(frame: pl.DataFrame, name: str) -> pl.Series:
    """A column of names in lower case without blanks around it; empty where nothing is stated."""
    import polars as pl

    if name not in frame.columns or frame.schema[name].is_nested():
        return pl.Series(name, [""]).new_from_index(0, frame.height)
    column = frame[name].cast(pl.String).fill_null("")
    written = column.unique().to_list()
    tidy = {text: text.strip().lower() for text in written}
    changed = {old: "" if new == "-1" else new for old, new in tidy.items()}
    changed = {old: new for old, new in changed.items() if old != new}
    return column.replace(list(changed), list(changed.values())) if changed else column


def _names_hold(check: _Check, labels: pl.DataFrame, model: Model, op: str, rows: Rows) -> Mask:
    """Which rows of an operator have names that its model and the stack know."""
    part = labels[rows]
    stack = check.stack
    good = _known(check, part["dtype"], rows, formats(model, op), f"no number format of {op}")
    if check.family == "attention":
        good &= _known(check, part["kv_dtype"], rows, formats(model, op), "no format of a cache")
    if check.family == "moe":
        good &= _known(
            check, part["distribution"], rows, DISTRIBUTIONS, "no distribution", is_distribution
        )
    libraries = set(stack.libraries.get(model.name, ()))
    good &= _known(
        check, part["framework"], rows, libraries, f"no framework of {op} on {stack.name}",
        lambda name: set(name.split("+")) <= {"", *libraries},
    )  # fmt: skip
    return good


def _known(
    check: _Check,
    column: pl.Series,
    rows: Rows,
    known: Collection[str],
    kind: str,
    holds: Callable[[str], bool] | None = None,
) -> Mask:
    """Which entries of a column of names are known; a fault for each that is not."""
    test = holds or (lambda name: name in known)
    name = column.name
    wrong = [value for value in column.unique(maintain_order=True).to_list() if not test(value)]
    if not wrong:
        return np.ones(len(rows), dtype=bool)
    bad = column.is_in(wrong).to_numpy()
    for value in wrong[:VALUES]:
        where = rows[(column == value).to_numpy()]
        if value:
            near = nearest(value, known)
            fix = f"did you mean {' or '.join(near)}?" if near else f"known: {_listed(known)}"
            check.fault(where, name, f"{value[:40]!r} is {kind}", fix)
        elif name not in check.frame.columns:
            check.fault(where, name, *_lacking(check, name))
        else:
            check.fault(where, name, "has no value", f"known: {_listed(known)}")
    more = column.is_in(wrong[VALUES:]).to_numpy()
    check.fault(rows[more], name, f"{len(wrong) - VALUES:,} more values are {kind}")
    return np.asarray(~bad)


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
    given: dict[str, Floats] = {}
    for name in least:
        if name in check.frame.columns:
            if name not in known:
                known[name] = _numbers(check.frame[name])
            numbers = known[name]
            values = numbers.values[rows].copy()
            absent = numbers.absent[rows]
            bad = _out_of_range(check, name, rows, values, absent, numbers.text[rows], least[name])
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
    for smaller, larger in AT_MOST:
        if smaller in sizes and larger in sizes:
            over = good & (sizes[smaller] > sizes[larger])
            check.fault(rows[over], smaller, f"is more than {larger}")
            good &= ~over
    return sizes


def _out_of_range(
    check: _Check, name: str, rows: Rows, values: Floats, absent: Mask, text: Mask, least: float
) -> Mask:
    """Which entries are no size that makes sense; a fault for each kind."""
    most = LIMITS.get(name, LARGEST)
    bad = np.zeros(len(rows), dtype=bool)
    with np.errstate(invalid="ignore"):
        kinds: Iterator[tuple[Mask, str]] = iter(
            (
                (text, "is no number"),
                (np.isnan(values) & ~text, "is not a number (NaN)"),
                (np.isinf(values), "is infinite"),
                (values != np.floor(values), "is not a whole number"),
                (values < least, f"is less than {least:g}"),
                (values > most, f"is more than {most:,}"),
            )
        )
        for which, words in kinds:
            found = which & ~absent & ~bad
            if found.any():
                first = check.frame[name][int(rows[found.argmax()])]
                check.fault(rows[found], name, f"{str(first)[:40]!r} {words}")
                bad |= found
    return bad
