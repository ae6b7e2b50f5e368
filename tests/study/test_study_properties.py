"""What must hold of any study, whatever the numbers: scaling, symmetry, and what is not used."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import changed, compare, load_scenario, sensitivity, simulate
from simulator.study.change import numbers, written

BASE = load_scenario("llama-3.1-8b decode batch=8 context=2048 price.rent='3 USD/h' on h200")
RATES = [
    leaf
    for leaf in numbers(BASE)
    if leaf.path.endswith((".bandwidth", ".per_clock", ".achieved", "compute.clock"))
    or ".matrix." in leaf.path
]


@given(leaf=st.sampled_from(RATES), factor=st.floats(1, 4))
@settings(max_examples=60, deadline=None)
def test_a_higher_rate_is_never_slower(leaf, factor):
    most = 1 if leaf.path.endswith(".achieved") else float("inf")
    value = min(leaf.value * factor, most)
    changes = {leaf.path: written(leaf, value)}
    if leaf.path == "hardware.compute.clock":
        changes["hardware.compute.max_clock"] = f"{max(value, 1.98e9)!r} Hz"
    faster = simulate(changed(BASE, changes))
    assert faster.latency <= simulate(BASE).latency * (1 + 1e-12)


@given(factor=st.floats(1e-6, 1e6))
@settings(max_examples=20, deadline=None)
def test_cost_is_proportional_to_rent(factor):
    found = simulate(changed(BASE, {"price.rent": f"{3 * factor!r} USD/h"}))
    assert found.cost == pytest.approx(simulate(BASE).cost * factor, rel=1e-12)


def test_a_run_at_the_value_of_the_base_is_the_base_bit_for_bit():
    before = simulate(BASE)
    for leaf in RATES:
        after = simulate(changed(BASE, {leaf.path: written(leaf, leaf.value)}))
        assert after.latency == before.latency, leaf.path


def test_ratios_of_two_devices_are_reciprocal_whichever_comes_first():
    pairs = ["h200", "mi355x"], ["mi355x", "h200"]
    one, other = (compare("llama-3.1-8b", pair, batch=4) for pair in pairs)
    first, second = ([entry.result for entry in found.entries] for found in (one, other))
    assert [result.latency for result in first] == [result.latency for result in second[::-1]]
    ratios = [found.to_dict()["devices"][1]["ratio"] for found in (one, other)]
    assert ratios[0] * ratios[1] == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("path", ["scale_up.bandwidth", "price.rent", "power.peak", "transistors"])
def test_what_a_run_does_not_use_has_no_elasticity(path):
    (entry,) = sensitivity(BASE, [path]).entries
    assert entry.elasticity == 0
