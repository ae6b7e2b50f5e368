"""Training steps over pipeline stages beside theory, hand-made cases and a brute-force graph."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.pipeline import PieceTimes, PipelineRun, run_pipeline
from simulator.errors import InputError, SpecError
from simulator.policies.pipeline import PIPELINE_ORDERS, PipelineOrder, Work

COMPUTE = ("forward", "backward_input", "backward_weight", "recompute")
SMALL = st.integers(0, 9)


def piece(
    forward: float = 1.0, backward_input: float = 1.0, backward_weight: float = 1.0, **more: Any
) -> PieceTimes:
    return PieceTimes(
        forward=forward, backward_input=backward_input, backward_weight=backward_weight, **more
    )


def run(
    name: str,
    stages: int,
    batches: int,
    pieces: int = 1,
    time: PieceTimes | None = None,
    **how: Any,
) -> PipelineRun:
    """Equal stages."""
    times = [[time or piece()] * pieces] * stages
    return run_pipeline(times, PIPELINE_ORDERS[name], batches, **how)


# Bubbles that the papers derive. Durations are whole, so that sums of floats are exact.

SIZES = {"stages": st.integers(1, 9), "batches": st.integers(1, 33)}
TIME = st.builds(piece, st.integers(1, 9), SMALL, SMALL, recompute=SMALL)


@settings(deadline=None)
@given(**SIZES, time=TIME)
def test_the_bubble_of_1f1b_and_gpipe_is_p_less_1_over_m(
    stages: int, batches: int, time: PieceTimes
) -> None:
    """arXiv 2104.04473, section 2.2."""
    for name in ("1f1b", "gpipe"):
        step = run(name, stages, batches, time=time)
        one = sum(getattr(time, part) for part in COMPUTE)
        assert step.ideal == batches * one
        assert step.makespan == (batches + stages - 1) * one
        assert step.bubble_over_ideal == (stages - 1) * one / (batches * one)
        assert step.bubble_over_total == (stages - 1) * one / ((batches + stages - 1) * one)


@settings(deadline=None)
@given(stages=st.integers(1, 8), groups=st.integers(1, 5), pieces=st.integers(1, 6), time=TIME)
def test_interleaving_cuts_the_bubble_by_the_pieces(
    stages: int, groups: int, pieces: int, time: PieceTimes
) -> None:
    """(p - 1) / (v m), arXiv 2104.04473, section 2.2."""
    batches = groups * stages
    step = run("interleaved", stages, batches, pieces, time=time)
    one = sum(getattr(time, part) for part in COMPUTE)
    assert step.bubble == (stages - 1) * one
    assert step.bubble_over_ideal == (stages - 1) * one / (pieces * batches * one)


@settings(deadline=None)
@given(stages=st.integers(1, 9), more=st.integers(0, 20), parts=st.tuples(*[st.integers(1, 9)] * 3))
def test_the_bubble_of_zb_h1_is_that_of_the_paper(
    stages: int, more: int, parts: tuple[int, int, int]
) -> None:
    """(p - 1) (T_F + T_B - T_W), arXiv 2401.10241, table 2, where T_B is the input's gradient.

    With B = T_B + T_W this is the (p - 1) (F + B - 2 W) of arXiv 2412.19437, table 2. A weights'
    gradient that is longer than what it hides behind saves no more than that.
    """
    step = run("zero_bubble", stages, 2 * stages + more, time=piece(*parts))
    assert step.bubble == (stages - 1) * (parts[0] + parts[1] - min(parts))


EXCHANGES = st.floats(0, 1)


@settings(deadline=None)
@given(
    stages=st.integers(1, 6),
    groups=st.integers(2, 5),
    pieces=st.integers(1, 4),
    time=TIME,
    there=EXCHANGES,
    back=EXCHANGES,
)
def test_pairs_that_hide_exchanges_pace_the_steady_state(
    stages: int, groups: int, pieces: int, time: PieceTimes, there: float, back: float
) -> None:
    """Equal stages: ahead of the first backward of the last stage v p forwards have begun one by
    one, behind its last pair as many backwards go, and v m - (v - 1) p - 1 pairs come between."""
    forth, back_ = time.forward, time.backward
    time = replace(time, forward_exchange=there * forth, backward_exchange=back * back_)
    moved = there * forth + back * back_
    pair = max(forth + back_ - moved, moved, forth, back_)
    batches = stages * groups
    step = run("merged", stages, batches, pieces, time=time, overlap_exchanges=True)
    alone, pairs = pieces * stages, pieces * batches - (pieces - 1) * stages - 1
    assert step.makespan == pytest.approx(alone * (forth + back_) + pairs * pair, rel=1e-12)


@settings(deadline=None)
@given(stages=st.integers(1, 6), groups=st.integers(1, 5), pieces=st.integers(1, 4), time=TIME)
def test_pairs_without_exchanges_take_as_long_as_interleaving(
    stages: int, groups: int, pieces: int, time: PieceTimes
) -> None:
    step = run("merged", stages, stages * groups, pieces, time=time, overlap_exchanges=True)
    plain = run("interleaved", stages, stages * groups, pieces, time=time)
    assert (step.makespan, step.bubble, step.busy) == (plain.makespan, plain.bubble, plain.busy)


def test_one_stage_exposes_the_first_forward_and_the_last_backward() -> None:
    """Forward 5 + 2 s of exchanges, backward 6 + 4 s, 5 micro-batches: 4 pairs of 11 s."""
    time = piece(7, 6, 4, forward_exchange=2.0, backward_exchange=4.0)
    step = run("merged", 1, 5, time=time, overlap_exchanges=True)
    assert step.makespan == 7 + 4 * 11 + 10
    assert step.exposed_exchanges == (2 + 4,)
    assert run("1f1b", 1, 5, time=time).exposed_exchanges == (5 * 6,)


def test_exchanges_longer_than_computation_pace_the_pairs() -> None:
    """Forward 1 + 4 s of exchanges, backward 2 + 6 s: pairs of 10 s, 3 of which compute."""
    time = piece(5, 4, 4, forward_exchange=4.0, backward_exchange=6.0)
    step = run("merged", 1, 5, time=time, overlap_exchanges=True)
    assert step.makespan == 5 + 4 * 10 + 8
    assert step.exposed_exchanges == (4 + 4 * (10 - 3) + 6,)


def test_a_pair_is_no_shorter_than_the_chain_of_either() -> None:
    time = piece(1, 4, 4, forward_exchange=1.0, backward_exchange=3.0)
    assert run("merged", 1, 3, time=time, overlap_exchanges=True).makespan == 1 + 2 * 8 + 8


def test_equal_thirds_leave_zb_h1_a_third_of_the_bubble() -> None:
    assert run("zero_bubble", 8, 32).bubble * 3 == run("1f1b", 8, 32).bubble == 21


def test_8_stages_and_32_micro_batches_by_both_names_of_the_bubble() -> None:
    step = run("1f1b", 8, 32)
    assert step.bubble_over_ideal == pytest.approx(0.219, abs=5e-4) == 7 / 32
    assert step.bubble_over_total == pytest.approx(0.1795, abs=5e-5) == 7 / 39
    step = run("interleaved", 8, 64, 5)
    assert step.bubble_over_ideal == pytest.approx(0.0219, abs=5e-5)
    assert step.bubble_over_total == pytest.approx(0.0214, abs=5e-5)


def test_one_stage_is_the_plain_sum() -> None:
    for name in PIPELINE_ORDERS:
        time = piece(3, 4, 5, recompute=2, gather=7, reduce=11)
        step = run(name, 1, 6, time=time, send=99.0, latency=99.0, optimizer=13)
        assert step.pipeline == 6 * 14
        assert step.makespan == 7 + 6 * 14 + 11 + 13
        assert step.bubble == step.exposed_send == 0


# By hand.


def test_sends_of_one_micro_batch_are_all_exposed() -> None:
    for overlap in (True, False):
        step = run("1f1b", 3, 1, send=2.0, latency=0.5, overlap_send=overlap)
        assert step.exposed_send == 4 * 2.5
        assert step.pipeline == 9


def test_a_slow_link_paces_the_pipeline() -> None:
    """GPipe on 2 stages: m sends there, m back, and one forward and backward at each end."""
    step = run("gpipe", 2, 10, send=8.0)
    assert step.makespan == 2 * (1 + 2) + 2 * 10 * 8


def test_a_send_that_blocks_costs_its_stage() -> None:
    """Stage 0 sends 4 activations between its forwards; the last stage is fed no faster."""
    beside = run("gpipe", 2, 4, send=0.5)
    blocking = run("gpipe", 2, 4, send=0.5, overlap_send=False)
    assert beside.makespan == 15 + 2 * 0.5
    # The first forward and send, 4 forwards paced by 1.5, 4 backwards paced by 2.5, and the last.
    assert blocking.makespan == 1.5 + 3 * 1.5 + 1 + 4 * 2.5 + 2


def test_each_boundary_has_its_own_link() -> None:
    step = run("1f1b", 3, 1, send=[1.0, 10.0, 100.0])
    assert step.exposed_send == 2 * (1 + 10)


@pytest.mark.parametrize("reduction", [0.5, 2.0, 3.5])
def test_the_reduction_of_the_first_piece_hides_behind_the_next_backward(reduction: float) -> None:
    """One stage, two pieces: forward, forward, backward, backward (2 s each)."""
    step = run("interleaved", 1, 1, 2, time=piece(reduce=reduction))
    assert step.exposed_collectives == max(0.0, reduction - 2) + reduction


@pytest.mark.parametrize("reduction", [1.0, 2.0, 5.0])
def test_the_last_stage_reduces_while_the_first_still_computes(reduction: float) -> None:
    times = [[piece()], [piece(reduce=reduction)]]
    step = run_pipeline(times, PIPELINE_ORDERS["1f1b"], 4)
    assert step.exposed_collectives == max(0.0, reduction - 2)


@pytest.mark.parametrize("gathering", [0.5, 1.5, 4.0])
def test_weights_gathered_for_each_work_hide_behind_the_work_before(gathering: float) -> None:
    """3 micro-batches on one stage: the first gather, then behind a forward or a backward."""
    step = run("1f1b", 1, 3, time=piece(gather=gathering), gather="micro_batch")
    behind = 3 * max(0.0, gathering - 1) + 2 * max(0.0, gathering - 2)
    assert step.exposed_collectives == gathering + behind


def test_weights_gathered_once_cost_the_first_forward_only() -> None:
    step = run("1f1b", 4, 8, time=piece(gather=0.75))
    assert step.exposed_collectives == 0.75


def test_buckets_expose_the_first_gather_and_the_last_reduction() -> None:
    """4 layers of 1 s forward and 2 s backward; gathers and reductions are shorter than layers."""
    time = piece(4, 4, 4, gather=2.0, reduce=6.0, buckets=4)
    assert run("1f1b", 1, 1, time=time).exposed_collectives == 2 / 4 + 6 / 4


def test_buckets_longer_than_their_layers_pace_them() -> None:
    time = piece(4, 4, 4, gather=12.0, reduce=16.0, buckets=4)
    step = run("1f1b", 1, 1, time=time)
    # The gathers and the last layer; one layer of the backward, then all reductions.
    assert step.makespan == (12 + 1) + (2 + 16)


def test_reductions_after_each_micro_batch_hide_behind_the_next() -> None:
    step = run("1f1b", 1, 3, time=piece(reduce=2.5), reduce="micro_batch")
    assert step.exposed_collectives == 2.5
    step = run("1f1b", 1, 3, time=piece(reduce=4.0), reduce="micro_batch")
    assert step.exposed_collectives == 2 * (4 - 3) + 4


def test_without_overlap_every_collective_is_exposed() -> None:
    time = piece(gather=0.25, reduce=0.5)
    how = {"time": time, "overlap_collectives": False}
    assert run("1f1b", 1, 4, **how).exposed_collectives == 0.25 + 0.5
    each = run("1f1b", 1, 4, **how, gather="micro_batch", reduce="micro_batch")
    assert each.exposed_collectives == 8 * 0.25 + 4 * 0.5


def test_the_optimizer_waits_for_the_last_stage() -> None:
    step = run("1f1b", 2, 2, optimizer=[1.0, 5.0])
    assert (step.makespan, step.optimizer) == (9 + 5, 5)
    assert step.idle == (3, 3)


# Beside an independent evaluation: every part of every piece is a node.

Graph = dict[Hashable, tuple[float, list[Hashable]]]


def longest_path(graph: Graph) -> float:
    ends: dict[Hashable, float] = {}
    for node in TopologicalSorter({n: before for n, (_, before) in graph.items()}).static_order():
        duration, before = graph[node]
        ends[node] = duration + max((ends[b] for b in before), default=0.0)
    return max(ends.values())


def gathers(
    graph: Graph, r: int, ks: list[int], asks: dict[int, PieceTimes], after: list[Hashable]
) -> list[Hashable]:
    """Add the gathers of works ks of stage r that ask for one; returns the last part."""
    asked: list[Hashable] = []
    for k in ks:
        if k in asks:
            for j in range(asks[k].buckets):
                graph[r, "G", k, j] = (asks[k].gather / asks[k].buckets, asked or after)
                asked = [(r, "G", k, j)]
    return asked


def grouped(work: list[Work], ahead: int, as_one: bool) -> list[list[int]]:
    """Works that run as one, together: forward f and backward f - ahead."""
    kinds = [kind for kind, _, _ in work]
    groups: list[list[int]] = []
    for k, kind in enumerate(kinds):
        number = kinds[:k].count("backward") + ahead
        pair = kind == "backward" and kinds[: max(0, k - 1)].count("forward") == number
        if as_one and pair and kinds[k - 1] == "forward":
            groups[-1].append(k)
        else:
            groups.append([k])
    return groups


def durations(time: PieceTimes) -> dict[str, float]:
    inward = time.recompute + time.backward_input
    return {
        "forward": time.forward,
        "input": inward,
        "weight": time.backward_weight,
        "backward": inward + time.backward_weight,
    }


def graph_of(
    times: list[list[PieceTimes]],
    order: PipelineOrder,
    batches: int,
    send: list[float],
    latency: float,
    optimizer: float,
    overlap_send: bool,
    overlap_collectives: bool,
    gather: str,
    reduce: str,
    overlap_exchanges: bool,
) -> Graph:
    stages, pieces = len(times), len(times[0])
    graph: Graph = {}
    for r in range(stages):
        work = order(stages, r, batches, pieces)
        link: list[Hashable]  # What the collectives of the stage follow.
        wire: dict[int, list[Hashable]] = {1: [], -1: []}
        late: list[tuple[int, float]] = []
        free: list[Hashable] = []

        firsts = {c: next(k for k, w in enumerate(work) if w[1] == c) for c in range(pieces)}
        asks = {
            k: times[r][c]
            for k, (kind, c, _) in enumerate(work)
            if kind != "weight" and (gather == "micro_batch" or k == firsts[c])
        }
        groups = grouped(work, 2 * (stages - 1 - r) + (pieces - 1) * stages + 1, overlap_exchanges)
        link = gathers(graph, r, groups[0], asks, [])
        for ks, after in zip(groups, [*groups[1:], []], strict=True):
            before, needs, duration = list(free), list[Hashable](), 0.0
            for k in ks:
                kind, c, b = work[k]
                time, here = times[r][c], c * stages + r
                duration += durations(time)[kind]
                if kind == "forward" and here:
                    before.append(("activation", here, b))
                if kind in ("backward", "input") and here < stages * pieces - 1:
                    before.append(("gradient", here, b))
                gathered = [node for j in range(time.buckets) if (node := (r, "G", k, j)) in graph]
                needs += gathered[:1] if overlap_collectives else gathered
            if len(ks) == 2:
                one, other = (times[r][work[k][1]] for k in ks)
                moved = one.forward_exchange + other.backward_exchange
                alone = durations(one)["forward"], durations(other)["backward"]
                duration = max(duration - moved, moved, *alone)
            start: Hashable = (r, "start", ks[0])
            graph[start] = (0.0, before + needs)
            if overlap_collectives:
                link = gathers(graph, r, after, asks, [*link, start]) or link
            free = []
            for k in ks:
                last, n = [start], times[r][work[k][1]].buckets
                for j in range(n):
                    waits = [node] if (node := (r, "G", k, j)) in graph else []
                    graph[r, "C", k, j] = (duration / n, last + waits)
                    last = [(r, "C", k, j)]
                free += last
            ends = list(free)
            kind, c, _ = work[k]
            time, n = times[r][c], times[r][c].buckets
            done = kind in ("backward", "weight") and (
                reduce == "micro_batch"
                or all(w[0] == "forward" or w[1] != c for w in work[k + 1 :])
            )
            if done and overlap_collectives:
                for j in range(n):
                    made = ends if j == n - 1 else [(r, "C", k, j)]
                    graph[r, "R", k, j] = (time.reduce / n, link + made)
                    link = [(r, "R", k, j)]
            elif done and reduce == "micro_batch":
                graph[r, "R", k] = (time.reduce, link + ends)
                free = link = [(r, "R", k)]
            elif done:
                late.append((k, time.reduce))
            if not overlap_collectives:
                link = gathers(graph, r, after, asks, link + free) or link
            for k in ks:
                kind, c, b = work[k]
                way, name = (1, "activation") if kind == "forward" else (-1, "gradient")
                there = c * stages + r + way
                if kind != "weight" and 0 <= there < stages * pieces:
                    cost = 0.0 if stages == 1 else send[r] if way == 1 else send[r - 1]
                    graph[r, "S", k] = (cost, ends + wire[way])
                    wire[way] = [(r, "S", k)]
                    graph[name, there, b] = (latency if stages > 1 else 0.0, wire[way])
                    free = free if overlap_send else [*free, (r, "S", k)]
        for k, cost in late:
            graph[r, "late", k] = (cost, link + free)
            free = link = [(r, "late", k)]
    graph["optimizer"] = (optimizer, list(graph))
    return graph


def case(chance: Random) -> tuple[tuple[Any, ...], dict[str, Any]]:
    name = chance.choice(list(PIPELINE_ORDERS))
    stages, batches = chance.randint(1, 5), chance.randint(1, 7)
    grouped = name in ("interleaved", "merged")
    pieces = chance.randint(1, 3) if grouped else 1
    if grouped:
        batches = stages * chance.randint(1, 3)

    def some(most: float) -> float:
        return chance.choice([0.0, chance.uniform(0, most)])

    def one() -> PieceTimes:
        forward, inward, weight = (chance.random() for _ in range(3))
        return PieceTimes(
            forward=forward,
            backward_input=inward,
            backward_weight=weight,
            recompute=some(1),
            forward_exchange=some(forward),
            backward_exchange=some(inward + weight),
            gather=some(2),
            reduce=some(2),
            buckets=chance.randint(1, 3),
        )

    times = [[one() for _ in range(pieces)] for _ in range(stages)]
    how = {
        "send": [some(1.5) for _ in range(stages)],
        "latency": some(0.3),
        "optimizer": some(1),
        "overlap_send": chance.random() < 0.6,
        "overlap_collectives": chance.random() < 0.7,
        "gather": chance.choice(["step", "micro_batch"]),
        "reduce": chance.choice(["step", "micro_batch"]),
        "overlap_exchanges": name == "merged" and chance.random() < 0.8,
    }
    return (times, PIPELINE_ORDERS[name], batches), how


def test_400_random_steps_are_the_longest_paths_of_their_graphs() -> None:
    chance = Random(0)
    for _ in range(400):
        what, how = case(chance)
        step = run_pipeline(*what, **how)
        assert step.makespan == pytest.approx(longest_path(graph_of(*what, **how)), rel=1e-12)


SEEDS = st.integers(0, 2**32 - 1)


@settings(deadline=None, max_examples=60)
@given(seed=SEEDS)
def test_a_step_is_no_shorter_than_its_busiest_stage_and_no_longer_than_the_sum(seed: int) -> None:
    what, how = case(Random(seed))
    step = run_pipeline(*what, **how, record=True)
    assert step.makespan >= (max(step.busy) + step.optimizer) * (1 - 1e-12)
    sends = [span for span in step.spans if span.kind == "send"]
    total = sum(span.end - span.start for span in step.spans) + 2 * how["latency"] * len(sends)
    waits = 2 * how["latency"] * len(what[0]) * len(what[0][0]) * what[2]
    assert step.makespan <= total + waits + 1e-9


@settings(deadline=None, max_examples=100)
@given(seed=SEEDS)
def test_no_duration_makes_a_step_shorter_by_growing(seed: int) -> None:
    chance = Random(seed)
    (times, order, batches), how = case(chance)
    before = run_pipeline(times, order, batches, **how)
    stage, number = chance.randrange(len(times)), chance.randrange(len(times[0]))
    name = chance.choice([*COMPUTE, "gather", "reduce", "send", "latency", "optimizer"])
    more = chance.uniform(0, 2)
    if name == "send":
        how["send"][stage] += more
    elif name in ("latency", "optimizer"):
        how[name] += more
    else:
        old = times[stage][number]
        times[stage][number] = replace(old, **{name: getattr(old, name) + more})
    # Rounding may differ by as much: a stretched span is cut into other parts.
    assert run_pipeline(times, order, batches, **how).makespan >= before.makespan * (1 - 1e-12)


@settings(deadline=None, max_examples=60)
@given(seed=SEEDS)
def test_the_parts_of_a_step_add_up_and_none_is_negative(seed: int) -> None:
    what, how = case(Random(seed))
    step = run_pipeline(*what, **how)
    parts = (step.ideal, step.bubble, step.exposed_send, step.exposed_collectives, step.optimizer)
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(step.makespan, rel=1e-12)
    for busy, idle in zip(step.busy, step.idle, strict=True):
        assert busy + idle + step.optimizer == pytest.approx(step.makespan, rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(seed=SEEDS)
def test_spans_of_one_resource_never_overlap_and_recording_changes_nothing(seed: int) -> None:
    what, how = case(Random(seed))
    step = run_pipeline(*what, **how, record=True)
    assert replace(step, spans=()) == run_pipeline(*what, **how)
    kinds = ("forward", "backward", "input", "weight")
    for stage, busy in enumerate(step.busy):
        mine = [span for span in step.spans if span.stage == stage]
        work = [span for span in mine if span.kind in kinds]
        links = [span for span in mine if span.kind in ("gather", "reduce")]
        for spans in (work, links):
            ordered = sorted(spans, key=lambda span: (span.start, span.end))
            for one, other in pairwise(ordered):
                assert other.start >= one.end - 1e-12
        assert sum(span.end - span.start for span in work) >= busy * (1 - 1e-12)
    assert max(span.end for span in step.spans) <= step.makespan


def test_the_same_step_has_the_same_bits() -> None:
    what, how = case(Random(7))
    assert repr(run_pipeline(*what, **how, record=True)) == repr(
        run_pipeline(*what, **how, record=True)
    )


# Bad input.


def test_times_that_are_none_are_all_named() -> None:
    times = [[piece(forward=-1.0, buckets=0)], [piece(reduce=float("nan")), piece()]]
    with pytest.raises(SpecError) as caught:
        run_pipeline(times, PIPELINE_ORDERS["1f1b"], 2, send=[1.0], latency=float("inf"))
    text = str(caught.value)
    for part in ("[0][0].forward", "[0][0].buckets", "times[1]", ".reduce", "send", "latency"):
        assert part in text
    assert len(caught.value.faults) == 6


def test_no_stages_are_refused() -> None:
    with pytest.raises(SpecError, match="at least one stage"):
        run_pipeline([], PIPELINE_ORDERS["1f1b"], 2)


def test_an_order_that_waits_for_itself_stands_still() -> None:
    def knot(stages: int, stage: int, batches: int, pieces: int) -> list[Work]:
        order = PIPELINE_ORDERS["gpipe" if stage else "1f1b"]
        return order(1, 0, batches, pieces)

    with pytest.raises(InputError, match="stands still: stage 0 waits to do the backward"):
        run_pipeline([[piece()]] * 2, knot, 2)


@pytest.mark.parametrize(
    "work",
    [
        [("forward", 0, 0)],
        [("backward", 0, 0), ("forward", 0, 0)],
        [("forward", 0, 0), ("input", 0, 0)],
        [("forward", 0, 0), ("forward", 0, 0), ("backward", 0, 0)],
    ],
)
def test_an_order_with_work_left_out_or_done_twice_is_refused(work: list[Work]) -> None:
    with pytest.raises(InputError, match="must do each of 1 forwards"):
        run_pipeline([[piece()]], lambda *_: work, 1)
