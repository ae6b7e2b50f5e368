"""Speed of training steps over pipeline stages, beside a bare SimPy loop timed in the same rounds.

The yardstick is one process that waits for one timeout after another. Run with
``pytest -m benchmark -s``.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from statistics import median
from time import perf_counter

import pytest
from simpy import Environment, Event, Timeout

from simulator.engine.pipeline import PieceTimes, Shares, run_pipeline
from simulator.policies.pipeline import PIPELINE_ORDERS

pytestmark = pytest.mark.benchmark

YARDSTICK_EVENTS = 30_000
TIME = PieceTimes(forward=1.0, backward_input=1.0, backward_weight=0.9)
WITH_COLLECTIVES = PieceTimes(
    forward=1.0, backward_input=1.0, backward_weight=0.9, gather=0.3, reduce=0.4, buckets=4
)


def yardstick() -> None:
    env = Environment()

    def loop() -> Generator[Event, None, None]:
        for _ in range(YARDSTICK_EVENTS):
            yield Timeout(env, 1.0)

    env.process(loop())
    env.run()


@pytest.mark.parametrize(
    ("name", "stages", "batches", "pieces", "goal"),
    [
        ("1f1b", 16, 128, 1, 0.010),
        ("interleaved", 16, 128, 4, 0.030),
        ("1f1b", 64, 1024, 1, 0.200),
        ("zero_bubble", 64, 1024, 1, 0.300),
        ("interleaved", 64, 1024, 2, 0.400),
    ],
)
def test_steps_per_yardstick_event(
    name: str, stages: int, batches: int, pieces: int, goal: float
) -> None:
    """Seconds of a machine whose yardstick makes 1.4 million events a second."""
    order = PIPELINE_ORDERS[name]
    times = [[TIME] * pieces] * stages
    full = [[WITH_COLLECTIVES] * pieces] * stages
    work = sum(len(order(stages, stage, batches, pieces)) for stage in range(stages))
    event, bare, whole, each = [], [], [], []
    for _ in range(5):
        gc.collect()
        clock = [perf_counter()]
        yardstick()
        clock.append(perf_counter())
        run_pipeline(times, order, batches)
        clock.append(perf_counter())
        run_pipeline(full, order, batches, send=0.1, latency=0.01)
        clock.append(perf_counter())
        run_pipeline(full, order, batches, send=0.1, gather="micro_batch", reduce="micro_batch")
        clock.append(perf_counter())
        event.append((clock[1] - clock[0]) / YARDSTICK_EVENTS)
        for into, begin, end in zip((bare, whole, each), clock[1:], clock[2:], strict=False):
            into.append((end - begin) / event[-1])
    print(f"\n{name}, {stages} stages, {batches} micro-batches, {pieces} pieces: {work:,} works")  # noqa: T201
    print(f"  yardstick, events per second            {1 / median(event):>12,.0f}")  # noqa: T201
    for what, values in (
        ("computation", bare),
        ("with sends and collectives (3 passes)", whole),
        ("with collectives of each micro-batch", each),
    ):
        seconds = median(values) * median(event)
        print(  # noqa: T201
            f"  {what:<40}{1e3 * seconds:>8.1f} ms {work / seconds:>12,.0f} works/s "
            f"{work / median(values):>6.2f} a yardstick event"
        )
    assert median(whole) / 1.4e6 <= goal


def test_a_step_with_shared_links_stays_quick() -> None:
    """16 stages of 4 pieces and 128 micro-batches, one rank of each for all: 16 thousand works in
    half a second of the same machine."""
    shares = Shares(sends={"out": 0.95}, collectives={"out": 0.95})
    rounds = []
    for _ in range(5):
        gc.collect()
        clock = [perf_counter()]
        yardstick()
        clock.append(perf_counter())
        step = run_pipeline(
            [[WITH_COLLECTIVES] * 4] * 16, PIPELINE_ORDERS["interleaved"], 128, send=0.1,
            shares=shares,
        )  # fmt: skip
        clock.append(perf_counter())
        assert step.contention > 0
        rounds.append((clock[2] - clock[1]) / (clock[1] - clock[0]) * YARDSTICK_EVENTS)
    print(f"\nwith shared links: {median(rounds):,.0f} yardstick events")  # noqa: T201
    assert median(rounds) / 1.4e6 <= 0.5
