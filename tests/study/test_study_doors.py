"""What studies say to arguments that are none, and to one number that has two names."""

import re

import numpy as np
import pytest

import simulator
from simulator import (
    changed,
    compare,
    load_scenario,
    pareto,
    screen,
    sensitivity,
    simulate,
    what_if,
)
from simulator.errors import SpecError, UnknownNameError

BASE = load_scenario("llama-3.1-8b decode batch=8 context=2048 on h200")
SHORT, FULL = "hardware.memory.hbm.bandwidth", "hardware.memory.hbm3e.bandwidth"


@pytest.mark.parametrize("ask", [what_if, screen])
@pytest.mark.parametrize("axes", [None, "batch", [("batch", [1])], {3: [1]}, {None: [1]}])
def test_axes_that_are_no_mapping_of_paths_are_refused(ask, axes):
    with pytest.raises(SpecError, match=r"mapping of paths|a path is a text"):
        ask(BASE, axes)


@pytest.mark.parametrize("ask", [what_if, screen, sensitivity])
@pytest.mark.parametrize("base", [None, "llama-3.1-8b on h200"])
def test_a_base_that_is_no_scenario_is_refused(ask, base):
    with pytest.raises(SpecError, match="load_scenario"):
        ask(base, {"compute.units": [100]})


@pytest.mark.parametrize("scenario", [None, "llama-3.1-8b on h200", 3])
def test_what_is_no_scenario_is_not_simulated(scenario):
    with pytest.raises(SpecError, match="load_scenario"):
        simulate(scenario)


@pytest.mark.parametrize("hardware", [None, "h200", 3])
def test_devices_that_are_no_list_are_not_compared(hardware):
    with pytest.raises(SpecError, match="a list of devices"):
        compare("llama-3.1-8b", hardware)


def test_paths_may_come_from_a_generator_and_one_alone():
    (one,) = sensitivity(BASE, "compute.units").entries
    assert sensitivity(BASE, (path for path in ["compute.units"])).entries == (one,)


@pytest.mark.parametrize("asked", [{"paths": 3}, {"paths": [3]}, {"step": "a"}, {"step": None}])
def test_paths_and_steps_of_another_kind_are_refused(asked):
    with pytest.raises(SpecError, match=r"a path is a text|a share from"):
        sensitivity(BASE, **asked)


@pytest.mark.parametrize("how", [None, ["grid"], 3, "grd"])
def test_a_way_to_combine_that_is_none_is_refused(how):
    with pytest.raises(UnknownNameError, match="way to combine"):
        what_if(BASE, {"batch": [1]}, how=how)


@pytest.mark.parametrize("text", [None, 3, b"x", []])
def test_a_scenario_that_is_no_text_is_refused(text):
    with pytest.raises(SpecError, match=re.escape(f"{text!r}")):
        load_scenario(text)


def test_an_object_in_place_of_a_name_is_refused_in_few_words():
    with pytest.raises(SpecError, match="write a name") as error:
        changed(BASE, {"hardware": BASE.hardware})
    assert len(str(error.value)) < 120


def test_whole_numbers_of_numpy_and_any_order_of_paths_give_the_same_results():
    one = {"batch": list(np.array([4, 8])), SHORT: ["4.8 TB/s", "8 TB/s"]}
    two = {SHORT: ["8 TB/s", "4.8 TB/s"], "batch": [8, 4]}
    first, second = ([found.latency for found in what_if(BASE, axes)] for axes in (one, two))
    assert sorted(first) == sorted(second)
    assert first[2] == simulate(BASE).latency


def test_two_paths_to_one_number_are_refused_together():
    with pytest.raises(SpecError, match="set twice"):
        changed(BASE, {SHORT: "6 TB/s", FULL: "8 TB/s"})


@pytest.mark.parametrize(("old", "new"), [(SHORT, FULL), (FULL, SHORT)])
def test_a_change_replaces_what_was_set_by_another_path_to_the_number(old, new):
    base = changed(BASE, {old: "6 TB/s"})
    after = changed(base, {new: "8 TB/s"})
    assert after.overrides == (f"{new}=8 TB/s",)
    assert after.hardware.dram.bandwidth == 8e12


def test_sensitivity_of_a_number_that_was_set_by_a_short_path_is_about_the_set_value():
    base = changed(BASE, {SHORT: "6 TB/s"})
    (entry,) = sensitivity(base, [SHORT]).entries
    assert entry.value == 6e12
    assert entry.more.value == pytest.approx(6.6e12)


def test_a_screening_without_axes_is_refused():
    with pytest.raises(SpecError, match="no axes"):
        screen(BASE, {})


@pytest.mark.parametrize("how", ["grid", "zip"])
@pytest.mark.parametrize("point", [-1, 2])
def test_a_point_that_was_not_screened_is_refused(how, point):
    screened = screen(BASE, {"compute.units": [100, 132]}, how=how)
    with pytest.raises(SpecError, match="a point from 0 to 1"):
        screened.exactly([point])


def test_an_empty_front_has_no_results():
    axes = {SHORT: ["4 TB/s", "8 TB/s"], "hardware.memory.hbm3e.capacity": ["1 GB"]}
    screened = screen(BASE, axes)
    assert list(screened.exactly(pareto(screened.latency))) == []


def test_no_public_name_is_hidden_by_a_module_of_that_name():
    screen(BASE, {"compute.units": [100]})
    modules = [name for name in simulator.__all__ if callable(getattr(simulator, name)) is False]
    assert modules == ["__version__"]
