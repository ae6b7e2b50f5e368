"""``tilecast predict`` as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import simulator
from simulator.cli import main

ANSWERS = ["latency_us", "lower_us", "upper_us", "bound_by"]
BOUNDS = {"compute", "memory", "cache", "link", "latency", "waiting"}
TABLE = "device,dtype,m,n,k,note\nh100_sxm,bf16,4096,4096,4096,a\nmi300x,fp8,1,8192,8192,\n"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "shapes.csv"
    path.write_text(TABLE)
    return path


@pytest.fixture
def tilecast(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def call(command: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tilecast", *command.split()])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return call


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_answer_stands_behind_the_columns_of_the_table(
    tilecast, table: Path, suffix: str
) -> None:
    code, out, err = tilecast(f"predict gemm shapes.csv --on h200 -o out.{suffix}")
    assert (code, out) == (0, "")
    assert "2 rows name no op: gemm is meant" in err
    read = pl.read_csv if suffix == "csv" else pl.read_parquet
    found = read(table.parent / f"out.{suffix}")
    assert found.columns == [*TABLE.split("\n")[0].split(","), *ANSWERS]
    assert found["m"].to_list() == [4096, 1]
    assert (found["lower_us"] <= found["latency_us"]).all()
    assert (found["latency_us"] <= found["upper_us"]).all()
    assert set(found["bound_by"]) <= BOUNDS
    # No product beats the data sheet: 989.5 TFLOP/s in bf16, 4.8 TB/s.
    assert found["latency_us"][0] > 2 * 4096**3 / 989.5e12 * 1e6
    assert found["latency_us"][1] > 8192**2 / 4.8e12 * 1e6
    assert sorted(path.name for path in table.parent.iterdir()) == [f"out.{suffix}", table.name]


def test_the_library_gives_the_same_answer(tilecast, table: Path) -> None:
    data = json.loads(tilecast("predict gemm shapes.csv --on h200 --json -")[1])
    columns = simulator.predict("gemm", table, "h200")
    assert list(columns) == ANSWERS
    for name in ANSWERS:
        assert columns[name].tolist() == data[name]
    again = simulator.predict("gemm", pl.read_csv(table), simulator.load_hardware("h200"))
    assert again["latency_us"].tolist() == data["latency_us"]


def test_without_a_file_to_write_the_answer_is_printed(tilecast, table: Path) -> None:
    table.write_text(TABLE + "x,bf16,1,1,1,\n" * 60)
    code, out, _ = tilecast("predict gemm shapes.csv --on h200")
    assert code == 0
    assert "bf16 m 4096 n 4096 k 4096" in out
    assert "and 22 more rows" in out
    assert max(map(len, out.splitlines())) <= 80


def test_wrong_rows_write_nothing_and_are_all_named(tilecast, table: Path) -> None:
    table.write_text("dtype,m,n,k\nbf16,1,1,1\nfp7,1,1,1\nbf16,0,1,1\nbf16,1,1,\n")
    code, out, err = tilecast("predict gemm shapes.csv --on h200 -o out.csv --json out.json")
    assert (code, out) == (2, "")
    assert "shapes.csv: row 2: dtype: 'fp7'" in err
    assert "shapes.csv: row 3: m: '0' is less than 1" in err
    assert "shapes.csv: row 4: k: has no value" in err
    assert "3 of 4 rows cannot be answered" in err
    assert "Traceback" not in err
    assert list(table.parent.iterdir()) == [table]


def test_all_that_is_wrong_with_a_command_is_said_at_once(tilecast, table: Path) -> None:
    code, _, err = tilecast("predict gem none.csv --on h20x --set hidden=5 -o out.xls")
    assert code == 2
    for words in ("did you mean gemm?", "none.csv: no such file", "out.xls: ends in '.xls'"):
        assert words in err
    assert "hidden: has no say here" in err
    assert "h200" in tilecast("predict gemm shapes.csv --on h20x")[2]


def test_what_is_set_changes_the_answer_and_widens_the_interval(tilecast, table: Path) -> None:
    def answer(more: str) -> tuple[float, float]:
        data = json.loads(tilecast(f"predict gemm shapes.csv --on h200 --json - {more}")[1])
        return data["latency_us"][0], data["upper_us"][0] / data["lower_us"][0]

    before, after = answer(""), answer("--set compute.units=66")
    assert after[0] > 1.5 * before[0]
    assert after[1] > before[1]


def test_help_needs_no_polars() -> None:
    code = "import sys, simulator.cli.predict; print('polars' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
