"""Streams: equal with and without the memo, in every mode, and equal to hand arithmetic."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import accumulate

import pytest

from simulator.costs.estimate import estimate
from simulator.engine.execute import Memo, Mode, Segment, run_kernel, run_stream
from simulator.engine.machine import LaunchPolicy
from simulator.engine.recorder import Recorder
from simulator.mapping.kernel import Kernel, TileClass


def kernel(name: str, tiles: int, *, load: float = 3e5, compute: float = 2e-6) -> Kernel:
    classes = (
        TileClass(load=load, store=1e4, compute=compute),
        TileClass(load=load / 3, store=1e4, compute=compute / 2),
    )
    return Kernel(
        name=name,
        classes=classes,
        runs=((tiles - tiles // 5, 0), (tiles // 5, 1)),
        units=37,
        bandwidth=3.1e12,
        fixed=1.3e-6,
    )


LAYER = Segment(
    name="layer",
    repeat=7,
    kernels=(kernel("qkv", 100), kernel("o", 61), kernel("up", 411, compute=3e-6)),
)
HEAD = Segment(name="head", repeat=1, kernels=(kernel("logits", 200), kernel("qkv", 100)))
LAUNCHES = [
    LaunchPolicy(mode="graph", gap=1.1e-6, first=7e-6),
    LaunchPolicy(mode="eager", host=9e-6, gap=0.3e-6),
    LaunchPolicy(),
]


@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("mode", ["cohort", "tile", "roofline"])
def test_the_memo_changes_no_bit(mode: Mode, launch: LaunchPolicy) -> None:
    with_memo = run_stream([LAYER, HEAD], launch, mode=mode)
    without = run_stream([LAYER, HEAD], launch, mode=mode, memo=False)
    assert with_memo == without
    assert (with_memo.simulated, without.simulated) == (4, 7 * 3 + 2)


@pytest.mark.parametrize("launch", LAUNCHES)
def test_cohort_and_tile_mode_agree_in_every_bit(launch: LaunchPolicy) -> None:
    cohort = run_stream([LAYER, HEAD], launch)
    tile = run_stream([LAYER, HEAD], launch, mode="tile")
    assert cohort.starts == tile.starts
    assert cohort.durations == tile.durations
    assert cohort.latency == tile.latency
    assert tile.events == 2 * (7 * (100 + 61 + 411) + 200 + 100) > 10 * cohort.events


def test_a_stream_is_its_kernels_one_after_another_behind_the_launch() -> None:
    launch = LaunchPolicy(mode="graph", gap=1e-6, first=5e-6)
    stream = run_stream([LAYER, HEAD], launch)
    alone = [run_kernel(one).makespan for one in LAYER.kernels * 7 + HEAD.kernels]
    assert list(stream.durations) == alone
    ends = list(accumulate(alone, lambda end, duration: end + 1e-6 + duration))
    assert stream.latency == pytest.approx(5e-6 + ends[-1], rel=1e-12)
    assert stream.starts[0] == 5e-6
    assert [len(runs) for runs in stream.kernels] == [3, 2]
    assert stream.kernels[1][0] == run_kernel(HEAD.kernels[0])


def test_equal_layers_written_out_take_the_same_time_as_a_repeat() -> None:
    written_out = [replace(LAYER, repeat=1)] * 7
    folded, unfolded = run_stream([LAYER], LAUNCHES[1]), run_stream(written_out, LAUNCHES[1])
    assert folded.starts == unfolded.starts
    assert folded.latency == unfolded.latency
    assert unfolded.simulated == 3


def test_nothing_to_run_takes_no_time() -> None:
    empty = run_stream([replace(LAYER, repeat=0), replace(LAYER, kernels=())], LaunchPolicy())
    assert (empty.latency, empty.starts, empty.events, empty.simulated) == (0.0, (), 0, 0)
    assert empty.kernels == ((), ())


def test_roofline_mode_is_the_estimate() -> None:
    one = LAYER.kernels[0]
    run = run_kernel(one, mode="roofline")
    assert run.makespan == estimate(one)
    assert run.events == 0
    assert run.compute_busy == one.compute


def test_a_memo_outlives_a_call_and_ignores_names() -> None:
    memo = Memo()
    first = run_stream([LAYER], LaunchPolicy(), memo=memo)
    renamed = replace(LAYER, kernels=tuple(replace(k, name="other") for k in LAYER.kernels))
    second = run_stream([renamed], LaunchPolicy(), memo=memo)
    assert (first.simulated, second.simulated) == (3, 0)
    assert first == second
    assert len(memo) == 3


def test_a_memo_tells_modes_and_contents_apart() -> None:
    memo = Memo()
    one = LAYER.kernels[0]
    variants = [
        one,
        replace(one, units=36),
        replace(one, bandwidth=2e12),
        replace(one, rate_cap=1e11),
        replace(one, fixed=0.0),
        replace(one, runs=one.runs[:1]),
        replace(one, classes=(one.classes[1], one.classes[0])),
    ]
    segment = Segment(name="variants", repeat=1, kernels=tuple(variants))
    for mode in ("cohort", "tile"):
        assert run_stream([segment], LaunchPolicy(), mode=mode, memo=memo).simulated == 7
    assert len(memo) == 14


def test_a_memo_keeps_the_most_recently_used() -> None:
    memo = Memo(size=2)
    segments = [Segment(name=k.name, repeat=1, kernels=(k,)) for k in LAYER.kernels]
    for i in (0, 1, 0, 2):
        run_stream([segments[i]], LaunchPolicy(), memo=memo)
    assert len(memo) == 2
    assert run_stream([segments[0]], LaunchPolicy(), memo=memo).simulated == 0
    assert run_stream([segments[1]], LaunchPolicy(), memo=memo).simulated == 1


def spans(recorder: Recorder) -> list[tuple]:
    return sorted(zip(*recorder.columns().values(), strict=True))


@pytest.mark.parametrize("mode", ["cohort", "tile"])
def test_recording_changes_nothing(mode: Mode) -> None:
    assert run_kernel(LAYER.kernels[0], mode=mode, recorder=Recorder()) == run_kernel(
        LAYER.kernels[0], mode=mode
    )
    launch = LAUNCHES[0]
    assert run_stream([LAYER], launch, mode=mode, recorder=Recorder()) == run_stream(
        [LAYER], launch, mode=mode
    )


def test_tile_spans_are_cohort_spans_written_out() -> None:
    rng = random.Random(5)
    for _ in range(30):
        one = kernel("k", rng.randint(5, 200), load=rng.uniform(1e4, 1e6))
        cohort, tile = Recorder(), Recorder()
        run_kernel(one, recorder=cohort)
        run_kernel(one, mode="tile", recorder=tile)
        written_out = [(*span[:4], 1) for span in spans(cohort) for _ in range(span[4])]
        assert sorted(written_out) == spans(tile)


def test_spans_account_for_every_tile_within_the_makespan() -> None:
    one = LAYER.kernels[2]
    recorder = Recorder()
    run = run_kernel(one, recorder=recorder)
    rows = spans(recorder)
    assert len(rows) == len(recorder) == run.events
    computing = [row for row in rows if row[0] == "units"]
    loading = [row for row in rows if row[0] == "pipe"]
    for kind in (computing, loading):
        assert sum(row[4] for row in kind) == one.tiles
        assert {row[1] for row in kind} == {"up[0]", "up[1]"}
    assert max(row[3] for row in computing) == run.makespan
    assert min(row[2] for row in loading) == one.fixed
    busy = sum((end - start) * count for _, _, start, end, count in computing)
    assert busy == pytest.approx(run.compute_busy, rel=1e-9)


def test_a_stream_records_each_kernel_and_what_happened_within_it() -> None:
    """With the memo a repeated kernel's spans are those of its run, later."""
    with_memo, without = Recorder(), Recorder()
    stream = run_stream([LAYER, HEAD], LAUNCHES[1], recorder=with_memo)
    run_stream([LAYER, HEAD], LAUNCHES[1], memo=False, recorder=without)
    assert with_memo.columns() == without.columns()
    device = [row for row in spans(with_memo) if row[0] == "device"]
    assert sorted(row[2] for row in device) == list(stream.starts)
    assert [row[1] for row in sorted(device, key=lambda row: row[2])] == [
        k.name for k in LAYER.kernels * 7 + HEAD.kernels
    ]
    assert max(with_memo.end) == stream.latency
