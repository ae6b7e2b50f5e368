"""``sweep`` as a user meets it: what is printed, what is refused, and with which exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
