"""From a table of operator shapes to queries: rows that are alike but for their sizes.

Knows columns. Never touches devices, formulas or files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simulator.costs.families.model import Query

if TYPE_CHECKING:
    import polars as pl

NAMES = ("op", "dtype", "kv_dtype", "distribution", "source", "framework")
"""Columns of a shape that are names."""

SIZES = (
    "m", "n", "k", "batch", "seq_q", "seq_kv", "heads", "kv_heads", "head_dim", "window",
    "tokens", "hidden", "inter", "experts", "topk", "ep", "tp", "gated",
    "message_bytes", "n_gpus", "nodes", "sms",
)  # fmt: skip
"""Columns of a shape that are sizes; -1 where one does not apply."""

Table = Mapping[str, NDArray[Any]]
"""Columns of equal length."""


def queries(table: Table, sizes: Sequence[str]) -> Iterator[tuple[NDArray[np.int64], Query]]:
    """Rows and query of each group that shares all names, in the order of the names."""
    import polars as pl

    labels = {
        name: Label.of(pl.Series(table[name], dtype=pl.String)) for name in NAMES if name in table
    }
    numbers = {name: np.asarray(table[name], dtype=np.float64) for name in sizes if name in table}
    for rows, names in alike(labels):
        yield (
            rows,
            Query(**names, sizes={name: column[rows] for name, column in numbers.items()}),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Label:
    """A column of names, as places in a short list of them."""

    codes: NDArray[np.int64]
    values: list[str]

    @classmethod
    def of(cls, column: pl.Series) -> Label:
        """The entries of a column of text; nothing where it is null. ``values`` are sorted."""
        import polars as pl

        if len(column) <= FEW:
            texts = [text or "" for text in column.to_list()]
            values = sorted(set(texts))
            place = {text: code for code, text in enumerate(values)}
            return cls(
                codes=np.array([place[text] for text in texts], dtype=np.int64), values=values
            )
        filled = column.fill_null("") if column.null_count() else column
        known = filled.unique().sort()
        codes = filled.cast(pl.Enum(known)).to_physical().to_numpy().astype(np.int64)
        return cls(codes=codes, values=known.to_list())

    @classmethod
    def constant(cls, value: str, rows: int) -> Label:
        """The same entry in every row."""
        return cls(codes=np.zeros(rows, dtype=np.int64), values=[value])

    def map(self, change: Callable[[str], str]) -> Label:
        """Every entry changed."""
        changed = [change(value) for value in self.values]
        if changed == self.values:
            return self
        values = sorted(set(changed))
        place = {value: code for code, value in enumerate(values)}
        moved = np.array([place[value] for value in changed], dtype=np.int64)
        return Label(codes=moved[self.codes], values=values)

    def filled(self, other: Label) -> Label:
        """Entries of ``other`` where there is nothing."""
        if "" not in self.values:
            return self
        values = [*self.values, *other.values]
        blank = self.codes == self.values.index("")
        codes = np.where(blank, other.codes + len(self.values), self.codes)
        return Label(codes=codes, values=values).map(str)

    def take(self, rows: NDArray[np.int64]) -> Label:
        """The entries of some rows."""
        return Label(codes=self.codes[rows], values=self.values)


FEW = 64
"""Rows up to which plain Python is faster than a column at a time."""


def alike(labels: Mapping[str, Label]) -> Iterator[tuple[NDArray[np.int64], dict[str, str]]]:
    """Rows that share all labels, ascending, with those labels; in the order of the labels."""
    code = np.zeros(len(next(iter(labels.values())).codes), dtype=np.int64)
    kinds = 1
    for label in labels.values():
        if len(label.values) > 1:
            code = code * len(label.values) + label.codes
            kinds *= len(label.values)
    if kinds == 1:
        groups = [np.arange(len(code))] if len(code) else []
    else:
        # Narrow codes are sorted in one pass.
        narrow = code.astype(np.uint16) if kinds <= 2**16 else code
        order = np.argsort(narrow, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(code[order])) + 1) if len(code) else []
    for rows in groups:
        first = rows[0]
        yield rows, {name: label.values[label.codes[first]] for name, label in labels.items()}
