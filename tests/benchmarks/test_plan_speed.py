"""Speed of the search over plans, beside a bare SimPy loop timed in the same rounds.

The yardstick is one process that waits for one timeout after another. Run with
``pytest -m benchmark -s``.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from time import perf_counter
from typing import Any

import pytest
from simpy import Environment, Event, Timeout

from simulator import search_plans

pytestmark = pytest.mark.benchmark

YARDSTICK_EVENTS = 300_000
GOAL = 1000 / 30
"""Plans a second on a machine whose yardstick makes 1.4 million events a second."""


def yardstick() -> float:
    """Seconds of one event."""
    env = Environment()

    def loop() -> Generator[Event, None, None]:
        for _ in range(YARDSTICK_EVENTS):
            yield Timeout(env, 1.0)

    env.process(loop())
    start = perf_counter()
    env.run()
    return (perf_counter() - start) / YARDSTICK_EVENTS


DECODE = {"phase": "decode", "context": 8192, "batch": 256}


@pytest.mark.parametrize(
    ("model", "hardware", "options", "least"),
    [
        (
            "deepseek-v3",
            ["h200", "mi355x", "mi455x"],
            {**DECODE, "devices": [8, 16, 32, 64, 128]},
            1000,
        ),
        (
            "llama-3.1-405b",
            ["mi300x"],
            {"phase": "train", "sequence": 8192, "global_batch": 512, "devices": [128, 256, 512]},
            1000,
        ),
        (
            "gpt-4-1.8t",
            ["mi455x"],
            {"phase": "train", "sequence": 8192, "global_batch": 512, "devices": [128]},
            500,
        ),
    ],
)
def test_plans_per_second(
    model: str, hardware: list[str], options: dict[str, Any], least: int
) -> None:
    gc.collect()
    event = yardstick()
    start = perf_counter()
    found = search_plans(model, hardware, **options, exact=0)
    seconds = perf_counter() - start
    event = (event + yardstick()) / 2
    plans, tried = len(found.plans), sum(space.tried for space in found.spaces)
    print(f"\n{model} {options['phase']}, {tried:,} plans tried, {plans:,} estimated")  # noqa: T201
    print(f"  yardstick, events per second {1 / event:>12,.0f}")  # noqa: T201
    print(f"  seconds                      {seconds:>12.1f}")  # noqa: T201
    print(f"  plans per second             {plans / seconds:>12.1f}")  # noqa: T201
    print(f"  yardstick events a plan      {seconds / plans / event:>12,.0f}")  # noqa: T201
    assert plans >= least
    assert plans / (seconds / event / 1.4e6) >= GOAL
