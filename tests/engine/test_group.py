"""Ranks that meet in exchanges, against sums, max-plus recurrences and what no schedule beats.

Durations are whole numbers, so that every sum of them is exact.
"""

from __future__ import annotations

from itertools import pairwise, permutations
from random import Random

import pytest

from simulator.engine.group import GroupRun, Program, Stage, run_group
from simulator.engine.machine import CommandProcessor, LaunchPolicy

FREE = LaunchPolicy()
GAPS = LaunchPolicy(gap=2.0, first=5.0)
EAGER = LaunchPolicy(mode="eager", host=3.0, gap=1.0)
POLICIES = {"free": FREE, "graph": GAPS, "eager": EAGER}


def programs(rng: Random, ranks: int, stages: int, *, most_kernels: int = 4) -> list[Program]:
    """Random kernels on each rank, an exchange behind each stage but the last."""
    return [
        tuple(
            Stage(
                durations=tuple(
                    float(rng.randint(0, 9)) for _ in range(rng.randint(0, most_kernels))
                ),
                exchange=float(rng.randint(0, 9)) if stage < stages - 1 else None,
            )
            for stage in range(stages)
        )
        for _ in range(ranks)
    ]


def recurrence(batch: list[Program], gap: float = 0.0, first: float = 0.0) -> float:
    """Max-plus: each exchange begins with the last rank and lasts as long as its longest part.

    Behind a graph launch, the first kernel of a rank begins at ``first`` and each other one a gap
    after the kernel or the exchange before.
    """
    meeting, ends = 0.0, [0.0] * len(batch)
    begun = [False] * len(batch)
    for stage in range(len(batch[0])):
        for rank, program in enumerate(batch):
            time = meeting
            for place, duration in enumerate(program[stage].durations):
                before = gap if stage or place else 0.0
                time = (time + before if begun[rank] else max(first, time + before)) + duration
                begun[rank] = True
            ends[rank] = max(time, meeting + program[stage].beside)
        meeting = max(ends) + max(program[stage].exchange or 0.0 for program in batch)
    return meeting


def disjoint(spans: list[tuple[float, float]]) -> bool:
    return all(before[1] <= after[0] for before, after in pairwise(sorted(spans)))


def takes_turns(run: GroupRun) -> bool:
    """No rank computes two stages at once, and the links carry one exchange at a time."""
    stages = [
        [(lap.begin, lap.computed) for batch in run.laps for lap in batch[rank]]
        for rank in range(len(run.laps[0]))
    ]
    exchanges = [(lap.met, lap.end) for batch in run.laps for lap in batch[0] if lap.end > lap.met]
    return all(map(disjoint, [*stages, exchanges]))


@pytest.mark.parametrize("launch", POLICIES.values(), ids=POLICIES)
def test_without_exchanges_a_rank_is_a_stream_of_kernels(launch: LaunchPolicy) -> None:
    for seed in range(50):
        rng = Random(seed)
        batch = programs(rng, rng.randint(1, 4), 1)
        ends = []
        for (stage,) in batch:
            processor = CommandProcessor(launch)
            for duration in stage.durations:
                processor.execute(duration)
            ends.append(processor.end)
        run = run_group([batch], launch)
        assert run.latency == max(ends)
        assert [laps[0].end for laps in run.laps[0]] == ends


def test_kernels_and_gaps_add_up() -> None:
    (stage,) = run_group([[(Stage(durations=(3.0, 4.0, 5.0)),)]], GAPS).laps[0][0]
    assert stage.end == 5 + 3 + 2 + 4 + 2 + 5
    assert run_group([[(Stage(durations=()),)]], GAPS).latency == 0


@pytest.mark.parametrize("launch", [FREE, GAPS], ids=["free", "graph"])
def test_one_batch_takes_what_the_recurrence_says(launch: LaunchPolicy) -> None:
    for seed in range(300):
        rng = Random(seed)
        batch = programs(rng, rng.randint(1, 5), rng.randint(1, 6))
        run = run_group([batch], launch)
        assert run.latency == recurrence(batch, launch.gap, launch.first), seed
        assert takes_turns(run), seed


def test_an_exchange_under_way_holds_a_stage_open() -> None:
    for seed in range(200):
        rng = Random(1_000 + seed)
        batch = [
            tuple(
                Stage(durations=stage.durations, exchange=stage.exchange, beside=float(beside))
                for stage, beside in zip(program, [0, 12, 7, 0], strict=True)
            )
            for program in programs(rng, 3, 4)
        ]
        assert run_group([batch], FREE).latency == recurrence(batch), seed


def test_laps_say_when_each_rank_computed_met_and_ended() -> None:
    batch = [
        (Stage(durations=(4.0,), exchange=3.0), Stage(durations=(1.0,))),
        (Stage(durations=(2.0, 5.0), exchange=6.0), Stage(durations=(2.0,))),
    ]
    run = run_group([batch], FREE)
    times = [
        [(lap.begin, lap.computed, lap.met, lap.end, lap.computing) for lap in laps]
        for laps in run.laps[0]
    ]
    assert times == [
        [(0, 4, 7, 13, 4), (13, 14, 14, 14, 1)],
        [(0, 7, 7, 13, 7), (13, 15, 15, 15, 2)],
    ]
    assert run.latency == 15


