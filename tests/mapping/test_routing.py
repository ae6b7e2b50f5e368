"""Tokens over experts: counts, their monotony, and how many experts a batch hits."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.mapping import routing
from simulator.mapping.routers import token_choice
from simulator.mapping.routing import draw, expected_distinct_experts, expert_counts, notes
from simulator.specs.workload import MoE, Router

FORMS = ["uniform", "balanced", "zipf 0.3", "zipf 4", "power_law 1.01", "lognormal 1", "logits 1"]
MOES = st.integers(1, 48).flatmap(
    lambda experts: st.builds(
        lambda top_k, routing: MoE(experts=experts, top_k=top_k, width=1, routing=routing),
        st.integers(1, experts),
        st.sampled_from(FORMS),
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


@pytest.mark.parametrize(("experts", "top_k"), [(256, 8), (128, 8), (8, 2)])
@pytest.mark.parametrize("tokens", [1, 4, 16, 64, 256])
@pytest.mark.parametrize("routing", ["uniform", "logits", "zipf 0"])
def test_distinct_experts_of_draws_agree_with_the_expectation(
    experts: int, top_k: int, tokens: int, routing: str
) -> None:
    moe = MoE(experts=experts, top_k=top_k, width=1, routing=routing)
    draws = [
        np.count_nonzero(expert_counts(moe, tokens, np.random.default_rng(seed)))
        for seed in range(100)
    ]
    expected = expected_distinct_experts(experts, top_k, tokens)
    # The variance of the number of experts missed is at most their mean number.
    assert abs(np.mean(draws) - expected) <= 5 * ((experts - expected) / 100) ** 0.5 + 1e-9


def test_balanced_counts_differ_by_one_at_most() -> None:
    moe = MoE(experts=7, top_k=2, width=1, routing="balanced")
    counts = expert_counts(moe, 5, np.random.default_rng(0))
    assert sorted(counts.tolist()) == [1, 1, 1, 1, 2, 2, 2]


def test_a_balanced_token_has_an_expert_on_every_rank_where_it_has_enough() -> None:
    moe = MoE(experts=256, top_k=8, width=1, routing="balanced")
    (some,) = draw(moe, 64, np.random.default_rng(0))
    ranks = (some.expert // 32).reshape(64, 8)
    assert (np.sort(ranks, axis=1) == np.arange(8)).mean() > 0.95


def test_the_same_seed_gives_the_same_counts_and_wrong_input_is_refused() -> None:
    moe = MoE(experts=32, top_k=4, width=1)
    first, second = (expert_counts(moe, 99, np.random.default_rng(7)) for _ in range(2))
    assert (first == second).all()
    with pytest.raises(ValueError, match="negative"):
        expert_counts(moe, -1, np.random.default_rng(0))
    with pytest.raises(InputError, match="unknown routing 'zip 1'; did you mean zipf"):
        expert_counts(replace(moe, routing="zip 1"), 1, np.random.default_rng(0))


@pytest.mark.parametrize("tokens", [0, 6, 7, 8, 1000])
@pytest.mark.parametrize("form", ["uniform", "balanced", "zipf 1", "lognormal 2", "logits 1"])
@pytest.mark.parametrize("factor", [None, 1.0])
def test_tokens_drawn_in_parts_are_those_of_one_draw(
    tokens: int, form: str, factor: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    moe = MoE(experts=9, top_k=4, width=1, routing=form, capacity_factor=factor)
    whole = expert_counts(moe, tokens, np.random.default_rng(5))
    monkeypatch.setattr(routing, "DRAWN", 7)
    monkeypatch.setattr(routing, "SCORED", 7 * 9)
    assert np.array_equal(expert_counts(moe, tokens, np.random.default_rng(5)), whole)


@pytest.mark.parametrize("form", [*FORMS, "lognormal 4"])
def test_rows_of_a_draw_ascend_by_token_and_weigh_one_in_all(form: str) -> None:
    moe = MoE(experts=32, top_k=4, width=1, routing=form)
    (routed,) = draw(moe, 500, np.random.default_rng(2))
    assert np.array_equal(routed.token, np.arange(500).repeat(4))
    assert (np.diff(np.sort(routed.expert.reshape(500, 4), axis=1), axis=1) > 0).all()
    assert routed.weight.reshape(500, 4).sum(axis=1) == pytest.approx(1)
    assert routed.dropped == 0


def test_the_fullest_expert_has_the_load_that_is_asked_for_and_is_seldom_the_first() -> None:
    moe = MoE(experts=256, top_k=8, width=1, routing="lognormal 3")
    tokens, fullest = 20_000, []
    for seed in range(6):
        counts = expert_counts(moe, tokens, np.random.default_rng(seed))
        assert counts.max() / counts.mean() == pytest.approx(3, rel=0.1)
        fullest.append(int(counts.argmax()))
    assert len(set(fullest)) > 1


def test_skewed_logits_favour_experts_and_plain_ones_do_not() -> None:
    plain, skewed = (
        expert_counts(
            MoE(experts=64, top_k=4, width=1, routing=form), 8000, np.random.default_rng(0)
        )
        for form in ("logits", "logits 1")
    )
    share = 8000 * 4 / 64
    assert np.abs(plain - share).max() < 5 * (share * (1 - 4 / 64)) ** 0.5
    assert skewed.max() > 3 * share


def test_drops_of_a_capacity_are_counted_and_more_tokens_still_lower_no_count() -> None:
    moe = MoE(experts=16, top_k=2, width=1, routing="zipf 1", capacity_factor=1.25)
    before = np.zeros(16, dtype=np.int64)
    for tokens in range(0, 200, 7):
        routed = list(draw(moe, tokens, np.random.default_rng(4)))
        counts = expert_counts(moe, tokens, np.random.default_rng(4))
        assert counts.sum() + sum(one.dropped for one in routed) == 2 * tokens
        assert counts.max() <= -(-5 * 2 * tokens // (4 * 16))
        assert (counts >= before).all()
        before = counts


@pytest.mark.parametrize(("factor", "rows"), [(None, 13), (2.0, 25)])
def test_experts_that_choose_have_equal_counts(factor: float | None, rows: int) -> None:
    moe = MoE(
        experts=8, top_k=2, width=1, capacity_factor=factor, router=Router(choice="expert_choice")
    )
    (routed,) = draw(moe, 50, np.random.default_rng(0))
    assert routed.counts.tolist() == [rows] * 8
    assert list(draw(moe, 0, np.random.default_rng(0))) == []


def write_trace(path: Path, layers: dict[int, list[list[int]]]) -> None:
    rows = [
        {"layer": layer, "token": token, "experts": experts, "weights": [0.75, 0.25]}
        for layer, tokens in layers.items()
        for token, experts in reversed(list(enumerate(tokens)))
    ]
    if path.suffix == ".parquet":
        pl.DataFrame(rows).write_parquet(path)
    else:
        path.write_text("\n".join(map(json.dumps, rows)))


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_trace_is_followed_token_by_token_and_its_layers_take_turns(
    suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"routed.{suffix}"
    write_trace(path, {7: [[3, 1], [0, 2]], 3: [[1, 0], [2, 3], [3, 0]]})
    moe = MoE(experts=4, top_k=2, width=1, routing=f"trace {path}")
    first, second, third = (
        next(draw(moe, 3, np.random.default_rng(0), layer=layer)) for layer in range(3)
    )
    assert first.expert.tolist() == third.expert.tolist() == [1, 0, 2, 3, 3, 0]
    assert second.expert.tolist() == [3, 1, 0, 2, 3, 1]
    assert second.weight.tolist() == [0.75, 0.25] * 3
    assert list(notes(moe, 3)) == []
    (note,) = notes(moe, 3, layer=1)
    assert note.endswith("has 2 tokens of layer 7; the 3 of the run repeat them in turn")


def test_a_histogram_keeps_its_places_and_its_shares(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    loads = np.array([[1, 2, 3, 4], [0, 5, 5, 0]])
    path.write_text(json.dumps(loads.tolist()))
    moe = MoE(experts=4, top_k=1, width=1, routing=f"histogram {path}")
    counts = expert_counts(moe, 20_000, np.random.default_rng(0))
    assert counts == pytest.approx(loads[0] * 2000, abs=5 * 70)
    second = expert_counts(moe, 100, np.random.default_rng(0), layer=3)
    assert second[[0, 3]].tolist() == [0, 0]
    assert list(notes(moe, 9)) == []
    pairs = MoE(experts=4, top_k=2, width=1, routing=f"histogram {path}")
    assert expert_counts(pairs, 10, np.random.default_rng(0), layer=1).tolist() == [0, 10, 10, 0]


def test_a_histogram_with_more_than_a_token_can_take_is_capped_and_said_so(tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text("90,5,5\n")
    moe = MoE(experts=3, top_k=2, width=1, routing=f"histogram {path}")
    assert expert_counts(moe, 50, np.random.default_rng(0))[0] == 50
    (note,) = notes(moe, 50)
    assert "90% of all pairs" in note
    assert "50% is routed" in note


def test_recorded_logits_go_through_the_router_of_the_layer(tmp_path: Path) -> None:
    logits = np.random.default_rng(1).standard_normal((2, 5, 8))
    np.save(tmp_path / "logits.npy", logits)
    router = Router(scoring="sigmoid", groups=4, top_groups=2, bias=True, scale=2.5)
    moe = MoE(
        experts=8, top_k=3, width=1, router=router, routing=f"logits {tmp_path / 'logits.npy'}"
    )
    (routed,) = draw(moe, 7, np.random.default_rng(0), layer=1)
    again = np.concatenate([logits[1], logits[1][:2]])
    expected = token_choice(again, 3, router, bias=np.zeros(8))
    assert np.array_equal(routed.expert, expected.expert)
    assert np.array_equal(routed.weight, expected.weight)
    assert len(list(notes(moe, 7))) == 1


@pytest.mark.parametrize(
    ("moe", "message"),
    [
        (MoE(experts=4, top_k=5, width=1), "top_k of 5: choose 1 to 4"),
        (MoE(experts=8, top_k=2, width=1, routing="lognormal 5"), "it is at most 4"),
        (MoE(experts=8, top_k=2, width=1, routing="trace none.jsonl"), "'none.jsonl' is no file"),
        (
            MoE(experts=8, top_k=3, width=1, router=Router(groups=4)),
            "1 of 4 groups keep 2 experts; keep more groups, for a top_k of 3",
        ),
        (
            MoE(
                experts=8,
                top_k=2,
                width=1,
                routing="zipf 1",
                router=Router(choice="expert_choice"),
            ),
            "zipf says what tokens choose, but here experts choose",
        ),
    ],
)
def test_a_layer_that_cannot_route_says_what_would_do(moe: MoE, message: str) -> None:
    with pytest.raises(InputError, match=message):
        expert_counts(moe, 1, np.random.default_rng(0))


def test_uniform_tokens_keep_to_as_many_groups_as_the_router_does() -> None:
    router = Router(scoring="sigmoid", groups=8, top_groups=4)
    moe = MoE(experts=256, top_k=8, width=1, router=router)
    (some,) = draw(moe, 4096, np.random.default_rng(3))
    experts = some.expert.reshape(4096, 8)
    assert all(len(set(row)) == 8 for row in experts.tolist())
    groups = [len(set(row)) for row in (experts // 32).tolist()]
    assert max(groups) == 4
    # Four groups of eight: 4 (1 - C(96, 8) / C(128, 8)) of them are met.
    assert np.mean(groups) == pytest.approx(
        4 * (1 - math.comb(96, 8) / math.comb(128, 8)), rel=0.01
    )
    counts = some.counts
    assert counts.mean() == 128
    assert counts.std() < 3 * np.sqrt(128)
