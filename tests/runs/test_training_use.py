"""What a result says of a training step adds up to the step."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import Result, make_scenario, simulate
from simulator.engine.pipeline import Span
from simulator.runs.training_use import joined
from simulator.training_use import TrainingUse

LLAMA = {"tp": 8, "pp": 8, "dp": 8, "zero": 1, "sequence": 8192, "global_batch": 512}


@lru_cache
def run(**changed: object) -> Result:
    asked = {**LLAMA, "recompute": "selective", **changed}
    return simulate(make_scenario("llama-3.1-405b", "mi300x", phase="train", **asked))  # type: ignore[arg-type]


def use(**changed: object) -> TrainingUse:
    found = run(**changed).training
    assert found is not None
    return found


def test_the_parts_of_the_busiest_stage_are_the_step() -> None:
    for changed in ({}, {"zero": 2, "recompute": "full"}):
        parts = use(**changed).parts
        assert math.fsum(part.time for part in parts) == pytest.approx(run(**changed).latency)
        assert all(part.time > 0 for part in parts)
    assert any(part.group == "recompute" for part in use(zero=2, recompute="full").parts)
    assert not any(part.group == "recompute" for part in use().parts)


def test_spans_of_a_stage_do_not_overlap_and_end_with_the_step() -> None:
    spans = use().spans
    assert max(span.end for span in spans) == pytest.approx(run().latency)
    for stage in range(8):
        own = [s for s in spans if s.stage == stage and s.kind in ("forward", "backward")]
        assert len(own) == 2 * 64
        assert all(a.end <= b.start * (1 + 1e-12) for a, b in itertools.pairwise(own))


def test_memory_of_the_fullest_stage_is_that_of_the_result() -> None:
    memory = use().memory
    assert len(memory) == 8
    assert max(memory, key=lambda one: one.total) == run().memory
    # 1F1B: stage r keeps activations of p - r micro-batches.
    kept = [next(p.bytes for p in one.parts if p.name == "activations") for one in memory]
    assert kept[1] / kept[6] == pytest.approx(7 / 2)


def test_bytes_on_links_are_those_of_the_textbook() -> None:
    traffic = {entry.name: entry for entry in use().traffic}
    # Each stage sends a micro-batch's activations or gradients on: b s h / tp elements of 2 bytes.
    each = 8192 / 8 * 16384 * 2
    assert traffic["pp"].far == pytest.approx(2 * 64 * each)
    assert traffic["pp"].near == 0
    # Four gathers or scatters of b s h in a layer's forward pass and again in its backward, and a
    # gather each for the weights' gradients of both halves: (8 - 1) / 8 of 10 b s h, 16 layers.
    layers, whole = 16, 8192 * 16384 * 2
    assert traffic["tp"].far == 0
    assert traffic["tp"].near == pytest.approx(64 * layers * 10 * whole * 7 / 8, rel=0.03)
    # Replicas: reduce-scatter of fp32 gradients and all-gather of bf16 weights, once each.
    weights = layers * (405.85e9 - 2 * 128256 * 16384) / 126 / 8
    assert traffic["dp"].near + traffic["dp"].far == pytest.approx(weights * 6 * 7 / 8, rel=0.04)


def test_other_phases_have_none_of_it() -> None:
    assert simulate(make_scenario("llama-3.1-8b", "h100", context=1024)).training is None


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(1, 120),
    st.floats(0.5, 3.0),
    st.integers(40, 400),
)
def test_joined_spans_keep_the_time_of_each_kind(
    stages: int, micro_batches: int, backward: float, most: int
) -> None:
    spans = []
    for stage in range(stages):
        at = float(stage)
        for batch in range(micro_batches):
            spans.append(Span(stage, "forward", 0, batch, at, at + 1))
            spans.append(Span(stage, "send", 0, batch, at + 1, at + 1.25))
            spans.append(Span(stage, "backward", 0, batch, at + 1, at + 1 + backward))
            at += 1 + backward
    end = max(span.end for span in spans)
    found, folded = joined(spans, stages, micro_batches, end, most)
    assert len(found) <= len(spans)
    if folded is None:
        assert len(found) == len(spans)
    for stage in range(stages):
        for kind in ("forward", "send", "backward"):
            before = math.fsum(s.end - s.start for s in spans if (s.stage, s.kind) == (stage, kind))
            after = math.fsum(
                (s.end - s.start) * s.share for s in found if (s.stage, s.kind) == (stage, kind)
            )
            assert after == pytest.approx(before)
    assert all(0 < span.share <= 1 for span in found)
