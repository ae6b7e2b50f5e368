"""Energy stays between idle and the limit, and follows what binds."""

from __future__ import annotations

import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import make_scenario, simulate
from simulator.costs.energy import ACTIVITY, mean_power, run_energy
from simulator.result import Bound
from simulator.specs.hardware import Power

TIMES = st.dictionaries(st.sampled_from(get_args(Bound)), st.floats(0, 1e3), min_size=1)


@given(TIMES, st.floats(1, 3000), st.none() | st.floats(0.0, 1.0))
def test_a_device_draws_between_idle_and_its_limit(
    parts: dict[Bound, float], peak: float, idle: float | None
) -> None:
    power = Power(peak=peak, idle=None if idle is None else idle * peak)
    floor = 0.1 * peak if idle is None else idle * peak
    assert floor * (1 - 1e-9) <= mean_power(power, parts) <= peak * (1 + 1e-9)


def test_products_run_at_the_limit_and_nothing_else_does() -> None:
    power = Power(peak=700.0)
    assert mean_power(power, {"compute": 1.0}) == 700.0
    others = [bound for bound in ACTIVITY if bound != "compute"]
    assert all(mean_power(power, {bound: 1.0}) < 350.0 for bound in others)
    assert set(ACTIVITY) == set(get_args(Bound))


def test_energy_is_power_times_time_times_devices() -> None:
    parts: dict[Bound, float] = {"compute": 2.0, "waiting": 2.0}
    power = Power(peak=1000.0, idle=100.0)
    # Half the time at 1,000 W, half at 100 + 0.2 x 900 W.
    assert run_energy(power, parts, 4.0, 8) == pytest.approx(8 * 4 * (1000 + 280) / 2)
    assert run_energy(None, parts, 4.0, 8) is None


def test_decode_draws_what_was_measured_of_a_memory_bound_device() -> None:
    # 137 to 300 of 700 W on H200 (arXiv 2605.11999); the product's share is at the upper end.
    result = simulate(make_scenario("llama-3.1-8b", "h200", batch=1, context=4096))
    assert result.energy is not None
    assert 137 <= result.energy / result.latency <= 1.15 * 300


def test_training_draws_three_quarters_to_all_of_the_limit() -> None:
    # Eight H100 that train Llama 2 13B: 76 % of the rating of their server (arXiv 2506.14551).
    result = simulate(
        make_scenario(
            "llama-3.1-8b",
            "h100",
            phase="train",
            dp=8,
            zero=1,
            recompute="full",
            sequence=4096,
            global_batch=64,
        )
    )
    assert result.energy is not None
    assert 0.70 <= result.energy / result.latency / 8 / 700 <= 1.0


def test_a_device_without_a_stated_power_has_no_energy() -> None:
    result = simulate(make_scenario("llama-3.1-8b", "mi430x", batch=8, context=4096))
    assert result.energy is None
    assert result.to_dict()["energy"] is None


def test_power_that_is_set_by_hand_has_a_say() -> None:
    once, twice = (
        simulate(
            make_scenario("llama-3.1-8b", "h200", context=4096, overrides=[f"power.peak={watts} W"])
        )
        for watts in (700, 1400)
    )
    assert once.energy is not None
    assert twice.energy == pytest.approx(2 * once.energy)
    assert math.isclose(once.latency, twice.latency)
    assert not [text for text in twice.warnings if "power" in text]
