"""One layer in stream order has the times, gaps and order of its Result."""

from __future__ import annotations

import csv
import math

import pytest

from simulator import Result, load_scenario, simulate
from simulator.report import palette, timeline
from simulator.report.page import write_report


@pytest.fixture(scope="module")
def dense() -> Result:
    return simulate(load_scenario("llama-3.1-8b generate batch=4 input=128 output=8 on h200"))


def test_a_layer_is_the_operators_in_order_with_the_mean_gap_before_each(dense: Result) -> None:
    shown = timeline.layers(dense)
    assert [layer.phase for layer in shown] == ["prefill", "decode"]
    for layer in shown:
        stream = next(s for s in dense.stream if s.phase == layer.phase)
        part = next(part for part in stream.parts if part.repeat == 32)
        assert [step.name for step in layer.steps] == [name for name, _ in part.steps]
        times = [time for _, time in part.steps]
        assert [step.end - step.start for step in layer.steps] == pytest.approx(times)
        assert layer.time == pytest.approx(math.fsum(times) + len(times) * stream.gap)
        ends = [0.0, *(step.end for step in layer.steps)]
        for step, before in zip(layer.steps, ends, strict=False):
            assert step.start - before == pytest.approx(stream.gap)
        assert 0.5 < layer.share <= 1


@pytest.mark.parametrize("width", [960.0, 336.0])
def test_boxes_read_back_from_the_picture_are_the_times(dense: Result, width: float) -> None:
    for layer in timeline.layers(dense):
        drawing = timeline.picture(layer, width)
        boxes = sorted(
            (rect.left, rect.width, patch.fill)
            for patch in drawing.patches
            if patch.gid
            for rect in patch.rects
        )
        assert len(boxes) == len(layer.steps)
        left, right = boxes[0][0], boxes[-1][0] + boxes[-1][1]
        scale = (layer.time - layer.steps[0].start) / (right - left)
        for (_, length, fill), step in zip(boxes, layer.steps, strict=True):
            assert length * scale == pytest.approx(step.end - step.start)
            assert fill == palette.BOUND[step.bound]
        assert right <= width


def test_a_pass_that_repeats_nothing_has_no_picture_and_no_file(calibrated: Result) -> None:
    assert timeline.layers(calibrated) == []


def test_layers_that_differ_are_shown_as_their_mean() -> None:
    moe = simulate(load_scenario("mixtral-8x7b decode batch=32 context=512 ep=4 on mi300x"))
    (layer,) = timeline.layers(moe)
    names = [step.name for step in layer.steps]
    assert layer.repeat == 32
    assert names.index("moe.dispatch") < names.index("moe.gate_up")
    use = next(op for op in moe.ops if op.name == "moe.gate_up")
    step = layer.steps[names.index("moe.gate_up")]
    assert step.end - step.start == pytest.approx(use.time / 32)
    assert layer.apart > 0
    assert "in the mean" in timeline.finding(layer)


def test_exchanges_stand_where_the_stream_has_them() -> None:
    sharded = simulate(load_scenario("llama-3.1-8b decode batch=4 context=512 tp=2 on h200"))
    (layer,) = timeline.layers(sharded)
    names = [step.name for step in layer.steps]
    assert layer.repeat == 32
    assert names[names.index("attn.out") + 1] == "attn.all_reduce"
    assert names[names.index("ffn.down") + 1] == "ffn.all_reduce"


def test_the_file_has_the_boxes_in_seconds(
    dense: Result, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("report")
    names = {path.name for path in write_report(dense, folder)}
    assert "timeline.csv" in names
    rows = list(csv.DictReader((folder / "timeline.csv").read_text("utf-8").splitlines()))
    steps = [step for layer in timeline.layers(dense) for step in layer.steps]
    assert [(float(row["start_s"]), float(row["end_s"])) for row in rows] == [
        (step.start, step.end) for step in steps
    ]
    assert "One layer of decode in stream order" in (folder / "index.html").read_text("utf-8")
