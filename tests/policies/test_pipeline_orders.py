"""Orders of work of pipeline stages: complete, possible, and within the papers' memory."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InputError, SpecError, UnknownNameError
from simulator.policies.pipeline import PIPELINE_ORDERS, Work

SIZES = st.tuples(st.integers(1, 9), st.integers(1, 40), st.integers(1, 5))


def in_flight(work: list[Work], until: str) -> int:
    """The most forwards whose ``until`` has not been done."""
    most = now = 0
    for kind, _, _ in work:
        now += (kind == "forward") - (kind == until)
        most = max(most, now)
    return most


def orders(name: str, stages: int, batches: int, pieces: int) -> list[list[Work]]:
    return [PIPELINE_ORDERS[name](stages, stage, batches, pieces) for stage in range(stages)]


def legal(name: str, stages: int, batches: int, pieces: int) -> tuple[int, int, int]:
    """The sizes, brought to what the order is made for."""
    return (
        (stages, batches * stages, pieces)
        if name in ("interleaved", "merged")
        else (stages, batches, 1)
    )


@pytest.mark.parametrize("name", list(PIPELINE_ORDERS))
@settings(deadline=None)
@given(sizes=SIZES)
def test_every_forward_and_backward_comes_once_and_forward_first(
    name: str, sizes: tuple[int, int, int]
) -> None:
    stages, batches, pieces = legal(name, *sizes)
    every = {(piece, batch) for piece in range(pieces) for batch in range(batches)}
    for work in orders(name, stages, batches, pieces):
        place = {item: index for index, item in enumerate(work)}
        assert len(place) == len(work)
        kinds = ("forward", "input", "weight") if name == "zero_bubble" else ("forward", "backward")
        assert Counter(kind for kind, _, _ in work) == dict.fromkeys(kinds, len(every))
        for what in every:
            places = [place[kind, *what] for kind in kinds]
            assert places == sorted(places)


@settings(deadline=None)
@given(sizes=SIZES)
def test_gpipe_holds_all_micro_batches_and_1f1b_as_many_as_stages_follow(
    sizes: tuple[int, int, int],
) -> None:
    stages, batches, _ = sizes
    for stage in range(stages):
        assert in_flight(PIPELINE_ORDERS["gpipe"](stages, stage, batches, 1), "backward") == batches
        flush = PIPELINE_ORDERS["1f1b"](stages, stage, batches, 1)
        assert in_flight(flush, "backward") == min(stages - stage, batches)


@settings(deadline=None)
@given(sizes=SIZES)
def test_interleaving_holds_the_papers_share_more_than_1f1b(sizes: tuple[int, int, int]) -> None:
    """arXiv 2205.05198: 1 + (p - 1) / (p v) times the activations of p micro-batches."""
    stages, batches, pieces = legal("interleaved", *sizes)
    for stage, work in enumerate(orders("interleaved", stages, batches, pieces)):
        warm_up = 2 * (stages - 1 - stage) + (pieces - 1) * stages
        assert in_flight(work, "backward") == min(warm_up + 1, batches * pieces)
    most = in_flight(PIPELINE_ORDERS["interleaved"](stages, 0, batches, pieces), "backward")
    assert most / pieces <= stages * (1 + (stages - 1) / (stages * pieces)) + 1e-12


@settings(deadline=None)
@given(sizes=SIZES)
def test_zero_bubble_holds_no_more_than_the_first_stage_of_1f1b(
    sizes: tuple[int, int, int],
) -> None:
    """arXiv 2401.10241, section 2.3: p - r wait for the input's gradient, r for the weights'."""
    stages, batches, _ = sizes
    for stage, work in enumerate(orders("zero_bubble", stages, batches, 1)):
        assert in_flight(work, "input") == min(stages - stage, batches)
        assert in_flight(work, "weight") <= min(stages, batches)


def test_interleaved_is_the_order_of_megatron() -> None:
    """Figure 4 of arXiv 2104.04473, first device: 4 devices, 8 micro-batches, 2 pieces."""
    work = PIPELINE_ORDERS["interleaved"](4, 0, 8, 2)
    text = " ".join(f"{kind[0]}{batch + 1}{'ab'[piece]}" for kind, piece, batch in work)
    assert text.startswith(
        "f1a f2a f3a f4a f1b f2b f3b f4b f5a f6a f7a b1b f8a b2b f5b b3b f6b b4b f7b b1a f8b"
    )


def test_zero_bubble_is_the_order_of_the_paper() -> None:
    """Figure 3 of arXiv 2401.10241, first and last of 4 devices: W follows I by r micro-batches."""
    first, last = (
        " ".join(f"{kind[0]}{batch + 1}" for kind, _, batch in work)
        for work in (orders("zero_bubble", 4, 8, 1)[0], orders("zero_bubble", 4, 8, 1)[3])
    )
    assert first.startswith("f1 f2 f3 f4 i1 w1 f5 i2 w2 f6")
    assert last.startswith("f1 i1 f2 i2 f3 i3 f4 i4 w1 f5 i5 w2")
    assert last.endswith("i8 w5 w6 w7 w8")


def test_sizes_that_are_none_are_refused_together() -> None:
    with pytest.raises(SpecError) as caught:
        PIPELINE_ORDERS["1f1b"](0, 3, 0, 2)
    text = str(caught.value)
    assert all(name in text for name in ("stages", "stage:", "micro_batches", "pieces"))
    assert len(caught.value.faults) == 4


def test_interleaving_asks_for_whole_groups() -> None:
    with pytest.raises(InputError, match="use a multiple of 4 micro-batches"):
        PIPELINE_ORDERS["interleaved"](4, 0, 6, 2)


def test_an_unknown_order_offers_the_near_ones() -> None:
    with pytest.raises(UnknownNameError, match="zero_bubble"):
        PIPELINE_ORDERS["zero-bubble"]
