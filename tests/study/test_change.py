"""Changed scenarios: those that would have been stated so from the start."""

import json
import shlex
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from simulator import (
    changed,
    load_hardware,
    load_scenario,
    load_stack,
    load_workload,
    make_scenario,
    simulate,
)
from simulator.cli.app import app
from simulator.errors import InputError, SpecError, UnknownNameError
from simulator.study.change import numbers, paths, written

STATED = {"phase": "decode", "batch": 32, "context": 4096}
BASE = make_scenario("llama-3.1-8b", "h200", **STATED)
HBM = "hardware.memory.hbm.bandwidth"


def test_without_changes_it_is_the_same_scenario() -> None:
    assert changed(BASE, {}) is BASE


@pytest.mark.parametrize(
    ("changes", "stated"),
    [
        ({HBM: "6 TB/s"}, {"overrides": [f"{HBM}=6 TB/s"]}),
        ({"memory.hbm3e.bandwidth": "6 TB/s"}, {"overrides": ["memory.hbm3e.bandwidth=6 TB/s"]}),
        ({"hardware.compute.units": 100}, {"overrides": ["hardware.compute.units=100"]}),
        ({"stack.launch.gap": "3 us"}, {"overrides": ["stack.launch.gap=3 us"]}),
        ({"model.vocab": 1000}, {"overrides": ["workload.vocab=1000"]}),
        ({"tp": 2}, {"tp": 2}),
        ({"plan.tp": "2"}, {"tp": 2}),
        ({"batch": 64, "context": 1024}, {"batch": 64, "context": 1024}),
        ({"dtype": "fp8"}, {"dtype": "fp8"}),
        ({"fidelity": "roofline", "seed": 3}, {"fidelity": "roofline", "seed": 3}),
        ({"phase": "prefill", "input": 512}, {"phase": "prefill", "input": 512, "context": None}),
        ({"phase": "train", "sequence": 512, "global_batch": 4, "dtype": None},
         {"phase": "train", "sequence": 512, "global_batch": 4, "context": None, "batch": 1}),
    ],
)  # fmt: skip
def test_a_change_is_what_stating_it_is(
    changes: dict[str, object], stated: dict[str, object]
) -> None:
    want = make_scenario("llama-3.1-8b", "h200", **(STATED | stated))
    found = changed(BASE, changes)
    assert found == want
    assert found.command == want.command
    if want.phase != "train":
        assert simulate(found) == simulate(want)


def test_another_device_comes_with_its_own_stack() -> None:
    assert changed(BASE, {"hardware": "mi300x"}) == make_scenario(
        "llama-3.1-8b", "mi300x", **STATED
    )


def test_a_number_that_was_set_before_is_replaced_however_it_was_spelt() -> None:
    once = changed(BASE, {"memory.hbm3e.bandwidth": "6 TB/s"})
    twice = changed(once, {"hardware.memory.hbm3e.bandwidth": "7 TB/s"})
    assert twice.overrides == ("hardware.memory.hbm3e.bandwidth=7 TB/s",)
    assert changed(twice, {"tp": 2, "plan.zero": 0}).plan.tp == 2


def test_a_device_in_a_system_is_placed_again() -> None:
    options = {**STATED, "tp": 8, "system": "hgx-8"}
    base = make_scenario("llama-3.1-70b", "h200", **options)
    for changes, overrides in (
        ({"hardware.scale_up.bandwidth": "900 GB/s"}, ["hardware.scale_up.bandwidth=900 GB/s"]),
        ({"system.scale_up.devices": 16}, ["system.scale_up.devices=16"]),
    ):
        want = make_scenario("llama-3.1-70b", "h200", **options, overrides=overrides)
        found = changed(base, changes)
        assert found == want
        assert found.bare is not None
        assert found.hardware.scale_up != base.hardware.scale_up


def test_the_command_of_a_changed_scenario_states_it() -> None:
    found = changed(BASE, {HBM: "6 TB/s", "batch": 8})
    line = [*shlex.split(found.command)[1:], "--json", "-"]
    told = CliRunner().invoke(app, line)
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["latency"] == simulate(found).latency


def test_a_scenario_of_loaded_specs_can_be_changed() -> None:
    device = replace(load_hardware("h200"), name="mine")
    stack = load_stack("cuda-sm90")
    base = make_scenario(load_workload("llama-3.1-8b"), device, stack=stack, tp=2, **STATED)
    found = changed(base, {HBM: "6 TB/s", "batch": 8})
    assert (found.hardware.name, found.batch, found.plan.tp) == ("mine", 8, 2)
    assert found.hardware.dram.bandwidth == 6e12
    assert f"{HBM}=6 TB/s" in found.overrides


def test_a_scenario_that_was_altered_after_it_was_stated_stays_so() -> None:
    base = replace(changed(BASE, {HBM: "6 TB/s"}), batch=7)
    found = changed(base, {"context": 100})
    assert (found.batch, found.context, found.hardware.dram.bandwidth) == (7, 100, 6e12)
    assert found.overrides == (f"{HBM}=6 TB/s",)


def test_all_faults_are_told_at_once_with_what_would_do() -> None:
    with pytest.raises(InputError) as error:
        changed(BASE, {"batchs": 3, "batch": "many", "hardware.memory.hbm.bandwith": "6 TB/s"})
    said = str(error.value)
    assert "did you mean batch" in said
    assert "write a whole number" in said
    assert "did you mean memory.hbm3e.bandwidth" in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({HBM: "6 GB"}, "TB/s"),
        ({HBM: 6}, "has no unit"),
        ({"input": 512}, "a decode run does not use it"),
        ({"tp": 2, "plan.tp": 4}, "changed twice"),
        ({"batch": True}, "write a whole number"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        changed(BASE, changes)


def test_an_unknown_device_offers_near_names() -> None:
    with pytest.raises(UnknownNameError, match="h200"):
        changed(BASE, {"hardware": "h2000"})


@pytest.mark.parametrize("device", ["h200", "mi455x"])
def test_every_number_of_a_device_can_be_set_to_what_it_is(device: str) -> None:
    base = load_scenario(f"llama-3.1-8b decode on {device}")
    assert HBM.replace("hbm", base.hardware.dram.kind) in paths(base)
    same = changed(base, {leaf.path: written(leaf, leaf.value) for leaf in numbers(base)})
    assert same.hardware == base.hardware
