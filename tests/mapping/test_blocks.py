"""Blocks: counts, coverage, order, and runs that are the queue without walking it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.mapping.blocks import Block, Blocks, TileBlocks, concatenate, decompose


def encode(blocks: Blocks) -> tuple[tuple[int, tuple[int, ...]], ...]:
    return tuple(
        (len(list(equal)), extent)
        for extent, equal in itertools.groupby(block.extent for block in blocks)
    )


@st.composite
def cuts(draw: st.DrawFn) -> TileBlocks:
    rank = draw(st.integers(1, 4))
    shape = tuple(draw(st.integers(0, 9)) for _ in range(rank))
    block = tuple(draw(st.integers(1, 5)) for _ in range(rank))
    order = draw(st.permutations(range(rank)))
    group = draw(st.integers(1, 4)) if rank > 1 else 1
    return decompose(shape, block, tuple(order), group=group)


def test_a_square_of_1024_in_blocks_of_256_gives_16() -> None:
    blocks = decompose((1024, 1024), (256, 256))
    assert (blocks.count, blocks.grid, blocks.runs()) == (16, (4, 4), ((16, (256, 256)),))


@settings(deadline=None)
@given(cuts())
def test_every_element_is_covered_exactly_once(blocks: TileBlocks) -> None:
    seen = np.zeros(blocks.shape, dtype=int)
    for block in blocks:
        seen[block.slices] += 1
        assert math.prod(block.extent) > 0
    assert (seen == 1).all()


@settings(deadline=None)
@given(cuts())
def test_runs_are_the_queue_run_length_encoded(blocks: TileBlocks) -> None:
    assert blocks.runs() == encode(blocks)


@settings(deadline=None)
@given(cuts())
def test_counts_agree_with_the_walk(blocks: TileBlocks) -> None:
    walked = [block.extent for block in blocks]
    assert blocks.count == len(walked)
    assert blocks.classes() == {extent: walked.count(extent) for extent in set(walked)}


@settings(deadline=None)
@given(st.lists(cuts(), max_size=4))
def test_a_group_is_its_parts_in_order(parts: list[TileBlocks]) -> None:
    group = concatenate(parts)
    assert group.runs() == encode(group)
    assert group.count == sum(part.count for part in parts)
    assert [block.part for block in group] == [
        number for number, part in enumerate(parts) for _ in range(part.count)
    ]


def test_the_order_names_the_slowest_axis_first() -> None:
    by_column = [block.index for block in decompose((4, 6), (2, 2), (1, 0))]
    assert by_column == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]


def test_grouped_order_is_the_one_of_triton() -> None:
    rows, columns, group = 7, 5, 3
    expected = []
    for pid in range(rows * columns):
        first = pid // (group * columns) * group
        size = min(rows - first, group)
        expected.append((first + pid % (group * columns) % size, pid % (group * columns) // size))
    blocks = decompose((rows, columns), (1, 1), group=group)
    assert [block.index for block in blocks] == expected


def test_a_block_knows_the_element_it_starts_at() -> None:
    assert list(decompose((5, 3), (4, 4))) == [
        Block((0, 0), (0, 0), (4, 3)),
        Block((1, 0), (4, 0), (1, 3)),
    ]


def test_spans_walk_one_axis() -> None:
    assert decompose((300, 7), (128, 7)).spans(0) == ((0, 128), (128, 128), (256, 44))


def test_four_local_experts_make_6144_tiles_in_two_products() -> None:
    # Weights of 4 experts, hidden 4096, intermediate 2048: gate and up together, then down.
    up = concatenate(decompose((4096, 2 * 2048), (128, 128)) for _ in range(4))
    down = concatenate(decompose((2048, 4096), (128, 128)) for _ in range(4))
    assert up.count + down.count == 6144


def test_runs_of_a_large_product_do_not_grow_with_its_tiles() -> None:
    blocks = decompose((53248, 16384), (128, 128), group=8)
    assert blocks.count == 53248
    assert blocks.runs() == ((53248, (128, 128)),)
    assert len(decompose((53248 - 1, 16384), (128, 128), group=8).runs()) == 2 * 128


@pytest.mark.parametrize(
    ("shape", "block", "order"),
    [
        ((4, 4), (2,), None),
        ((4, 4), (0, 2), None),
        ((-1, 4), (2, 2), None),
        ((4, 4), (2, 2), (0, 0)),
        ((4, 4), (2, 2), (1,)),
    ],
)
def test_a_cut_that_makes_no_sense_is_refused(
    shape: tuple[int, ...], block: tuple[int, ...], order: tuple[int, ...] | None
) -> None:
    with pytest.raises(InputError):
        decompose(shape, block, order)
