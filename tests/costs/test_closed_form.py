"""Closed forms, against the event run and against exact arithmetic."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.costs.closed_form import closed_form, closed_form_many
from simulator.engine.execute import run_kernel
from simulator.mapping.kernel import Kernel, TileClass

whole = st.integers(0, 20).map(float)
costs = st.one_of(st.tuples(whole, whole), st.tuples(st.floats(0, 1e7), st.floats(0, 1e-3)))
rates = st.sampled_from([1.0, 2.0, 7.0, 1e9, 1e12])
caps = st.sampled_from([inf, inf, 0.5, 3.0, 1e8, 1e11])


def one_class(
    tiles: int, units: int, size: float, time: float, bandwidth: float, cap: float = inf
) -> Kernel:
    return Kernel(
        name="equal",
        classes=(TileClass(load=size, store=0.0, compute=time),),
        runs=((tiles, 0),),
        units=units,
        bandwidth=bandwidth,
        rate_cap=cap,
    )


@settings(deadline=None)
@given(st.integers(0, 400), st.integers(1, 60), costs, rates, caps)
def test_equals_the_event_run_of_one_class(
    tiles: int, units: int, cost: tuple[float, float], bandwidth: float, cap: float
) -> None:
    kernel = one_class(tiles, units, *cost, bandwidth, cap)
    assert closed_form(kernel) == pytest.approx(run_kernel(kernel).makespan, rel=1e-12)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), costs), min_size=1, max_size=5),
    st.integers(0, 9),
    rates,
    caps,
)
def test_equals_the_event_run_of_one_wave_of_any_classes(
    tiles: list[tuple[int, tuple[float, float]]], spare: int, bandwidth: float, cap: float
) -> None:
    kernel = Kernel(
        name="one wave",
        classes=tuple(TileClass(load=b, store=b / 2, compute=c) for _, (b, c) in tiles),
        runs=tuple((count, index) for index, (count, _) in enumerate(tiles)),
        units=max(1, sum(count for count, _ in tiles) + spare),
        bandwidth=bandwidth,
        rate_cap=cap,
        fixed=2e-6,
    )
    assert closed_form(kernel) == pytest.approx(run_kernel(kernel).makespan, rel=1e-12)


def test_several_classes_in_several_waves_need_events() -> None:
    kernel = one_class(10, 4, 1.0, 1.0, 1.0)
    mixed = replace(kernel, classes=(*kernel.classes, TileClass(load=2.0, store=0.0, compute=1.0)))
    assert closed_form(replace(mixed, runs=((9, 0), (1, 1)))) is None
    assert closed_form(mixed) == closed_form(kernel), "a class without tiles does not count"


def test_classes_of_equal_cost_are_one() -> None:
    kernel = one_class(10, 4, 1.0, 1.0, 1.0)
    same = replace(
        kernel,
        classes=(*kernel.classes, TileClass(load=0.5, store=0.5, compute=1.0, flops=9.0)),
        runs=((3, 0), (7, 1)),
    )
    assert closed_form(same) == closed_form(kernel)


def test_arithmetic_of_a_ragged_last_wave() -> None:
    # l(4) = 8, then 2 waves of max(8, 3) less one that is ragged: l(2) = 4, and the last compute.
    assert closed_form(one_class(10, 4, 2.0, 3.0, 1.0)) == 8 + 8 + 4 + 3
    assert closed_form(one_class(10, 4, 2.0, 5.0, 1.0)) == 8 + 8 + 5 + 5


def test_many_has_the_bits_of_one() -> None:
    rng = np.random.default_rng(3)
    tiles, units = rng.integers(0, 5_000, 500), rng.integers(1, 400, 500)
    size, time = rng.uniform(0, 1e7, 500), rng.uniform(0, 1e-3, 500)
    cap = np.where(rng.random(500) < 0.5, inf, rng.uniform(1e9, 1e11, 500))
    many = closed_form_many(tiles, units, size, time, 3e12, cap)
    for i in range(500):
        kernel = one_class(int(tiles[i]), int(units[i]), size[i], time[i], 3e12, cap[i])
        assert many[i] == closed_form(kernel)


def test_many_broadcasts() -> None:
    table = closed_form_many([[100], [200]], [10, 20, 30], 1e6, 1e-6, 1e12)
    assert table.shape == (2, 3)
    assert closed_form_many(1, 1, 1.0, 1.0, 1.0).shape == ()


def least(tiles: int, units: int, *rest: float) -> float:
    """Seconds on the best number of units up to ``units``."""
    return min(closed_form(one_class(tiles, k, *rest)) for k in range(1, units + 1))


@settings(deadline=None)
@given(st.integers(1, 80), st.integers(1, 40), costs, rates, caps)
def test_the_fewest_units_that_do_for_a_number_of_waves_are_best(
    tiles: int, units: int, cost: tuple[float, float], bandwidth: float, cap: float
) -> None:
    fewest = {ceil(tiles / waves) for waves in range(1, tiles + 1)}
    among = [k for k in fewest if k <= units]
    best = min(closed_form(one_class(tiles, k, *cost, bandwidth, cap)) for k in among)
    assert best == pytest.approx(least(tiles, units, *cost, bandwidth, cap), rel=1e-12)


@settings(deadline=None)
@given(
    st.integers(1, 200),
    st.integers(1, 60),
    costs,
    rates,
    caps,
    st.sampled_from(["units", "bandwidth", "cap", "bytes", "compute", "tiles"]),
    st.floats(1, 3),
)
def test_the_best_number_of_units_is_never_slower_with_more_or_for_less(
    tiles: int,
    units: int,
    cost: tuple[float, float],
    bandwidth: float,
    cap: float,
    change: str,
    factor: float,
) -> None:
    size, time = cost
    before = least(tiles, units, size, time, bandwidth, cap)
    after = least(
        max(1, int(tiles / factor)) if change == "tiles" else tiles,
        int(units * factor) if change == "units" else units,
        size / factor if change == "bytes" else size,
        time / factor if change == "compute" else time,
        bandwidth * factor if change == "bandwidth" else bandwidth,
        cap * factor if change == "cap" else cap,
    )
    assert after <= before * (1 + 1e-12)


def test_all_units_can_be_slower_than_fewer() -> None:
    """Two waves either way, but more to load before them; so a launch takes the fewest that do."""
    assert closed_form(one_class(4, 2, 1.0, 5.0, 1.0)) == 2 + 2 * 5
    assert closed_form(one_class(4, 3, 1.0, 5.0, 1.0)) == 3 + 2 * 5
    assert least(4, 3, 1.0, 5.0, 1.0) == 12
