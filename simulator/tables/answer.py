"""The answer to a table of operator shapes: a latency with its interval for every row, or faults.

Knows columns, models and a target. Never touches files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simulator.costs.target import Target
from simulator.errors import InputError
from simulator.tables.faults import RowFault, TableError
from simulator.tables.predict import Prediction, predict_query
from simulator.tables.rows import ask

if TYPE_CHECKING:
    import polars as pl

ANSWERS = ("latency_us", "lower_us", "upper_us", "bound_by")
MICRO = 1e6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """A prediction for each row of a table, in order."""

    prediction: Prediction
    notes: list[str]
    """What was taken for granted."""

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """``latency_us``, ``lower_us``, ``upper_us`` and ``bound_by``."""
        found = self.prediction
        values = (found.seconds * MICRO, found.lower * MICRO, found.upper * MICRO, found.bound_by)
        return dict(zip(ANSWERS, values, strict=True))


def answer(family: str, frame: pl.DataFrame, target: Target, *, name: str = "table") -> Answer:
    """Predict every row of a family's table on a target.

    Raises UnknownNameError for an unknown family, and TableError with every row that cannot be
    answered.
    """
    asked = ask(family, frame, target.stack)
    if not frame.height:
        raise TableError(name, 0, [_whole("has no rows: nothing is asked")])
    faults = list(asked.faults)
    prediction = Prediction.empty(frame.height)
    for rows, query in asked.groups:
        try:
            part = predict_query(query, target)
        except InputError as error:
            faults.append(RowFault(rows=rows, column="dtype", found=str(error)))
            continue
        lost = ~(np.isfinite(part.seconds) & (part.seconds > 0))
        if lost.any():
            by = f" of {query.framework}" if query.framework else ""
            found = f"no kernel{by} runs {query.op} in {query.dtype} on {target.stack.name}"
            faults.append(RowFault(rows=rows[lost], column="dtype", found=found))
        prediction.put(rows, part)
    if faults:
        raise TableError(name, frame.height, _merged(faults))
    return Answer(prediction=prediction, notes=asked.notes)


def _whole(found: str) -> RowFault:
    return RowFault(rows=np.empty(0, dtype=np.int64), column="", found=found)


def _merged(faults: list[RowFault]) -> list[RowFault]:
    """Faults of equal words as one, in the order of their first rows."""
    alike: dict[tuple[str, str, str], list[RowFault]] = {}
    for fault in faults:
        alike.setdefault((fault.column, fault.found, fault.fix), []).append(fault)
    merged = [
        RowFault(
            rows=np.unique(np.concatenate([fault.rows for fault in same])),
            column=column,
            found=found,
            fix=fix,
        )
        for (column, found, fix), same in alike.items()
    ]
    return sorted(merged, key=lambda fault: int(fault.rows[0]) if len(fault.rows) else -1)


def with_answer(frame: pl.DataFrame, found: Answer) -> tuple[pl.DataFrame, list[str]]:
    """The table with the answer's columns behind its own, and what was renamed to make room.

    A column of the table that is called like one of the answer becomes ``input_...``.
    """
    import polars as pl

    renamed: Mapping[str, str] = {
        column: _free(f"input_{column}", frame.columns)
        for column in ANSWERS
        if column in frame.columns
    }
    columns = [pl.Series(column, values) for column, values in found.columns.items()]
    notes = [f"{old} of the table is now {new}" for old, new in renamed.items()]
    return frame.rename(renamed).with_columns(columns), notes


def _free(name: str, taken: list[str]) -> str:
    while name in taken:
        name = f"input_{name}"
    return name
