"""Chances of experts, and draws that keep them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.mapping.distributions import SPREAD, Sampler, chances, distinct, shares

LOADS = st.integers(1, 24).flatmap(
    lambda experts: st.tuples(
        st.lists(st.floats(1e-6, 1e6), min_size=experts, max_size=experts),
        st.integers(1, experts),
    )
)


@settings(max_examples=200, deadline=None)
@given(LOADS)
def test_chances_sum_to_top_k_none_exceeds_one_and_order_is_kept(
    case: tuple[list[float], int],
) -> None:
    loads, top_k = np.array(case[0]), case[1]
    chance = chances(loads, top_k)
    assert chance.sum() == pytest.approx(top_k)
    assert ((chance >= 0) & (chance <= 1)).all()
    assert (np.diff(chance[np.argsort(loads, kind="stable")]) >= -1e-12).all()


def test_what_is_above_one_goes_to_the_others_as_they_have() -> None:
    assert chances(np.array([8.0, 2, 1, 1]), 2).tolist() == pytest.approx([1, 0.5, 0.25, 0.25])


def test_experts_without_load_are_not_enough_for_top_k() -> None:
    with pytest.raises(InputError, match="1 experts have any load, fewer than a top_k of 2"):
        chances(np.array([0.0, 3, 0]), 2)


def exact(odds: np.ndarray, top_k: int) -> np.ndarray:
    """Inclusion chances of conditional Poisson sampling, by all sets one by one."""
    sets = list(itertools.combinations(range(len(odds)), top_k))
    weight = np.array([np.prod(odds[list(one)]) for one in sets])
    return np.array([weight[[e in one for one in sets]].sum() for e in range(len(odds))]) / sum(
        weight
    )


def test_sets_are_drawn_as_often_as_conditional_poisson_sampling_says() -> None:
    odds = np.array([4.0, 2.0, 1.0, 0.5, 0.1])
    sampler = Sampler(exact(odds, 2))
    drawn = sampler.draw(np.random.default_rng(3).random((200_000, 2)))
    sets = list(itertools.combinations(range(5), 2))
    weight = np.array([odds[list(one)].prod() for one in sets])
    expected = weight / weight.sum()
    code = np.sort(drawn, axis=1) @ [5, 1]
    found = np.array([(code == a * 5 + b).mean() for a, b in sets])
    deviation = np.sqrt(expected * (1 - expected) / len(drawn))
    assert (np.abs(found - expected) < 5 * deviation).all()


@pytest.mark.parametrize(
    ("form", "number", "experts", "top_k"),
    [
        ("zipf", 1.2, 64, 6),
        ("zipf", 6, 64, 6),
        ("zipf", 0.3, 8, 1),
        ("power_law", 1.01, 128, 8),
        ("lognormal", 3, 256, 8),
        ("lognormal", 32, 256, 8),
        ("lognormal", 4, 8, 2),
    ],
)
def test_each_expert_is_drawn_as_often_as_its_chance(
    form: str, number: float, experts: int, top_k: int
) -> None:
    chance = chances(shares(form, number, experts, top_k), top_k)
    sampler = Sampler(chance)
    tokens = 40_000
    drawn = sampler.draw(np.random.default_rng(7).random((tokens, sampler.left)))
    assert (np.diff(np.sort(drawn, axis=1), axis=1) > 0).all()
    assert drawn.shape == (tokens, top_k)
    counts = np.bincount(drawn.ravel(), minlength=experts)
    deviation = np.sqrt(tokens * chance * (1 - chance)) + 1
    assert (np.abs(counts - tokens * chance) < 5 * deviation).all()


@settings(max_examples=150, deadline=None)
@given(LOADS, st.integers(0, 2**32))
def test_any_loads_give_distinct_experts_that_have_a_load(
    case: tuple[list[float], int], seed: int
) -> None:
    loads, top_k = np.array(case[0]), case[1]
    sampler = Sampler(chances(loads, top_k))
    drawn = np.sort(sampler.draw(np.random.default_rng(seed).random((50, sampler.left))), axis=1)
    assert drawn.shape == (50, top_k)
    assert (np.diff(drawn, axis=1) > 0).all()
    assert drawn.min() >= 0
    assert drawn.max() < len(loads)


def test_the_ends_of_the_uniform_numbers_give_experts_too() -> None:
    sampler = Sampler(chances(shares("zipf", 1.0, 16, 3), 3))
    ends = np.array([[0.0] * 3, [1 - 2**-53] * 3])
    assert sampler.draw(ends)[0].tolist() == [0, 1, 2]
    assert sampler.draw(ends)[1].tolist() == [13, 14, 15]


@pytest.mark.parametrize(("experts", "top_k"), [(5, 1), (5, 2), (6, 5), (4, 4)])
def test_uniform_draws_reach_every_set_alike(experts: int, top_k: int) -> None:
    drawn = np.sort(distinct(experts, np.random.default_rng(0).random((60_000, top_k))), axis=1)
    sets, found = np.unique(drawn, axis=0, return_counts=True)
    expected = list(itertools.combinations(range(experts), top_k))
    assert sets.tolist() == [list(one) for one in expected]
    share = 1 / len(expected)
    assert np.abs(found - 60_000 * share).max() <= 5 * (60_000 * share * (1 - share)) ** 0.5


@pytest.mark.parametrize("ratio", [1, 1.5, 3, 7, 20, 32])
def test_lognormal_loads_have_the_ratio_that_is_asked_for(ratio: float) -> None:
    chance = chances(shares("lognormal", ratio, 256, 8), 8)
    assert chance.max() / chance.mean() == pytest.approx(ratio, rel=1e-6)


def test_no_expert_is_in_a_token_twice_so_the_ratio_has_a_limit() -> None:
    with pytest.raises(InputError, match=r"with top_k 8 of 256 experts it is 1 to 32"):
        shares("lognormal", 33, 256, 8)


def test_zipf_loads_fall_with_the_rank() -> None:
    assert shares("zipf", 1, 4, 1).tolist() == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    assert shares("zipf", 0, 4, 1).tolist() == [1, 1, 1, 1]
    mild = chances(shares("zipf", 0.3, 128, 8), 8)
    # 128 / sum of rank^-0.3, the sum by Euler and Maclaurin with zeta(0.3) = -0.904559.
    total = 128**0.7 / 0.7 - 0.904559 + 128**-0.3 / 2
    assert mild.max() / mild.mean() == pytest.approx(128 / total, rel=1e-4)
    assert mild.max() / mild.mean() == pytest.approx(3.06, abs=0.005)


@pytest.mark.parametrize("exponent", [0, 0.6, 1, 1.01, 2.5])
def test_power_law_loads_are_quantiles_of_the_density(exponent: float) -> None:
    samples = shares("power_law", exponent, 50, 4)
    grid = np.linspace(1, SPREAD, 400_001)
    mass = np.concatenate([[0], np.cumsum((grid[1:] + grid[:-1]) ** -exponent)])
    at = np.interp(samples[::-1], grid, mass / mass[-1])
    assert at == pytest.approx((np.arange(50) + 0.5) / 50, abs=1e-5)


def test_the_power_law_is_continuous_where_its_exponent_is_one() -> None:
    near = shares("power_law", 1 + 1e-7, 64, 4)
    assert shares("power_law", 1, 64, 4) == pytest.approx(near, rel=1e-5)


def test_two_experts_of_which_one_is_taken_are_weighed_right() -> None:
    # With one expert all but sure the others exclude each other, where whole corrections never end.
    chance = np.array([0.9956247, 0.6242387, 0.3801366])
    drawn = Sampler(chance).draw(np.random.default_rng(1).random((100_000, 2)))
    found = np.bincount(drawn.ravel(), minlength=3) / 100_000
    assert (np.abs(found - chance) < 5 * np.sqrt(chance * (1 - chance) / 100_000)).all()
