"""Descriptors: what numpy slicing would read, under a mover's limits, counted without building."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.mapping.descriptors import (
    Layout,
    MoveCount,
    TensorDescriptor,
    descriptor_count,
    dispatch_count,
    index_width,
    lower,
)
from simulator.mapping.moves import fetch, load, put
from simulator.specs.frozen import FrozenMap
from simulator.specs.hardware import DataMover

TDM = DataMover(
    kind="tdm",
    rank=5,
    tile_dim=65535,
    gather_rows=FrozenMap({16: 16, 32: 8}),
    iterate=256,
    multicast=16,
    alignment=4,
)
TDM_WIDE = DataMover(
    kind="tdm", rank=5, tile_dim=65535, gather_rows=FrozenMap({32: 8}), alignment=4
)
GATHER4 = DataMover(kind="tma", rank=5, tile_dim=256, gather_rows=FrozenMap({32: 4}), alignment=16)
HOPPER = DataMover(kind="tma", rank=5, tile_dim=256, multicast=16, alignment=16)


@st.composite
def movers(draw: st.DrawFn) -> DataMover | None:
    if draw(st.integers(0, 9)) == 0:
        return None
    return DataMover(
        kind="tdm",
        rank=draw(st.integers(1, 4)),
        tile_dim=draw(st.integers(2, 9)),
        gather_rows=FrozenMap(draw(st.sampled_from([{}, {16: 3}, {16: 4, 32: 2}, {32: 2}]))),
        iterate=draw(st.sampled_from([1, 2, 3])),
        multicast=draw(st.integers(1, 3)),
        alignment=draw(st.sampled_from([1, 2, 4])),
    )


@st.composite
def tiles(draw: st.DrawFn) -> tuple[Layout, tuple[int, ...], tuple[int, ...]]:
    """A strided layout with a base, and a tile that may hang over any edge of it."""
    rank = draw(st.integers(1, 4))
    shape = tuple(draw(st.integers(1, 9)) for _ in range(rank))
    padded = tuple(n + draw(st.integers(0, 3)) for n in shape)
    strides = Layout.of(padded).strides
    turn = draw(st.permutations(range(rank)))
    layout = Layout(
        shape=tuple(shape[axis] for axis in turn),
        strides=tuple(strides[axis] for axis in turn),
        base=draw(st.integers(0, 8)),
    )
    start = tuple(draw(st.integers(-3, n)) for n in layout.shape)
    box = tuple(draw(st.integers(1, 8)) for _ in range(rank))
    return layout, start, box


def expected(
    layout: Layout, start: tuple[int, ...], box: tuple[int, ...], buffer: np.ndarray
) -> np.ndarray:
    tile = np.zeros(box, dtype=buffer.dtype)
    for place in itertools.product(*map(range, box)):
        where = [a + p for a, p in zip(start, place, strict=True)]
        if all(0 <= w < n for w, n in zip(where, layout.shape, strict=True)):
            tile[place] = buffer[layout.offset(where)]
    return tile


def buffer_of(layout: Layout) -> np.ndarray:
    last = layout.offset([n - 1 for n in layout.shape])
    return np.arange(1, last + 2, dtype=np.int32)


@settings(deadline=None)
@given(tiles(), movers(), st.integers(1, 5))
def test_a_tile_reads_what_its_elements_are_and_zeros_outside(
    tile: tuple[Layout, tuple[int, ...], tuple[int, ...]], mover: DataMover | None, multicast: int
) -> None:
    layout, start, box = tile
    buffer = buffer_of(layout)
    made = lower(layout, start, box, mover, multicast=multicast)
    np.testing.assert_array_equal(
        fetch(made, buffer, box), expected(layout, start, box, buffer), strict=True
    )
    counted = descriptor_count(layout, box, mover, start=start, multicast=multicast)
    assert counted == MoveCount(sum(d.descriptors for d in made), sum(d.copies for d in made))
    for d in made:
        if mover is not None and d.mode != "copy":
            assert d.rank <= mover.rank
            assert max(d.box) <= mover.tile_dim
            assert d.repeat <= mover.iterate
            assert d.multicast <= mover.multicast
    served: dict[tuple[int, ...], int] = {}
    for d in made:
        served[d.at] = served.get(d.at, 0) + d.multicast
    assert set(served.values()) == {multicast}


@settings(deadline=None)
@given(tiles(), movers())
def test_a_store_writes_the_tile_and_nothing_else(
    tile: tuple[Layout, tuple[int, ...], tuple[int, ...]], mover: DataMover | None
) -> None:
    layout, start, box = tile
    buffer = buffer_of(layout)
    before = buffer.copy()
    made = lower(layout, start, box, mover)
    put(made, buffer, -fetch(made, buffer, box))
    changed = np.abs(expected(layout, start, box, before))
    assert sorted(-buffer[buffer < 0]) == sorted(changed[changed > 0])
    np.testing.assert_array_equal(np.abs(buffer), before)


@settings(deadline=None)
@given(
    rows=st.lists(st.integers(-2, 12), max_size=12),
    start=st.integers(0, 6),
    width=st.integers(1, 9),
    mover=movers(),
)
def test_named_rows_are_gathered_and_rows_outside_are_masked(
    rows: list[int], start: int, width: int, mover: DataMover | None
) -> None:
    layout = Layout.of((10, 6))
    buffer = buffer_of(layout).reshape(10, 6)
    made = lower(layout, (0, start), (12, width), mover, rows=rows)
    tile = np.zeros((12, width), dtype=buffer.dtype)
    for place, row in enumerate(rows):
        if 0 <= row < 10:
            part = buffer[row, start : start + width]
            tile[place, : len(part)] = part
    np.testing.assert_array_equal(fetch(made, buffer, (12, width)), tile)
    if all(0 <= row < 10 for row in rows) and start < 6:
        assert descriptor_count(
            layout, (12, width), mover, start=(0, start), rows=len(rows)
        ) == MoveCount(sum(d.descriptors for d in made), sum(d.copies for d in made))


@settings(deadline=None)
@given(rows=st.permutations(range(10)), mover=movers())
def test_a_scatter_undoes_a_gather(rows: list[int], mover: DataMover | None) -> None:
    layout = Layout.of((10, 4))
    buffer = buffer_of(layout).reshape(10, 4)
    made = lower(layout, (0, 0), (10, 4), mover, rows=rows)
    back = np.zeros_like(buffer)
    put(made, back, fetch(made, buffer, (10, 4)))
    np.testing.assert_array_equal(back, buffer)


@settings(deadline=None)
@given(tiles(), st.sampled_from([4, 8, 16, 32]))
def test_requests_are_the_lines_under_each_contiguous_run(
    tile: tuple[Layout, tuple[int, ...], tuple[int, ...]], bits: int
) -> None:
    layout, start, box = tile
    spread = Layout(
        shape=layout.shape,
        strides=tuple(s * 7 if s > 1 else s for s in layout.strides),
        base=layout.base,
        bits=bits,
    )
    (descriptor,) = lower(spread, start, box, None)
    addresses = [
        spread.offset(where)
        for where in itertools.product(
            *(
                range(max(0, a), min(a + n, size))
                for a, n, size in zip(start, box, spread.shape, strict=True)
            )
        )
    ]
    lines, previous = 0, None
    for address in addresses:
        first, last = address * bits // 1024, ((address + 1) * bits - 1) // 1024
        if previous is None or address != previous + 1:
            lines += last - first + 1
        else:
            lines += last - (previous * bits // 1024)
        previous = address
    assert descriptor.requests == lines
    assert descriptor.bytes == len(addresses) * bits / 8


@pytest.mark.parametrize(
    ("rows", "narrow", "wide", "gather4", "copies"),
    [(1, 1, 1, 1, 1), (16, 1, 2, 4, 16), (128, 8, 16, 32, 128), (4096, 256, 512, 1024, 4096)],
)
def test_descriptors_of_a_routed_token_gather(
    rows: int, narrow: int, wide: int, gather4: int, copies: int
) -> None:
    # Per column tile: 16 rows at 16-bit indices, 8 at 32-bit, 4 on Blackwell, none on Hopper.
    layout = Layout.of((4096, 256), bits=8)
    assert dispatch_count([rows], layout, TDM) == MoveCount(narrow)
    assert dispatch_count([rows], layout, TDM_WIDE) == MoveCount(wide)
    assert dispatch_count([rows], layout, GATHER4) == MoveCount(gather4)
    assert dispatch_count([rows], layout, HOPPER) == MoveCount(0, copies)
    assert dispatch_count([rows], layout, None) == MoveCount(0, copies)


def test_256_experts_with_16_rows_each_take_256_descriptors() -> None:
    layout = Layout.of((4096, 7168), bits=8)
    even = [16] * 256
    assert dispatch_count(even, layout, TDM).descriptors == 256
    assert dispatch_count(even, Layout.of((65536, 7168), bits=8), TDM).descriptors == 512
    assert dispatch_count(even, layout, GATHER4).descriptors == 1024 * 28
    assert dispatch_count(even, layout, TDM, columns=256).descriptors == 256 * 28


def test_one_row_per_expert_is_one_descriptor_each() -> None:
    layout = Layout.of((4096, 7168), bits=8)
    assert dispatch_count([1] * 256, layout, TDM).descriptors == 256
    assert dispatch_count([1, 0, 17, 0, 16], layout, TDM).descriptors == 1 + 2 + 1


def test_a_row_group_of_deepseek_in_fp8_fills_112_kib_of_local_memory() -> None:
    (group,) = lower(Layout.of((4096, 7168), bits=8), (0, 0), (16, 7168), TDM, rows=range(16))
    assert group.local_bytes == 112 * 1024
    assert group.requests == 16 * 56


def test_16_bit_indices_need_a_value_past_the_last_row() -> None:
    assert index_width(TDM, 65535) == 16
    assert index_width(TDM, 65536) == 32
    assert index_width(HOPPER, 16) is None


def test_a_box_past_256_elements_is_split_on_tma_and_repeated_on_tdm() -> None:
    layout = Layout.of((1 << 18,), bits=8)
    assert len(lower(layout, (0,), (1024,), HOPPER)) == 4
    whole = lower(layout, (0,), (1 << 18,), TDM)
    assert [(d.box[0], d.repeat) for d in whole] == [(65532, 4), (16, 1)]
    assert len(lower(Layout.of((512, 512)), (0, 0), (512, 512), HOPPER)) == 4


def test_rows_that_are_not_aligned_are_copied_by_threads() -> None:
    odd = Layout.of((64, 37))  # 74-byte rows: no multiple of 4 or 16 bytes
    for mover in (TDM, HOPPER):
        (copy,) = lower(odd, (0, 0), (16, 32), mover)
        assert (copy.mode, copy.descriptors, copy.copies) == ("copy", 0, 16)
    (column,) = lower(Layout(shape=(64, 64), strides=(2, 128)), (0, 0), (16, 16), TDM)
    assert column.copies == 256


def test_more_workgroups_than_multicast_serves_take_more_rounds() -> None:
    layout = Layout.of((128, 64))
    assert [d.multicast for d in lower(layout, (0, 0), (128, 64), TDM, multicast=20)] == [16, 4]
    assert len(lower(layout, (0, 0), (128, 64), None, multicast=3)) == 3


def test_a_tile_that_is_no_part_of_the_tensor_is_refused() -> None:
    layout = Layout.of((8, 8))
    with pytest.raises(InputError, match="rank"):
        lower(layout, (0,), (4, 4), TDM)
    with pytest.raises(InputError, match="named rows"):
        lower(layout, (0, 0), (2, 8), TDM, rows=[1, 2, 3])


def test_a_layout_that_leaves_its_buffer_is_refused() -> None:
    wrong = TensorDescriptor(
        layout=Layout(shape=(8, 8), strides=(9, 1)), start=(0, 0), box=(8, 8), at=(0, 0)
    )
    with pytest.raises(InputError, match="leaves a buffer of 64"):
        load(wrong, np.zeros((8, 8)))
    with pytest.raises(InputError, match="contiguous"):
        load(wrong, np.zeros((8, 16))[:, ::2])


def test_a_tile_of_five_dimensions_is_one_descriptor_and_one_of_six_is_two() -> None:
    layout = Layout.of((2, 3, 4, 5, 8))
    assert descriptor_count(layout, layout.shape, HOPPER).descriptors == 1
    six = Layout.of((2, *layout.shape))
    assert descriptor_count(six, six.shape, HOPPER).descriptors == 2
