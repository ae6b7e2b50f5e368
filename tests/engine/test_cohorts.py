"""Cohorts: the same bits as tile by tile, the same time as an independent model, few events.

The independent model has a SimPy process per unit and a channel that moves every transfer's bytes
at every change. It runs on exact fractions, so that ties are ties, and the engine's own code runs
on fractions too: the two must then be equal, and the engine on floats within rounding.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import replace
from fractions import Fraction
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simpy import Environment, Event, Timeout

from simulator.engine.cohorts import KernelProcess
from simulator.engine.execute import run_kernel
from simulator.engine.instant import Instant
from simulator.engine.pipes import Pipe
from simulator.mapping.kernel import Kernel, TileClass


def kernel(
    classes: list[tuple[float, float]],
    runs: list[tuple[int, int]],
    units: int,
    bandwidth: float = 1.0,
    rate_cap: float = inf,
) -> Kernel:
    """A kernel of (bytes, seconds) classes."""
    return Kernel(
        name="kernel",
        classes=tuple(TileClass(load=size, store=0, compute=time) for size, time in classes),
        runs=tuple(runs),
        units=units,
        bandwidth=bandwidth,
        rate_cap=rate_cap,
        fixed=0,
    )


def random_kernel(rng: random.Random, most_units: int = 132, most_tiles: float = 2.5) -> Kernel:
    """1 to 5 classes; whole small numbers in two of five cases, to force ties; caps in a third."""
    units = rng.choice([n for n in (1, 2, 3, 5, 8, 16, 31, 64, 132) if n <= most_units])
    ties = rng.random() < 0.4
    capped = rng.random() < 1 / 3
    if ties:
        bandwidth, cap = rng.choice([1.0, 2.0, 3.0, 8.0, 64.0]), rng.choice([0.5, 1.0, 4.0])
    else:
        bandwidth, cap = rng.choice([1e10, 1e11, 1e12]), 10 ** rng.uniform(8.5, 11)
    classes = [
        (rng.randint(0, 4), rng.randint(0, 3))
        if ties
        else (rng.choice([0, 1, 1, 1]) * rng.uniform(1e3, 1e6), rng.uniform(0, 1e-4))
        for _ in range(rng.randint(1, 5))
    ]
    longest = max(1, int(most_tiles * units))
    runs = [
        (rng.choice([0, 1, 2, units, rng.randint(1, longest)]), rng.randrange(len(classes)))
        for _ in range(rng.randint(1, 8))
    ]
    return kernel(classes, runs, units, bandwidth, cap if capped else inf)


def run(*kernels: Kernel, single: bool = False) -> list[KernelProcess]:
    """Kernels at once on one pipe, of the bandwidth of the first."""
    env = Environment(0 * kernels[0].bandwidth)
    instant = Instant(env)
    pipe = Pipe(instant, kernels[0].bandwidth)
    processes = [KernelProcess(kernel, pipe, instant, single=single) for kernel in kernels]
    for process in processes:
        process.begin()
    env.run()
    return processes


def exact(kernel: Kernel) -> Kernel:
    """The same kernel in fractions."""
    return replace(
        kernel,
        classes=tuple(
            TileClass(
                load=Fraction(tile.load), store=Fraction(tile.store), compute=Fraction(tile.compute)
            )
            for tile in kernel.classes
        ),
        bandwidth=Fraction(kernel.bandwidth),
        rate_cap=inf if kernel.rate_cap == inf else Fraction(kernel.rate_cap),
    )


class Channel:
    """Every transfer keeps what is left of it; each change updates all of them."""

    def __init__(self, env: Environment, bandwidth: Fraction) -> None:
        self.env, self.bandwidth = env, bandwidth
        self.transfers: list[list] = []
        self.changed = env.event()
        self.last = env.now
        env.process(self.serve())

    def transfer(self, size: Fraction, cap: Fraction | float) -> Event:
        self.update()
        arrived = self.env.event()
        self.transfers.append([size, cap, arrived])
        if not self.changed.triggered:
            self.changed.succeed()
        return arrived

    def rates(self) -> list[Fraction]:
        left, waiting = self.bandwidth, len(self.transfers)
        rates: dict[int, Fraction] = {}
        for i in sorted(range(len(self.transfers)), key=lambda i: self.transfers[i][1]):
            rates[i] = min(self.transfers[i][1], left / waiting)
            left -= rates[i]
            waiting -= 1
        return [rates[i] for i in range(len(self.transfers))]

    def update(self) -> None:
        passed, self.last = self.env.now - self.last, self.env.now
        if passed:
            for transfer, rate in zip(self.transfers, self.rates(), strict=True):
                transfer[0] -= passed * rate

    def serve(self) -> Generator[Event, None, None]:
        while True:
            if self.transfers:
                needed = [t[0] / rate for t, rate in zip(self.transfers, self.rates(), strict=True)]
                yield self.env.timeout(min(needed)) | self.changed
            else:
                yield self.changed
            if self.changed.triggered:
                self.changed = self.env.event()
            self.update()
            for transfer in [t for t in self.transfers if t[0] == 0]:
                self.transfers.remove(transfer)
                transfer[2].succeed()


class Queues:
    """Hands out tiles when nothing else can happen at this time, in order of class."""

    def __init__(self, env: Environment, kernels: tuple[Kernel, ...]) -> None:
        self.env = env
        self.tiles = [[index for count, index in k.runs for _ in range(count)] for k in kernels]
        self.asking: list[tuple[int, int, int, Event]] = []

    def ask(self, which: int, current: int) -> Event:
        if not self.asking:
            self.env.process(self.answer())
        answer = self.env.event()
        self.asking.append((current, len(self.asking), which, answer))
        return answer

    def answer(self) -> Generator[Event, None, None]:
        yield self.env.timeout(0)
        while self.env.peek() == self.env.now:
            yield self.env.timeout(0)
        asking, self.asking = sorted(self.asking, key=lambda ask: ask[:2]), []
        for _, _, which, answer in asking:
            tiles = self.tiles[which]
            answer.succeed(tiles.pop(0) if tiles else None)


def independent(*kernels: Kernel) -> list[Fraction]:
    """When each kernel ends, with a process per unit."""
    env = Environment(Fraction(0))
    channel, queues = Channel(env, kernels[0].bandwidth), Queues(env, kernels)
    ends: list[list[Fraction]] = [[] for _ in kernels]

    def unit(which: int) -> Generator[Event, int | None, None]:
        classes, cap = kernels[which].classes, kernels[which].rate_cap
        following = yield queues.ask(which, -1)
        computed = env.timeout(0)
        while following is not None:
            current = following
            yield channel.transfer(classes[current].pipe_bytes, cap) & computed
            following = yield queues.ask(which, current)
            computed = env.timeout(classes[current].compute)
        yield computed
        ends[which].append(env.now)

    for which, one in enumerate(kernels):
        for _ in range(one.units):
            env.process(unit(which))
    env.run()
    return [max(end) for end in ends]


@pytest.mark.parametrize("block", range(8))
def test_cohorts_and_tiles_agree_in_every_bit(block: int) -> None:
    """1,200 kernels; the busy times agree in every bit as well."""
    for seed in range(150 * block, 150 * (block + 1)):
        one = random_kernel(random.Random(seed))
        cohort, tile = run_kernel(one), run_kernel(one, mode="tile")
        assert cohort.makespan.hex() == tile.makespan.hex(), seed
        assert cohort.pipe_busy.hex() == tile.pipe_busy.hex(), seed
        assert cohort.compute_busy.hex() == tile.compute_busy.hex(), seed
        assert cohort.events <= tile.events == 2 * one.tiles, seed


@pytest.mark.parametrize("block", range(2))
def test_a_kernel_that_is_played_alone_agrees_with_its_events_in_every_bit_and_in_number(
    block: int,
) -> None:
    """600 kernels, a third of which get their tiles in time; a listener has every event happen."""
    for seed in range(300 * block, 300 * (block + 1)):
        rng = random.Random(70_000 + seed)
        one = random_kernel(rng, most_tiles=rng.choice([0.5, 2.5, 10]))
        if rng.random() < 1 / 3:
            scale = run_kernel(one).makespan
            due = sorted(rng.choice([0, 0.1, rng.random(), 1.2]) * scale for _ in one.runs)
            one = replace(one, releases=tuple(due), fixed=rng.choice([0, 0.1]) * scale)
        env = Environment(0.0)
        instant = Instant(env)
        pipe = Pipe(instant, one.bandwidth)
        heard = KernelProcess(one, pipe, instant, drained=lambda: None)
        heard.begin(one.fixed)
        env.run()
        played = run_kernel(one)
        assert played.makespan.hex() == (one.fixed + heard.end).hex(), seed
        assert played.pipe_busy.hex() == pipe.busy.hex(), seed
        assert played.compute_busy.hex() == heard.computing.hex(), seed
        assert played.events == heard.events, seed


@pytest.mark.parametrize("block", range(3))
def test_kernels_at_once_on_one_pipe_agree_in_every_bit(block: int) -> None:
    """300 sets of 1 to 3 kernels, with equal and with different caps."""
    for seed in range(100 * block, 100 * (block + 1)):
        rng = random.Random(10_000 + seed)
        kernels = [random_kernel(rng, 64) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.5:
            kernels = [replace(one, rate_cap=kernels[0].rate_cap) for one in kernels]
        cohort, tile = run(*kernels), run(*kernels, single=True)
        assert [p.end.hex() for p in cohort] == [p.end.hex() for p in tile], seed


@pytest.mark.parametrize("copies", [2, 3])
def test_equal_kernels_in_step_on_one_pipe_agree_in_every_bit(copies: int) -> None:
    """All units of all of them are ready at the same instants, with nothing else under way."""
    one = exact(kernel([(3, 40)], [(90, 0)], 8))
    (expected, *others) = independent(*[one] * copies)
    assert others == [expected] * (copies - 1)
    for single in (False, True):
        assert {process.end for process in run(*[one] * copies, single=single)} == {expected}


def test_kernels_that_begin_while_others_run_agree_in_every_bit() -> None:
    """300 kernels of many equal waves, each joined by another at some time of its run."""
    for seed in range(300):
        rng = random.Random(50_000 + seed)
        first, second = random_kernel(rng, 16), random_kernel(rng, 16)
        first = replace(first, runs=((rng.randint(1, 40) * first.units, 0), *first.runs[:1]))
        begin = rng.random() * run_kernel(first).makespan
        ends = []
        for single in (False, True):
            env = Environment(0.0)
            instant = Instant(env)
            pipe = Pipe(instant, first.bandwidth)
            processes = [KernelProcess(k, pipe, instant, single=single) for k in (first, second)]
            processes[0].begin()
            Timeout(env, begin).callbacks.append(lambda _, late=processes[1]: late.begin())
            env.run()
            ends.append([p.end.hex() for p in processes] + [pipe.busy.hex()])
        assert ends[0] == ends[1], seed


@pytest.mark.parametrize("single", [False, True])
def test_kernels_on_pipes_of_their_own_do_not_touch_each_other(single: bool) -> None:
    for seed in range(50):
        kernels = [random_kernel(random.Random(60_000 + 2 * seed + i), 16) for i in range(2)]
        env = Environment(0.0)
        instant = Instant(env)
        processes = [
            KernelProcess(one, Pipe(instant, one.bandwidth), instant, single=single)
            for one in kernels
        ]
        for process in processes:
            process.begin()
        env.run()
        assert [p.end for p in processes] == [run_kernel(one).makespan for one in kernels], seed


def test_a_process_per_unit_agrees_exactly_on_fractions() -> None:
    """400 kernels small enough for the independent model; floats then agree within 1e-12."""
    for seed in range(400):
        one = random_kernel(random.Random(20_000 + seed), 8)
        (expected,) = independent(exact(one))
        assert run(exact(one))[0].end == expected, seed
        assert run(exact(one), single=True)[0].end == expected, seed
        assert run_kernel(one).makespan == pytest.approx(float(expected), rel=1e-12), seed


def test_processes_per_unit_of_several_kernels_agree_exactly_on_fractions() -> None:
    for seed in range(60):
        rng = random.Random(30_000 + seed)
        kernels = [random_kernel(rng, 5, 1.5) for _ in range(rng.randint(2, 3))]
        kernels = [exact(replace(one, bandwidth=kernels[0].bandwidth)) for one in kernels]
        assert [process.end for process in run(*kernels)] == independent(*kernels), seed


def test_one_class_takes_two_events_per_wave_and_one_more() -> None:
    """Both figures: 24 waves of 304 and 176 waves of 304, with a ragged last wave."""
    dense = kernel([(4e6, 6e-5)], [(7_168, 0)], 304, 5e12)
    assert run_kernel(dense).events == 2 * 24 + 1 == 49
    assert run_kernel(replace(dense, runs=((53_248, 0),))).events == 2 * 176 + 1 == 353


def test_events_do_not_grow_with_the_number_of_units() -> None:
    for units in (8, 304, 10**6):
        full = kernel([(4e3, 6e-5), (5e3, 1e-5)], [(3 * units, 0), (2 * units, 1)], units, 1e9)
        assert run_kernel(full).events == 10


def test_two_buffers_overlap_the_next_load_with_this_compute() -> None:
    # One unit: load 2, then [compute 3 | load 2] twice, then compute 3.
    assert run_kernel(kernel([(2, 3)], [(3, 0)], 1)).makespan == 2 + 3 * 3
    # Loads bind: 3 loads of 4 s in a row and the last compute.
    assert run_kernel(kernel([(4, 3)], [(3, 0)], 1)).makespan == 3 * 4 + 3


def test_units_ready_at_one_instant_are_served_in_class_order() -> None:
    """Class 1 is loaded by the first unit of the queue, yet class 0 takes the next tile.

    Both units are ready at 1. The one with class 0 takes the long tile (class 2) and is done with
    its own at 2, so the long one ends at 2 + 10; served the other way round it would wait for
    class 1 until 6 and end at 16.
    """
    tied = kernel([(1, 1), (1, 5), (0, 10)], [(1, 1), (1, 0), (1, 2)], 2, 2.0)
    for mode in ("cohort", "tile"):
        assert run_kernel(tied, mode=mode).makespan == 12


@pytest.mark.parametrize("mode", ["cohort", "tile"])
@pytest.mark.parametrize(
    ("case", "seconds"),
    [
        (kernel([(3, 2)], [], 4), 0),
        (kernel([(3, 2)], [(0, 0)], 4), 0),
        (kernel([(3, 2), (1, 1)], [(0, 1), (1, 0), (0, 1)], 4), 5),
        (kernel([(3, 2)], [(2, 0)], 4), 8),
        (kernel([(0, 2)], [(9, 0)], 4), 6),
        (kernel([(3, 0)], [(9, 0)], 4), 27),
        (kernel([(0, 0)], [(9, 0)], 4), 0),
        (kernel([(0, 0), (1, 1)], [(50, 0), (1, 1)], 4), 2),
        (kernel([(4, 1)], [(3, 0)], 4, 100.0, 2.0), 3),
    ],
    ids=[
        "no runs",
        "an empty run",
        "empty runs around one tile",
        "fewer tiles than units",
        "no bytes",
        "no compute",
        "neither",
        "neither, then one tile",
        "rate cap",
    ],
)
def test_edge_cases_take_what_arithmetic_says(case: Kernel, seconds: float, mode: str) -> None:
    assert run_kernel(case, mode=mode).makespan == seconds


def test_write_back_shares_the_pipe_and_fixed_time_is_added_once() -> None:
    stored = Kernel(
        name="store",
        classes=(TileClass(load=2.0, store=1.0, compute=4.0),),
        runs=((1, 0),),
        units=1,
        bandwidth=1.0,
        fixed=0.5,
    )
    assert run_kernel(stored).makespan == 0.5 + 3.0 + 4.0


def test_busy_times_account_for_all_bytes_and_all_compute() -> None:
    for seed in range(100):
        one = random_kernel(random.Random(40_000 + seed))
        result = run_kernel(one)
        assert result.compute_busy == pytest.approx(one.compute, rel=1e-12)
        assert result.pipe_busy >= one.pipe_bytes / one.bandwidth * (1 - 1e-12)
        assert result.pipe_busy <= result.makespan * (1 + 1e-12)


def test_many_runs_cost_a_few_events_each() -> None:
    runs = [(1 + i % 3, i % 5) for i in range(5_000)]
    many = kernel([(1e3 * (i + 1), 1e-6 * (5 - i)) for i in range(5)], runs, 256, 1e11)
    result = run_kernel(many)
    assert result.events <= 2 * many.tiles
    assert result.makespan == run_kernel(many, mode="tile").makespan


def test_a_kernel_says_when_it_is_drained_and_another_can_follow() -> None:
    """Chained on one pipe and one clock, two kernels take the sum of their times."""
    first, second = kernel([(2, 3)], [(5, 0)], 2, 2.0), kernel([(4, 1)], [(3, 0)], 3, 2.0)
    env = Environment()
    instant = Instant(env)
    pipe = Pipe(instant, 2.0)
    last = KernelProcess(second, pipe, instant)
    KernelProcess(first, pipe, instant, drained=last.begin).begin()
    env.run()
    assert last.end == run_kernel(first).makespan + run_kernel(second).makespan


@settings(deadline=None)
@given(st.integers(0, 10**6))
def test_fewer_tiles_at_the_end_of_the_queue_are_never_slower(seed: int) -> None:
    """Until the last tile would be taken nothing differs, and after that nothing is handed out."""
    one = random_kernel(random.Random(seed), 16)
    runs = [run for run in one.runs if run[0]]
    if runs:
        count, index = runs[-1]
        fewer = replace(one, runs=(*runs[:-1], (count - 1, index)))
        slack = 1 + 1e-12
        assert run_kernel(fewer).makespan <= run_kernel(one).makespan * slack


@settings(deadline=None)
@given(st.integers(0, 10**6), st.floats(1, 4), st.floats(1, 4))
def test_one_class_is_never_slower_with_more_bandwidth_or_faster_compute(
    seed: int, bandwidth: float, clock: float
) -> None:
    one = random_kernel(random.Random(seed), 16)
    one = replace(one, classes=one.classes[:1], runs=((one.tiles, 0),))
    tile = one.classes[0]
    better = replace(
        one,
        classes=(replace(tile, compute=tile.compute / clock),),
        bandwidth=one.bandwidth * bandwidth,
    )
    assert run_kernel(better).makespan <= run_kernel(one).makespan * (1 + 1e-12)


@pytest.mark.parametrize(
    ("before", "after", "times"),
    [
        pytest.param(
            kernel([(0, 1), (1, 4)], [(1, 1), (2, 0), (1, 1)], 2),
            kernel([(0, 1), (1, 4)], [(1, 1), (2, 0), (1, 1)], 2, 2),
            (6, Fraction(17, 2)),
            id="bandwidth",
        ),
        pytest.param(
            kernel([(4, 2), (1, 4)], [(1, 1), (1, 0), (2, 1)], 2),
            kernel([(4, Fraction(9, 5)), (1, Fraction(18, 5))], [(1, 1), (1, 0), (2, 1)], 2),
            (12, Fraction(64, 5)),
            id="compute",
        ),
        pytest.param(
            kernel([(0, 1), (1, 1)], [(3, 1), (1, 0)], 2),
            kernel([(0, 1), (1, 1)], [(3, 1), (1, 0)], 3),
            (4, 5),
            id="units",
        ),
        pytest.param(
            kernel([(0, 4), (1, 0)], [(2, 1), (2, 0)], 2),
            kernel([(0, 4), (1, 0)], [(1, 1), (2, 0)], 2),
            (6, 8),
            id="first tile dropped",
        ),
    ],
)
def test_unequal_tiles_in_queue_order_can_end_later_with_more(
    before: Kernel, after: Kernel, times: tuple[Fraction, Fraction]
) -> None:
    """Anomalies of list scheduling, as Graham found them: true of the schedule, not of its code."""
    found = [run(exact(one))[0].end for one in (before, after)]
    assert found == [independent(exact(one))[0] for one in (before, after)] == list(times)
