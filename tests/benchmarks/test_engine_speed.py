"""Speed of the engine as ratios to a yardstick that is timed in the same rounds.

The yardstick is a bare SimPy loop: one process that waits for one timeout after another. Rounds
are interleaved, so that a machine that slows down slows both, and the median of the per-round
ratios is compared with the goal. Run with ``pytest -m benchmark -s``.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import pytest
from simpy import Environment, Event, Timeout

from simulator.engine.execute import Memo, Segment, run_kernel, run_stream
from simulator.engine.machine import LaunchPolicy
from simulator.mapping.kernel import Kernel, TileClass

pytestmark = pytest.mark.benchmark

UNITS = 304
BANDWIDTH = 5.3e12
UNIT_FLOPS = 1.3e15 / UNITS
YARDSTICK_EVENTS = 30_000


def product(name: str, tiles: int, depth: int) -> Kernel:
    """Equal 128 x 128 tiles of a bf16 product, half of whose reads hit a cache."""
    return Kernel(
        name=name,
        classes=(
            TileClass(
                load=depth * 256, store=128 * 128 * 2, compute=2 * 128 * 128 * depth / UNIT_FLOPS
            ),
        ),
        runs=((tiles, 0),),
        units=UNITS,
        bandwidth=BANDWIDTH,
    )


def experts() -> Kernel:
    """Gate and up of experts in expert order, 32 column tiles each.

    128 tokens choose 8 of 256 experts each, evenly; about 250 experts get 1 to 9 tokens or so.
    """
    rng = random.Random(0)
    chosen = [expert for _ in range(128) for expert in rng.sample(range(256), 8)]
    tokens = [count for expert in range(256) if (count := chosen.count(expert))]
    depth = 7_168
    return Kernel(
        name="experts",
        classes=tuple(
            TileClass(
                load=depth * (rows + 128),
                store=rows * 128 * 2,
                compute=2 * 16 * 128 * depth / UNIT_FLOPS * (1 + 0.05 * rows),
            )
            for rows in range(1, max(tokens) + 1)
        ),
        runs=tuple((32, rows - 1) for rows in tokens),
        units=UNITS,
        bandwidth=BANDWIDTH,
    )


DENSE_70B = product("gate and up, 70B, 2,048 tokens", 7_168, 8_192)
DENSE_405B = product("gate and up, 405B, 8,192 tokens", 53_248, 16_384)
EXPERTS = experts()
PREFILL_405B = Segment(
    name="layer",
    repeat=126,
    kernels=tuple(
        product(name, tiles, depth)
        for name, tiles, depth in (
            ("qkv", 9_216, 16_384),
            ("out", 8_192, 16_384),
            ("gate and up", 53_248, 16_384),
            ("down", 8_192, 53_248),
            ("attention", 8_192, 4_096),
        )
    ),
)


def yardstick() -> None:
    env = Environment()

    def loop() -> Generator[Event, None, None]:
        for _ in range(YARDSTICK_EVENTS):
            yield Timeout(env, 1.0)

    env.process(loop())
    env.run()


def seconds(work: Callable[[], object], times: int = 1) -> float:
    begin = perf_counter()
    for _ in range(times):
        work()
    return (perf_counter() - begin) / times


@dataclass
class Row:
    what: str
    found: float
    goal: float
    unit: str

    def __str__(self) -> str:
        return f"{self.what:<46}{self.found:>10.3g}  goal {self.goal:g} {self.unit}"


def show(title: str, rows: list[Row]) -> None:
    print(f"\n{title}")  # noqa: T201
    for row in rows:
        print(f"  {row}")  # noqa: T201


def tiles_per_event(kernel: Kernel, rounds: int = 9) -> tuple[float, float, float]:
    """Medians over rounds: tiles per yardstick event in cohort and tile mode, and their ratio."""
    cohort_rates, tile_rates, ratios = [], [], []
    for _ in range(rounds):
        gc.collect()
        event = seconds(yardstick) / YARDSTICK_EVENTS
        cohort = seconds(lambda: run_kernel(kernel), 20)
        tile = seconds(lambda: run_kernel(kernel, mode="tile"))
        cohort_rates.append(kernel.tiles / cohort * event)
        tile_rates.append(kernel.tiles / tile * event)
        ratios.append(tile / cohort)
    return median(cohort_rates), median(tile_rates), median(ratios)


@pytest.mark.parametrize(
    ("kernel", "cohort_goal", "ratio_goal"),
    [(DENSE_70B, 25, 100), (DENSE_405B, 25, 100), (EXPERTS, 2, 5)],
    ids=lambda value: value.name if isinstance(value, Kernel) else "",
)
def test_tiles_per_yardstick_event(kernel: Kernel, cohort_goal: float, ratio_goal: float) -> None:
    cohort, tile, ratio = tiles_per_event(kernel)
    rows = [
        Row("cohort mode, tiles per yardstick event", cohort, cohort_goal, ""),
        Row("tile mode, tiles per yardstick event", tile, 0.18, ""),
        Row("cohort mode over tile mode", ratio, ratio_goal, "x"),
    ]
    show(f"{kernel.name}: {kernel.tiles} tiles on {kernel.units} units", rows)
    assert cohort >= cohort_goal
    assert tile >= 0.18
    assert ratio >= ratio_goal


def test_a_prefill_of_405b_as_a_user_waits_for_it() -> None:
    """126 layers of 5 kernels, 10,967,040 tiles."""
    launch = LaunchPolicy(mode="graph", gap=1e-6, first=1e-5)

    def run(memo: bool) -> None:
        run_stream([PREFILL_405B], launch, memo=Memo() if memo else False)

    event, plain, remembered = [], [], []
    for _ in range(7):
        gc.collect()
        event.append(seconds(yardstick) / YARDSTICK_EVENTS)
        plain.append(seconds(lambda: run(memo=False)))
        remembered.append(seconds(lambda: run(memo=True), 5))
    tiles = PREFILL_405B.repeat * sum(kernel.tiles for kernel in PREFILL_405B.kernels)
    rates = [tiles / p * e for p, e in zip(plain, event, strict=True)]
    rows = [
        Row("yardstick, events per second", 1 / median(event), 1.4e6, "/s"),
        Row("without memo", 1e3 * median(plain), 150, "ms"),
        Row("with memo", 1e3 * median(remembered), 20, "ms"),
        Row("without memo, tiles per yardstick event", median(rates), 50, ""),
    ]
    show(f"405B, 8,192 tokens: {tiles:,} tiles", rows)
    # 150 ms and 20 ms on a machine whose yardstick makes 1.4 million events a second.
    assert median(p / e for p, e in zip(plain, event, strict=True)) <= 0.150 * 1.4e6
    assert median(r / e for r, e in zip(remembered, event, strict=True)) <= 0.020 * 1.4e6
