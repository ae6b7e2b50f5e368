"""Moves of an MoE layer: the published counts, and those of descriptors that really gather."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.mapping.descriptors import Layout, TensorDescriptor, dispatch_count, lower
from simulator.mapping.expert_moves import expert_moves, weight_moves
from simulator.mapping.moves import fetch
from simulator.specs.frozen import FrozenMap
from simulator.specs.hardware import DataMover

TDM = DataMover(
    kind="tdm", rank=5, tile_dim=65535, gather_rows=FrozenMap({16: 16, 32: 8}), alignment=4
)
GATHER4 = DataMover(kind="tma", rank=5, tile_dim=256, gather_rows=FrozenMap({32: 4}), alignment=16)
HOPPER = DataMover(kind="tma", rank=5, tile_dim=256, alignment=16)
FEW, MANY = 4096, 1 << 16
"""Rows of a source that 16-bit indices name, and of one that they do not."""


@st.composite
def movers(draw: st.DrawFn) -> DataMover | None:
    if draw(st.integers(0, 9)) == 0:
        return None
    return DataMover(
        kind="tdm",
        rank=draw(st.integers(1, 4)),
        tile_dim=draw(st.integers(2, 300)),
        gather_rows=FrozenMap(draw(st.sampled_from([{}, {16: 3}, {16: 4, 32: 2}, {32: 1}]))),
        iterate=draw(st.sampled_from([1, 3])),
        alignment=draw(st.sampled_from([1, 2, 4])),
    )


def layouts(rows: int) -> st.SearchStrategy[Layout]:
    return st.builds(
        lambda hidden, bits: Layout.of((rows, hidden), bits=bits),
        st.integers(2, 40) | st.sampled_from([64, 128, 256]),
        st.sampled_from([8, 16, 32]),
    )


@pytest.mark.parametrize(
    ("rows", "few", "many", "gather4", "threads"),
    [(1, 1, 1, 1, 1), (16, 1, 2, 4, 16), (128, 8, 16, 32, 128), (4096, 256, 512, 1024, 4096)],
)
def test_descriptors_of_one_expert_under_each_mover(
    rows: int, few: int, many: int, gather4: int, threads: int
) -> None:
    def count(mover: DataMover, source: int) -> tuple[int, int]:
        moves = expert_moves([rows], Layout.of((source, 256), bits=8), mover)
        return moves.count.descriptors, moves.count.copies

    assert count(TDM, FEW) == (few, 0)
    assert count(TDM, MANY) == (many, 0)
    assert count(GATHER4, FEW) == (gather4, 0)
    assert count(HOPPER, FEW) == (0, threads)


@pytest.mark.parametrize(
    ("mover", "source", "descriptors"),
    [(TDM, FEW, 256), (TDM, MANY, 512), (GATHER4, FEW, 1024)],
)
def test_4096_rows_over_256_experts_by_column_tile(
    mover: DataMover, source: int, descriptors: int
) -> None:
    layout = Layout.of((source, 7168), bits=8)
    even = expert_moves([16] * 256, layout, mover, columns=256)
    assert even.tiles == 28
    assert even.descriptors.sum() == descriptors * 28
    assert even.bytes.sum() == 4096 * 7168
    assert even.requests.sum() == 4096 * 7168 / 128
    assert expert_moves([1] * 256, layout, mover, columns=256).descriptors.tolist() == [28] * 256


def test_sixteen_fp8_rows_of_7168_columns_take_112_of_320_kilobytes() -> None:
    moves = expert_moves([16] * 256, Layout.of((FEW, 7168), bits=8), TDM)
    assert (moves.rows, moves.slot) == (16, 112 * 1024)


def test_the_article_has_one_descriptor_for_each_expert_and_column_tile_whatever_its_rows() -> None:
    counts = [0, 1, 16, 17, 4096]
    layout = Layout.of((FEW, 7168), bits=8)
    for mover in (TDM, GATHER4, HOPPER):
        article = expert_moves(counts, layout, mover, columns=1024, reading="article")
        hardware = expert_moves(counts, layout, mover, columns=1024)
        assert article.descriptors.tolist() == [0, 7, 7, 7, 7]
        assert article.copies.sum() == 0
        assert article.bytes.tolist() == hardware.bytes.tolist()
        assert article.requests.tolist() == hardware.requests.tolist()
        # All the rows of the heaviest at once: 4 MB, which no unit has.
        assert article.slot == 4096 * 1024
    threads = expert_moves(counts, layout, None, reading="article")
    assert (threads.count.descriptors, threads.count.copies) == (0, sum(counts))


@settings(max_examples=150, deadline=None)
@given(st.data(), movers(), layouts(24), st.integers(0, 2**32))
def test_descriptors_that_gather_for_real_read_the_rows_and_number_as_counted(
    data: st.DataObject, mover: DataMover | None, layout: Layout, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    columns = data.draw(st.integers(1, layout.shape[1]))
    counts = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=5))
    source = rng.integers(1, 255, layout.shape).astype(np.uint8)
    moves = expert_moves(counts, layout, mover, columns=columns)
    for expert, some in enumerate(counts):
        rows = rng.integers(0, layout.shape[0], some)
        made: list[TensorDescriptor] = []
        for first in range(0, layout.shape[1], columns) if some else ():
            tile = lower(layout, (0, first), (some, columns), mover, rows=rows.tolist())
            width = min(columns, layout.shape[1] - first)
            found = fetch(tile, source, (some, columns))[:, :width]
            assert np.array_equal(found, source[rows, first : first + width])
            made += tile
        assert moves.descriptors[expert] == sum(d.descriptors for d in made)
        assert moves.copies[expert] == sum(d.copies for d in made)
        assert moves.bytes[expert] == sum(d.bytes for d in made)
    assert moves.count == dispatch_count(counts, layout, mover, columns=columns)


@settings(max_examples=25, deadline=None)
@given(st.data(), movers(), layouts(128))
def test_requests_are_those_of_all_rows_of_the_source_on_average(
    data: st.DataObject, mover: DataMover | None, layout: Layout
) -> None:
    # 128 rows of whole bytes lie in the lines of 128 bytes in every way equally often.
    columns = data.draw(st.integers(max(1, layout.shape[1] // 2), layout.shape[1]))
    moves = expert_moves([1, 0, 128], layout, mover, columns=columns)
    firsts = range(0, layout.shape[1], columns)

    def requests(rows: list[int]) -> int:
        tiles = [lower(layout, (0, at), (len(rows), columns), mover, rows=rows) for at in firsts]
        return sum(d.requests for tile in tiles for d in tile)

    alone = sum(requests([row]) for row in range(128))
    together = requests(list(range(128)))
    assert moves.requests.tolist() == pytest.approx([alone / 128, 0, together])


@settings(max_examples=60, deadline=None)
@given(
    movers(), layouts(12), st.tuples(st.integers(1, 14), st.integers(1, 50)),
    st.lists(st.integers(0, 3), min_size=1, max_size=4),
)  # fmt: skip
def test_weights_move_as_the_tiles_that_are_really_lowered(
    mover: DataMover | None, layout: Layout, tile: tuple[int, int], loads: list[int]
) -> None:
    moves = weight_moves(loads, layout, mover, tile=tile)
    made = [
        lower(layout, (row, column), tile, mover)
        for row in range(0, layout.shape[0], tile[0])
        for column in range(0, layout.shape[1], tile[1])
    ]
    each = [d for one in made for d in one]
    assert moves.tiles == len(made)
    assert moves.descriptors.tolist() == [n * sum(d.descriptors for d in each) for n in loads]
    assert moves.copies.tolist() == [n * sum(d.copies for d in each) for n in loads]
    assert moves.bytes.tolist() == [
        n * layout.shape[0] * layout.shape[1] * layout.bits // 8 for n in loads
    ]
    assert moves.requests.tolist() == [n * sum(d.requests for d in each) for n in loads]


def test_wider_indices_name_fewer_rows_from_65536_source_rows_on() -> None:
    counts = [16] * 256
    below = expert_moves(counts, Layout.of((65535, 256), bits=8), TDM)
    above = expert_moves(counts, Layout.of((65536, 256), bits=8), TDM)
    assert (below.rows, above.rows) == (16, 8)
    assert above.count.descriptors == 2 * below.count.descriptors


def test_a_lone_row_needs_no_stride_that_the_mover_can_address() -> None:
    # Rows 18 bytes apart: of two rows the second lies at no multiple of 4 bytes.
    layout = replace(Layout.of((64, 16), bits=8), strides=(18, 1))
    moves = expert_moves([1, 2], layout, TDM)
    assert (moves.descriptors.tolist(), moves.copies.tolist()) == ([1, 0], [0, 2])


def test_experts_without_rows_move_nothing() -> None:
    for counts in ([], [0, 0]):
        moves = expert_moves(counts, Layout.of((FEW, 256)), TDM)
        assert moves.count.descriptors == moves.bytes.sum() == moves.requests.sum() == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"counts": [1, -2, 3]}, ["-2 of expert 1"]),
        ({"counts": [1.5]}, ["1.5 of expert 0"]),
        ({"counts": [[1]]}, ["shape (1, 1)"]),
        ({"columns": 0, "reading": "loose"}, ["0 columns", "'loose'", "hardware, article"]),
        ({"layout": Layout.of((2, 3, 4)), "columns": -1}, ["rank 2, not 3", "-1 columns"]),
    ],
)
def test_what_cannot_be_counted_is_refused(arguments: dict[str, object], says: list[str]) -> None:
    given_ = {"counts": [1], "layout": Layout.of((8, 8)), "mover": TDM} | arguments
    with pytest.raises(InputError) as caught:
        expert_moves(**given_)  # type: ignore[arg-type]
    assert [part for part in says if part not in str(caught.value)] == []


def test_a_weight_tile_without_elements_is_refused() -> None:
    with pytest.raises(InputError, match="0 x 8"):
        weight_moves([1], Layout.of((8, 8)), TDM, tile=(0, 8))
