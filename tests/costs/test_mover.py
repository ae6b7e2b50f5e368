"""The time of a data mover: Little's law, and what issue, latency and port each forbid."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.costs.mover import (
    MoverTimes,
    bandwidth,
    descriptors_in_flight,
    issue_seconds,
    move_seconds,
)
from simulator.errors import InputError
from simulator.specs.hardware import DataMover
from simulator.specs.load import load_hardware, names

CLOCK = 2.4e9
TDM = DataMover(
    kind="tdm", rank=5, tile_dim=65535, alignment=4, latency=1000, queues=2, issue=16, depth=4
)
TIMES = MoverTimes.of(TDM, CLOCK, 512 * CLOCK)

movers = st.builds(
    MoverTimes,
    issue=st.floats(0, 1e-7),
    latency=st.floats(1e-8, 1e-6),
    flight=st.none() | st.integers(1, 16),
    port=st.floats(1e9, 1e12),
)


def test_clocks_become_seconds_of_one_unit() -> None:
    assert pytest.approx(1000 / 2.4e9) == TIMES.latency
    assert TIMES.flight == 8
    # Two queues of 16 clocks a descriptor take one every 8.
    assert issue_seconds(TIMES, 256) == pytest.approx(256 * 8 / CLOCK)


def test_unpublished_issue_and_depth_limit_nothing() -> None:
    tma = DataMover(kind="tma", rank=5, tile_dim=256, alignment=16, latency=659)
    times = MoverTimes.of(tma, 1.83e9, 128 * 1.83e9)
    assert issue_seconds(times, 1000) == 0
    assert bandwidth(times, 32768, 1000) == times.port


def test_a_mover_without_latency_says_what_to_give() -> None:
    mover = DataMover(kind="tma", rank=5, tile_dim=256, alignment=16)
    with pytest.raises(InputError, match=r"data_mover\.latency"):
        MoverTimes.of(mover, CLOCK, 1e12)


@settings(max_examples=200, deadline=None)
@given(movers, st.integers(1, 1 << 17), st.floats(1e6, 1e12))
def test_as_many_in_flight_as_little_says_reach_the_rate_and_one_less_does_not(
    times: MoverTimes, size: int, rate: float
) -> None:
    needed = descriptors_in_flight(rate, times.latency, size)
    free = MoverTimes(issue=0, latency=times.latency, flight=None, port=math.inf)
    assert bandwidth(free, size, needed) >= rate * (1 - 1e-9)
    assert bandwidth(free, size, needed - 1) < rate


@settings(max_examples=200, deadline=None)
@given(movers, st.integers(1, 400), st.integers(1, 1 << 20), st.integers(1, 16))
def test_a_tile_takes_its_work_and_a_latency_and_never_more_than_one_for_each_descriptor(
    times: MoverTimes, descriptors: int, size: int, flying: int
) -> None:
    busy = max(issue_seconds(times, descriptors), size / times.port)
    took = move_seconds(times, descriptors, size, flying)
    assert (busy + times.latency) * (1 - 1e-12) <= took
    assert took <= (busy + descriptors * times.latency) * (1 + 1e-12)
    assert move_seconds(times, descriptors, size, flying + 1) <= took * (1 + 1e-12)
    assert move_seconds(times, descriptors, size + 128, flying) >= took * (1 - 1e-9)


@settings(max_examples=100, deadline=None)
@given(movers, st.integers(1, 1 << 16), st.integers(1, 16))
def test_many_tiles_settle_at_the_bandwidth_of_what_is_in_flight(
    times: MoverTimes, size: int, flying: int
) -> None:
    rounds = 2000
    many = rounds * flying
    rate = many * size / move_seconds(times, many, many * size, flying)
    # Rounds may end short of full where the queues hold fewer.
    assert rate == pytest.approx(bandwidth(times, size, flying), rel=2 / rounds * flying)


def test_one_at_a_time_pays_each_latency() -> None:
    took = move_seconds(TIMES, 10, 10 * 8192, 1)
    busy = 8192 / TIMES.port
    assert took == pytest.approx(10 * TIMES.latency + busy)


def test_nothing_to_move_takes_no_time_and_nothing_in_flight_is_refused() -> None:
    assert move_seconds(TIMES, 0, 0) == 0
    with pytest.raises(InputError, match="at least 1"):
        move_seconds(TIMES, 1, 128, 0)


def test_four_descriptors_a_queue_sustain_a_units_share_of_the_memory() -> None:
    # 17.1 TB/s of published decode kernels over 256 units, in tiles of 8 KB, of which the best
    # copy pattern keeps eight under way on two queues.
    device = load_hardware("mi455x")
    assert device.data_mover is not None
    port = next(level.per_clock for level in device.memory if level.kind == "lds")
    assert port is not None
    mover = replace(device.data_mover, depth=4)
    times = MoverTimes.of(mover, device.compute.clock, port * device.compute.clock)
    assert times.flight == 8
    assert bandwidth(times, 8192, 8) > 17.1e12 / device.compute.units > bandwidth(times, 8192, 3)


@pytest.mark.parametrize("name", names("hardware"))
def test_every_mover_of_the_catalogue_states_its_latency(name: str) -> None:
    mover = load_hardware(name).data_mover
    assert mover is None or 300 <= (mover.latency or 0) <= 2000
