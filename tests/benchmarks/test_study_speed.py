"""Speed of studies: what-ifs of a whole model on one core, and devices screened in closed form.

Run with ``pytest -m benchmark tests/benchmarks -s``. Rates are shown beside what one run, or the
scalar closed form, does on the same machine at the same time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from simulator import load_scenario, simulate, what_if
from simulator.costs.estimate import estimate
from simulator.costs.lower import lower
from simulator.costs.target import Target
from simulator.fronts import pareto
from simulator.mapping.kernel import Kernel
from simulator.models.graph import Step, build_graph
from simulator.specs.scenario import Scenario
from simulator.study.closed_form import estimate_many
from simulator.study.closed_form_sweep import CHUNK, screen

pytestmark = pytest.mark.benchmark
LINE = "llama-3.1-70b decode batch=32 context=4096 on mi455x"
HBM = "hardware.memory.hbm.bandwidth"
POINTS = 200


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def told(name: str, points: int, took: float, yardstick: float, each: str) -> None:
    rate = points / took
    sys.stdout.write(f"\n{name}: {rate:,.0f}/s = {rate * yardstick:,.1f} x {each}\n")


def bandwidths(first: int, points: int = POINTS) -> list[object]:
    return [f"{first + at / 10:.1f} TB/s" for at in range(points)]


@pytest.fixture(scope="module")
def base() -> Scenario:
    base = load_scenario(LINE)
    simulate(base)
    return base


@pytest.mark.parametrize(
    ("name", "first", "again"),
    [
        ("points that share nothing", {HBM: bandwidths(10)}, {HBM: bandwidths(40)}),
        ("points that share their kernels",
         {"hardware.price.rent": ["9 USD/h"]},
         {"hardware.price.rent": [f"{10 + at / 10} USD/h" for at in range(POINTS)]}),
        ("points that were asked before", {HBM: bandwidths(70)}, {HBM: bandwidths(70)}),
    ],
)  # fmt: skip
def test_what_ifs(
    base: Scenario, name: str, first: dict[str, list[object]], again: dict[str, list[object]]
) -> None:
    list(what_if(base, first))
    alone = seconds(lambda: [simulate(base) for _ in range(10)]) / 10
    took = seconds(lambda: list(what_if(base, again)))
    told(name, POINTS, took, alone, "one run")


def _kernels(base: Scenario) -> list[Kernel]:
    target = Target(accelerator=base.hardware, stack=base.stack)
    graph = build_graph(base.model, Step(batch=32, new=1, context=4096))
    return [lower(op, target).kernel for segment in graph.segments for op in segment.ops]


def test_a_table_of_kernels_at_many_points(base: Scenario) -> None:
    kernels = _kernels(base)
    factors = np.linspace(0.2, 5, CHUNK)
    rounds = 20

    def arrays() -> None:
        for _ in range(rounds):
            for kernel in kernels:
                estimate_many(kernel, bandwidth=kernel.bandwidth * factors, slower=factors)

    def scalars() -> None:
        for kernel in kernels:
            for factor in factors[:500]:
                rate = kernel.bandwidth * float(factor)
                estimate(replace(kernel, bandwidth=rate))

    arrays()
    alone = seconds(scalars) / (500 * len(kernels))
    took = seconds(arrays)
    told("kernel points in closed form", rounds * len(kernels) * CHUNK, took, alone, "a scalar one")


def test_a_million_devices(base: Scenario) -> None:
    axes: dict[str, list[object]] = {
        HBM: bandwidths(10, 100),
        "hardware.compute.clock": [f"{1.5 + at / 100:.2f} GHz" for at in range(100)],
        "hardware.compute.units": [128 + 2 * at for at in range(100)],
    }
    alone = seconds(lambda: simulate(base))
    start = time.perf_counter()
    found = screen(base, axes)
    took = time.perf_counter() - start
    silicon = sum(found.places(np.arange(len(found.latency))).values())
    front: list[int] = []
    finding = seconds(lambda: front.extend(pareto(found.latency, silicon).tolist()))
    told("devices screened, pricing included", len(found.latency), took, alone, "one run")
    sys.stdout.write(f"front of {len(front):,} devices in {finding:.2f} s\n")
