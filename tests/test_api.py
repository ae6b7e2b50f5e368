"""The library's face: what it exports, and scenarios in one line."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import simulator
from simulator import load_hardware, load_scenario, load_workload, make_scenario, simulate
from simulator.errors import InputError, SpecError, UnknownNameError


def test_every_exported_name_is_there() -> None:
    assert sorted(simulator.__all__) == simulator.__all__
    for name in simulator.__all__:
        assert getattr(simulator, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = simulator.nothing


def test_one_line_is_the_scenario_that_the_arguments_make() -> None:
    line = load_scenario(
        "llama-3.1-70b decode batch=32 context=4096 dtype=fp8 memory.hbm4.bandwidth=24TB/s "
        "on mi455x"
    )
    made = make_scenario(
        "llama-3.1-70b", "mi455x", phase="decode", batch=32, context=4096, dtype="fp8",
        overrides=["memory.hbm4.bandwidth=24TB/s"],
    )  # fmt: skip
    assert line == made
    assert line.hardware.dram.bandwidth == 24e12


def test_a_scenario_file_is_the_scenario_that_the_line_makes(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(
        "workload: llama-3.1-70b\non: mi455x\nphase: decode\nbatch: 32\ncontext: 4096\n"
        "set:\n  - memory.hbm4.bandwidth=24 TB/s\n"
    )
    line = "llama-3.1-70b decode batch=32 context=4096 memory.hbm4.bandwidth=24TB/s on mi455x"
    assert simulate(load_scenario(path)).latency == simulate(load_scenario(line)).latency
    assert load_scenario(str(path)) == load_scenario(path)


def test_every_fault_of_a_scenario_file_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text("workload: llama-3.1-8b\nbatch: many\ncolour: red\nset: x=1\n")
    with pytest.raises(SpecError) as error:
        load_scenario(path)
    assert [(fault.line, fault.path) for fault in error.value.faults] == [
        (2, "batch"), (3, "colour"), (4, "set"), (1, "on"),
    ]  # fmt: skip


def test_a_scenario_is_hashable_and_picklable_and_its_answer_is_the_same_elsewhere() -> None:
    scenario = load_scenario("gpt-oss-20b decode batch=3 context=500 on h200")
    again = pickle.loads(pickle.dumps(scenario))
    assert hash(again) == hash(scenario)
    assert again == scenario
    assert simulate(again) == simulate(scenario)
    assert pickle.loads(pickle.dumps(simulate(scenario))) == simulate(scenario)


def test_loaded_specs_serve_as_well_as_names_and_take_overrides() -> None:
    device, model = load_hardware("h100"), load_workload("llama-3.1-8b")
    assert make_scenario(model, device) == make_scenario("llama-3.1-8b", "h100")
    changed = make_scenario(model, device, overrides=["compute.units=100", "workload.vocab=1000"])
    assert changed.hardware.compute.units == 100
    assert changed.model.vocab == 1000


def test_measured_names_are_accepted_as_aliases() -> None:
    assert load_hardware("h100_sxm").name == "h100"
    assert load_hardware("rtx_pro_6000_server").name == "rtx-pro-6000"


@pytest.mark.parametrize(
    ("options", "phase"),
    [
        ({}, "decode"),
        ({"context": 100}, "decode"),
        ({"input": 100}, "prefill"),
        ({"input": 100, "output": 10}, "generate"),
        ({"output": 10}, "generate"),
    ],
)
def test_the_phase_follows_from_the_lengths(options: dict[str, int], phase: str) -> None:
    assert make_scenario("llama-3.1-8b", "h200", **options).phase == phase
    assert make_scenario("sdxl", "h200").phase == "denoise"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("", "names no hardware"),
        ("llama-3.1-8b decode", "names no hardware"),
        ("llama-3.1-8b decode batch=x on h100", "'x' is not a whole number"),
        ("llama-3.1-8b decode batch=1 batch=2 on h100", "given twice"),
        ("llama-3.1-8b sing on h100", "is no phase"),
        ("llama-3.1-8b ep=8 on h100", "ep"),
    ],
)
def test_a_wrong_line_is_refused_by_name(line: str, found: str) -> None:
    with pytest.raises(InputError) as error:
        load_scenario(line)
    assert found in str(error.value)


def test_all_wrong_inputs_are_named_at_once() -> None:
    with pytest.raises(InputError) as error:
        make_scenario("lama", "h1000", dtype="bf17", phase="sleep")
    for found in ("lama", "h1000", "sleep"):
        assert found in str(error.value)


def test_errors_survive_a_process_boundary() -> None:
    for make in (lambda: load_hardware("h1"), lambda: load_scenario("x")):
        with pytest.raises((UnknownNameError, SpecError)) as error:
            make()
        assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_a_degree_that_is_none_does_not_hide_what_else_is_wrong_with_the_plan() -> None:
    with pytest.raises(InputError) as told:
        make_scenario(
            "llama-3.1-8b", "h200", phase="train", tp=-1, pp=99, dp=3, sequence=4096, global_batch=7
        )
    for words in ("-1", "99", "global batch of 7"):
        assert words in str(told.value)
