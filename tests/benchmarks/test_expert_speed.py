"""Engine time of the expert products of a decode step whose layers are all routed differently.

DeepSeek-V3, 128 sequences, all experts on one device: 58 layers of two grouped products, each
with rows of its own for every expert, so that no run is found in the memo. Beside the yardstick,
a bare SimPy timeout loop timed in the same rounds. Run with ``pytest -m benchmark -s``.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from functools import partial
from statistics import median
from time import perf_counter

import pytest
from simpy import Environment, Event, Timeout

from simulator import make_scenario
from simulator.costs.target import Target
from simulator.engine.execute import Memo, run_kernel
from simulator.mapping.dispatch import Dispatch
from simulator.mapping.kernel import Kernel
from simulator.models.graph import Step, build_graph
from simulator.ops.matmul import GroupedMatmul
from simulator.runs.prices import Prices
from simulator.specs.workload import Transformer

pytestmark = pytest.mark.benchmark

DEVICES = "mi455x", "h200", "mi300x"
ROUNDS = 7
YARDSTICK_EVENTS = 100_000
RATE = 1.35e6
"""Yardstick events per second of the machine on which the goals, 400 and 80 ms, are stated."""
GOALS = {"expert": 0.400 * RATE, "by_class": 0.080 * RATE}


def products(device: str, order: str) -> list[Kernel]:
    """The kernels of both products of every MoE layer, in that order of the experts.

    Not run as a user would, since no device holds the model on its own.
    """
    scenario = make_scenario(
        "deepseek-v3", device, batch=128, context=4096, overrides=[f"plan.expert_order={order}"]
    )
    model = scenario.model
    assert isinstance(model, Transformer)
    dispatch = Dispatch(scenario.plan, ((128,),), scenario.seed)
    step = Step(batch=128, new=1, context=4096, seed=scenario.seed)
    graph = build_graph(model, step, partial(dispatch.share, rank=0))
    prices = Prices(scenario, Target(accelerator=scenario.hardware, stack=scenario.stack), Memo())
    return [
        prices[op].kernel
        for segment in graph.segments
        for op in segment.ops * segment.repeat
        if isinstance(op, GroupedMatmul)
    ]


def yardstick() -> float:
    """Seconds of one event of a process that waits for one timeout after another."""
    env = Environment()

    def loop() -> Generator[Event, None, None]:
        for _ in range(YARDSTICK_EVENTS):
            yield Timeout(env, 1.0)

    env.process(loop())
    begin = perf_counter()
    env.run()
    return (perf_counter() - begin) / YARDSTICK_EVENTS


@pytest.mark.parametrize("order", GOALS)
@pytest.mark.parametrize("device", DEVICES)
def test_58_routings_of_deepseek_cost_less_than_their_goal(device: str, order: str) -> None:
    kernels = products(device, order)
    assert len(set(kernels)) == 116
    ratios, times, events = [], [], 0
    for _ in range(ROUNDS):
        gc.collect()
        before = yardstick()
        begin = perf_counter()
        events = sum(run_kernel(kernel).events for kernel in kernels)
        times.append(perf_counter() - begin)
        ratios.append(2 * times[-1] / (before + yardstick()))
    found = median(ratios)
    sys.stdout.write(
        f"\n{device}, {order}: {sum(kernel.tiles for kernel in kernels):,} tiles, "
        f"{events:,} events, {1e3 * median(times):.0f} ms here, {found:,.0f} yardstick events, "
        f"{1e3 * found / RATE:.0f} ms at {RATE:,.0f} a second; goal {GOALS[order]:,.0f}\n"
    )
    assert found <= GOALS[order]
