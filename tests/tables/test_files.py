"""Tables as people save them: encodings, separators, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from simulator.errors import InputError, SpecError
from simulator.tables.files import as_frame, check_target, read_table, write_table

TEXT = "op,dtype,m\ngemm,bf16,7\ngemm,fp8,9\n"
ROWS = [("gemm", "bf16", "7"), ("gemm", "fp8", "9")]


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        TEXT.encode("utf-8-sig"),
        TEXT.encode("utf-16"),
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace("\n", "\r").encode(),
        TEXT.replace(",", ";").encode(),
        TEXT.replace(",", "\t").encode(),
        TEXT.replace("\n", "\n\n").encode(),
        ("\n" + TEXT + "\n\n").encode(),
        TEXT.replace("op,", '"op" ,').encode(),
        TEXT.rstrip().encode(),
    ],
    ids=[
        "plain", "mark", "utf-16", "crlf", "cr", "semicolon", "tab", "blank", "around", "quoted",
        "end",
    ],
)  # fmt: skip
def test_a_table_is_the_same_however_it_was_saved(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(data)
    frame = read_table(path)
    assert frame.columns == ["op", "dtype", "m"]
    assert frame.rows() == ROWS


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("x.csv", b"", "is empty"),
        ("x.csv", b"\n\n", "has no header"),
        ("x.csv", b"m,n,m\n1,2,3\n", ":1: column 'm' is there twice"),
        ("x.csv", b"m,n\n1,2\n1,2,3\n", ":3: has more than 2 cells"),
        ("x.csv", b"m,name\n1,a\n1,caf\xe9\n", ":3: byte 0xe9 is not UTF-8"),
        ("x.csv", b"\x00\x01\x02", "is no text"),
        ("x.csv", b"PAR1....PAR1", "holds parquet"),
        ("x.parquet", TEXT.encode(), "does not hold parquet"),
        ("x.parquet", b"PAR1....PAR1", "cannot be read as parquet"),
        ("x.xlsx", b"PK", "ends in '.xlsx'"),
        ("x.csv", b'm,n\n"1,2\n', "cannot be read as CSV"),
    ],
)
def test_a_file_that_holds_no_table_is_refused(
    tmp_path: Path, name: str, data: bytes, found: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(SpecError) as error:
        read_table(path)
    assert found in str(error.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    for name, found in (("folder.csv", "not a regular file"), ("none.csv", "no such file")):
        with pytest.raises(SpecError, match=found):
            read_table(tmp_path / name)


def test_a_row_of_empty_cells_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("m,n\n,\n3,4\n")
    assert read_table(path).rows() == [(None, None), ("3", "4")]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_what_is_written_is_read_back_and_nothing_is_left_behind(
    tmp_path: Path, suffix: str
) -> None:
    frame = pl.DataFrame({"id": ["01", "x"], "m": ["7", ""], "latency_us": [1 / 3, 2e-9]})
    path = tmp_path / f"out.{suffix}"
    check_target(path)
    assert list(tmp_path.iterdir()) == []
    write_table(frame, path)
    again = read_table(path)
    assert again["id"].to_list() == ["01", "x"]
    assert [float(value) for value in again["latency_us"]] == pytest.approx([1 / 3, 2e-9], rel=1e-5)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_columns_of_numbers_that_a_csv_held_are_numbers_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    write_table(pl.DataFrame({"m": ["7", "8"], "x": ["1.5", None], "t": ["a", "1"]}), path)
    assert pl.read_parquet(path).schema == {"m": pl.Int64, "x": pl.Float64, "t": pl.String}


def test_a_target_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(TEXT)
    (tmp_path / "folder.csv").mkdir()
    for name, found in (
        ("out.txt", "end it in .csv or .parquet"),
        ("out", "has no ending"),
        ("folder.csv", "is a folder"),
        ("none/out.csv", "name a file in a folder that can be written"),
        (f"{'x' * 300}.csv", "name a file in a folder"),
        ("table.csv", "is the table itself"),
    ):
        with pytest.raises(SpecError, match=found):
            check_target(tmp_path / name, unlike=table)


def test_a_frame_columns_or_a_name_make_a_table(tmp_path: Path) -> None:
    frame = pl.DataFrame({"m": [1, 2]})
    frame.write_parquet(tmp_path / "x.parquet")
    for table in (frame, frame.lazy(), {"m": [1, 2]}, tmp_path / "x.parquet"):
        assert as_frame(table).equals(frame)
    for wrong in ({"m": [1, 2], "n": [1]}, 7):
        with pytest.raises(InputError, match="table: "):
            as_frame(wrong)
