"""Tables of shapes as files: CSV and parquet, read with clear faults and written whole or not.

Knows files, suffixes and encodings. Never touches what the columns mean.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.errors import Fault, InputError, SpecError

if TYPE_CHECKING:
    import polars as pl

CSV, PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
SUFFIXES = (".csv", ".parquet")
"""What a table to be written may end in."""


def as_frame(table: Any) -> pl.DataFrame:
    """A table as a frame: a polars frame, a mapping of columns, or the name of a file.

    Raises SpecError for a file that cannot be read, InputError for columns of unequal length.
    """
    import polars as pl

    if isinstance(table, pl.DataFrame):
        return table
    if isinstance(table, pl.LazyFrame):
        return table.collect()
    if isinstance(table, Mapping):
        try:
            return pl.DataFrame(dict(table), strict=False)
        except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
            raise InputError(f"table: its columns make no table: {error}") from None
    if isinstance(table, str | os.PathLike):
        return read_table(Path(table))
    raise InputError(
        f"table: a {type(table).__name__} is no table; give a frame, columns or a file"
    )


def read_table(path: Path) -> pl.DataFrame:
    """The table in a CSV or parquet file. Cells of a CSV stay text, as they were written.

    Raises SpecError where there is none.
    """
    import polars as pl

    if path.suffix.lower() not in (*CSV, *PARQUET):
        raise _fault(path, f"ends in {path.suffix!r}", "end it in .csv or .parquet")
    try:
        if not path.is_file():
            found = "is not a regular file" if path.exists() else "no such file"
            raise _fault(path, found, "name a CSV or parquet file")
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise _fault(path, getattr(error, "strerror", None) or str(error)) from None
    if not data:
        raise _fault(path, "is empty", "write a header and rows")
    is_parquet = data[:4] == b"PAR1"
    if is_parquet != (path.suffix.lower() in PARQUET):
        found = "holds parquet" if is_parquet else "does not hold parquet"
        raise _fault(path, found, "end a parquet file in .parquet, a CSV file in .csv")
    if not is_parquet:
        return _read_csv(path, _text(path, data))
    try:
        return pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _fault(path, f"cannot be read as parquet: {_first_line(error)}") from None


def _text(path: Path, data: bytes) -> bytes:
    """The bytes of a CSV as UTF-8 without a mark in front, lines ended by line feeds."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            data = data.decode("utf-16").encode()
        except UnicodeDecodeError:
            raise _fault(path, "is broken UTF-16", "save it as UTF-8") from None
    data = data.removeprefix(b"\xef\xbb\xbf")
    if b"\0" in data[:65536]:
        raise _fault(path, "is no text", "write a CSV in UTF-8")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise SpecError([Fault(str(path), line, "", byte, "save it as UTF-8")]) from None
    return data if b"\n" in data else data.replace(b"\r", b"\n")


def _read_csv(path: Path, data: bytes) -> pl.DataFrame:
    import polars as pl

    data = data.strip(b"\r\n") + b"\n"
    if b'"' not in data:
        data = re.sub(rb"\n(\r?\n)+", b"\n", data)  # blank lines are no rows
    first = data.partition(b"\n")[0].decode()
    separator = max(",;\t", key=first.count)
    header = next(csv.reader([first.rstrip("\r")], delimiter=separator), [])
    names = [name.strip() for name in header]
    if not any(names):
        raise _fault(path, "has no header", "name the columns in the first line")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise _fault(path, f"column {twice[0]!r} is there twice", "keep one of them", line=1)
    try:
        frame = pl.read_csv(
            io.BytesIO(data), separator=separator, infer_schema=False, has_header=True
        )
    except pl.exceptions.PolarsError as error:
        line = _ragged(data, separator, len(names))
        if line is None:
            raise _fault(path, f"cannot be read as CSV: {_first_line(error)}") from None
        found = f"has more than {len(names)} cells"
        raise _fault(path, found, "write one cell per column", line=line) from None
    frame.columns = names
    return frame


def _ragged(data: bytes, separator: str, width: int) -> int | None:
    """The first line with more cells than the header, counted from 1."""
    reader = csv.reader(io.StringIO(data.decode()), delimiter=separator)
    try:
        return next((reader.line_num for cells in reader if len(cells) > width), None)
    except csv.Error:
        return None


def check_target(path: Path, *, unlike: Path | None = None) -> None:
    """Raise SpecError where no table could be written at ``path``; leaves nothing behind."""
    if path.suffix.lower() not in SUFFIXES:
        found = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
        raise _fault(path, found, "end it in .csv or .parquet")
    fix = "name a file in a folder that can be written"
    try:
        if path.is_dir():
            raise _fault(path, "is a folder", fix)
        if unlike is not None and path.exists() and unlike.exists() and path.samefile(unlike):
            raise _fault(path, "is the table itself", "write to another file")
        if _written_through(path):
            if not os.access(path, os.W_OK):
                raise _fault(path, "cannot be written", fix)
            return
        part = _part(path)
        try:
            part.touch()
        finally:
            part.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise _fault(path, getattr(error, "strerror", None) or str(error), fix) from None


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """Write a table as CSV (six significant digits) or parquet, by its suffix, whole or not at all.

    Raises SpecError where it cannot be written.
    """
    import polars as pl
    import polars.selectors as cs

    def put(target: Path) -> None:
        if path.suffix.lower() == ".parquet":
            _typed(frame).write_parquet(target)
        else:
            flat = frame.with_columns(cs.by_dtype(pl.Float64).round_sig_figs(6))
            flat.write_csv(target)

    part = path if _written_through(path) else _part(path)
    try:
        try:
            put(part)
            if part is not path:
                part.replace(path)
        finally:
            if part is not path:
                part.unlink(missing_ok=True)
    except (OSError, pl.exceptions.PolarsError) as error:
        fix = "name a file in a folder that can be written"
        raise _fault(path, getattr(error, "strerror", None) or _first_line(error), fix) from None


def _typed(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns of text that hold numbers alone, as numbers: what a CSV said, for parquet."""
    import polars as pl

    def typed(column: pl.Series) -> pl.Series:
        if column.dtype != pl.String or not column.null_count() < len(column):
            return column
        for kind in (pl.Int64, pl.Float64):
            cast = column.str.strip_chars().cast(kind, strict=False)
            if cast.null_count() == column.null_count():
                return cast
        return column

    return frame.select(typed(column) for column in frame.get_columns())


def _written_through(path: Path) -> bool:
    """Whether what is there, a device, a pipe or a link, stays and takes the bytes."""
    return path.is_symlink() or (path.exists() and not path.is_file())


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]


def _fault(path: Path, found: str, fix: str = "", *, line: int | None = None) -> SpecError:
    return SpecError([Fault(str(path), line, "", found, fix)])
