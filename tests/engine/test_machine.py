"""Launches: when kernels of one stream start."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.machine import CommandProcessor, LaunchPolicy


def starts(policy: LaunchPolicy, durations: list[float]) -> tuple[list[float], float]:
    processor = CommandProcessor(policy)
    return [processor.execute(duration) for duration in durations], processor.end


def test_a_graph_pays_once_and_then_leaves_gaps() -> None:
    policy = LaunchPolicy(mode="graph", first=10.0, gap=1.0, host=100.0)
    assert starts(policy, [4.0, 5.0, 6.0]) == ([10.0, 15.0, 21.0], 27.0)


def test_the_host_runs_ahead_of_long_kernels() -> None:
    policy = LaunchPolicy(mode="eager", host=3.0, gap=1.0)
    assert starts(policy, [10.0, 10.0, 10.0]) == ([3.0, 14.0, 25.0], 35.0)


def test_short_kernels_wait_for_the_host() -> None:
    policy = LaunchPolicy(mode="eager", host=3.0, gap=1.0, first=2.0)
    assert starts(policy, [1.0, 1.0, 1.0]) == ([5.0, 8.0, 11.0], 12.0)


def test_the_host_catches_up_during_a_long_kernel() -> None:
    policy = LaunchPolicy(mode="eager", host=3.0)
    assert starts(policy, [1.0, 8.0, 1.0, 1.0, 1.0])[0] == [3.0, 6.0, 14.0, 15.0, 16.0]


def test_no_kernels_end_at_once() -> None:
    assert starts(LaunchPolicy(mode="graph", first=5.0), []) == ([], 0.0)


@settings(deadline=None)
@given(
    st.sampled_from(["eager", "graph"]),
    st.lists(st.floats(0, 10), min_size=1, max_size=20),
    st.floats(0, 5),
    st.floats(0, 5),
    st.floats(0, 5),
)
def test_kernels_keep_order_and_gap_and_wait_for_no_reason_but_one(
    mode: str, durations: list[float], host: float, gap: float, first: float
) -> None:
    begun, end = starts(LaunchPolicy(mode=mode, host=host, gap=gap, first=first), durations)
    for i, start in enumerate(begun):
        issued = first + (i + 1) * host if mode == "eager" else first
        free = begun[i - 1] + durations[i - 1] + gap if i else 0.0
        assert start == max(issued, free)
    assert end == begun[-1] + durations[-1]


@settings(deadline=None)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=20), st.floats(0, 5), st.floats(0, 5))
def test_eager_latency_is_at_least_the_host_time_and_the_device_time(
    durations: list[float], host: float, gap: float
) -> None:
    end = starts(LaunchPolicy(mode="eager", host=host, gap=gap), durations)[1]
    device = sum(durations) + gap * (len(durations) - 1)
    longest = host * len(durations) + durations[-1]
    assert max(device, longest) <= end * (1 + 1e-12)
    assert end <= (host * len(durations) + device) * (1 + 1e-12)
