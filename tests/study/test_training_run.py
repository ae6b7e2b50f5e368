"""Training on so many tokens is whole steps of the one that was simulated."""

from __future__ import annotations

import math
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import Result, make_scenario, simulate, train_for
from simulator.errors import SpecError
from simulator.study.training_run import token_count


@lru_cache
def step(model: str, device: str, **asked: object) -> Result:
    room = "memory.hbm.capacity=1 TB"
    return simulate(make_scenario(model, device, phase="train", overrides=[room], **asked))  # type: ignore[arg-type]


def small() -> Result:
    return step("llama-3.1-8b", "h100", dp=8, zero=1, sequence=8192, global_batch=64)


@given(st.integers(1, 10**15))
def test_steps_are_whole_and_everything_is_so_many_steps(tokens: int) -> None:
    base = small()
    assert base.training is not None
    result = train_for(base, tokens)
    assert result.training is not None
    budget = result.training.budget
    assert budget is not None
    assert budget.steps == -(-tokens // (64 * 8192))
    assert budget.time == pytest.approx(budget.steps * base.latency)
    assert budget.device_hours == pytest.approx(budget.time / 3600 * 8)
    assert base.energy is not None
    assert budget.energy == pytest.approx(budget.steps * base.energy)
    assert base.cost is not None
    # The rent of the device is what an hour of it costs, whatever it does.
    assert budget.cost == pytest.approx(budget.device_hours * 2.95)


@given(st.floats(1, 999), st.sampled_from("kMGTP"))
def test_counts_are_read_with_their_prefix(number: float, prefix: str) -> None:
    factor = 1000 ** ("kMGTP".index(prefix) + 1)
    assert math.isclose(token_count(f"{number:.3f}{prefix}"), round(number, 3) * factor)
    assert token_count("300B") == token_count("300G") == 3e11


@pytest.mark.parametrize("text", ["", "many", "-1", "0", "15.6 X", "1e99", "nan", "inf", "1_000"])
def test_what_is_no_count_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(SpecError, match=r"15\.6T"):
        token_count(text)


def test_other_phases_and_images_are_refused() -> None:
    decode = simulate(make_scenario("llama-3.1-8b", "h100", context=1024))
    with pytest.raises(SpecError, match="decode run"):
        train_for(decode, "1T")
    images = simulate(make_scenario("sdxl", "h100", phase="train", global_batch=8))
    with pytest.raises(SpecError, match="samples"):
        train_for(images, "1T")
    with pytest.raises(SpecError, match="1 to"):
        train_for(small(), float("nan"))


def test_the_command_of_a_result_asks_for_the_tokens_again() -> None:
    assert train_for(small(), "15.6T").provenance.command.endswith(" --train-tokens 15.6T")


def test_a_result_with_a_budget_is_read_back_as_it_was(tmp_path) -> None:
    result = train_for(small(), "15T")
    result.save(tmp_path / "result.json")
    assert Result.load(tmp_path / "result.json") == result


PUBLISHED = {
    # Hours of H100 on the model cards of Llama 3.1, with all that a simulated step has not:
    # restarts, evaluation, longer contexts at the end, and batches that grow.
    "llama-3.1-405b": (
        30.84e6,
        15.6e12,
        {"tp": 8, "pp": 16, "dp": 64, "zero": 2, "sequence": 8192, "global_batch": 2048},
        (0.6, 1.0),
    ),
    "llama-3.1-70b": (
        7.0e6,
        15e12,
        {"tp": 8, "pp": 4, "dp": 32, "zero": 1, "sequence": 8192, "global_batch": 1024},
        (0.4, 1.0),
    ),
    "llama-3.1-8b": (
        1.46e6,
        15e12,
        {"dp": 64, "zero": 1, "sequence": 8192, "global_batch": 512},
        (0.2, 1.0),
    ),
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_device_hours_are_a_share_of_what_a_whole_run_took(model: str) -> None:
    """A run takes more than its steps; how much more is the run's own business."""
    hours, tokens, plan, (least, most) = PUBLISHED[model]
    budget = train_for(step(model, "h100", **plan), tokens).training.budget  # type: ignore[union-attr]
    assert budget is not None
    assert least <= budget.device_hours / hours <= most
