"""Steps whose communication shares links beside steps that share nothing, and hand-made cases."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine import pipeline
from simulator.engine.pipeline import PieceTimes, PipelineRun, Shares, Span, run_pipeline
from simulator.policies.pipeline import PIPELINE_ORDERS

SEEDS = st.integers(0, 2**32 - 1)
APART = Shares(sends={"a": 0.5}, collectives={"b": 1.0, "c": 0.2}, exchanges={"d": 0.7})
ONE = Shares(sends={"a": 1.0}, collectives={"a": 1.0}, exchanges={"a": 1.0})


def piece(**more: Any) -> PieceTimes:
    return PieceTimes(**({"forward": 1.0, "backward_input": 1.0, "backward_weight": 1.0} | more))


def case(chance: Random) -> tuple[tuple[Any, ...], dict[str, Any]]:
    name = chance.choice(list(PIPELINE_ORDERS))
    grouped = name in ("interleaved", "merged")
    stages, pieces = chance.randint(1, 4), chance.randint(1, 3) if grouped else 1
    batches = stages * chance.randint(1, 3) if grouped else chance.randint(1, 7)

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
            # None of it among gradients of weights, which may run apart.
            backward_exchange=some(inward),
            gather=some(2),
            reduce=some(2),
            buckets=chance.randint(1, 3),
        )

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
    times = [[one() for _ in range(pieces)] for _ in range(stages)]
    return (times, PIPELINE_ORDERS[name], batches), how


def by_place(step: PipelineRun) -> list[Span]:
    """Spans of some length, in an order that rounding does not change."""
    kept = [span for span in step.spans if span.end - span.start > 1e-9]
    return sorted(kept, key=lambda span: (*span[:4], round(span.start, 6)))


@settings(deadline=None, max_examples=300)
@given(seed=SEEDS)
def test_a_step_that_shares_nothing_is_that_of_the_graph_span_by_span(seed: int) -> None:
    what, how = case(Random(seed))
    with pytest.MonkeyPatch.context() as patch:
        # Played by events although there is no need.
        patch.setattr(pipeline, "contended", lambda _, shares: shares)
        shared = run_pipeline(*what, **how, shares=APART, record=True)
    alone = run_pipeline(*what, **how, record=True)
    assert shared.makespan == pytest.approx(alone.makespan, rel=1e-9)
    found, wanted = by_place(shared), by_place(alone)
    assert [span[:4] for span in found] == [span[:4] for span in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one[4:] == pytest.approx(other[4:], rel=1e-9, abs=1e-9)


def test_nothing_begins_sooner_where_all_share_one_way_out() -> None:
    for seed in range(150):
        what, how = case(Random(seed))
        shared = run_pipeline(*what, **how, shares=ONE, record=True)
        alone = run_pipeline(*what, **how, record=True)
        assert shared.contention == shared.makespan - alone.makespan >= 0
        found, wanted = by_place(shared), by_place(alone)
        assert [span[:4] for span in found] == [span[:4] for span in wanted]
        for one, other in zip(found, wanted, strict=True):
            assert one.start >= other.start - 1e-9
            assert one.end >= other.end - 1e-9


def stretched(time: PieceTimes, times: float) -> PieceTimes:
    """All communication so many times as long."""
    more = times - 1
    return replace(
        time,
        forward=time.forward + more * time.forward_exchange,
        backward_input=time.backward_input + more * time.backward_exchange,
        forward_exchange=times * time.forward_exchange,
        backward_exchange=times * time.backward_exchange,
        gather=times * time.gather,
        reduce=times * time.reduce,
    )


def test_four_kinds_at_once_leave_each_a_quarter_at_least() -> None:
    for seed in range(150):
        (times, order, batches), how = case(Random(seed))
        shared = run_pipeline(times, order, batches, **how, shares=ONE)
        slow = [[stretched(time, 4) for time in row] for row in times]
        how["send"] = [4 * send for send in how["send"]]
        assert shared.makespan <= run_pipeline(slow, order, batches, **how).makespan * (1 + 1e-12)


@settings(deadline=None, max_examples=60)
@given(seed=SEEDS)
def test_the_parts_of_a_step_with_contention_add_up(seed: int) -> None:
    what, how = case(Random(seed))
    step = run_pipeline(*what, **how, shares=ONE, record=True)
    lost = step.exposed_send + step.exposed_collectives + step.contention
    assert step.pipeline + lost + step.optimizer == pytest.approx(step.makespan, rel=1e-12)
    assert max(span.end for span in step.spans) <= step.makespan
    assert step == run_pipeline(*what, **how, shares=ONE, record=True)


# By hand.


def two_stages(sends: float, collectives: float) -> PipelineRun:
    """Stage 1 sends a gradient back and reduces its own, 2 s each, from 6 s on; 2 s of work in
    stage 0 wait for what it sends."""
    times = [[piece()], [piece(reduce=2.0)]]
    shares = Shares(sends={"out": sends}, collectives={"out": collectives})
    return run_pipeline(times, PIPELINE_ORDERS["1f1b"], 1, send=2.0, shares=shares)


@pytest.mark.parametrize(
    ("sends", "collectives", "takes"),
    [(1.0, 1.0, 4.0), (0.75, 0.75, 3.0), (0.5, 0.5, 2.0), (1.0, 0.0, 2.0), (0.25, 1.0, 2.0)],
)
def test_a_gradient_sent_and_one_reduced_share_the_way_out(
    sends: float, collectives: float, takes: float
) -> None:
    """Each has half of it, or its share where that is less: 0.75 x 2 s at half take 3 s."""
    step = two_stages(sends, collectives)
    assert step.makespan == pytest.approx(6 + takes + 2)
    assert step.contention == pytest.approx(takes - 2)


def test_other_tiers_are_free() -> None:
    times = [[piece()], [piece(reduce=2.0)]]
    shares = Shares(sends={"out": 1.0}, collectives={"up": 1.0})
    step = run_pipeline(times, PIPELINE_ORDERS["1f1b"], 1, send=2.0, shares=shares)
    assert (step.makespan, step.contention) == (10, 0)


def test_stages_that_send_to_one_another_share_nothing() -> None:
    """One stage's activations and the other's gradients are under way at once."""
    times = [[piece(forward=2.0)]] * 2
    shares = Shares(sends={"out": 1.0})
    step = run_pipeline(times, PIPELINE_ORDERS["1f1b"], 8, send=2.0, shares=shares)
    assert step.contention == 0


def test_an_exchange_waits_longer_while_weights_are_gathered() -> None:
    """Weights of the forward until 3 s. Of 4 s the middle 2 are an exchange: from 4 s on it shares
    with the next weights, of which 2 s are left; both need until 8 s. The forward ends at 9."""
    time = piece(forward=4.0, forward_exchange=2.0, gather=3.0)
    shares = Shares(collectives={"out": 1.0}, exchanges={"out": 1.0})
    how = {"gather": "micro_batch", "shares": shares}
    step = run_pipeline([[time]], PIPELINE_ORDERS["1f1b"], 1, **how)
    assert step.makespan == pytest.approx(9 + 2)
    assert step.contention == pytest.approx(2)


def test_a_hidden_exchange_has_its_own_pace() -> None:
    """Pairs of 11 s hide exchanges of 5.5 s, half of the way out; two gathers of 2.5 s beside them
    have the other half, and are there after 10 s. The exchange of the first forward shares with a
    gather, and takes 2 s more."""
    time = piece(
        forward=7.0, backward_input=5.0, backward_weight=4.5, forward_exchange=2.0,
        backward_exchange=3.5, gather=2.5,
    )  # fmt: skip
    shares = Shares(collectives={"out": 1.0}, exchanges={"out": 1.0})
    how = {"gather": "micro_batch", "overlap_exchanges": True, "shares": shares}
    step = run_pipeline([[time]], PIPELINE_ORDERS["merged"], 4, **how)
    assert step.makespan == pytest.approx(2.5 + (7 + 2) + 3 * 11 + 9.5)
    assert step.contention == pytest.approx(2)
