"""Energy stays between idle and the limit, follows what binds, and adds up; a cap costs clock."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import Result, make_scenario, simulate
from simulator.costs.energy import (
    ACTIVITY,
    CAPPED,
    DOUBT,
    PARTS,
    clock_doubt,
    clock_share,
    draw,
    energy_by_part,
)
from simulator.errors import SpecError
from simulator.result import Bound
from simulator.specs.hardware import Power

TIMES = st.dictionaries(st.sampled_from(get_args(Bound)), st.floats(1e-3, 1e3), min_size=1)
SHARES = st.floats(0.0, 1.0)


def run(*args: Any, sets: tuple[str, ...] = (), **options: Any) -> Result:
    return simulate(make_scenario(*args, overrides=list(sets), **options))


@given(TIMES, st.floats(1, 3000), st.none() | SHARES, st.none() | st.floats(0.3, 2.0))
def test_devices_draw_between_idle_and_their_limit(
    times: dict[Bound, float], peak: float, idle: float | None, cap: float | None
) -> None:
    power = Power(
        peak=peak, idle=None if idle is None else 0.25 * idle * peak, cap=cap and cap * peak
    )
    energy = math.fsum(energy_by_part(power, times, 5.0, 3).values())
    assert power.floor * (1 - 1e-9) <= energy / 15 <= power.limit * (1 + 1e-9)
    if cap is not None and cap >= 1:
        uncapped = Power(peak=peak, idle=power.idle)
        assert energy_by_part(uncapped, times, 5.0, 3) == energy_by_part(power, times, 5.0, 3)


def test_products_run_at_the_limit_and_nothing_else_does() -> None:
    power = Power(peak=700.0)
    assert draw(power, "compute") == 700.0
    assert all(draw(power, bound) < 350.0 for bound in ACTIVITY if bound != "compute")
    assert set(ACTIVITY) == set(get_args(Bound))


def test_each_joule_is_idle_or_of_what_binds() -> None:
    power = Power(peak=1000.0, idle=100.0)
    times: dict[Bound, float] = {
        "compute": 1.0, "memory": 0.5, "cache": 0.5, "link": 1.0, "waiting": 1.0,
    }  # fmt: skip
    found = energy_by_part(power, times, 4.0, 8)
    by_hand = {"idle": 400, "compute": 900, "memory": 315, "links": 180, "waiting": 180}
    assert found == pytest.approx({name: 8 * joules for name, joules in by_hand.items()})
    assert tuple(found) == PARTS


@pytest.mark.parametrize("phase", ["decode", "prefill", "generate", "train"])
def test_parts_and_phases_add_up_to_the_energy(phase: str) -> None:
    sizes = {
        "decode": {"context": 512}, "prefill": {"input": 512},
        "generate": {"input": 512, "output": 32}, "train": {"sequence": 512, "global_batch": 8},
    }[phase]  # fmt: skip
    options = {"dp": 8, "zero": 1} if phase == "train" else {}
    result = run("llama-3.1-8b", "h200", phase=phase, **sizes, **options)
    assert tuple(part.name for part in result.energy_parts) == PARTS
    assert math.fsum(part.energy for part in result.energy_parts) == result.energy
    assert result.energy is not None
    assert result.power == pytest.approx(result.energy / result.latency / result.devices)
    assert result.tokens_per_joule == pytest.approx(result.work / result.energy)
    if phase == "generate":
        assert sum(part.energy or 0.0 for part in result.phases) == pytest.approx(result.energy)
        prefill, decode = ((part.energy or 0.0) / part.latency for part in result.phases)
        assert prefill > decode


def test_the_same_run_draws_the_same_to_the_last_bit() -> None:
    once, again = (run("llama-3.1-8b", "h200", context=512, batch=4) for _ in range(2))
    assert once.energy_parts == again.energy_parts
    assert once.energy == again.energy


def test_decode_draws_what_was_measured_of_a_memory_bound_device() -> None:
    # 137 to 300 of 700 W on H200 (arXiv 2605.11999); the product's share is at the upper end.
    result = run("llama-3.1-8b", "h200", batch=1, context=4096)
    assert result.power is not None
    assert 137 <= result.power <= 1.15 * 300


def test_four_mi300x_draw_what_was_measured_of_them() -> None:
    # gpt-oss on four MI300X (InferenceX, 2026): 356 W each where most is decode, which no limit
    # times time gives; prefill between a mean of 265.5 and peaks of 662 to 671 W.
    decode = run("gpt-oss-120b", "mi300x", tp=4, batch=64, context=4096)
    assert decode.power == pytest.approx(356, rel=0.25)
    prefill = run("gpt-oss-120b", "mi300x", phase="prefill", tp=4, batch=4, input=8192)
    assert prefill.power is not None
    assert 265.5 <= prefill.power <= 671
    alone = run("gpt-oss-120b", "mi300x", phase="prefill", batch=4, input=8192)
    assert alone.power == pytest.approx(666, rel=0.12)


def test_training_draws_three_quarters_to_all_of_the_limit() -> None:
    # Eight H100 that train Llama 2 13B: 76 % of the rating of their server (arXiv 2506.14551).
    result = run(
        "llama-3.1-8b", "h100", phase="train", dp=8, zero=1, recompute="full", sequence=4096,
        global_batch=64,
    )  # fmt: skip
    assert result.power is not None
    assert 0.70 <= result.power / 700 <= 1.0


def test_bits_and_operations_cost_picojoules() -> None:
    # DRAM and the way to it take single-digit pJ a bit, a bf16 FLOP of these nodes about 1 pJ.
    decode = run("llama-3.1-8b", "h200", context=512, batch=1)
    joules = {part.name: part.energy for part in decode.energy_parts}
    moved = sum(op.bytes for op in decode.ops)
    assert 2e-12 <= joules["memory"] / moved / 8 <= 12e-12
    prefill = run("llama-3.1-8b", "h200", phase="prefill", input=4096)
    joules = {part.name: part.energy for part in prefill.energy_parts}
    assert 0.3e-12 <= joules["compute"] / prefill.model_flops <= 3e-12


def test_a_device_without_a_stated_power_has_no_energy_and_says_why() -> None:
    result = run("llama-3.1-8b", "mi430x", batch=8, context=512)
    told = result.to_dict()
    assert all(told[name] is None for name in ("energy", "power", "tokens_per_joule"))
    assert told["energy_parts"] == []
    assert "power.peak" in told["unknown"]["energy"]


def test_power_that_is_set_by_hand_has_a_say() -> None:
    once, twice = (
        run("llama-3.1-8b", "h200", context=512, sets=(f"power.peak={watts} W",))
        for watts in (700, 1400)
    )
    assert once.energy is not None
    assert twice.energy == pytest.approx(2 * once.energy)
    assert math.isclose(once.latency, twice.latency)
    assert not [text for text in twice.warnings if "power" in text]


def test_the_law_of_capped_clocks_lies_between_the_pairs_it_is_from() -> None:
    def slope(slow: float, fast: float, low: float, high: float) -> float:
        idle = 0.12 * low
        return math.log(fast / slow) / math.log((high - idle) / (low - idle))

    # MI300X and MI325X hold 1207 and 1447 MHz; B200 and GB200 reach 1745 and 1822 TFLOP/s.
    wide, flat = slope(1207, 1447, 750, 1000), slope(1745, 1822, 1000, 1200)
    assert pytest.approx((wide + flat) / 2, abs=0.02) == CAPPED
    assert pytest.approx((wide - flat) / 2, abs=0.02) == DOUBT


@given(st.floats(0.13, 1.0), st.floats(0.13, 1.0))
def test_a_lower_cap_never_gives_a_higher_clock(one: float, other: float) -> None:
    low, high = (Power(peak=700.0, cap=700.0 * share) for share in sorted((one, other)))
    assert clock_share(low) <= clock_share(high) <= 1.0
    assert clock_doubt(low) >= clock_doubt(high) >= 0.0
    assert clock_share(Power(peak=700.0)) == clock_share(Power(peak=700.0, cap=900.0)) == 1.0


def test_a_cap_slows_products_by_its_law_and_memory_not_at_all() -> None:
    free, capped = (
        run("llama-3.1-8b", "h200", phase="prefill", input=4096, sets=sets)
        for sets in ((), ("power.cap=500 W",))
    )
    share = ((500 - 84) / (700 - 84)) ** CAPPED
    assert free.latency < capped.latency < free.latency / share
    assert capped.latency == pytest.approx(free.latency / share, rel=0.06)
    assert capped.power is not None
    assert capped.power <= 500
    assert capped.energy is not None
    assert free.energy is not None
    assert capped.energy < free.energy
    wider, before = (
        math.log(one.interval.upper / one.interval.lower)
        for one in (capped, free)
        if one.interval is not None
    )
    assert wider > before
    assert capped.roof.bandwidth == free.roof.bandwidth
    assert dict(capped.roof.compute) == dict(free.roof.compute)
    assert capped.warnings == free.warnings
    slow, fast = (
        run("llama-3.1-8b", "h200", batch=1, context=512, sets=sets)
        for sets in ((), ("power.cap=500 W",))
    )
    assert slow.latency == pytest.approx(fast.latency, rel=0.02)


@pytest.mark.parametrize("watts", [700, 900])
def test_a_cap_at_or_above_the_limit_is_said_to_have_no_say(watts: int) -> None:
    plain = run("llama-3.1-8b", "h200", phase="prefill", input=512)
    result = run("llama-3.1-8b", "h200", phase="prefill", input=512, sets=(f"power.cap={watts} W",))
    assert result.latency == plain.latency
    assert result.interval == plain.interval
    assert result.energy == plain.energy
    assert "power.cap was set, but has no say in this run" in result.warnings


def test_a_cap_below_what_memory_draws_says_what_is_not_modelled() -> None:
    result = run("llama-3.1-8b", "h200", context=512, sets=("power.cap=200 W",))
    assert any("cap of 200 W" in text for text in result.warnings)
    assert result.power is not None
    assert result.power <= 200


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (("power.cap=80 W",), "idle draw of 84"),
        (("power.idle=120 W", "power.cap=120 W"), "idle draw of 120 W"),
        (("power.cap=0 W",), "more than zero"),
        (("power.cap=500",), "unit"),
        (("power.cap=500 J",), "W"),
        (("power.cap=-5 W",), "negative"),
    ],
)
def test_a_cap_that_is_none_is_refused(sets: tuple[str, ...], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        make_scenario("llama-3.1-8b", "h200", overrides=list(sets))
