"""Elasticities are runs: their signs, sizes and kinks follow from arithmetic on a roofline."""

from __future__ import annotations

import math

import pytest

from simulator import changed, load_scenario, simulate
from simulator.errors import SpecError
from simulator.report.sensitivity import Elasticity, Sensitivity, Side, name_of, sentence
from simulator.study.sensitivity import sensitivity

DECODE = "llama-3.1-8b decode batch=32 context=4096 on h200"


@pytest.fixture(scope="module")
def decode() -> Sensitivity:
    return sensitivity(load_scenario(DECODE))


def test_each_side_is_a_run_of_its_own(decode: Sensitivity) -> None:
    (one,) = (one for one in decode.entries if one.path.endswith("hbm3e.bandwidth"))
    base = load_scenario(DECODE)
    for side, text in ((one.less, "4.32 TB/s"), (one.more, "5.28 TB/s")):
        run = simulate(changed(base, {"hardware.memory.hbm3e.bandwidth": text}))
        assert side.throughput == run.throughput
        assert side.bound_by == run.bound_by
    assert one.more.throughput is not None
    assert one.less.throughput is not None
    slope = math.log(one.more.throughput / one.less.throughput) / math.log(1.1 / 0.9)
    assert one.elasticity == pytest.approx(slope, rel=1e-12)


def test_they_are_sorted_and_small_ones_come_last(decode: Sensitivity) -> None:
    sizes = [abs(one.elasticity) for one in decode.entries]
    assert sizes == sorted(sizes, reverse=True)
    assert decode.felt + decode.small == decode.entries
    assert all(abs(one.elasticity) < 0.005 for one in decode.small)


def test_numbers_that_are_skipped_change_no_bit(decode: Sensitivity) -> None:
    base = load_scenario(DECODE)
    latency = simulate(base).latency
    tried = 0
    for path in decode.unused[::2]:
        for value in _near(base, path):
            try:
                other = changed(base, {path: value})
            except SpecError:  # such as a share beyond one
                continue
            tried += 1
            assert simulate(other).latency == latency, path
    assert tried > 15


def _near(base: object, path: str) -> list[str]:
    from simulator.study.change import numbers, written

    leaf = {leaf.path: leaf for leaf in numbers(base)}[path]  # type: ignore[arg-type]
    return [written(leaf, leaf.value * factor) for factor in (0.8, 1.2)]


def test_a_prompt_owes_to_the_matrix_rate_what_a_token_owes_to_the_memory() -> None:
    wanted = ("compute.matrix.bf16", "memory.hbm4.bandwidth")
    prompt = sensitivity(load_scenario("llama-3.1-70b prefill on mi455x"), wanted)
    token = sensitivity(load_scenario("llama-3.1-70b decode batch=4 on mi455x"), wanted)
    assert prompt.entries[0].path.endswith("matrix.bf16")
    assert token.entries[0].path.endswith("bandwidth")
    for found in (prompt, token):
        assert sum(one.elasticity for one in found.entries) < 1.0 + 1e-9
        assert found.entries[0].elasticity > 0.5


def test_a_memory_goes_by_the_start_of_its_kind_as_in_a_change(decode: Sensitivity) -> None:
    paths = ["memory.hbm.bandwidth", "hardware.memory.hbm.achieved"]
    found = sensitivity(load_scenario(DECODE), paths)
    assert {one.path for one in found.entries} == {
        "hardware.memory.hbm3e.bandwidth", "hardware.memory.hbm3e.achieved",
    }  # fmt: skip
    by_path = {one.path: one for one in decode.entries}
    assert all(one == by_path[one.path] for one in found.entries)
    with pytest.raises(SpecError, match="no number of the device"):
        sensitivity(load_scenario(DECODE), ["memory.l.bandwidth"])


def test_whole_numbers_are_rounded_or_said_to_stay(decode: Sensitivity) -> None:
    (units,) = (one for one in decode.entries if one.path.endswith("compute.units"))
    assert (units.less.value, units.more.value) == (119.0, 145.0)  # 132, 10 % less and more
    assert "hardware.compute.dies" in dict(decode.fixed)
    assert {one.path for one in decode.entries}.isdisjoint(dict(decode.fixed))


def test_a_side_that_cannot_be_is_refused_with_the_reason(decode: Sensitivity) -> None:
    (share,) = (one for one in decode.entries if one.path.endswith("hbm3e.achieved"))
    assert share.more.throughput is None
    assert "1.0021" in share.more.refused
    assert "less HBM achieved share costs" in sentence(share)


def test_what_binds_changes_at_a_kink(decode: Sensitivity) -> None:
    (one,) = (one for one in decode.entries if one.path.endswith("hbm3e.bandwidth"))
    assert one.kinked
    before = {op.name: op.bound_by for op in decode.result.ops}
    for name, was, now in one.less.turned:
        assert before[name] == was != now


def test_the_command_says_how_to_get_it_again(decode: Sensitivity) -> None:
    assert decode.command.startswith("tilecast sensitivity llama-3.1-8b --on h200 ")


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(SpecError) as wrong:
        sensitivity(load_scenario(DECODE), ["memory.hbm3e.bandwith", "colour"], step=0.0)
    text = str(wrong.value)
    assert "step: found 0.0" in text
    assert "did you mean hardware.memory.hbm3e.bandwidth" in text
    assert "colour" in text
    with pytest.raises(SpecError, match="paths: none"):
        sensitivity(load_scenario(DECODE), [])


def test_sentences_name_the_number_and_the_gain() -> None:
    one = Elasticity(
        path="hardware.memory.hbm4.bandwidth", value=20e12, unit="byte/second", throughput=100.0,
        less=Side(value=18e12, throughput=92.0), more=Side(value=22e12, throughput=107.9),
    )  # fmt: skip
    assert sentence(one) == "10 % more HBM bandwidth buys 7.9 % throughput"
    assert name_of("hardware.scale_up.latency") == "scale-up latency"
    assert name_of("hardware.compute.vector.fp32") == "FP32 vector rate"
    assert name_of("hardware.memory.gddr6.bandwidth") == "GDDR bandwidth"


@pytest.mark.parametrize("step", [0.0, -0.1, 1e-12, 0.51, float("nan"), float("inf")])
def test_a_step_that_shows_rounding_or_no_slope_is_refused(step: float) -> None:
    with pytest.raises(SpecError, match=r"a share from 1e-06 to 0\.5"):
        sensitivity(load_scenario(DECODE), step=step)