@pytest.mark.parametrize("launch", POLICIES.values(), ids=POLICIES)
def test_the_order_of_ranks_does_not_matter(launch: LaunchPolicy) -> None:
    for seed in range(40):
        rng = Random(seed)
        batches = [programs(rng, 3, 4) for _ in range(rng.choice([1, 2]))]
        run = run_group(batches, launch)
        for order in permutations(range(3)):
            other = run_group([[batch[rank] for rank in order] for batch in batches], launch)
            assert other.latency == run.latency, seed
            for batch, mine in enumerate(run.laps):
                assert other.laps[batch] == tuple(mine[rank] for rank in order), seed


def test_a_slow_rank_delays_all_others_by_exactly_what_it_takes_longer() -> None:
    """Equal ranks are ready at once; one that takes d longer in a stage moves all that follows."""
    for seed in range(100):
        rng = Random(seed)
        (program,) = programs(rng, 1, 5)
        equal = run_group([[program] * 4], GAPS)
        late, which = float(rng.randint(1, 20)), rng.randrange(5)
        stage = program[which]
        longer = Stage(
            durations=(*stage.durations[:-1], sum(stage.durations[-1:]) + late),
            exchange=stage.exchange,
        )
        if not stage.durations:
            continue
        slow = (*program[:which], longer, *program[which + 1 :])
        run = run_group([[program, program, slow, program]], GAPS)
        assert run.latency == equal.latency + late
        for rank in (0, 1, 3):
            for place in range(5):
                before, after = equal.laps[0][rank][place], run.laps[0][rank][place]
                moved = late if place > which else 0.0
                assert after.begin == before.begin + moved
                assert after.computing == before.computing
                waits = place == which and stage.exchange is not None
                assert after.met - before.met == (late if waits or place > which else 0.0)


@pytest.mark.parametrize("launch", POLICIES.values(), ids=POLICIES)
def test_a_longer_kernel_or_exchange_never_ends_one_batch_sooner(launch: LaunchPolicy) -> None:
    for seed in range(100):
        rng = Random(seed)
        batch = programs(rng, 3, 4)
        longer = [
            tuple(
                Stage(
                    durations=tuple(d + rng.choice([0, 0, 3]) for d in stage.durations),
                    exchange=None
                    if stage.exchange is None
                    else stage.exchange + rng.choice([0, 2]),
                )
                for stage in program
            )
            for program in batch
        ]
        assert run_group([longer], launch).latency >= run_group([batch], launch).latency, seed


@pytest.mark.parametrize("launch", POLICIES.values(), ids=POLICIES)
def test_two_batches_take_no_longer_than_one_after_the_other(launch: LaunchPolicy) -> None:
    """Nor less than the busiest rank computes, the links carry, or either batch takes alone."""
    overlapped = 0
    for seed in range(300):
        rng = Random(seed)
        ranks, stages = rng.randint(1, 4), rng.randint(1, 6)
        batches = [programs(rng, ranks, stages) for _ in range(2)]
        run = run_group(batches, launch)
        alone = [run_group([batch], launch).latency for batch in batches]
        assert max(alone) <= run.latency <= sum(alone), seed
        computing = max(
            sum(sum(stage.durations) for batch in batches for stage in batch[rank])
            for rank in range(ranks)
        )
        carried = sum(
            max(program[stage].exchange or 0.0 for program in batch)
            for batch in batches
            for stage in range(stages)
        )
        assert run.latency >= max(computing, carried), seed
        overlapped += run.latency < sum(alone)
        assert takes_turns(run), seed
    assert overlapped > 150


def test_one_batch_computes_while_the_other_exchanges() -> None:
    """Stages of 4 and exchanges of 4, two batches: all but the first and the last overlap."""
    program = (*[Stage(durations=(4.0,), exchange=4.0)] * 5, Stage(durations=(4.0,)))
    run = run_group([[program] * 2] * 2, FREE)
    assert run_group([[program] * 2], FREE).latency == 11 * 4
    assert run.latency == 12 * 4
    first, second = run.laps[0][0], run.laps[1][0]
    assert [lap.begin for lap in first] == [0, 8, 16, 24, 32, 40]
    assert [lap.begin for lap in second] == [4, 12, 20, 28, 36, 44]


def test_exchanges_of_two_batches_take_turns_on_the_links() -> None:
    program = (Stage(durations=(1.0,), exchange=10.0), Stage(durations=(1.0,)))
    run = run_group([[program]] * 2, FREE)
    assert run.latency == 1 + 10 + 10 + 1
    assert [batch[0][0].met for batch in run.laps] == [1, 11]


def test_one_host_issues_the_launches_of_both_batches() -> None:
    program = (Stage(durations=(1.0,) * 4, exchange=1.0), Stage(durations=(1.0,) * 4))
    launch = LaunchPolicy(mode="eager", host=5.0)
    assert run_group([[program] * 2], launch).latency == 8 * 5 + 1
    assert run_group([[program] * 2] * 2, launch).latency == 16 * 5 + 1


def test_ranks_that_meet_a_different_number_of_times_are_refused() -> None:
    with pytest.raises(AssertionError, match="same exchanges"):
        run_group([[(Stage(durations=()),), (Stage(durations=()),) * 2]], FREE)
