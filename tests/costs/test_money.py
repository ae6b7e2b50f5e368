"""What an hour and a million tokens cost: rents, purchases, and a published bill."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import make_scenario, simulate
from simulator.costs.money import YEAR, hourly, run_cost
from simulator.errors import SpecError
from simulator.specs.hardware import Price


def test_the_bill_of_a_published_deployment_is_met() -> None:
    # DeepSeek-V3/R1 inference system overview, 2025-02: 226.75 nodes of 8 at $2 an hour, a day;
    # 608 B tokens in and 168 B out, at 73,700 and 14,800 tokens per second and node.
    day = run_cost(Price(rent=2.0), None, 86400.0, 8)
    assert day is not None
    assert 226.75 * day == pytest.approx(87_072)
    nodes = 608e9 / 86400 / 73_700 + 168e9 / 86400 / 14_800
    assert nodes == pytest.approx(226.75, rel=0.001)
    revenue = 0.14 * 342e3 + 0.55 * (608e3 - 342e3) + 2.19 * 168e3
    assert revenue == pytest.approx(562_027, rel=0.001)


def test_a_rent_is_all_that_an_hour_costs() -> None:
    price = Price(rent=2.0, purchase=30000.0, electricity=1.0)
    assert hourly(price, 1000.0) == 2.0


def test_a_purchase_is_written_off_over_the_hours_that_are_used() -> None:
    price = Price(
        purchase=35064.0, server=0.0, lifetime=4 * YEAR, utilisation=0.5, pue=1.5,
        electricity=0.10 / 3.6e6,
    )  # fmt: skip
    # 35,064 hours of which half are used, and 1 kW x 1.5 x 0.10 USD/kWh.
    assert hourly(price, 1000.0) == pytest.approx(2.0 + 0.15)
    assert hourly(price, None) == pytest.approx(2.0)


def test_without_a_price_there_is_no_cost() -> None:
    assert hourly(None, 500.0) is None
    assert hourly(Price(), 500.0) is None
    result = simulate(make_scenario("llama-3.1-8b", "mi455x", batch=4, context=256))
    assert result.cost is None


@given(
    st.floats(1e3, 1e6), st.floats(0.0, 3e3), st.floats(0.1, 1.0), st.floats(1.0, 3.0),
    st.floats(0.0, 2.0),
)  # fmt: skip
def test_what_costs_more_or_serves_less_is_never_cheaper(
    purchase: float, draw: float, used: float, pue: float, server: float
) -> None:
    price = Price(purchase=purchase, utilisation=used, pue=pue, server=server)
    dearer = Price(purchase=2 * purchase, utilisation=used, pue=pue, server=server)
    idler = Price(purchase=purchase, utilisation=used / 2, pue=pue, server=server)
    found = hourly(price, draw)
    assert found is not None
    for other, watts in ((dearer, draw), (idler, draw), (price, 2 * draw)):
        more = hourly(other, watts)
        assert more is not None
        assert more >= found


def test_a_cost_of_a_purchase_says_what_it_assumes() -> None:
    scenario = make_scenario(
        "llama-3.1-8b", "b200", batch=4, context=256,
        overrides=["price.lifetime=5 years", "price.electricity=0.12 USD/kWh"],
    )  # fmt: skip
    result = simulate(scenario)
    (told,) = (entry for entry in result.provenance.numbers if entry.path == "cost")
    assert "5 years" in told.source
    assert "0.12 USD/kWh" in told.source
    assert told.basis == "assumed"
    assert result.energy is not None
    draw = result.energy / result.latency
    assert result.cost == run_cost(scenario.hardware.price, draw, result.latency, 1)


def test_devices_cost_in_proportion() -> None:
    def cost(tp: int) -> float:
        result = simulate(make_scenario("llama-3.1-8b", "h200", batch=4, context=256, tp=tp))
        assert result.cost is not None
        return result.cost / result.latency

    assert cost(4) == pytest.approx(4 * cost(1))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("price.rent=-1 USD/h", "negative"),
        ("price.pue=0.5", "too small"),
        ("price.utilisation=1.5", "at most 1"),
        ("price.lifetime=4", "unit"),
        ("price.lifetime=0 years", "more than zero"),
        ("price.electricity=0.1 USD", "USD/kWh"),
        ("price.server=-0.1", "negative"),
    ],
)
def test_a_price_that_is_none_is_refused(setting: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        make_scenario("llama-3.1-8b", "b200", overrides=[setting])
