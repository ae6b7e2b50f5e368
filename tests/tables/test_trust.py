"""Weak numbers of a spec widen an interval, as independent errors add."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.check.targets import target_of
from simulator.specs.hardware import BASES
from simulator.tables.trust import NORMAL, OFF, weakness, widened

factors = st.tuples(st.floats(0.2, 1.0), st.floats(1.0, 5.0))


@given(factors, st.floats(0, 0.5))
def test_an_interval_only_widens_and_about_the_same_middle(
    interval: tuple[float, float], off: float
) -> None:
    lower, upper = widened(*interval, off)
    assert lower <= interval[0] * (1 + 1e-9)
    assert upper >= interval[1] * (1 - 1e-9)
    assert lower * upper == pytest.approx(interval[0] * interval[1])


@given(st.floats(0.01, 0.5))
def test_a_certain_formula_is_as_uncertain_as_its_number(off: float) -> None:
    """10 % of a normal distribution lie beyond 1.2816 standard deviations on either side."""
    assert widened(1.0, 1.0, off) == pytest.approx(
        (math.exp(-NORMAL * off), math.exp(NORMAL * off))
    )


def test_bases_are_known_and_the_weaker_is_off_by_more() -> None:
    order = [name for name in BASES if name in OFF]
    assert set(order) == set(OFF)
    assert [OFF[name] for name in order] == sorted(OFF.values())


def test_the_numbers_of_a_data_sheet_widen_nothing_and_assumed_ones_do() -> None:
    assert weakness(target_of("h100"), "memory", "bf16") == 0
    assert weakness(target_of("h100"), "compute", "bf16") == 0
    assert weakness(target_of("b300"), "compute", "bf16") == OFF["assumed"]
    assert weakness(target_of("h100"), "latency", "bf16") == 0
