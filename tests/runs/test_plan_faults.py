"""Odd plans, searches and systems: refused with all that is wrong, or answered without a false
word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import Result, make_scenario, search_plans, simulate
from simulator.errors import CapacityError, ImpossibleError, SpecError
from simulator.mapping.legality import MOST_PASSES

Tilecast = Callable[[str], tuple[int, str, str]]
MODEL = "llama-3.1-8b"
ROOM = "memory.hbm.capacity=10 TB"
STEP = {"sequence": 512, "global_batch": 8}


def train(*overrides: str, model: str = MODEL, device: str = "h100", **plan: Any) -> Result:
    asked = {**STEP, **plan}
    return simulate(
        make_scenario(model, device, phase="train", overrides=(ROOM, *overrides), **asked)
    )


def said(result: Result, *words: str) -> bool:
    return any(all(word in text for word in words) for text in result.warnings)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--tp -1 --pp 0 --dp -3 --cp 0 --ep 0", ["tp: -1", "pp: 0", "dp: -3", "cp: 0", "ep: 0"]),
        ("--tp 1000000000000 --zero 4", ["tp: 1000000000000 is too large", "zero: 4"]),
        ("--tp 3 --sequence 512", ["heads of 32", "8 KV heads", "FFN width", "512 tokens"]),
        ("--pp 33 --ep 4 --global-batch 6", ["33 x 1 pieces", "no experts", "batch of 6"]),
        ("--cp 2 --tp 4 --sequence 4097", ["not 4 equal parts", "do not divide by tp x cp"]),
        ("--dp 8 --batch 1", ["a global batch of 1 does not divide by dp 8"]),
        ("--sequence 0 --global-batch 0 --recompute half", ["input: 0", "batch: 0", "'half'"]),
        ("--set plan.pipeline=gpipe --set plan.recipe=int3", ["'gpipe'", "'int3'"]),
        ("--system dragonfly --set plan.virtual_stages=0", ["'dragonfly'", "virtual_stages: 0"]),
        (
            "--tp 8 --set system.planes_lost=4 --set system.links_lost=100",
            ["4 of 4 switch planes", "100 of 18 links"],
        ),
        ("--train-tokens nan --zero 9", ["--train-tokens: 'nan'", "zero: 9"]),
    ],
)
def test_every_fault_of_a_step_is_said_at_once(
    tilecast: Tilecast, options: str, words: list[str]
) -> None:
    code, out, err = tilecast(f"run {MODEL} --on h100 --phase train {options}")
    assert (code, out) == (2, "")
    assert [word for word in words if word not in err] == []


def test_more_micro_batches_than_can_be_played_are_refused() -> None:
    plan = {"tp": 8, "pp": 4, "sequence": 512}
    with pytest.raises(SpecError, match="raise dp or micro_batch"):
        make_scenario(MODEL, "h100", phase="train", global_batch=MOST_PASSES // 4 + 1, **plan)
    make_scenario(MODEL, "h100", phase="train", global_batch=MOST_PASSES // 4, **plan)


@pytest.mark.parametrize(
    ("model", "setting", "held"),
    [
        (MODEL, "virtual_stages=2", lambda plan: plan.virtual_stages == 2 and plan.pp > 1),
        ("mixtral-8x7b", "schedule=pipelined", lambda plan: plan.ep > plan.tp),
        ("mixtral-8x7b", "redundant_experts=8", lambda plan: plan.redundant_experts == 8),
    ],
)
def test_what_is_set_of_a_plan_meets_the_degrees_that_are_searched(
    model: str, setting: str, held: Callable[[Any], bool]
) -> None:
    asked: dict[str, Any] = STEP if model == MODEL else {"batch": 64, "context": 512}
    found = search_plans(model, "h200", devices=8, overrides=[f"plan.{setting}"], exact=1, **asked)
    assert found.plans
    assert all(held(one.plan) for one in found.plans)
    assert all(f"--set plan.{setting}" in one.command for one in found.plans)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("tp=3", "tp is one of 1, 2, 4, 8"),
        ("pp=64", "at most 32"),
        ("ep=8", "has no experts"),
        ("recipe=mxfp4", "'mxfp4'"),
        ("gradients=fp4", "too narrow"),
    ],
)
def test_what_no_search_could_mend_is_refused_with_what_would_do(setting: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        search_plans(MODEL, "h100", devices=64, overrides=[f"plan.{setting}"], **STEP)


def test_a_recipe_that_a_device_has_no_rate_for_is_refused_before_the_search() -> None:
    with pytest.raises(SpecError, match="a100 has no matrix rate for fp8"):
        search_plans(MODEL, "a100", devices=8, overrides=["plan.recipe=fp8"], **STEP)


def test_degrees_that_make_more_devices_than_there_are_are_said_to() -> None:
    with pytest.raises(ImpossibleError, match="do not make that many") as error:
        search_plans(MODEL, "h100", devices=4, overrides=["plan.tp=8"])
    assert not isinstance(error.value, CapacityError)


def test_notes_of_a_search_fit_the_terminal_and_name_what_had_no_say(tilecast: Tilecast) -> None:
    code, out, _ = tilecast(
        f"plan {MODEL} --on h100 --phase train --global-batch 7 --sequence 1023 --devices 8"
        " --context 64"
    )
    assert code == 0
    assert "virtual_stages" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "context was given, but has no say in a train run" in out


def test_a_system_is_not_said_to_be_idle_where_training_sends_over_it() -> None:
    plain, slow, same = train(tp=8), train(tp=8, system="pcie-8"), train(tp=8, system="hgx-8")
    assert slow.latency > plain.latency
    assert not said(slow, "system", "no say")
    assert same.latency == plain.latency
    assert said(same, "system", "takes as long")
    assert said(train(system="hgx-8"), "system", "nothing is sent")


def test_a_slow_network_is_not_cut_short_by_ways_that_are_none() -> None:
    """4 GB of fp32 gradients between two nodes: time is in proportion to what the NIC takes."""
    each = [
        train(f"system.nic.bandwidth={rate} kB/s", tp=8, dp=2).latency for rate in (1000, 10, 1)
    ]
    assert each[1] == pytest.approx(100 * each[0], rel=1e-3)
    assert each[2] == pytest.approx(1000 * each[0], rel=1e-3)
    late = [train(f"system.nic.latency={time} s", tp=8, dp=2).latency for time in (1, 1000)]
    assert late[1] == pytest.approx(1000 * late[0], rel=0.2)


EP = {"model": "mixtral-8x7b", "tp": 8, "pp": 2, "ep": 2}


@pytest.mark.parametrize(
    ("setting", "plan", "idle"),
    [
        ("dispatch=fp8", EP, False),
        ("dispatch=fp8", {**EP, "ep": 1}, True),
        ("expert_order=longest_first", {**EP, "ep": 1}, True),
        ("schedule=pipelined", {}, True),
        ("pipeline=zero_bubble", {"tp": 8}, True),
        ("pipeline=zero_bubble", {"pp": 2}, False),
        ("overlap=false", {}, True),
        ("overlap=false", {"dp": 2}, False),
        ("sequence_parallel=false", {"dp": 2}, True),
        ("sequence_parallel=false", {"tp": 2}, False),
        ("zero=2", {"tp": 2}, True),
        ("zero=2", {"dp": 2}, False),
    ],
)
def test_a_setting_is_said_to_have_no_say_exactly_where_it_has_none(
    setting: str, plan: dict[str, Any], idle: bool
) -> None:
    plain, changed = train(**plan), train(f"plan.{setting}", **plan)
    same = plain.latency == changed.latency and plain.memory == changed.memory
    assert same == idle
    name = setting.partition("=")[0]
    assert (said(changed, name, "no say") or said(changed, name, "no effect")) == idle


DEGREE = st.sampled_from([1, 2, 4])


@settings(max_examples=15)
@given(tp=DEGREE, pp=DEGREE, dp=DEGREE, more=st.sampled_from([1.1, 2, 8]))
def test_a_faster_link_is_never_slower(tp: int, pp: int, dp: int, more: float) -> None:
    plan = {"tp": tp, "pp": pp, "dp": dp, "global_batch": 4 * dp}
    plain = train(**plan).latency
    for link, rate in (("scale_up", 450), ("scale_out", 50)):
        faster = train(f"{link}.bandwidth={rate * more} GB/s", **plan)
        assert faster.latency <= plain * (1 + 1e-9)
        assert train("plan.overlap=false", **plan).latency >= plain * (1 - 1e-9)


@settings(max_examples=10)
@given(tp=DEGREE, pp=st.sampled_from([2, 4]), many=st.sampled_from([1, 2, 4]))
def test_putting_off_gradients_of_weights_is_never_slower_where_nothing_waits_for_them(
    tp: int, pp: int, many: int
) -> None:
    plan = {"tp": tp, "pp": pp, "global_batch": pp * many}
    assert train("plan.pipeline=zero_bubble", **plan).latency <= train(**plan).latency * (1 + 1e-9)


@settings(max_examples=10)
@given(tp=DEGREE, pp=DEGREE, dp=DEGREE)
def test_sharing_or_recomputing_more_never_takes_more_memory(tp: int, pp: int, dp: int) -> None:
    plan = {"tp": tp, "pp": pp, "dp": dp, "global_batch": 4 * dp}
    shared = [train(zero=zero, **plan).memory for zero in range(4)]
    sizes = [use.total for use in shared]
    assert sizes[0] >= sizes[1] >= sizes[2]
    # Weights that are shared are gathered a layer at a time, which may outweigh few layers.
    gathered = sum(part.bytes for part in shared[3].parts if part.name == "gathered layer")
    assert sizes[3] - gathered <= sizes[2]
    kept = [train(recompute=some, **plan).memory.total for some in ("none", "selective", "full")]
    assert kept == sorted(kept, reverse=True)
