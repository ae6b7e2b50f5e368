"""``sweep`` as a user meets it: what is printed, what is refused, and with which exit code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from simulator.cli import main

BASE = "base: llama-3.1-8b decode context=1024 on h200\n"


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["tilecast", *words])
    with pytest.raises(SystemExit) as told:
        main()
    return int(told.value.code or 0)


def test_it_prints_the_front_and_why_points_failed_in_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(BASE + "vary:\n  batch: [1, 16, 100000, 200000]\n  tp: [1, 3]\n")
    assert run(["sweep", str(path)], monkeypatch) == 0
    out = capsys.readouterr().out
    assert "2 of 8 points have an answer" in out
    assert "4x refused" in out
    assert "2x does not fit" in out
    assert all(len(line) <= 80 for line in out.splitlines()[1:])
    assert (tmp_path / "study.csv").exists()


def test_a_large_study_wants_a_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "study.yaml"
    axis = "{from: 1, to: 200, steps: 200}"
    path.write_text(BASE + f"vary:\n  batch: {axis}\n  context: {axis}\n")
    assert run(["sweep", str(path)], monkeypatch) == 2
    assert "--yes" in capsys.readouterr().err
    assert not (tmp_path / "study.csv").exists()


def test_what_was_finished_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(BASE + "vary:\n  batch: [1, 16]\n")
    assert run(["sweep", str(path)], monkeypatch) == 0
    before = (tmp_path / "study.csv").read_bytes()
    assert run(["sweep", str(path)], monkeypatch) == 2
    assert "is there already" in capsys.readouterr().err
    assert run(["sweep", str(path), "--resume"], monkeypatch) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert (tmp_path / "study.csv").read_bytes() == before
