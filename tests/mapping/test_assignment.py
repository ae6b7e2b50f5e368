"""Mapping blocks to units: loads without walking, each policy for what it is there for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InputError, UnknownNameError
from simulator.mapping.assignment import POLICIES, map_blocks
from simulator.mapping.blocks import concatenate, decompose


@settings(deadline=None)
@given(
    rows=st.lists(st.integers(0, 60), min_size=1, max_size=6),
    columns=st.integers(1, 40),
    units=st.integers(1, 12),
    dies=st.integers(1, 4),
    policy=st.sampled_from(sorted(POLICIES)),
)
def test_loads_from_runs_are_those_of_a_walk(
    rows: list[int], columns: int, units: int, dies: int, policy: str
) -> None:
    queue = concatenate(decompose((count, columns), (8, 7)) for count in rows)
    mapping = map_blocks(queue, units, min(dies, units), policy)
    blocks, load = [0] * units, [0] * units
    for position, block in enumerate(queue):
        unit = mapping.unit(position)
        blocks[unit] += 1
        load[unit] += block.extent[0] * block.extent[1]
    assert mapping.blocks == tuple(blocks)
    assert mapping.load == tuple(load)
    if sum(load):
        assert mapping.imbalance == pytest.approx(max(load) / (sum(load) / units))


def test_16_blocks_on_a_mi300x_leave_its_units_uneven() -> None:
    mapping = map_blocks(decompose((1024, 1024), (256, 256)), units=304)
    assert sum(mapping.blocks) == 16
    assert mapping.imbalance == pytest.approx(304 / 16)


def test_die_aware_keeps_neighbours_on_one_die() -> None:
    mapping = map_blocks(decompose((8, 1), (1, 1)), units=4, dies=2, policy="die_aware")
    assert [mapping.unit(position) for position in range(8)] == [0, 1, 0, 1, 2, 3, 2, 3]


def test_expert_aware_keeps_an_expert_on_one_die_and_balances_the_dies() -> None:
    counts = [100, 900, 300, 0, 700, 200, 500]
    queue = concatenate(decompose((count, 1), (100, 1)) for count in counts)
    mapping = map_blocks(queue, units=8, dies=2, policy="expert_aware")
    dies: dict[int, set[int]] = {}
    for position, block in enumerate(queue):
        dies.setdefault(block.part, set()).add(mapping.unit(position) // 4)
    assert all(len(where) == 1 for where in dies.values())
    assert sum(mapping.blocks[:4]) == 14  # 9 + 3 + 2 and 7 + 5 + 1
    assert max(mapping.blocks) - min(mapping.blocks) <= 1


def test_a_weight_other_than_elements_decides_the_load() -> None:
    queue = decompose((10, 1), (4, 1))
    assert map_blocks(queue, 3).imbalance == pytest.approx(4 / (10 / 3))
    assert map_blocks(queue, 3, weigh=lambda extent: 1.0).imbalance == 1.0


def test_an_empty_queue_is_even() -> None:
    assert map_blocks(decompose((0, 4), (2, 2)), units=4).imbalance == 1.0


def test_what_cannot_be_mapped_is_refused() -> None:
    queue = decompose((4, 4), (2, 2))
    with pytest.raises(InputError):
        map_blocks(queue, units=2, dies=3)
    with pytest.raises(UnknownNameError, match="round_robin"):
        map_blocks(queue, units=2, policy="round_robbin")
