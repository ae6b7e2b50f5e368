"""Hostile routings, plans and files of runs with experts: refused by name, or warned about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from simulator import load_scenario, make_scenario, simulate
from simulator.errors import CapacityError, InputError
from simulator.mapping.distributions import Sampler, chances, shares
from simulator.result import Result
from simulator.specs.scenario import Scenario

MODEL = "mixtral-8x7b"
SHORT = "groups.0.repeat=2"
LONGER = "groups.0.repeat=5"


def scenario(*overrides: str, model: str = MODEL, device: str = "h200", **given: Any) -> Scenario:
    """Two layers with 2 of 8 experts, eight sequences in decode."""
    cut = [SHORT] if model == MODEL else []
    asked = {"batch": 8, "context": 64, **given}
    return make_scenario(model, device, overrides=[*cut, *overrides], **asked)


def run(*overrides: str, **given: Any) -> Result:
    return simulate(scenario(*overrides, **given))


def refused(*overrides: str, **given: Any) -> str:
    with pytest.raises(InputError) as error:
        run(*overrides, **given)
    return str(error.value)


HOSTILE = {
    "deep.json": "[" * 100_000,
    "long.json": "[" + "9" * 5000 + ",1,1,1,1,1,1,1]",
    "huge.csv": "1e308,1e308,1e308,1,1,1,1,1",
    "unlike.csv": "1e-308,1e-320,1,1,1,1,1,1",
    "twice.csv": "expert,tokens,tokens\n0,1,2\n",
    "escape.csv": "\x1b[31mred,who\n1,2\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_histogram_that_cannot_be_drawn_from_is_refused_by_its_file(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(HOSTILE[name])
    found = refused(f"moe.routing=histogram {path}")
    assert str(path) in found
    assert found.replace("\n", "").isprintable()


def test_a_trace_without_its_columns_says_which_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"who": [1], "token": [2]}).write_parquet(path)
    found = refused(f"moe.routing=trace {path}")
    assert "layer is missing" in found
    assert "experts is missing" in found


def test_weights_of_a_trace_beyond_any_float_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"layer":0,"token":0,"experts":[1,2],"weights":[{10**400},1]}}')
    assert f"{path}:1: a weight is 1000" in refused(f"moe.routing=trace {path}")


def test_logits_as_far_apart_as_floats_go_choose_the_larger(tmp_path: Path) -> None:
    path = tmp_path / "l.npy"
    np.save(path, np.where(np.arange(8) < 2, 1e308, -1e308)[None])
    (use,) = run(f"moe.routing=logits {path}").experts
    assert use.load == (16, 16, 0, 0, 0, 0, 0, 0)


def test_nearly_all_of_many_experts_are_drawn_by_their_chances() -> None:
    chance = chances(shares("zipf", 0.3, 1024, 700), 700)
    sampler = Sampler(chance)
    tokens = 500
    drawn = sampler.draw(np.random.default_rng(0).random((tokens, sampler.left)))
    assert all(len(set(row)) == 700 for row in drawn.tolist())
    found = np.bincount(drawn.ravel(), minlength=1024) / tokens
    assert np.abs(found - chance).max() < 5.5 * np.sqrt(0.25 / tokens)


def test_recorded_layers_are_judged_each_and_those_left_over_are_said(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    tokens = {0: 8, 1: 1, 2: 8}
    path.write_text(
        "\n".join(
            json.dumps({"layer": layer, "token": token, "experts": [token % 8, (token + 1) % 8]})
            for layer, many in tokens.items()
            for token in range(many)
        )
    )
    found = refused(f"moe.routing=trace {path}")
    assert found == f"{path}: names layer 2; the model has layers 0 to 1"
    asked = {"batch": 8, "context": 64, "overrides": [f"moe.routing=trace {path}", LONGER]}
    said = simulate(make_scenario(MODEL, "h200", **asked)).warnings
    assert (
        f"{path} has 3 layers for the model's 5 with experts, counted from 0: 0, 3 from 0; "
        "1, 4 from 1; 2 from 2"
    ) in said
    assert f"{path} has 1 token of layer 1; the 8 of the run repeat it" in said


def test_a_histogram_of_more_layers_than_the_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h.csv"
    rows = [f"{layer},{expert},1" for layer in (1, 3, 40) for expert in range(8)]
    path.write_text("\n".join(["layer,expert,tokens", *rows]))
    found = refused(f"moe.routing=histogram {path}")
    assert found == f"{path}: names layers 3, 40; the model has layers 0 to 1"
    path.write_text("1,1,1,1,1,1,1,1")
    said = f"{path} has layer 0 alone; all 2 layers with experts take it"
    assert said in run(f"moe.routing=histogram {path}").warnings


@pytest.mark.parametrize(
    ("overrides", "given"),
    [
        (["plan.ep=4"], {"ep": 2}),
        (["ep=4"], {"ep": 2}),
        (["ep=4", "plan.ep=2"], {}),
        (["plan.combine=fp8", "combine=bf16"], {"ep": 2}),
    ],
)
def test_what_is_given_twice_is_refused_whichever_way(
    overrides: list[str], given: dict[str, Any]
) -> None:
    assert "keep one of them" in refused(*overrides, **given)


@pytest.mark.parametrize(
    "setting", ["placement=balanced", "exchange=throughput", "dispatch=fp8", "combine=fp8"]
)
def test_what_of_a_plan_has_no_say_on_one_rank_is_said(setting: str) -> None:
    said = f"plan.{setting.partition('=')[0]} was set, but has no say in this run"
    assert said in run(f"plan.{setting}").warnings
    assert said not in run(f"plan.{setting}", ep=2).warnings


def test_a_model_without_experts_takes_no_copies_and_says_what_has_no_say() -> None:
    dense = {"model": "llama-3.1-8b"}
    assert "has no experts to copy" in refused("plan.redundant_experts=8", **dense)
    said = run("plan.expert_order=by_class", "plan.descriptors=article", **dense).warnings
    assert {text.split()[0] for text in said} == {"plan.expert_order", "plan.descriptors"}


@pytest.mark.parametrize(
    "setting",
    ["moe.experts=100000000000", "plan.redundant_experts=100000000000", "plan.ep=100000000000"],
)
def test_counts_beyond_any_machine_are_refused_before_anything_is_counted(setting: str) -> None:
    assert "100000000000 is too large; it is at most 1,048,576" in refused(setting)


def test_more_ranks_than_tables_of_pairs_hold_are_refused() -> None:
    found = refused("moe.experts=65536", "moe.width=1", ep=8192, batch=8192)
    assert "ep: 8,192 ranks, each of which may send to each; at most 4,096" in found


def test_half_a_sequence_is_refused_and_any_whole_number_will_do() -> None:
    for name, value in {"batch": 2.5, "seed": 1.5, "context": True, "batch ": "3"}.items():
        assert "write a whole number" in refused(**{name.strip(): value})
    asked = scenario(batch=np.int64(8), seed=np.uint8(0), ep=2)
    assert asked == scenario(batch=8, seed=0, ep=2)
    json.dumps(simulate(asked).to_dict(), allow_nan=False)


def test_a_seed_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(InputError, match="at most 40 digits"):
        load_scenario(f"{MODEL} decode seed={'9' * 5000} on h200")


def test_what_does_not_fit_is_told_so_even_if_no_wider_plan_can_take_the_batch() -> None:
    with pytest.raises(CapacityError, match=r"36\.0 GB short") as error:
        run("plan.schedule=two_batch", model="deepseek-v3", ep=4, batch=8)
    assert "fits" not in str(error.value).replace("does not fit", "")
    with pytest.raises(CapacityError, match="--ep 8 fits"):
        run("plan.schedule=two_batch", model="deepseek-v3", ep=4, batch=16)


@pytest.mark.parametrize("schedule", ["pipelined", "two_batch"])
def test_a_schedule_that_hides_exchanges_is_refused_where_a_tensor_group_has_none(
    schedule: str,
) -> None:
    found = refused(f"plan.schedule={schedule}", ep=2, tp=2)
    assert "ep 2 has none within tp 2; give ep 4 or more" in found
    assert run(f"plan.schedule={schedule}", ep=4, tp=2, batch=4).latency > 0


def test_two_batches_need_two_sequences_on_each_replica() -> None:
    assert "a batch of 8 or more" in refused("plan.schedule=two_batch", ep=2, dp=4, batch=4)


def test_context_parallel_inference_is_refused() -> None:
    assert "plan.cp: decode does not split a sequence" in refused(cp=2)


def test_a_reading_of_descriptors_has_no_say_on_a_device_without_a_mover() -> None:
    said = "plan.descriptors was set, but has no say in this run"
    assert said in run("plan.descriptors=article", device="mi300x").warnings
    assert said not in run("plan.descriptors=article", device="mi455x").warnings


def test_training_says_what_of_the_plan_of_experts_has_no_say() -> None:
    said = run("plan.schedule=pipelined", "plan.exchange=throughput", ep=2, phase="train").warnings
    assert {text.split()[0] for text in said} >= {"plan.exchange", "plan.schedule"}


def test_tensor_parallel_replicas_without_a_sequence_are_refused() -> None:
    assert "with tp 2, a batch of 2 or more" in refused(ep=4, tp=2, batch=1)
    assert run(ep=4, tp=2, batch=2).latency > 0
    assert run(ep=4, batch=1).latency > 0


def test_what_an_argument_says_never_steers_the_terminal() -> None:
    for setting in ("plan.\x1b[31mfoo=1", "plan.schedule=\x1b[31mfoo", "moe.routing=\x1b[31mfoo"):
        assert "\x1b" not in refused(setting)
