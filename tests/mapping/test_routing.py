"""Tokens over experts: counts, their monotony, and how many experts a batch hits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.mapping import routing
from simulator.mapping.routing import expected_distinct_experts, expert_counts
from simulator.specs.workload import MoE

MOES = st.integers(1, 48).flatmap(
    lambda experts: st.builds(
        lambda top_k, routing: MoE(experts=experts, top_k=top_k, width=1, routing=routing),
        st.integers(1, experts),
        st.sampled_from(["uniform", "balanced"]),
    )
)


@pytest.mark.parametrize(
    ("experts", "top_k", "expected"),
    [
        (256, 8, {1: 8, 4: 30.5, 16: 102, 64: 222, 256: 256}),
        (128, 8, {1: 8, 4: 29.1, 16: 82.4, 64: 125.9, 256: 128}),
        (8, 2, {1: 2, 4: 5.5, 16: 7.9, 64: 8, 256: 8}),
    ],
)
def test_distinct_experts_of_a_batch(experts: int, top_k: int, expected: dict[int, float]) -> None:
    for tokens, distinct in expected.items():
        found = expected_distinct_experts(experts, top_k, tokens)
        assert found == pytest.approx(distinct, abs=0.51 if distinct > 100 else 0.06)


@settings(max_examples=100, deadline=None)
@given(MOES, st.integers(0, 300), st.integers(0, 2**32))
def test_every_token_reaches_top_k_distinct_experts(moe: MoE, tokens: int, seed: int) -> None:
    counts = expert_counts(moe, tokens, np.random.default_rng(seed))
    assert counts.shape == (moe.experts,)
    assert counts.sum() == tokens * moe.top_k
    assert counts.min() >= 0
    assert counts.max() <= tokens


@settings(max_examples=100, deadline=None)
@given(MOES, st.integers(0, 300), st.integers(0, 50), st.integers(0, 2**32))
def test_more_tokens_never_lower_a_count(moe: MoE, tokens: int, more: int, seed: int) -> None:
    fewer = expert_counts(moe, tokens, np.random.default_rng(seed))
    greater = expert_counts(moe, tokens + more, np.random.default_rng(seed))
    assert (fewer <= greater).all()


def test_uniform_routing_is_uniform() -> None:
    moe = MoE(experts=16, top_k=3, width=1)
    tokens = 40_000
    counts = expert_counts(moe, tokens, np.random.default_rng(1))
    share = moe.top_k / moe.experts
    deviation = (tokens * share * (1 - share)) ** 0.5
    assert np.abs(counts - tokens * share).max() < 5 * deviation


def test_distinct_experts_of_draws_agree_with_the_expectation() -> None:
    moe = MoE(experts=64, top_k=4, width=1)
    draws = [
        np.count_nonzero(expert_counts(moe, 12, np.random.default_rng(seed))) for seed in range(500)
    ]
    assert np.mean(draws) == pytest.approx(expected_distinct_experts(64, 4, 12), rel=0.02)


def test_balanced_counts_differ_by_one_at_most() -> None:
    moe = MoE(experts=7, top_k=2, width=1, routing="balanced")
    counts = expert_counts(moe, 5, np.random.default_rng(0))
    assert counts.tolist() == [2, 2, 2, 1, 1, 1, 1]


def test_the_same_seed_gives_the_same_counts_and_wrong_input_is_refused() -> None:
    moe = MoE(experts=32, top_k=4, width=1)
    first, second = (expert_counts(moe, 99, np.random.default_rng(7)) for _ in range(2))
    assert (first == second).all()
    with pytest.raises(ValueError, match="negative"):
        expert_counts(moe, -1, np.random.default_rng(0))
    with pytest.raises(InputError, match="unknown routing 'zip 1'; did you mean zipf"):
        expert_counts(replace(moe, routing="zip 1"), 1, np.random.default_rng(0))


@pytest.mark.parametrize("tokens", [0, 6, 7, 8, 1000])
def test_tokens_drawn_in_parts_are_those_of_one_draw(
    tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    moe = MoE(experts=9, top_k=4, width=1)
    whole = expert_counts(moe, tokens, np.random.default_rng(5))
    monkeypatch.setattr(routing, "DRAWN", 7)
    assert np.array_equal(expert_counts(moe, tokens, np.random.default_rng(5)), whole)
