"""``sweep`` as a user meets it: what is printed, what is refused, and with which exit code."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from simulator.cli.sweep import _progress
from simulator.study.journal import Journal

Tilecast = Callable[[str], tuple[int, str, str]]
BASE = "base: llama-3.1-8b decode context=1024 on h200\n"


def test_it_prints_the_front_and_why_points_failed_in_80_columns(
    tmp_path: Path, tilecast: Tilecast
) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(BASE + "vary:\n  batch: [1, 16, 100000, 200000]\n  tp: [1, 3]\n")
    code, out, _ = tilecast(f"sweep {path}")
    assert code == 0
    assert "2 of 8 points have an answer" in out
    assert "4x refused" in out
    assert "2x does not fit" in out
    assert all(len(line) <= 80 for line in out.splitlines()[1:])
    assert (tmp_path / "study.csv").exists()


def test_a_large_study_wants_a_yes(tmp_path: Path, tilecast: Tilecast) -> None:
    path = tmp_path / "study.yaml"
    axis = "{from: 1, to: 200, steps: 200}"
    path.write_text(BASE + f"vary:\n  batch: {axis}\n  context: {axis}\n")
    code, _, err = tilecast(f"sweep {path}")
    assert code == 2
    assert "--yes" in err
    assert not (tmp_path / "study.csv").exists()


def test_a_million_points_and_long_lists_to_screen_want_a_yes(
    tmp_path: Path, tilecast: Tilecast
) -> None:
    path = tmp_path / "study.yaml"
    axis = "{from: 1, to: 100, steps: 100}"
    path.write_text(BASE + f"vary:\n  batch: {axis}\n  context: {axis}\n  seed: {axis}\n")
    code, _, err = tilecast(f"sweep {path}")
    assert code == 2
    assert "makes 1,000,000 points" in err
    assert "--screen" in err
    path.write_text(
        BASE + "vary:\n  memory.hbm.bandwidth: {from: 1 TB/s, to: 9 TB/s, steps: 20000}"
    )
    code, _, err = tilecast(f"sweep {path} --screen")
    assert code == 2
    assert "has 20,000 values" in err


def test_a_screen_in_which_nothing_fits_says_so(tmp_path: Path, tilecast: Tilecast) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(BASE + "vary:\n  memory.hbm.capacity: [1 GB, 2 GB]\n")
    code, out, _ = tilecast(f"sweep {path} --screen")
    assert code == 0
    assert "no point fits" in out


def test_where_nobody_watches_each_tenth_is_a_line_with_rate_and_time_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with _progress(1000) as told:
        for done in range(1, 1001):
            told(done, 1000, done // 100)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == [f"{n:,}" for n in range(100, 1001, 100)]
    assert re.fullmatch(r"500 of 1,000 points, 5 without an answer; \S+/s, \S+ \S+ left", lines[4])
    assert lines[-1] == "1,000 of 1,000 points, 10 without an answer"


def test_a_table_in_use_is_refused(tmp_path: Path, tilecast: Tilecast) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(BASE + "vary:\n  batch: [1, 16]\n")
    with Journal(tmp_path / "study.csv", {}):
        code, _, err = tilecast(f"sweep {path} --resume")
    assert code == 2
    assert "is being written by another sweep" in err


def test_what_was_finished_is_not_written_over(tmp_path: Path, tilecast: Tilecast) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(BASE + "vary:\n  batch: [1, 16]\n")
    assert tilecast(f"sweep {path}")[0] == 0
    before = (tmp_path / "study.csv").read_bytes()
    code, _, err = tilecast(f"sweep {path}")
    assert code == 2
    assert "is there already" in err
    code, out, _ = tilecast(f"sweep {path} --resume")
    assert code == 0
    assert "nothing to do" in out
    assert (tmp_path / "study.csv").read_bytes() == before


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_finished_table_gives_the_report_of_its_run(
    tmp_path: Path, tilecast: Tilecast, kind: str
) -> None:
    path, out = tmp_path / "study.yaml", tmp_path / f"rows.{kind}"
    path.write_text(BASE + "vary:\n  batch: [1, 16, 100000]\n  dtype: [bf16, fp8]\n")
    assert tilecast(f"sweep {path} -o {out} --report {tmp_path / 'one'}")[0] == 0
    assert tilecast(f"sweep {path} -o {out} --resume --report {tmp_path / 'two'}")[0] == 0
    names = {file.name for file in (tmp_path / "one").iterdir()}
    assert {"index.html", "rows.csv", "sweep.svg", "sweep.png"} <= names
    for name in names:
        one, two = ((tmp_path / run / name).read_bytes() for run in ("one", "two"))
        assert one == two, name
    page = (tmp_path / "one" / "index.html").read_text()
    assert path.read_text().strip() in page
    assert str(tmp_path) not in page


@pytest.mark.parametrize(
    "changed",
    [
        BASE + "vary:\n  batch: [1, 32]\n",
        BASE + "vary:\n  context: [1, 16]\n",
        BASE.replace("h200", "mi300x") + "vary:\n  batch: [1, 16]\n",
    ],
)
def test_the_table_of_another_study_gives_no_report(
    tmp_path: Path, tilecast: Tilecast, changed: str
) -> None:
    path, out = tmp_path / "study.yaml", tmp_path / "rows.csv"
    path.write_text(BASE + "vary:\n  batch: [1, 16]\n")
    assert tilecast(f"sweep {path} -o {out}")[0] == 0
    path.write_text(changed)
    code, _, err = tilecast(f"sweep {path} -o {out} --resume --report {tmp_path / 'page'}")
    assert code == 2
    assert "is of another study" in err
    assert not (tmp_path / "page").exists()


def test_a_screened_study_has_no_report(tmp_path: Path, tilecast: Tilecast) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(BASE + "vary:\n  memory.hbm.bandwidth: [3 TB/s, 4 TB/s]\n")
    code, _, err = tilecast(f"sweep {path} --screen --report {tmp_path / 'page'}")
    assert code == 2
    assert "leave out --screen" in err
    assert not (tmp_path / "study.csv").exists()
