"""The share that each rank has of a routed layer: parts of one routing, whatever the plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.mapping.dispatch import Dispatch, Share
from simulator.mapping.routing import expected_distinct_experts, expert_counts
from simulator.specs.plan import Plan
from simulator.specs.workload import MoE, Router

NET = MoE(width=1, experts=32, top_k=4, routing="zipf 1.2")
PLANS = {
    "one rank": Plan(),
    "four": Plan(ep=4),
    "dealt": Plan(ep=8, placement="round_robin"),
    "copies": Plan(ep=4, redundant_experts=8),
    "balanced": Plan(ep=4, redundant_experts=8, placement="balanced"),
}


def dispatch(plan: Plan, each: int = 6, seed: int = 3, **more: Any) -> Dispatch:
    """``each`` tokens on every rank, in one part."""
    total = 8 * each
    tokens = tuple((total // plan.ep,) for _ in range(plan.ep))
    return Dispatch(plan, tokens, seed, **{"domain": plan.ep, **more})


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_layer_has_the_same_routing_whatever_the_plan(plan: Plan) -> None:
    for layer in (0, 1, 5):
        found = dispatch(plan).routed(NET, layer)
        alone = dispatch(Plan()).routed(NET, layer)
        expected = expert_counts(NET, 48, np.random.default_rng([3, layer]), layer=layer)
        assert found.traffic.load.tolist() == alone.traffic.load.tolist() == expected.tolist()
        assert found.rank_load.sum() == found.traffic.pairs.sum() == 48 * 4


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_shares_are_the_parts_of_the_layer(plan: Plan) -> None:
    routed = dispatch(plan).routed(NET, 0)
    shares = routed.shares()
    assert [count for share in shares for count in share.counts] == routed.traffic.counts.tolist()
    assert [sum(share.counts) for share in shares] == routed.rank_load.tolist()
    assert [share.arrived for share in shares] == routed.traffic.rows.sum(0).tolist()
    assert all(share.arrived <= sum(share.counts) for share in shares)
    assert {share.slots for share in shares} == {32 + plan.redundant_experts}
    if plan.ep == 1:
        assert shares[0].volume is None
        assert shares[0].arrived == 48
    else:
        volumes = routed.traffic.volumes(per_rank=True, relayed=True)
        assert tuple(share.volume for share in shares) == volumes


def test_layers_and_seeds_route_apart_and_again_the_same() -> None:
    loads = {
        (seed, layer): tuple(dispatch(Plan(ep=4), seed=seed).routed(NET, layer).traffic.load)
        for seed in (0, 1)
        for layer in (0, 1, 2)
    }
    assert len(set(loads.values())) == 6
    again = dispatch(Plan(ep=4), seed=1).routed(NET, 2)
    assert tuple(again.traffic.load) == loads[1, 2]


def test_balanced_layers_that_are_alike_are_routed_once() -> None:
    even = MoE(width=1, experts=32, top_k=4, routing="balanced")
    one = dispatch(Plan(ep=4))
    assert one.routed(even, 0) is one.routed(even, 7)
    assert one.routed(even, 0).traffic.load.tolist() == [6] * 32
    other = MoE(width=2, experts=16, top_k=4, routing="balanced")
    assert len(one.routed(other, 8).traffic.load) == 16
    drawn = dispatch(Plan(ep=4))
    assert drawn.routed(NET, 0) is not drawn.routed(NET, 7)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=4, max_size=4),
    st.sampled_from([0, 8]),
    st.integers(1, 4),
)
def test_parts_of_a_batch_have_the_rows_of_the_whole(
    tokens: list[tuple[int, int]], redundant: int, domain: int
) -> None:
    plan = Plan(ep=4, redundant_experts=redundant, placement="balanced")
    whole = Dispatch(plan, tuple((a + b,) for a, b in tokens), 5, domain=domain).routed(NET, 2)
    parts = [
        Dispatch(plan, tuple(tokens), 5, part=part, domain=domain).routed(NET, 2) for part in (0, 1)
    ]
    assert {part.placement for part in parts} == {whole.placement}
    for name in ("counts", "load", "pairs", "rows", "visits"):
        total = sum(getattr(part.traffic, name) for part in parts)
        assert np.array_equal(total, getattr(whole.traffic, name)), name


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 12), min_size=4, max_size=4),
    st.sampled_from([0, 8]),
    st.integers(1, 4),
    st.booleans(),
)
def test_evened_loads_keep_the_rows_and_differ_by_one_at_most(
    tokens: list[int], redundant: int, domain: int, per_rank: bool
) -> None:
    plan = Plan(ep=4, redundant_experts=redundant)
    one = Dispatch(
        plan, tuple((n,) for n in tokens), 5, domain=domain, per_rank=per_rank, relayed=per_rank
    ).routed(NET, 0)
    real, volumes, even = (one.shares(how) for how in ("nothing", "volumes", "all"))
    assert [share.counts for share in volumes] == [share.counts for share in real]
    assert [share.arrived for share in volumes] == [share.arrived for share in real]
    shared, *_ = one.traffic.volumes(per_rank=per_rank, relayed=per_rank, even=True)
    assert {share.volume for share in (*volumes, *even)} == {shared}

    def spread(amounts: Sequence[int]) -> int:
        return max(amounts) - min(amounts)

    assert sum(sum(share.counts) for share in even) == sum(tokens) * 4
    assert sum(share.arrived for share in even) == sum(share.arrived for share in real)
    assert spread([sum(share.counts) for share in even]) <= 1
    assert spread([share.arrived for share in even]) <= 1
    assert spread([count for share in even for count in share.counts]) <= 1
    assert all(share.arrived <= sum(share.counts) for share in even)
    assert all(len(e.counts) == len(r.counts) for e, r in zip(even, real, strict=True))


def test_few_rows_are_dealt_to_all_ranks_of_a_balanced_run() -> None:
    even = Dispatch(Plan(ep=8), ((1,),) * 8, 0, domain=8).routed(NET, 0).shares("all")
    assert [sum(share.counts) for share in even] == [4] * 8


def test_balancing_never_makes_the_fullest_rank_fuller() -> None:
    better = 0
    for seed in range(20):
        fullest = []
        for placement in ("contiguous", "balanced"):
            plan = Plan(ep=4, placement=placement)
            fullest.append(dispatch(plan, seed=seed).routed(NET, 0).rank_load.max())
        assert fullest[1] <= fullest[0]
        better += fullest[1] < fullest[0]
    assert better >= 15


def test_a_balanced_plan_keeps_groups_of_experts_on_their_domain() -> None:
    net = MoE(
        width=1, experts=32, top_k=4, routing="logits 1", router=Router(groups=4, top_groups=2)
    )
    plan = Plan(ep=8, placement="balanced", redundant_experts=8)
    routed = dispatch(plan, domain=4).routed(net, 0)
    homes = [
        {expert // 8 for rank in ranks for expert in rank}
        for ranks in (routed.placement.slots[:4], routed.placement.slots[4:])
    ]
    assert sorted(homes[0] | homes[1]) == [0, 1, 2, 3]
    assert not homes[0] & homes[1]


@pytest.mark.parametrize("placement", ["contiguous", "round_robin", "balanced"])
def test_ranks_need_not_divide_over_domains(placement: str) -> None:
    """9 ranks in a domain of 5 and one of 4."""
    plan = Plan(ep=9, redundant_experts=4, placement=placement)
    one = Dispatch(plan, ((1,),) * 9, 0, domain=5)
    routed = one.routed(NET, 0)
    assert routed.rank_load.sum() == 9 * 4
    assert routed.traffic.visits.shape == (9, 2)


def test_distinct_experts_are_as_many_as_expected_in_the_mean() -> None:
    net = MoE(width=1, experts=256, top_k=8)
    for tokens in (1, 4, 16, 64):
        one = Dispatch(Plan(ep=8), ((tokens,), *((0,),) * 7), 11, domain=8)
        hit = [(one.routed(net, layer).traffic.load > 0).sum() for layer in range(100)]
        expected = expected_distinct_experts(256, 8, tokens)
        # Each expert is hit or not, and hits are correlated negatively.
        spread = np.sqrt(expected * (1 - expected / 256) / len(hit))
        assert np.mean(hit) == pytest.approx(expected, abs=5 * spread)


def test_a_share_is_that_of_the_rank() -> None:
    one = dispatch(Plan(ep=4))
    shares = one.routed(NET, 0).shares()
    assert [one.share(NET, 0, rank) for rank in range(4)] == list(shares)
    assert isinstance(shares[0], Share)
