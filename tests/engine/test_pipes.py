"""Processor sharing, against arithmetic and against a pipe that updates every flow."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simpy import Environment, Timeout

from simulator.engine.instant import Instant
from simulator.engine.pipes import Pipe


class Transfer:
    def __init__(self, env: Environment, count: int) -> None:
        self.env = env
        self.count = count
        self.end: float | None = None

    def arrived(self) -> None:
        assert self.end is None, "a flow arrives once"
        self.end = self.env.now


def ends(
    bandwidth: float, flows: Iterable[tuple[float, float, int, float]], start: float = 0
) -> tuple[list[float], Pipe]:
    """When flows of (join time, bytes, count, cap) have arrived, and the pipe."""
    env = Environment(start)
    instant = Instant(env)
    pipe = Pipe(instant, bandwidth)
    transfers = []

    def join(when: float, size: float, transfer: Transfer, cap: float) -> None:
        lane = pipe.lane(cap)

        def add() -> None:
            pipe.advance()
            lane.add(size, transfer)

        def arrive(_: object) -> None:
            instant.decide(add)
            instant.settle()

        Timeout(env, when).callbacks.append(arrive)

    for when, size, count, cap in flows:
        transfers.append(Transfer(env, count))
        join(when, size, transfers[-1], cap)
    env.run()
    assert all(transfer.end is not None for transfer in transfers)
    return [transfer.end for transfer in transfers], pipe


def ends_step_by_step(
    bandwidth: Fraction, flows: list[tuple[Fraction, Fraction, int, Fraction | float]]
) -> list[Fraction]:
    """The same with exact numbers, moving every flow's bytes from one change to the next."""
    left = {index: flow[1] for index, flow in enumerate(flows)}
    done: dict[int, Fraction] = {}
    now = Fraction(0)
    while len(done) < len(flows):
        active = [i for i in left if flows[i][0] <= now and i not in done]
        share, streams = bandwidth, sum(flows[i][2] for i in active)
        rates = {}
        for i in sorted(active, key=lambda i: flows[i][3]):
            rates[i] = min(flows[i][3], share / streams)
            share -= rates[i] * flows[i][2]
            streams -= flows[i][2]
        times = [left[i] / rates[i] for i in active]
        times += [flow[0] - now for flow in flows if flow[0] > now]
        step = min(times)
        now += step
        for i in active:
            left[i] -= rates[i] * step
            if left[i] == 0:
                done[i] = now
    return [done[i] for i in range(len(flows))]


def test_one_flow_has_the_whole_pipe() -> None:
    assert ends(8.0, [(0, 24.0, 1, inf)])[0] == [3.0]


def test_equal_flows_share_equally() -> None:
    assert ends(8.0, [(0, 24.0, 4, inf)])[0] == [12.0]


def test_a_smaller_flow_leaves_its_share_to_the_larger() -> None:
    # 2 x 4 bytes together take 1 s at 4 bytes/s each; the other 20 bytes then have 8 bytes/s.
    assert ends(8.0, [(0, 4.0, 1, inf), (0, 24.0, 1, inf)])[0] == [1.0, 3.5]


def test_a_late_flow_slows_the_first_one_down() -> None:
    # 16 bytes alone in 2 s; then 8 left and 8 new at 4 bytes/s.
    assert ends(8.0, [(0, 24.0, 1, inf), (2, 8.0, 1, inf)])[0] == [4.0, 4.0]


def test_the_cap_binds_when_few_flow_and_the_pipe_when_many() -> None:
    assert ends(8.0, [(0, 6.0, 2, 2.0)])[0] == [3.0]
    assert ends(8.0, [(0, 6.0, 8, 2.0)])[0] == [6.0]


def test_what_capped_flows_leave_over_goes_to_the_others() -> None:
    # 2 x 1 byte/s capped leave 6 bytes/s to the two others; an equal share would have been 2.
    capped, free = ends(8.0, [(0, 4.0, 2, 1.0), (0, 12.0, 2, inf)])[0]
    assert capped == 4.0
    assert free == 4.0


def test_equal_caps_share_a_lane() -> None:
    pipe = Pipe(Instant(Environment()), 1.0)
    assert pipe.lane(2.0) is pipe.lane(2.0)
    assert pipe.lane() is not pipe.lane(2.0)


def test_no_bytes_take_no_time() -> None:
    assert ends(8.0, [(3, 0.0, 5, inf)])[0] == [3.0]
    assert ends(8.0, [(0, 8.0, 1, inf), (0.5, 0.0, 5, inf)])[0] == [1.0, 0.5]


def test_a_billion_flows_are_one_entry() -> None:
    assert ends(1e12, [(0, 1e3, 10**9, inf)])[0] == [1.0]


def test_busy_is_the_time_in_which_anything_flows() -> None:
    _, pipe = ends(8.0, [(0, 8.0, 1, inf), (0, 4.0, 1, inf), (5, 16.0, 1, inf), (6, 0.0, 1, inf)])
    assert pipe.busy == 1.5 + 2.0


def test_a_pipe_that_was_empty_has_lost_no_bits() -> None:
    """1e12 bytes at once, then 1.1 bytes a flow: at a virtual time of 1e12 that would be 1.1001."""
    end = ends(1e12, [(0, 1e12, 1, inf), (2, 1.1, 10**9, inf)])[0][1]
    assert end == 2 + 1.1 * (1e9 / 1e12)


@pytest.mark.parametrize("start", [0, 1e3, 1e9])
def test_a_late_clock_neither_stops_nor_loops(start: float) -> None:
    """At 1e9 s the clock steps by 1e-7 s: a load of 1e-9 s then takes no time at all."""
    end = ends(1e12, [(0, 1e3, 7, inf), (1e-10, 1e3, 5, 3e11), (1e-10, 17.0, 1, inf)], start)[0]
    assert all(start <= time <= start + 1e-6 for time in end)


sizes = st.one_of(st.integers(0, 6), st.fractions(0, 10, max_denominator=7))
flow = st.tuples(
    st.fractions(0, 6, max_denominator=4),
    sizes.map(Fraction),
    st.integers(1, 4),
    st.sampled_from([inf, Fraction(1, 2), Fraction(1), Fraction(3)]),
)


@settings(deadline=None)
@given(st.sampled_from([1, 2, 3, 8]).map(Fraction), st.lists(flow, min_size=1, max_size=6))
def test_virtual_time_is_exact_whatever_joins_leaves_or_is_capped(
    bandwidth: Fraction, flows: list[tuple[Fraction, Fraction, int, Fraction | float]]
) -> None:
    expected = ends_step_by_step(bandwidth, flows)
    assert ends(bandwidth, flows, Fraction(0))[0] == expected
    floats = [(float(t), float(b), n, float(c)) for t, b, n, c in flows]
    assert ends(float(bandwidth), floats)[0] == pytest.approx(
        [float(end) for end in expected], rel=1e-12, abs=1e-12
    )
