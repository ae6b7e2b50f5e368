"""Rows of a table that cannot be answered: what is wrong, and where, however many there are.

Knows row numbers and words. Never touches models or files.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError

FIRST = 8
"""Row numbers that a message lists before it only counts the others."""
LINES = 40
"""Lines of a message before it only counts the others."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowFault:
    """What is wrong with some rows."""

    rows: NDArray[np.int64]
    """Counted from 0, ascending; empty where the whole table is meant."""
    column: str
    found: str
    fix: str = ""

    def __str__(self) -> str:
        text = ": ".join(part for part in (self._where(), self.column, self.found) if part)
        return f"{text}; {self.fix}" if self.fix else text

    def _where(self) -> str:
        count = len(self.rows)
        if count == 0:
            return ""
        numbers = (self.rows[:FIRST] + 1).tolist()
        if count > 2 and self.rows[-1] - self.rows[0] == count - 1:
            return f"rows {numbers[0]:,} to {self.rows[-1] + 1:,}"
        shown = ", ".join(f"{number:,}" for number in numbers)
        more = f" and {count - FIRST:,} more" if count > FIRST else ""
        return f"row{'s' if count > 1 else ''} {shown}{more}"


class TableError(InputError):
    """A table that cannot be answered whole; carries every fault, and counts rows from 1."""

    def __init__(self, table: str, rows: int, faults: list[RowFault]) -> None:
        self.table, self.rows, self.faults = table, rows, faults
        lines = [str(fault) for fault in faults[:LINES]]
        if len(faults) > LINES:
            rest = np.unique(np.concatenate([fault.rows for fault in faults[LINES:]]))
            lines.append(f"{len(faults) - LINES:,} more faults, in {len(rest):,} rows")
        wrong = np.unique(np.concatenate([fault.rows for fault in faults]))
        if len(wrong):
            those = f"{len(wrong):,} of {rows:,} rows cannot be answered"
            lines.append(f"{those}; row 1 is the first below the header")
        super().__init__("\n".join(f"{table}: {line}" for line in lines))

    def __reduce__(self) -> tuple[type[TableError], tuple[str, int, list[RowFault]]]:
        return type(self), (self.table, self.rows, self.faults)
