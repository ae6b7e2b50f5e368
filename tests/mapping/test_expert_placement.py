"""Experts on ranks: every expert served, ranks of equal size, loads evened out, faults named."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.mapping.experts import ExpertPlacement, place

POLICIES = ("contiguous", "round_robin", "balanced")


@st.composite
def layouts(draw: st.DrawFn) -> tuple[int, int, int, list[float]]:
    """Experts, ranks, redundant copies that divide, and a load for each expert."""
    ranks, experts = draw(st.integers(1, 8)), draw(st.integers(1, 24))
    slots = draw(st.integers(-(-experts // ranks), experts)) * ranks
    load = st.integers(0, 1000).map(float) | st.sampled_from([0.0, 1.0, 1e6])
    loads = draw(st.lists(load, min_size=experts, max_size=experts))
    return experts, ranks, slots - experts, loads


def put(layout: tuple[int, int, int, list[float]], policy: str) -> ExpertPlacement:
    experts, ranks, redundant, loads = layout
    return place(experts, ranks, redundant=redundant, policy=policy, loads=loads)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=150, deadline=None)
@given(layouts())
def test_ranks_have_equal_slots_that_hold_every_expert_and_none_twice(
    policy: str, layout: tuple[int, int, int, list[float]]
) -> None:
    experts, ranks, redundant, _ = layout
    placed = put(layout, policy)
    assert {len(rank) for rank in placed.slots} == {(experts + redundant) // ranks}
    assert set(placed.expert_of_slot.tolist()) == set(range(experts))
    assert all(len(set(rank)) == len(rank) for rank in placed.slots)
    assert (placed.ranks, placed.redundant) == (ranks, redundant)


@pytest.mark.parametrize("policy", ["contiguous", "round_robin"])
@settings(max_examples=50, deadline=None)
@given(layouts())
def test_copies_without_loads_go_to_the_first_experts_in_turn(
    policy: str, layout: tuple[int, int, int, list[float]]
) -> None:
    experts, ranks, redundant, _ = layout
    copies = place(experts, ranks, redundant=redundant, policy=policy).copies
    expected = np.ones(experts, dtype=int)
    np.add.at(expected, np.arange(redundant) % experts, 1)
    assert copies.tolist() == expected.tolist()


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=50, deadline=None)
@given(layouts(), st.integers(0, 1 << 40), st.integers(1, 64))
def test_a_slot_that_serves_holds_the_expert_and_copies_share_consecutive_tokens_evenly(
    policy: str, layout: tuple[int, int, int, list[float]], first: int, tokens: int
) -> None:
    placed = put(layout, policy)
    token = np.arange(first, first + tokens).repeat(placed.experts)
    expert = np.tile(np.arange(placed.experts), tokens)
    slot = placed.serve(token, expert)
    assert (placed.expert_of_slot[slot] == expert).all()
    served = np.bincount(slot, minlength=len(placed.expert_of_slot))
    for one in range(placed.experts):
        of_copies = served[placed.expert_of_slot == one]
        assert of_copies.sum() == tokens
        assert np.ptp(of_copies) <= 1


@settings(max_examples=300, deadline=None)
@given(layouts())
def test_balanced_is_never_worse_than_contiguous_nor_better_than_the_mean(
    layout: tuple[int, int, int, list[float]],
) -> None:
    _, ranks, _, loads = layout
    placed = put(layout, "balanced")
    worst = placed.load(loads).max()
    assert worst <= put(layout, "contiguous").load(loads).max()
    assert worst >= max(sum(loads) / ranks, max(np.array(loads) / placed.copies)) * (1 - 1e-12)
    assert placed.load(loads).sum() == pytest.approx(sum(loads))
    assert put(layout, "balanced") == placed


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 100), min_size=1, max_size=8), st.integers(0, 24))
def test_copies_make_the_heaviest_copy_as_light_as_their_number_allows(
    loads: list[int], redundant: int
) -> None:
    # With one slot a rank the largest load of a rank is that of a copy. No smaller bound b can
    # hold: covering every expert with copies of at most b takes sum(ceil(load / b)) slots.
    slots = len(loads) + redundant
    placed = place(len(loads), slots, redundant=redundant, policy="balanced", loads=loads)
    worst = placed.load(loads).max()
    lighter = {load / n for load in loads for n in range(1, slots + 1) if load / n < worst - 1e-9}
    for bound in lighter:
        assert sum(math.ceil(load / bound - 1e-9) for load in loads) > slots


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(st.integers(0, 99), min_size=2 * n, max_size=2 * n)
    )
)
def test_two_slots_a_rank_pair_the_heaviest_with_the_lightest(loads: list[int]) -> None:
    placed = place(len(loads), len(loads) // 2, policy="balanced", loads=loads)
    order = sorted(loads)
    # Folding the sorted list is optimal for two items a bin.
    folded = max(a + b for a, b in zip(order, reversed(order), strict=True))
    assert placed.load(loads).max() == folded


@pytest.mark.parametrize("ranks", [2, 3])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_three_slots_a_rank_stay_within_four_thirds_of_the_best(
    ranks: int, data: st.DataObject
) -> None:
    # Kellerer and Woeginger, A tight bound for 3-partitioning, Discrete Applied Mathematics 45
    # (1993): largest first to the least loaded of m bins with room is within 4/3 - 1/(3m).
    number = st.lists(st.integers(1, 60), min_size=3 * ranks, max_size=3 * ranks)
    loads = data.draw(number)
    placed = place(len(loads), ranks, policy="balanced", loads=loads)
    best = _least_maximum(tuple(range(len(loads))), loads)
    assert placed.load(loads).max() <= (4 / 3 - 1 / (3 * ranks)) * best + 1e-9


def _least_maximum(left: tuple[int, ...], loads: list[int]) -> float:
    """The least largest sum of any split in threes, by trying all."""
    if not left:
        return 0
    first, rest = left[0], left[1:]
    return min(
        max(
            loads[first] + loads[a] + loads[b],
            _least_maximum(tuple(i for i in rest if i not in (a, b)), loads),
        )
        for a, b in combinations(rest, 2)
    )


def test_groups_stay_on_a_node_as_the_published_example_has_it() -> None:
    """Two layers of 12 experts, 4 copies, 4 groups, 2 nodes, 8 ranks: the README of EPLB."""
    published = {
        (90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86): (
            [5, 6], [5, 7], [8, 4], [3, 4], [10, 9], [10, 2], [0, 1], [11, 1],
        ),
        (20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27): (
            [7, 10], [6, 8], [6, 11], [8, 9], [2, 4], [5, 1], [5, 0], [3, 1],
        ),
    }  # fmt: skip
    for loads, ranks in published.items():
        placed = place(12, 8, redundant=4, policy="balanced", loads=loads, nodes=2, groups=4)
        assert [set(rank) for rank in placed.slots] == [set(rank) for rank in ranks]


def test_groups_that_nodes_do_not_divide_are_balanced_over_all_ranks() -> None:
    loads = [5, 4, 3, 2, 9, 8]
    together = place(6, 4, redundant=2, policy="balanced", loads=loads)
    assert place(6, 4, redundant=2, policy="balanced", loads=loads, nodes=2, groups=3) == together


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_node_holds_whole_groups_with_all_their_copies(data: st.DataObject) -> None:
    nodes, each, size = (data.draw(st.integers(1, 3)) for _ in range(3))
    ranks = nodes * data.draw(st.integers(1, 3))
    experts = nodes * each * size
    most = experts * (ranks // nodes - 1)
    redundant = data.draw(
        st.sampled_from([n for n in range(most + 1) if (experts + n) % ranks == 0] or [-1])
    )
    if redundant < 0:
        return
    loads = data.draw(st.lists(st.integers(0, 50), min_size=experts, max_size=experts))
    placed = place(
        experts, ranks, redundant=redundant, policy="balanced", loads=loads,
        nodes=nodes, groups=nodes * each,
    )  # fmt: skip
    held: dict[int, set[int]] = {}
    for rank, slots in enumerate(placed.slots):
        assert len(set(slots)) == len(slots)
        for expert in slots:
            held.setdefault(expert // size, set()).add(rank // (ranks // nodes))
    assert all(len(on) == 1 for on in held.values())
    assert len(held) == nodes * each


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("ranks", "each"), [(32, 9), (144, 2)])
def test_32_redundant_experts_make_9_a_rank_of_32_and_2_a_rank_of_144(
    policy: str, ranks: int, each: int
) -> None:
    placed = place(256, ranks, redundant=32, policy=policy, loads=np.arange(256) % 17 + 1)
    assert [len(rank) for rank in placed.slots] == [each] * ranks


def test_copies_of_hot_experts_lower_the_largest_rank_load() -> None:
    loads = 1000 / np.arange(1, 257)
    worst = [
        place(256, 32, redundant=extra, policy="balanced", loads=loads).load(loads).max()
        for extra in (0, 32, 64)
    ]
    # One expert has a sixth of the load; with copies the ranks are within a percent of even.
    assert worst[0] >= 1000
    assert worst[2] <= worst[1] <= worst[0] / 4
    assert worst[1] == pytest.approx(loads.sum() / 32, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"experts": 256, "ranks": 3},
            ["2 redundant copies make 258 = 3 x 86", "ranks that divide 256: 2, 4, 8"],
        ),
        (
            {"experts": 256, "ranks": 5, "redundant": 32},
            ["29 redundant", "34 redundant copies make 290 = 5 x 58", "divide 288: 3, 4, 6"],
        ),
        ({"experts": 8, "ranks": 16}, ["8 of which would have none", "8 redundant", "2, 4, 8"]),
        (
            {"experts": 0, "ranks": 0, "redundant": -1, "nodes": 0, "groups": -2},
            ["0 experts", "0 ranks", "-1 redundant", "0 nodes", "-2 groups"],
        ),
        ({"experts": 2, "ranks": 2, "redundant": 4}, ["at most 2"]),
        (
            {"experts": 4, "ranks": 4, "policy": "best", "nodes": 3, "groups": 3},
            ["unknown placement 'best'", "known: contiguous", "nodes: 1, 2, 4", "groups: 1, 2, 4"],
        ),
        ({"experts": 4, "ranks": 2, "policy": "balanced"}, ["needs loads"]),
        ({"experts": 4, "ranks": 3, "loads": [1, 2]}, ["2 redundant", "shape (2,)", "4 experts"]),
        (
            {"experts": 4, "ranks": 2, "loads": [1, math.nan, -1, math.inf]},
            ["expert 1: nan", "expert 2: -1.0", "expert 3: inf"],
        ),
        (
            {
                "experts": 4, "ranks": 2, "redundant": 2, "policy": "balanced",
                "loads": [1] * 4, "nodes": 2, "groups": 2,
            },
            ["ranks of a node, 1;", "at most 0"],
        ),
    ],
)  # fmt: skip
def test_faults_are_all_named_with_what_would_do(
    arguments: dict[str, object], says: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        place(**arguments)  # type: ignore[arg-type]
    assert [part for part in says if part not in str(caught.value)] == []
