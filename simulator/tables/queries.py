"""From a table of operator shapes to queries: rows that are alike but for their sizes.

Knows columns. Never touches devices, formulas or files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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

    labels = pl.DataFrame(
        {name: pl.Series(table[name], dtype=pl.String) for name in NAMES if name in table}
    )
    numbers = {name: np.asarray(table[name], dtype=np.float64) for name in sizes if name in table}
    for rows, names in alike(labels):
        yield (
            rows,
            Query(**names, sizes={name: column[rows] for name, column in numbers.items()}),
        )


def alike(labels: pl.DataFrame) -> list[tuple[NDArray[np.int64], dict[str, str]]]:
    """Rows that share all labels, ascending, with those labels; in the order of the labels."""
    import polars as pl

    row = "\0row"  # a name that no column of names has
    indexed = labels.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(row))
    groups = indexed.group_by(labels.columns).agg(row).sort(labels.columns)
    return [
        (rows.to_numpy(), dict(zip(labels.columns, names, strict=True)))
        for *names, rows in zip(*groups.get_columns(), strict=True)
    ]
