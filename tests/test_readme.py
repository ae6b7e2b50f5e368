"""The README says what is true: its script runs, its commands exist, its picture is there."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simulator import make_scenario, simulate
from simulator.cli.app import app
from simulator.examples.gallery import COMMANDS
from simulator.report.sweep import data
from simulator.study.study_file import read_study
from simulator.study.sweep import sweep

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", TEXT, flags=re.S | re.M)
    return [textwrap.dedent(block) for _, block in found]


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


def commands() -> list[list[str]]:
    lines = "\n".join(blocks("bash")).replace(" && ", "\n").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("tilecast ")]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_a_command_does_what_it_is_shown_for(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.dumps(
        {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048,
            "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
            "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True,
        }
    )  # fmt: skip
    (tmp_path / "path" / "to").mkdir(parents=True)
    for place in ("config.json", "path/to/config.json"):
        (tmp_path / place).write_text(config)
    (tmp_path / "my_chip.yaml").write_text("name: my-chip\nbase: mi455x\n")
    for name, text in zip(("study.yaml", "devices.yaml"), blocks("yaml"), strict=False):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_a_report_is_what_its_command_writes_and_is_shown(name: str) -> None:
    command = COMMANDS[name].replace("'", '"')
    assert f"tilecast {command} --report reports/{name}" in TEXT
    with redirect_stdout(StringIO()) as out:
        app([*shlex.split(command), "--json", "-"], standalone_mode=False)
    told, kept = json.loads(out.getvalue()), ROOT / "reports" / name / "result.json"
    assert told == json.loads(kept.read_text()), "run python -m simulator.examples.gallery reports"
    assert f"reports/{name}/" in TEXT


def test_the_study_is_what_its_file_gives(tmp_path: Path) -> None:
    kept = ROOT / "reports" / "sweep"
    assert f"```yaml\n{(kept / 'study.yaml').read_text()}```" in TEXT
    study = read_study(kept / "study.yaml")
    rows = sweep(study, tmp_path / "rows.csv")
    assert data(rows) == (kept / "rows.csv").read_text(), (
        "run python -m simulator.examples.gallery reports"
    )


def test_the_accelerator_of_the_guide_is_sound_and_runs(tmp_path: Path) -> None:
    (text,) = (block for block in blocks("yaml") if "acme" in block)
    path = tmp_path / "acme-1.yaml"
    path.write_text(text)
    assert CliRunner().invoke(app, ["check", str(path)]).exit_code == 0
    result = simulate(make_scenario("llama-3.1-8b", path))
    assert result.cost is not None
    assert result.memory.capacity == 192 * 2**30


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
