"""Training on a number of tokens from the command line."""

from __future__ import annotations

import json

import pytest

STEP = "run llama-3.1-8b --on h100 --dp 8 --zero 1 --recompute full --sequence 8192"
STEP = f"{STEP} --global-batch 64"


def test_the_table_of_a_training_run_says_days_hours_energy_and_money(tilecast) -> None:
    code, out, _ = tilecast(f"{STEP} --train-tokens 15T")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    words = " ".join(out.split())
    for part in ("days", "15.0 T tokens", "device-hours", "Wh in all", "MFU", "HFU", "per device"):
        assert part in words


def test_the_json_of_a_training_run_has_its_budget_in_base_units(tilecast) -> None:
    data = json.loads(tilecast(f"{STEP} --train-tokens 15T --json -")[1])
    budget = data["training"]["budget"]
    assert budget["time"] == pytest.approx(budget["steps"] * data["latency"])
    assert budget["energy"] == pytest.approx(budget["steps"] * data["energy"])
    assert data["provenance"]["command"].endswith("--train-tokens 15T")
    assert any(number["path"] == "energy" for number in data["provenance"]["numbers"])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"{STEP} --train-tokens lots", "15.6T"),
        ("run llama-3.1-8b --on h100 --context 512 --train-tokens 1T", "decode run"),
    ],
)
def test_tokens_that_are_none_or_have_no_say_are_refused(tilecast, line: str, words: str) -> None:
    code, _, err = tilecast(line)
    assert code == 2
    assert words in err
    assert "Traceback" not in err
