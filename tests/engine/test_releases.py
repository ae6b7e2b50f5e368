"""Tiles that come while the kernel runs, and kernels held to another pace.

Truth is a model of the same rule that steps through time on exact fractions, unit by unit, with
all its state in the open; arithmetic; and what bounds prove. The engine's own code runs on
fractions too and must then be equal.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf

import pytest
from simpy import Environment

from simulator.costs.bounds import bounds
from simulator.costs.estimate import estimate
from simulator.engine.cohorts import KernelProcess
from simulator.engine.execute import Memo, Mode, Segment, look_up, run_kernel, run_stream
from simulator.engine.instant import Instant
from simulator.engine.machine import LaunchPolicy
from simulator.engine.pipes import Pipe
from simulator.engine.recorder import Recorder
from simulator.mapping.kernel import Kernel, TileClass

IDLE = -1


def kernel(
    classes: list[tuple[float, float]],
    runs: list[tuple[int, int]],
    units: int,
    releases: list[float],
    **more: float,
) -> Kernel:
    """A kernel of (bytes, seconds) classes on a pipe of one byte per second."""
    return Kernel(
        name="kernel",
        classes=tuple(TileClass(load=size, store=0, compute=time) for size, time in classes),
        runs=tuple(runs),
        units=units,
        releases=tuple(releases),
        **{"bandwidth": 1.0, **more},
    )


def random_kernel(seed: int, most_units: int = 132) -> Kernel:
    """1 to 5 classes in up to 12 runs; whole small numbers in half of the cases, to force ties."""
    rng = random.Random(seed)
    units = rng.choice([n for n in (1, 2, 3, 8, 31, 132) if n <= most_units])
    ties = rng.random() < 0.5
    classes = [
        (rng.randint(0, 4), rng.randint(0, 3)) if ties else (rng.random() * 9, rng.random() * 5)
        for _ in range(rng.randint(1, 5))
    ]
    longest = rng.choice([1, 2 * units])
    runs = [
        (rng.randint(0, longest), rng.randrange(len(classes))) for _ in range(rng.randint(1, 12))
    ]
    late = rng.choice([4, 20])
    releases = sorted(
        rng.randint(0, late) if ties else rng.choice([0, 1, rng.random() * late]) for _ in runs
    )
    return kernel(
        classes, runs, units, [float(due) for due in releases],
        bandwidth=rng.choice([1.0, 4.0, 40.0]), rate_cap=rng.choice([inf, 2.0]),
        fixed=rng.choice([0, 0.5]), pace=rng.choice([1.0, 1.37]),
    )  # fmt: skip


def exact(one: Kernel) -> Kernel:
    """The same kernel in fractions, at pace 1."""
    return replace(
        one,
        classes=tuple(
            TileClass(load=Fraction(t.load), store=0, compute=Fraction(t.compute))
            for t in one.classes
        ),
        bandwidth=Fraction(one.bandwidth),
        rate_cap=inf if one.rate_cap == inf else Fraction(one.rate_cap),
        fixed=Fraction(one.fixed),
        releases=tuple(map(Fraction, one.releases)),
        pace=1,
    )


def end_of(one: Kernel, *, single: bool = False) -> Fraction:
    """``run_kernel`` with a clock in fractions."""
    instant = Instant(Environment(Fraction(0)))
    process = KernelProcess(one, Pipe(instant, one.bandwidth), instant, single=single)
    process.begin(one.fixed)
    instant.env.run()
    return one.fixed + process.end


@dataclass
class Unit:
    """A unit with its tile, done at some time, and the buffer with the next one."""

    done: Fraction = Fraction(0)
    ended: bool = True
    """It has looked for a tile since it ended its last one."""
    following: int = IDLE
    left: Fraction = Fraction(0)


def stepwise(one: Kernel) -> Fraction:
    """The end of a kernel, from event to event, every unit looked at each time."""
    queue = [
        (max(due - one.fixed, Fraction(0)), index)
        for due, (count, index) in zip(one.releases, one.runs, strict=True)
        for _ in range(count)
    ]
    units = [Unit() for _ in range(one.units)]
    now = Fraction(0)
    while True:
        while True:
            there = bool(queue) and queue[0][0] <= now
            ready = [
                unit
                for unit in units
                if unit.done <= now
                and (unit.left == 0 if unit.following != IDLE else there or not unit.ended)
            ]
            if not ready:
                break
            for unit in sorted(ready, key=lambda unit: unit.following):
                unit.ended = unit.following == IDLE
                if not unit.ended:
                    unit.done = now + one.classes[unit.following].compute
                unit.following = IDLE
                if queue and queue[0][0] <= now:
                    unit.following = queue.pop(0)[1]
                    unit.left = one.classes[unit.following].pipe_bytes
        loading = [unit for unit in units if unit.following != IDLE and unit.left > 0]
        rate = min(one.bandwidth / len(loading), one.rate_cap) if loading else Fraction(1)
        times = [now + unit.left / rate for unit in loading]
        times += [unit.done for unit in units if unit.done > now]
        times += [due for due, _ in queue[:1] if due > now]
        if not times:
            return one.fixed + max(unit.done for unit in units)
        passed, now = min(times) - now, min(times)
        for unit in loading:
            unit.left -= passed * rate


@pytest.mark.parametrize("block", range(5))
def test_cohorts_and_tiles_agree_in_every_bit_and_within_bounds(block: int) -> None:
    """750 kernels with releases, caps and paces."""
    for seed in range(150 * block, 150 * (block + 1)):
        one = random_kernel(seed)
        cohort, tile = run_kernel(one), run_kernel(one, mode="tile")
        assert cohort.makespan.hex() == tile.makespan.hex(), seed
        assert cohort.pipe_busy.hex() == tile.pipe_busy.hex(), seed
        assert cohort.compute_busy.hex() == tile.compute_busy.hex(), seed
        assert cohort.events <= tile.events == 2 * one.tiles, seed
        low, high = bounds(one)
        assert low <= cohort.makespan <= high, seed
        assert low <= estimate(one) <= high, seed


def test_unit_by_unit_agrees_exactly_on_fractions() -> None:
    """400 kernels; floats then agree within 1e-12."""
    for seed in range(500):
        one = replace(random_kernel(1_000 + seed, 8), pace=1.0)
        expected = stepwise(exact(one))
        assert end_of(exact(one)) == end_of(exact(one), single=True) == expected, seed
        assert run_kernel(one).makespan == pytest.approx(float(expected), rel=1e-12), seed


def test_tiles_that_are_there_at_once_agree_in_every_bit_with_a_queue_without_releases() -> None:
    for seed in range(300):
        one = replace(random_kernel(2_000 + seed), pace=1.0)
        plain = run_kernel(replace(one, releases=()))
        for due in (0.0, one.fixed):
            assert run_kernel(replace(one, releases=(due,) * len(one.runs))) == plain, seed


def test_a_queue_that_comes_as_a_whole_is_late_by_that_time() -> None:
    for seed in range(200):
        one = exact(random_kernel(3_000 + seed, 8))
        plain = end_of(replace(one, releases=()))
        late = Fraction(7, 3)
        moved = end_of(replace(one, releases=(one.fixed + late,) * len(one.runs)))
        assert moved == (plain + late if one.tiles else one.fixed), seed


def test_tiles_that_only_move_bytes_keep_the_pipe_busy_whenever_one_is_there() -> None:
    """Then the end is the latest, over all arrivals, of that time and the bytes from there on."""
    for seed in range(300):
        one = exact(random_kernel(4_000 + seed, 8))
        one = replace(
            one, classes=tuple(replace(t, compute=Fraction(0)) for t in one.classes), rate_cap=inf
        )
        left, end = Fraction(0), one.fixed
        for due, (count, index) in reversed(list(zip(one.releases, one.runs, strict=True))):
            left += count * one.classes[index].pipe_bytes / one.bandwidth
            end = max(end, left + max(due, one.fixed)) if count else end
        assert end_of(one) == end, seed


@pytest.mark.parametrize("mode", ["cohort", "tile"])
def test_a_tile_may_end_sooner_because_it_comes_later(mode: Mode) -> None:
    """A unit that begins a long tile takes one that is there into its buffer, where it waits; a
    little later another unit is the first that looks."""
    jobs = [(0, 10), (0, 1), (0, 2)], [(1, 0), (1, 1), (1, 2)], 2
    assert run_kernel(kernel(*jobs, [0, 0, 0]), mode=mode).makespan == 10 + 2
    assert run_kernel(kernel(*jobs, [0, 0, 0.5]), mode=mode).makespan == 10
    equal = [(0, 10)], [(1, 0), (1, 0), (1, 0)], 2
    assert run_kernel(kernel(*equal, [0, 3, 3]), mode=mode).makespan == 3 + 10 + 10
    assert run_kernel(kernel(*equal, [0, 3, 4]), mode=mode).makespan == 10 + 10


@pytest.mark.parametrize("mode", ["cohort", "tile"])
@pytest.mark.parametrize(
    ("one", "seconds"),
    [
        (kernel([(3, 2)], [(1, 0)], 4, [7.0]), 7 + 3 + 2),
        (kernel([(3, 2)], [(1, 0)], 4, [7.0], fixed=9.0), 9 + 3 + 2),
        # The second tile loads from 4 on, while the first, begun at 3, computes until 13.
        (kernel([(3, 10)], [(1, 0), (1, 0)], 1, [0.0, 4.0]), 3 + 10 + 3 + 10),
        # The unit looks when it begins a tile and when it ends one: at 3 it sees the second.
        (kernel([(3, 10)], [(1, 0), (1, 0)], 1, [0.0, 3.0]), 3 + 10 + 10),
        # Both load from 2 on at half the rate; alone, one would have ended at 3 + 1.
        (kernel([(3, 1)], [(1, 0), (1, 0)], 2, [0.0, 2.0]), 2 + 2 + 2 + 1),
        (kernel([(3, 2)], [(0, 0)], 4, [7.0]), 0),
        (kernel([(3, 2)], [], 4, []), 0),
        (kernel([(0, 0)], [(3, 0), (2, 0)], 2, [0.0, 5.0]), 5),
    ],
    ids=["late", "before the fill ends", "missed", "just seen", "shared", "none", "empty", "free"],
)  # fmt: skip
def test_hand_made_arrivals_end_when_arithmetic_says(
    one: Kernel, seconds: float, mode: Mode
) -> None:
    assert run_kernel(one, mode=mode).makespan == seconds


@pytest.mark.parametrize("mode", ["cohort", "tile"])
def test_no_load_begins_before_its_tile_has_come(mode: Mode) -> None:
    for seed in range(60):
        one = random_kernel(5_000 + seed, 31)
        spans = Recorder()
        run_kernel(one, mode=mode, recorder=spans)
        began = sorted(
            start
            for resource, start, count in zip(
                spans.resource, spans.start, spans.multiplicity, strict=True
            )
            for _ in range(count if resource == "pipe" else 0)
        )
        due = [d for d, (n, _) in zip(one.releases, one.runs, strict=True) for _ in range(n)]
        assert len(began) == one.tiles
        assert all(b >= d * (1 - 1e-12) for b, d in zip(began, due, strict=True)), seed


def test_another_pace_is_that_many_times_the_run() -> None:
    for seed in range(100):
        rng = random.Random(seed)
        one, factor = random_kernel(6_000 + seed, 31), rng.uniform(0.2, 5)
        plain = replace(one, releases=(), pace=1.0)
        for mode in ("roofline", "cohort", "tile"):
            paced = run_kernel(plain.at_pace(factor), mode=mode)
            assert paced == run_kernel(plain, mode=mode).at_pace(factor)
            assert look_up(plain.at_pace(factor), mode, Memo())[0] == paced
            # What comes from outside comes when it comes: only stretched arrivals keep in step.
            stretched = replace(one, releases=tuple(due * 2 for due in one.releases))
            assert (
                run_kernel(stretched.at_pace(2), mode=mode).makespan
                == 2 * run_kernel(one, mode=mode).makespan
            )


def test_spans_stretch_with_the_pace() -> None:
    one = replace(random_kernel(7_003, 8), releases=(), pace=1.0)
    runs = []
    for kernel_ in (one, one.at_pace(2.5)):
        spans = Recorder()
        run_kernel(kernel_, recorder=spans)
        runs.append(spans)
    plain, paced = runs
    assert len(plain) > 2
    assert paced.start == [2.5 * time for time in plain.start]
    assert paced.end == [2.5 * time for time in plain.end]
    assert (paced.task, paced.multiplicity) == (plain.task, plain.multiplicity)


def test_spans_of_a_stream_are_those_of_its_stretched_kernels() -> None:
    one = random_kernel(7_003, 8).at_pace(3.0)
    alone, stream = Recorder(), Recorder()
    run_kernel(one, recorder=alone)
    layers = [Segment(name="layers", repeat=2, kernels=(one,))]
    run_stream(layers, LaunchPolicy(gap=1.0), recorder=stream)
    seconds = run_kernel(one).makespan
    rows = [row for row, name in enumerate(stream.resource) if name != "device"]
    expected = [at + time for at in (0, seconds + 1) for time in alone.start]
    assert [stream.start[row] for row in rows] == pytest.approx(expected)


@pytest.mark.parametrize("mode", ["roofline", "cohort", "tile"])
def test_arrivals_tell_kernels_apart_in_a_memo(mode: Mode) -> None:
    early = kernel([(3, 2)], [(4, 0)], 4, [0.0])
    late = replace(early, releases=(5.0,))
    memo = Memo()
    runs = [look_up(one, mode, memo) for one in (early, late, early.at_pace(2.0))]
    assert [new for _, _, new in runs] == [True, True, False]
    assert [run.makespan for run, _, _ in runs] == pytest.approx([14.0, 19.0, 28.0])
