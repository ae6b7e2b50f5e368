"""The queue of expert tiles: nothing lost by an order, rows as they arrive, the same bits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.api import make_target
from simulator.costs.bounds import bounds
from simulator.costs.estimate import estimate
from simulator.costs.expert_queue import issued, queued
from simulator.costs.lower import lower
from simulator.costs.plan import KernelPlan
from simulator.engine.execute import run_kernel
from simulator.mapping.kernel import Kernel, TileClass
from simulator.mapping.routing import expert_counts
from simulator.mapping.tiling import Tiling
from simulator.ops.matmul import GroupedMatmul
from simulator.policies.order import EXPERT_ORDERS
from simulator.specs.workload import MoE

DEVICES = ("mi455x", "h200", "mi300x")
HALVES = {"gate_up": (4096, 7168), "down": (7168, 2048)}
"""(n, k) of both products of an expert of DeepSeek-V3."""
ORDERS = ("expert", "longest_first", "by_class")


@cache
def product(half: str, tokens: int = 96, routing: str = "uniform") -> GroupedMatmul:
    """One of the products of 256 experts, of which each token takes 8."""
    net = MoE(width=2048, experts=256, top_k=8, routing=routing)
    counts = expert_counts(net, tokens, np.random.default_rng(tokens))
    n, k = HALVES[half]
    return GroupedMatmul(
        name=f"moe.{half}", counts=tuple(counts.tolist()), n=n, k=k, a="fp8", b="fp8",
        half=half, tokens=tokens,
    )  # fmt: skip


@cache
def plan(device: str, op: GroupedMatmul) -> KernelPlan:
    return lower(op, make_target(device))


def ordered(
    device: str, op: GroupedMatmul, order: str, arrival: tuple[float, float] | None = None
) -> Kernel:
    found = plan(device, op)
    return queued(found.kernel, op, found.tiling, EXPERT_ORDERS[order](op.counts), arrival)


@pytest.mark.parametrize(("tokens", "routing"), [(96, "uniform"), (24, "zipf 0.7")])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("device", DEVICES)
def test_256_experts_agree_in_every_bit_by_cohorts_and_by_tiles(
    device: str, order: str, tokens: int, routing: str
) -> None:
    """Both products; the first one also while its rows arrive, over half the time it takes."""
    for half in HALVES:
        op = product(half, tokens, routing)
        alone = ordered(device, op, order)
        seconds = run_kernel(alone).makespan
        arriving = ordered(device, op, order, (0.1 * seconds, 0.6 * seconds))
        for one in (alone, arriving) if half == "gate_up" else (alone,):
            cohort, tile = run_kernel(one), run_kernel(one, mode="tile")
            assert cohort.makespan.hex() == tile.makespan.hex()
            assert cohort.pipe_busy.hex() == tile.pipe_busy.hex()
            assert cohort.compute_busy.hex() == tile.compute_busy.hex()
            assert tile.events == 2 * one.tiles
            assert cohort.events < tile.events / 2
            low, high = bounds(one)
            assert low <= cohort.makespan <= high
            assert low <= estimate(one) <= high


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("device", DEVICES)
def test_an_order_loses_nothing(device: str, half: str) -> None:
    op = product(half)
    plain = plan(device, op).kernel
    assert ordered(device, op, "expert").runs == plain.runs

    def tiles(one: Kernel) -> Counter[int]:
        counts: Counter[int] = Counter()
        for count, which in one.runs:
            counts[which] += count
        return counts

    for order in ORDERS:
        for arrival in (None, (1e-6, 5e-6)):
            one = ordered(device, op, order, arrival)
            assert tiles(one) == tiles(plain)
            assert one.flops == pytest.approx(op.demand().flops, rel=1e-12)
            assert replace(one, runs=plain.runs, releases=()) == plain


@pytest.mark.parametrize("device", DEVICES)
def test_orders_do_what_they_are_named_for(device: str) -> None:
    op = product("gate_up")
    by_class, fullest, in_order = (
        ordered(device, op, order) for order in ("by_class", "longest_first", "expert")
    )
    classes = [which for _, which in by_class.runs]
    assert len(classes) == len(set(classes)) == len(by_class.classes)
    assert [which for _, which in fullest.runs] == sorted(classes, reverse=True)
    assert run_kernel(by_class).events < run_kernel(in_order).events / 3


def plain_kernel(counts: tuple[int, ...], tiling: Tiling, across: int) -> Kernel:
    """A kernel as grouped products have it: a class for each number of rows, in expert order."""
    sizes = sorted(set(filter(None, counts)))
    return Kernel(
        name="up",
        classes=tuple(TileClass(load=8.0 + n, store=float(n), compute=4.0 + n) for n in sizes),
        runs=tuple((-(-n // tiling.rows) * across, sizes.index(n)) for n in counts if n),
        units=3,
        bandwidth=16.0,
    )


@settings(max_examples=150)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=12).flatmap(
        lambda counts: st.tuples(st.just(tuple(counts)), st.permutations(range(len(counts))))
    ),
    st.sampled_from([4, 16, 64]),
    st.integers(1, 3),
    st.integers(0, 50),
    st.integers(0, 50),
)
def test_an_expert_is_released_when_its_last_row_is_there(
    drawn: tuple[tuple[int, ...], list[int]], height: int, across: int, first: int, more: int
) -> None:
    """Rows come evenly, expert after expert in the order of the queue."""
    counts, order = drawn
    op = GroupedMatmul(name="up", counts=counts, n=across * 64, k=64)
    tiling = Tiling(height, 64, 64)
    plain = plain_kernel(counts, tiling, across)
    late = queued(plain, op, tiling, order, (first, first + more))
    taken = [expert for expert in order if counts[expert]]
    assert len(late.runs) == len(late.releases) == len(taken)
    seen = 0
    sizes = sorted(set(filter(None, counts)))
    for expert, due, (tiles, which) in zip(taken, late.releases, late.runs, strict=True):
        seen += counts[expert]
        assert due == pytest.approx(first + more * seen / sum(counts))
        assert tiles == -(-counts[expert] // height) * across
        assert sizes[which] == counts[expert]
    assert list(late.releases) == sorted(late.releases)
    assert late.releases[-1:] == ((first + more,) if taken else ())

    alone = queued(plain, op, tiling, order)
    assert alone.releases == ()
    assert all(a[1] != b[1] for a, b in pairwise(alone.runs))
    assert alone.tiles == late.tiles == plain.tiles
    at_once = queued(plain, op, tiling, order, (0.0, 0.0))
    assert run_kernel(at_once).makespan == run_kernel(alone).makespan
    # Beside the arrivals no sooner than the last of them, nor later than if all came with it.
    found = run_kernel(late).makespan
    low, high = bounds(late)
    assert low <= found <= high
    if taken:
        assert found > first + more
        assert run_kernel(late, mode="tile").makespan == found


def test_experts_without_rows_have_no_tiles() -> None:
    op = GroupedMatmul(name="up", counts=(0, 0), n=64, k=64)
    empty = Kernel(name="up", classes=(), runs=(), units=4, bandwidth=1.0)
    for arrival in (None, (1.0, 2.0)):
        assert queued(empty, op, Tiling(16, 64, 64), (1, 0), arrival).tiles == 0


@pytest.mark.parametrize("half", HALVES)
def test_a_tile_takes_no_less_than_its_descriptors_take_to_issue(half: str) -> None:
    """In each step one descriptor of weights, and for the first product one per rows gathered."""
    target = make_target("mi455x", overrides=["data_mover.issue=4000 clk"])
    mover = target.accelerator.data_mover
    assert mover is not None
    op, found = product(half), lower(product(half), target)
    one = issued(found.kernel, op, found.tiling, target)
    heights = sum(-(-rows // found.tiling.rows) for rows in op.counts)
    per_tile = heights * -(-op.n // found.tiling.columns) / found.kernel.tiles
    steps = -(-op.k // found.tiling.depth) * per_tile
    for rows, tile in zip(sorted(set(filter(None, op.counts))), one.classes, strict=True):
        rows = min(rows, found.tiling.rows)
        named = -(-rows // mover.gather_rows[16]) if half == "gate_up" else 1
        least = (1 + named) * steps * 4000 / target.accelerator.compute.clock / mover.queues
        assert tile.compute == pytest.approx(least)
    assert replace(one, classes=found.kernel.classes) == found.kernel
    article = issued(found.kernel, op, found.tiling, target, article=True)
    assert run_kernel(article).makespan <= run_kernel(one).makespan
    paced = issued(found.kernel.at_pace(4.0), op, found.tiling, target)
    for slow, tile in zip(paced.classes, one.classes, strict=True):
        assert 4.0 * slow.compute >= tile.compute * (1 - 1e-12)


@pytest.mark.parametrize("device", ["mi300x", "h200"])
def test_without_the_issue_of_a_mover_a_kernel_stays_as_it_is(device: str) -> None:
    op = product("gate_up")
    found = plan(device, op)
    assert issued(found.kernel, op, found.tiling, make_target(device)) is found.kernel


def test_shallow_queues_hold_a_tile_to_what_is_under_way_in_a_latency() -> None:
    target = make_target("mi455x")
    mover = target.accelerator.data_mover
    assert mover is not None
    shallow = replace(mover, depth=1, latency=50_000.0)
    slow = replace(target, accelerator=replace(target.accelerator, data_mover=shallow))
    op = GroupedMatmul(name="up", counts=(16, 16), n=256, k=1024, a="fp8", b="fp8", half="gate_up")
    plan = lower(op, target)
    held = issued(plan.kernel, op, plan.tiling, slow)
    steps = 1024 // plan.tiling.depth
    slabs = plan.kernel.tiles / (2 * -(-256 // plan.tiling.columns) * -(-16 // plan.tiling.rows))
    clocks = 2 * steps / slabs * 50_000 / 2  # rows and weights, one under way in each of two queues
    assert held.classes[0].compute == pytest.approx(clocks / 2.4e9)
