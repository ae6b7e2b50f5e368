"""Time of a training step on 1,024 devices, beside a bare SimPy loop timed in the same rounds.

The yardstick is one process that waits for one timeout after another. Run with
``pytest -m benchmark -s``.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from statistics import median
from time import perf_counter
from typing import Any

import pytest
from simpy import Environment, Event, Timeout

from simulator import make_scenario, simulate

pytestmark = pytest.mark.benchmark

YARDSTICK_EVENTS = 300_000
GOAL = 2.0
"""Seconds on a machine whose yardstick makes 1.4 million events a second."""


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


@pytest.mark.parametrize(
    ("model", "hardware", "plan"),
    [
        ("llama-3.1-405b", "h100", {"tp": 8, "pp": 16, "dp": 8, "global_batch": 512, "zero": 2}),
        ("deepseek-v3", "b200", {"pp": 16, "dp": 64, "ep": 64, "global_batch": 1024, "zero": 1}),
    ],
)
def test_a_step_on_1024_devices(model: str, hardware: str, plan: dict[str, Any]) -> None:
    asked = make_scenario(model, hardware, phase="train", dtype="bf16", sequence=4096, **plan)
    assert asked.plan.devices == 1024
    rounds = []
    for _ in range(3):
        gc.collect()
        event = yardstick()
        start = perf_counter()
        simulate(asked)
        seconds = perf_counter() - start
        rounds.append(seconds / ((event + yardstick()) / 2))
    print(f"\n{model}: {median(rounds):,.0f} yardstick events a step on 1,024 devices")  # noqa: T201
    assert median(rounds) / 1.4e6 <= GOAL
