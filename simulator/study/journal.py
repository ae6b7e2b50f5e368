"""Rows of a study on disk while it runs, so that a kill at any byte loses no row that was written.

A journal is a file of JSON lines beside the table that it becomes: one line that names the study,
then a line for each row. Knows rows as mappings. Never touches scenarios.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from simulator.errors import Fault, SpecError

Row = dict[str, Any]
SUFFIXES = (".csv", ".parquet")


class Journal:
    """The rows of the study that ``mark`` names, for the table ``out``.

    Without ``resume`` neither table nor journal may be there yet; with it, rows that are there
    are kept, and a last line that was cut off is dropped. Raises SpecError where files are in the
    way, are of another study, or cannot be written.
    """

    def __init__(self, out: str | Path, mark: str, *, resume: bool = False) -> None:
        self.out, self.mark = Path(out), mark
        self.path = self.out.with_name(f"{self.out.name}.partial")
        self.rows: dict[int, Row] = {}
        self.whole = False
        if self.out.suffix not in SUFFIXES:
            self._refuse("is no table", f"name a file that ends with {' or '.join(SUFFIXES)}")
        try:
            self._open(resume)
        except OSError as error:
            fix = "name a file in a directory that can be written"
            self._refuse(error.strerror or str(error), fix)

    def add(self, rows: Iterable[Row]) -> None:
        """Write rows, and wait until they are on the disk."""
        found = list(rows)
        with self.path.open("ab") as file:
            file.write(b"".join(_line(row) for row in found))
            file.flush()
            os.fsync(file.fileno())
        self.rows |= {row["index"]: row for row in found}

    def close(self) -> Path:
        """The table, rows in order of their index, in place of the journal."""
        import polars

        rows = [self.rows[index] for index in sorted(self.rows)]
        frame = polars.DataFrame(rows, infer_schema_length=None)
        draft = self.out.with_name(f"{self.out.name}.draft")
        if self.out.suffix == ".csv":
            frame.write_csv(draft)
        else:
            frame.write_parquet(draft)
        draft.replace(self.out)
        self.path.unlink()
        self.whole = True
        return self.out

    def _open(self, resume: bool) -> None:
        if self.out.exists():
            if not resume:
                self._refuse("is there already", "name another file, or remove it")
            if not self.path.exists():
                self.whole = True
                return
        if self.path.exists():
            if not resume:
                fix = "go on with --resume, or remove it"
                self._refuse("holds what an earlier run finished", fix, self.path)
            self._read()
            return
        with self.path.open("xb") as file:
            file.write(_line({"study": self.mark}))

    def _read(self) -> None:
        """Rows of an earlier run; the file is cut after the last whole line."""
        kept = 0
        head: Any = None
        lines = self.path.read_bytes().splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                entry = None
            if not isinstance(entry, Mapping):
                if number < len(lines):
                    fix = "take the line out, or remove the file"
                    self._refuse(f"line {number} is no row", fix, self.path)
                break
            if head is None:
                head = entry
            else:
                self.rows[int(entry["index"])] = dict(entry)
            kept += len(line)
        if head is None:
            self.path.write_bytes(_line({"study": self.mark}))
            return
        if head.get("study") != self.mark:
            fix = "name another file, or remove it: base, values, seed or version differ"
            self._refuse("is of another study", fix, self.path)
        os.truncate(self.path, kept)

    def _refuse(self, found: str, fix: str, path: Path | None = None) -> None:
        raise SpecError([Fault(str(path or self.out), None, "", found, fix)])


def _line(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":"), allow_nan=False).encode() + b"\n"
