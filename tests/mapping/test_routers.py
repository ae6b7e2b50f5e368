"""Routers against plain torch, and what a capacity leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.mapping.routers import Assignment, capacity, expert_choice, token_choice, within
from simulator.specs.workload import Router

V3 = Router(scoring="sigmoid", bias=True, groups=8, top_groups=4, scale=2.5)


def gates(routed: Assignment) -> np.ndarray:
    """Weights as (tokens, experts), zero where an expert was not chosen."""
    table = np.zeros((routed.tokens, routed.experts))
    table[routed.token - routed.first, routed.expert] = routed.weight
    return table


def normals(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def scattered(torch: Any, logits: Any, index: Any, weights: Any) -> np.ndarray:
    found: np.ndarray = torch.zeros_like(logits).scatter(1, index, weights).numpy()
    return found


def test_softmax_routers_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    logits = normals(300, 32)
    wide = torch.from_numpy(logits)
    # Qwen3: softmax over all, the chosen ones scaled to sum to one or left as they are.
    weights, index = wide.softmax(dim=-1).topk(6, dim=-1)
    left = gates(token_choice(logits, 6, Router(normalise=False)))
    assert left == pytest.approx(scattered(torch, wide, index, weights), abs=1e-15)
    scaled = gates(token_choice(logits, 6, Router()))
    shared = weights / weights.sum(dim=-1, keepdim=True)
    assert scaled == pytest.approx(scattered(torch, wide, index, shared), abs=1e-15)
    # gpt-oss: softmax over the chosen logits.
    values, index = wide.topk(6, dim=-1)
    assert scaled == pytest.approx(scattered(torch, wide, index, values.softmax(-1)), abs=1e-15)


@pytest.mark.parametrize("biased", [True, False])
def test_group_limited_sigmoid_routing_is_that_of_deepseek_v3(biased: bool) -> None:
    torch = pytest.importorskip("torch")
    logits, bias = normals(200, 64), normals(64, seed=1) if biased else np.zeros(64)
    wide = torch.from_numpy(logits)
    original = wide.sigmoid()
    scores = (original + torch.from_numpy(bias)).view(200, 8, 8)
    worth = scores.topk(2, dim=-1)[0].sum(dim=-1)
    kept = worth.topk(4, dim=-1)[1]
    outside = torch.ones(200, 8, dtype=torch.bool).scatter_(1, kept, False)
    scores = scores.masked_fill(outside.unsqueeze(-1), float("-inf")).flatten(1)
    index = scores.topk(8, dim=-1)[1]
    weights = original.gather(1, index)
    weights = weights / weights.sum(dim=-1, keepdim=True) * 2.5
    found = gates(token_choice(logits, 8, V3, bias=bias))
    assert found == pytest.approx(scattered(torch, wide, index, weights), abs=1e-14)


def test_a_bias_moves_the_choice_and_not_the_weights() -> None:
    logits = np.array([[2.0, 1.0, 0.0]])
    router = Router(scoring="sigmoid", bias=True, normalise=False)
    routed = token_choice(logits, 1, router, bias=np.array([0.0, 0.0, 1.0]))
    assert routed.expert.tolist() == [2]
    assert routed.weight.tolist() == [0.5]


def test_a_group_is_worth_its_two_best_with_a_bias_and_its_best_without() -> None:
    logits = np.array([[3.0, -9.0, 2.0, 2.0]])
    router = Router(scoring="sigmoid", groups=2, top_groups=1)
    assert token_choice(logits, 1, router).expert.tolist() == [0]
    assert token_choice(logits, 1, router, bias=np.zeros(4)).expert.tolist() == [2]


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_of_equal_scores_the_lowest_experts_are_taken(scoring: Any) -> None:
    logits = np.array([[1.0] * 6, [0, 2, 1, 2, 1, 1]])
    routed = token_choice(logits, 3, Router(scoring=scoring))
    assert routed.expert.reshape(2, 3).tolist() == [[0, 1, 2], [1, 2, 3]]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 20), st.integers(1, 12), st.data())
def test_the_best_are_those_of_a_stable_sort(tokens: int, experts: int, data: Any) -> None:
    top_k = data.draw(st.integers(1, experts))
    seed = data.draw(st.integers(0, 2**32))
    logits = np.random.default_rng(seed).integers(0, 4, (tokens, experts)).astype(float)
    routed = token_choice(logits, top_k, Router(), first=5)
    expected = np.sort(np.argsort(-logits, axis=1, kind="stable")[:, :top_k], axis=1)
    assert np.array_equal(routed.expert.reshape(tokens, top_k), expected)
    assert np.array_equal(routed.token, np.arange(5, 5 + tokens).repeat(top_k))


def test_logits_far_apart_neither_overflow_nor_tie() -> None:
    logits = np.array([[-2000.0, -1000.0, 0.0, 1000.0]])
    routed = token_choice(logits, 3, Router())
    assert routed.expert.tolist() == [1, 2, 3]
    assert routed.weight.tolist() == [0, 0, 1]
    low = token_choice(np.full((1, 4), -1e4), 2, Router(scoring="sigmoid"))
    assert np.isfinite(low.weight).all()


def test_a_switch_router_drops_what_its_capacity_does_not_take() -> None:
    logits = np.zeros((10, 4))
    logits[:, 1] = [1, 1, 1, 1, 1, 1, 0, 0, 0, 0]
    logits[:, 2] = [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    most = capacity(1.25, 10, 1, 4)
    assert most == 4
    routed = within(
        token_choice(logits, 1, Router(normalise=False)), most, np.zeros(4, dtype=np.int64)
    )
    assert routed.token.tolist() == [0, 1, 2, 3, 6, 7, 8, 9]
    assert routed.counts.tolist() == [0, 4, 4, 0]
    assert routed.dropped == 2
    # The weight of a switch is the expert's share of the softmax over all: e / (e + 3).
    assert routed.weight == pytest.approx(np.full(8, np.e / (np.e + 3)))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.integers(0, 15), st.integers(1, 40), st.integers(0, 2**32))
def test_a_capacity_takes_the_first_rows_in_one_stretch_or_in_parts(
    tokens: int, most: int, size: int, seed: int
) -> None:
    logits = normals(tokens, 6, seed=seed)
    whole = token_choice(logits, 2, Router())
    seen, kept = [0] * 6, []
    for token, expert in zip(whole.token, whole.expert, strict=True):
        if seen[expert] < most:
            kept.append((token, expert))
        seen[expert] += 1
    used = np.zeros(6, dtype=np.int64)
    parts = [
        within(token_choice(logits[at : at + size], 2, Router(), first=at), most, used)
        for at in range(0, tokens, size)
    ]
    found = [pair for part in parts for pair in zip(part.token, part.expert, strict=True)]
    assert found == kept
    assert sum(part.dropped for part in parts) == 2 * tokens - len(kept)
    assert used.tolist() == [min(count, most) for count in seen]


@pytest.mark.parametrize(
    ("factor", "tokens", "top_k", "experts", "most"),
    [
        (1, 64, 1, 8, 8),
        (1.25, 64, 1, 8, 10),
        (1, 65, 1, 8, 9),
        (1.1, 10, 1, 1, 11),
        (2, 0, 1, 4, 0),
    ],
)
def test_a_capacity_is_the_factor_times_the_mean_load_rounded_up(
    factor: float, tokens: int, top_k: int, experts: int, most: int
) -> None:
    assert capacity(factor, tokens, top_k, experts) == most


def test_expert_choice_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    logits = normals(100, 8)
    wide = torch.from_numpy(logits)
    # Zhou et al.: S = softmax(X W), then the k best of each row of S transposed.
    weights, index = wide.softmax(dim=-1).t().topk(25, dim=-1)
    expected = torch.zeros_like(wide).t().scatter(1, index, weights).t().numpy()
    routed = expert_choice(logits, 25, Router())
    assert gates(routed) == pytest.approx(expected, abs=1e-15)
    assert routed.counts.tolist() == [25] * 8
    assert (np.diff(routed.token) >= 0).all()


def test_of_equal_tokens_an_expert_takes_the_first_and_never_more_than_there_are() -> None:
    routed = expert_choice(np.zeros((5, 2)), 3, Router())
    assert sorted(zip(routed.expert, routed.token, strict=True)) == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2),
    ]  # fmt: skip
    assert expert_choice(np.zeros((2, 2)), 3, Router()).counts.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("router", "top_k", "message"),
    [
        (Router(), 9, "top_k of 9: 8 experts"),
        (Router(groups=4, top_groups=1), 3, "top_k of 3: 2 experts"),
        (Router(groups=3), 1, "1 of 3 groups of 8 experts"),
        (Router(groups=2, top_groups=3), 1, "3 of 2 groups"),
    ],
)
def test_a_router_refuses_what_it_cannot_choose(router: Router, top_k: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        token_choice(np.zeros((1, 8)), top_k, router)
