"""``tilecast compare`` and ``tilecast sensitivity`` as a user meets them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Tilecast = Callable[[str], tuple[int, str, str]]
ROOT = Path(__file__).parents[2]
DECODE = "--phase decode --batch 32 --context 4096"


def test_devices_stand_side_by_side_in_eighty_columns(tilecast: Tilecast) -> None:
    code, out, err = tilecast(
        f"compare llama-3.1-70b --on h200,mi300x,mi455x {DECODE} --tp 2 --batches all"
    )
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    head, base, *others = out.splitlines()[2:6]
    assert head.split()[:4] == ["2", "devices", "each", "tok/s/dev"]
    assert base.split()[:2] == ["h200", "(base)"]
    assert "1.00x" in base
    assert [line.split()[0] for line in others] == ["mi300x", "mi455x"]
    assert "over h200" in out
    assert "tok/s/user" in out
    assert "the curve ends, as a batch of" in out


def test_the_data_are_those_of_run_and_the_command_gives_them_again(tilecast: Tilecast) -> None:
    code, out, _ = tilecast(f"compare llama-3.1-8b --on h200,mi355x {DECODE} --json -")
    data = json.loads(out)
    assert code == 0
    for row in data["devices"]:
        command = row["command"].removeprefix("tilecast ")
        run = json.loads(tilecast(f"{command} --json -")[1])
        assert run["latency"] == row["latency"]
        assert run["throughput"] == row["throughput"]
    again = data["command"].removeprefix("tilecast ")
    assert json.loads(tilecast(f"{again} --json -")[1]) == data


def test_a_device_that_lacks_memory_is_a_row_or_runs_on_more(tilecast: Tilecast) -> None:
    compare = f"compare llama-3.1-70b --on h100,mi300x {DECODE}"
    code, out, _ = tilecast(compare)
    assert code == 0
    assert "h100: llama-3.1-70b does not fit on 1 x h100" in out
    assert "ratios are to mi300x" in out
    code, out, _ = tilecast(f"{compare} --fit")
    assert code == 0
    assert "does not fit as asked; runs on 3 devices" in out
    assert max(map(len, out.splitlines())) <= 80
    code, _, err = tilecast(f"compare llama-3.1-70b --on h100,l4 {DECODE}")
    assert code == 3
    assert "1 x h100" in err
    assert "1 x l4" in err


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ("--on h2oo,mi300x,nix", ("h2oo", "nix")),
        ("--on h200,h200", ("h200: is named twice",)),
        ("--on h200,", ("a device without a name",)),
        ("--on h200,mi300x --batches 0,8", ("found 0",)),
        ("--on h200,mi300x --batches many", ("found 'many'",)),
        ("--on h200,mi300x --batches ''", ("found ''",)),
        ("--on h200,nix --batches 0", ("nix", "found 0")),
    ],
)
def test_wrong_input_is_said_all_at_once(
    tilecast: Tilecast, options: str, parts: tuple[str, ...]
) -> None:
    code, out, err = tilecast(f"compare llama-3.1-8b {options} --phase decode")
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    for part in parts:
        assert part in err


def test_reports_are_written_whole(tilecast: Tilecast, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, _, err = tilecast(
        f"compare llama-3.1-8b --on h200,mi355x {DECODE} --batches 8,32 --report {out}"
    )
    assert code == 0
    assert {path.name for path in out.iterdir()} == {
        "index.html", "compare.json", "compare.csv", "ratios.svg", "ratios.png", "curves.csv",
        "curves.svg", "curves.png",
    }  # fmt: skip
    assert str(out / "index.html") in err
    taken = tmp_path / "file"
    taken.write_text("")
    code, _, err = tilecast(f"compare llama-3.1-8b --on h200 {DECODE} --report {taken}")
    assert code == 2
    assert "name a directory" in err


def test_sensitivity_lists_what_each_number_buys(tilecast: Tilecast, tmp_path: Path) -> None:
    command = f"sensitivity llama-3.1-8b --on mi455x {DECODE} --step 0.05 --top 3"
    code, out, _ = tilecast(f"{command} --report {tmp_path}")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "5.0 % more" in out
    assert "smaller ones are in the report and the data" in out
    data = json.loads(tilecast(f"{command} --json -")[1])
    sizes = [abs(row["elasticity"]) for row in data["numbers"]]
    assert sizes == sorted(sizes, reverse=True)
    assert data["command"].endswith("--step 0.05")
    assert json.loads((tmp_path / "sensitivity.json").read_text()) == data
    code, _, err = tilecast("sensitivity llama-3.1-8b --on mi455x --step 2")
    assert code == 2
    assert "step: found 2.0" in err


def test_the_committed_report_is_what_its_command_writes(tilecast: Tilecast) -> None:
    """Where this fails because runs have changed: run the command in the file, look, commit."""
    kept = json.loads((ROOT / "reports" / "compare" / "compare.json").read_text())
    base, *_, last = kept["devices"]
    run = json.loads(tilecast(f"{last['command'].removeprefix('tilecast ')} --json -")[1])
    assert run["latency"] == pytest.approx(last["latency"], rel=1e-9), kept["command"]
    assert last["ratio"] == pytest.approx(base["latency"] / last["latency"], rel=1e-9)
