"""Rows of a study on disk while it runs, so that a kill at any byte loses no row that was written.

A journal is a file of JSON lines beside the table that it becomes: one line that says what the
study is, then a line for each row. Who writes it holds a lock, which ends with the process. Knows
rows as mappings. Never touches scenarios.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from simulator.errors import Fault, SpecError

if TYPE_CHECKING:
    from polars import DataFrame

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows: two sweeps on one table are not kept apart.
    flock = None  # type: ignore[assignment]

Row = dict[str, Any]
SUFFIXES = (".csv", ".parquet")


class Journal:
    """The rows of a study for the table ``out``, to be used in a ``with``.

    ``marks`` tell the study from others, by the name of what they stand for. Without ``resume``
    neither table nor journal may be there yet; with it, rows that are there are kept, and a last
    line that was cut off is dropped. Raises SpecError where files are in the way, are of another
    study or under another's hands, or cannot be written.
    """

    def __init__(self, out: str | Path, marks: Mapping[str, str], *, resume: bool = False) -> None:
        self.out, self.marks = Path(out), dict(marks)
        self.rows: dict[int, Row] = {}
        self.whole = False
        self._file: BinaryIO | None = None
        if self.out.suffix not in SUFFIXES:
            self._refuse("is no table", f"name a file that ends with {' or '.join(SUFFIXES)}")
        self.path = self.out.with_name(f"{self.out.name}.partial")
        try:
            self._open(resume)
        except OSError as error:
            fix = "name a file in a directory that can be written"
            self._refuse(error.strerror or str(error), fix)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._release()

    def add(self, rows: Iterable[Row]) -> None:
        """Write rows, and wait until they are on the disk."""
        found = list(rows)
        self._write(_line(row) for row in found)
        self.rows |= {row["index"]: row for row in found}

    def close(self, frame: DataFrame | None = None) -> Path:
        """The table in place of the journal: ``frame``, or the rows in order of their index."""
        import polars

        if frame is None:
            rows = [self.rows[index] for index in sorted(self.rows)]
            frame = polars.DataFrame(rows, infer_schema_length=None)
        draft = self.out.with_name(f"{self.out.name}.draft")
        if self.out.suffix == ".csv":
            frame.write_csv(draft)
        else:
            frame.write_parquet(draft)
        draft.replace(self.out)
        if flock is None:
            self._release()  # There an open file is not removed.
        self.path.unlink()
        self._release()
        self.whole = True
        return self.out

    def table(self, words: Iterable[str]) -> DataFrame:
        """The finished table, its columns ``words`` as texts; raises SpecError where it is none."""
        import polars

        texts = dict.fromkeys(words, polars.String)
        try:
            if self.out.suffix == ".parquet":
                return polars.read_parquet(self.out)
            return polars.read_csv(self.out, schema_overrides=texts, infer_schema_length=None)
        except (OSError, polars.exceptions.PolarsError):
            self._refuse("is no table of a study", "name another file, or remove it")

    def _open(self, resume: bool) -> None:
        if self.out.exists():
            if not resume:
                self._refuse("is there already", "name another file, or remove it")
            if not self.path.exists():
                self.whole = True
                return
        if self.path.exists() and not resume:
            fix = "go on with --resume, or remove it"
            self._refuse("holds what an earlier run finished", fix, self.path)
        self._file = self.path.open("a+b")
        if flock is not None:
            try:
                flock(self._file, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                self._release()
                self._refuse("is being written by another sweep", "wait for it", self.path)
        mine = self._is_mine()
        if not mine or (self.out.exists() and not resume):
            if mine:
                self.path.unlink()
            fix = "look at its table, or begin again"
            self._refuse("was finished by another sweep just now", fix)
        self._read()

    def _is_mine(self) -> bool:
        """Whether the file that is locked is still the journal: who finishes removes it."""
        assert self._file is not None, "it was opened"
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())
        except FileNotFoundError:
            return False

    def _read(self) -> None:
        """Rows of an earlier run; the file is cut after the last whole line."""
        assert self._file is not None, "it was opened"
        kept = 0
        head: Any = None
        self._file.seek(0)
        lines = self._file.read().splitlines(keepends=True)
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
                self._require_same(head)
            else:
                self.rows[int(entry["index"])] = dict(entry)
            kept += len(line)
        self._file.truncate(kept)
        if head is None:
            self._write([_line({"study": self.marks})])

    def _require_same(self, head: Mapping[str, Any]) -> None:
        """Refuse a journal whose first line has other marks."""
        found = head.get("study")
        marks = found if isinstance(found, Mapping) else {}
        other = [name for name, mark in self.marks.items() if marks.get(name) != mark]
        if other:
            fix = f"name another file, or remove it: other {', '.join(other)}"
            self._refuse("is of another study", fix, self.path)

    def _write(self, lines: Iterable[bytes]) -> None:
        assert self._file is not None, "it is open"
        self._file.write(b"".join(lines))
        self._file.flush()
        os.fsync(self._file.fileno())

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _refuse(self, found: str, fix: str, path: Path | None = None) -> NoReturn:
        self._release()
        raise SpecError([Fault(str(path or self.out), None, "", found, fix)])


def _line(entry: Mapping[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":"), allow_nan=False).encode() + b"\n"
