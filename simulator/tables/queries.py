"""From a table of operator shapes to queries: rows that are alike but for their sizes.

Knows columns. Never touches devices, formulas or files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.costs.families.model import Query

NAMES = ("op", "dtype", "kv_dtype", "distribution", "source", "framework")
"""Columns that are names; all other columns of a shape are sizes."""

Table = Mapping[str, NDArray[Any]]
"""Columns of equal length."""


def queries(table: Table, sizes: Sequence[str]) -> Iterator[tuple[NDArray[np.int64], Query]]:
    """Rows and query of each group that shares all names, in order of first appearance."""
    rows = len(next(iter(table.values())))
    code = np.zeros(rows, dtype=np.int64)
    labels: dict[str, NDArray[Any]] = {}
    for name in NAMES:
        if name in table:
            labels[name], inverse = np.unique(table[name], return_inverse=True)
            code = code * len(labels[name]) + inverse
    numbers = {name: np.asarray(table[name], dtype=np.float64) for name in sizes if name in table}
    order = np.argsort(code, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(code[order]) != 0])
    for chosen in np.split(order, starts[1:]):
        first = chosen[0]
        names = {name: str(table[name][first]) for name in labels}
        yield (
            chosen,
            Query(**names, sizes={name: column[chosen] for name, column in numbers.items()}),
        )
