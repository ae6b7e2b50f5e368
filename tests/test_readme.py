"""The README says what is true: its script runs, its commands exist, its picture is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulator.cli.app import app

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.S)


def test_the_script_runs_and_prints_what_a_reader_expects(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert "bound by memory" in out
    assert re.search(r"would give 1\.\d\dx", out)


def test_the_commands_are_commands() -> None:
    known = {
        command.name or command.callback.__name__  # type: ignore[union-attr]
        for command in app.registered_commands
    }
    used = re.findall(r"(?m)(?:^|/)tilecast (\w+)", "\n".join(blocks("bash")))
    assert used
    assert set(used) <= known


def test_pictures_and_files_that_it_names_are_there() -> None:
    names = re.findall(r"\]\(([^)]+)\)", TEXT) + re.findall(r"`(simulator/\w+)`", TEXT)
    assert names
    for name in names:
        assert (ROOT / name).exists(), name


def test_the_table_is_what_the_first_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    from simulator.cli import main

    command = re.search(r"tilecast (run .*?) --report", TEXT)
    assert command
    monkeypatch.setattr(sys, "argv", ["tilecast", *command[1].split()])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out.strip() == blocks("text")[0].strip()
