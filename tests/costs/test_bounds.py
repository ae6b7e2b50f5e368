"""Bounds and the estimate, against the event run."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.costs.bounds import bounds
from simulator.costs.closed_form import closed_form
from simulator.costs.estimate import estimate
from simulator.engine.execute import run_kernel
from simulator.mapping.kernel import Kernel, TileClass

whole = st.integers(0, 6).map(float)
tile = st.one_of(
    st.builds(lambda b, s, c: TileClass(load=b, store=s, compute=c), whole, whole, whole),
    st.builds(
        lambda b, c: TileClass(load=b, store=0.0, compute=c), st.floats(0, 1e6), st.floats(0, 1e-4)
    ),
)
kernels = st.lists(tile, min_size=1, max_size=5).flatmap(
    lambda classes: st.builds(
        Kernel,
        name=st.just("any"),
        classes=st.just(tuple(classes)),
        runs=st.lists(
            st.tuples(st.integers(0, 60), st.integers(0, len(classes) - 1)), max_size=8
        ).map(tuple),
        units=st.integers(1, 40),
        bandwidth=st.sampled_from([1.0, 8.0, 1e9, 1e11]),
        rate_cap=st.sampled_from([inf, inf, 0.5, 2.0, 3e9]),
        fixed=st.sampled_from([0.0, 1e-6]),
    )
)


@settings(max_examples=500, deadline=None)
@given(kernels)
def test_a_run_stays_within_its_bounds_in_both_modes(kernel: Kernel) -> None:
    lower, upper = bounds(kernel)
    for mode in ("cohort", "tile"):
        assert lower <= run_kernel(kernel, mode=mode).makespan <= upper


@settings(max_examples=300, deadline=None)
@given(kernels)
def test_an_estimate_is_within_the_bounds_and_exact_where_a_closed_form_is(kernel: Kernel) -> None:
    lower, upper = bounds(kernel)
    assert lower <= estimate(kernel) <= upper
    exact = closed_form(kernel)
    if exact is not None:
        assert estimate(kernel) == exact


@settings(deadline=None)
@given(kernels)
def test_bounds_never_rise_with_more_bandwidth_or_faster_compute(kernel: Kernel) -> None:
    faster = replace(
        kernel,
        bandwidth=kernel.bandwidth * 1.5,
        classes=tuple(replace(one, compute=one.compute / 1.5) for one in kernel.classes),
    )
    slack = 1 + 1e-12
    assert bounds(faster)[0] <= bounds(kernel)[0] * slack
    assert bounds(faster)[1] <= bounds(kernel)[1] * slack


def test_bounds_of_nothing_are_the_fixed_time() -> None:
    one = TileClass(load=1.0, store=0.0, compute=1.0)
    empty = Kernel(name="empty", classes=(one,), runs=(), units=4, bandwidth=1.0, fixed=3.0)
    assert bounds(empty) == (3.0, 3.0)
    assert estimate(empty) == 3.0


def kernel(classes: list[tuple[float, float]], runs: list[tuple[int, int]], units: int) -> Kernel:
    return Kernel(
        name="known",
        classes=tuple(TileClass(load=size, store=0.0, compute=time) for size, time in classes),
        runs=tuple(runs),
        units=units,
        bandwidth=1.0,
    )


def test_each_lower_bound_is_reached() -> None:
    """Memory binds; compute binds evenly; whole waves bind; one long tile binds."""
    for case in (
        kernel([(4.0, 1.0)], [(9, 0)], 3),
        kernel([(0.0, 2.0), (0.0, 1.0)], [(3, 0), (6, 1)], 3),
        kernel([(0.0, 2.0), (0.0, 0.1)], [(4, 0), (1, 1)], 3),
        kernel([(0.0, 0.1), (0.0, 9.0)], [(2, 0), (1, 1), (1, 0)], 3),
    ):
        assert bounds(case)[0] == pytest.approx(run_kernel(case).makespan, rel=1e-8)


def test_one_unit_makes_the_upper_bound_serial() -> None:
    case = kernel([(4.0, 1.0), (1.0, 5.0)], [(3, 0), (4, 1)], 1)
    assert bounds(case)[1] == pytest.approx(16.0 + 23.0, rel=1e-8)


def realistic(rng: random.Random) -> Kernel:
    """Products with edges, experts with their own counts of rows, causal attention."""
    units, depth = rng.choice([108, 132, 304]), rng.choice([512, 2048, 8192])
    rate, bandwidth = rng.choice([3e14, 1e15]) / units, rng.choice([2e12, 5e12])

    def block(rows: int, columns: int) -> TileClass:
        return TileClass(
            load=2 * depth * (rows + columns) * 0.3,
            store=2 * rows * columns,
            compute=2 * max(rows, 16) * columns * depth / rate,
        )

    kind = rng.choice(["edges", "experts", "causal"])
    if kind == "edges":
        classes = [block(128, 128), block(128, 57), block(31, 128)]
        runs = [(100, 0), (1, 1)] * rng.randint(8, 40) + [(100, 2)]
    elif kind == "experts":
        rows = [rng.randint(1, 128) for _ in range(rng.choice([16, 64]))]
        kinds = sorted(set(rows))
        classes = [block(n, 128) for n in kinds]
        runs = [(rng.choice([32, 56]), kinds.index(n)) for n in rows]
    else:
        classes = [
            TileClass(load=1e4 * i, store=3e4, compute=4 * 128**3 * i / rate) for i in range(1, 33)
        ]
        runs = [(64, i) for i in range(31, -1, -1)]
    return Kernel(
        name=kind, classes=tuple(classes), runs=tuple(runs), units=units, bandwidth=bandwidth
    )


def test_the_estimate_of_real_shapes_is_within_a_few_percent_on_average() -> None:
    errors = []
    for seed in range(120):
        case = realistic(random.Random(seed))
        errors.append(abs(estimate(case) / run_kernel(case).makespan - 1))
    assert sum(errors) / len(errors) < 0.04
    assert max(errors) < 0.25
