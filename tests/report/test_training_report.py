"""The report of a training step: pictures that say what the result says, and files."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from simulator import make_scenario, simulate, train_for
from simulator.report import training, training_memory, training_page, training_parts
from simulator.report import training_timeline as timeline
from simulator.report.experts_picture import Drawing
from simulator.report.page import render_page, write_report
from simulator.report.placement import text_width
from simulator.report.roofline import NARROW, WIDE
from simulator.report.table import render
from simulator.result import Result

ASKED = {
    "stages": {
        "workload": "llama-3.1-405b",
        "hardware": "mi300x",
        "tp": 8,
        "pp": 8,
        "dp": 8,
        "zero": 1,
        "sequence": 8192,
        "global_batch": 512,
        "recompute": "selective",
    },
    "experts": {
        "workload": "deepseek-v3",
        "hardware": "h200",
        "tp": 2,
        "pp": 8,
        "dp": 64,
        "ep": 64,
        "zero": 1,
        "sequence": 4096,
        "global_batch": 8192,
        "recompute": "full",
        "overrides": ("virtual_stages=4", "recipe=fp8"),
    },
    "zero bubble": {
        "workload": "llama-3.1-70b",
        "hardware": "h200",
        "tp": 4,
        "pp": 4,
        "dp": 4,
        "zero": 1,
        "sequence": 4096,
        "global_batch": 48,
        "overrides": ("plan.pipeline=zero_bubble",),
    },
    "alone": {
        "workload": "llama-3.1-8b",
        "hardware": "h200",
        "dp": 8,
        "zero": 3,
        "sequence": 8192,
        "global_batch": 64,
    },
    "deep": {
        "workload": "llama-3.1-405b",
        "hardware": "h200",
        "tp": 8,
        "pp": 32,
        "dp": 2,
        "zero": 1,
        "sequence": 4096,
        "global_batch": 96,
        "recompute": "selective",
    },
}
LAYOUTS = {
    "timeline": timeline.picture,
    "parts": training_parts.picture,
    "memory": training_memory.picture,
}


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    return {
        name: simulate(make_scenario(phase="train", **asked))  # type: ignore[arg-type]
        for name, asked in ASKED.items()
    }


def pairs() -> list[tuple[str, str, float]]:
    return [(name, key, width) for name in ASKED for key in LAYOUTS for width in (WIDE, NARROW)]


@pytest.mark.parametrize(("name", "key", "width"), pairs())
def test_no_text_leaves_its_picture_or_covers_another(
    name: str, key: str, width: float, results: dict[str, Result]
) -> None:
    drawing = drawn(results[name], key, width)
    boxes = []
    for words in drawing.words:
        assert words.size >= 12
        wide = text_width(words.text, words.size)
        left = words.x - wide * {"left": 0.0, "center": 0.5, "right": 1.0}[words.align]
        assert left >= -1
        assert left + wide <= width + 3, words.text
        assert 5 <= words.y <= drawing.height - 5
        boxes.append((left, left + wide, words.y, words.text))
    for a, b in combinations(sorted(boxes), 2):
        if b[0] > a[1] - 1.5:
            continue
        assert abs(a[2] - b[2]) >= 10, (a, b)


def drawn(result: Result, key: str, width: float) -> Drawing:
    assert result.training is not None
    return LAYOUTS[key](result.training, width)


@pytest.mark.parametrize("name", ASKED)
def test_bars_of_the_step_are_as_long_as_its_parts(name: str, results: dict[str, Result]) -> None:
    use = results[name].training
    assert use is not None
    drawing = training_parts.picture(use, WIDE)
    long = {
        patch.gid: sum(rect.width for rect in patch.rects)
        for patch in drawing.patches
        if patch.gid.startswith("part-")
    }
    found = training_parts.rows(use)
    whole = long[f"part-{len(found) + 1}"]
    total = math.fsum(part.time for part in use.parts)
    for place, (_, part) in enumerate(found, start=1):
        assert long.get(f"part-{place}", 0.0) == pytest.approx(whole * part.time / total, abs=0.5)
    assert math.fsum(part.time for _, part in found) == pytest.approx(total)


def test_bars_of_memory_are_as_long_as_its_parts(results: dict[str, Result]) -> None:
    use = results["stages"].training
    assert use is not None
    drawing = training_memory.picture(use, WIDE)
    edges = [stroke for stroke in drawing.strokes if stroke.weight > 1.5]
    long = [
        sum(r.width for p in drawing.patches if p.gid.startswith(f"bar-{bar}-") for r in p.rects)
        for bar in range(1, 9)
    ]
    left = min(r.left for p in drawing.patches if p.gid.startswith("bar-1-") for r in p.rects)
    capacity = edges[0].points[0][0] - left
    for length, memory in zip(long, use.memory, strict=True):
        assert length == pytest.approx(capacity * memory.total / memory.capacity, abs=0.5)


@pytest.mark.parametrize("name", ASKED)
def test_the_whole_step_shows_each_stage_as_busy_as_it_is(
    name: str, results: dict[str, Result]
) -> None:
    use = results[name].training
    assert use is not None
    drawing = timeline.picture(use, WIDE)
    end = max(span.end for span in use.spans)
    for stage in (0, max(span.stage for span in use.spans)):
        idle, *_ = (p for p in drawing.patches if p.gid == f"panel-0-stage-{stage}-idle")
        room = idle.rects[0].width * idle.rects[0].height
        filled = sum(
            rect.width * rect.height
            for patch in drawing.patches
            if patch.gid.startswith(f"panel-0-stage-{stage}-units")
            for rect in patch.rects
        )
        busy = sum(
            (span.end - span.start) * span.share
            for span in use.spans
            if span.stage == stage and span.kind in timeline.ON_UNITS
        )
        assert filled / room == pytest.approx(busy / end, abs=0.01)


def test_many_micro_batches_stay_a_small_result_and_a_page(results: dict[str, Result]) -> None:
    use = results["experts"].training
    assert use is not None
    assert use.folded is not None
    assert use.micro_batches * 2 * 4 * 8 > 2 * len(use.spans)
    assert len(results["experts"].to_json()) < 1.2e6


def test_the_report_has_the_pictures_and_their_data(
    results: dict[str, Result], tmp_path: Path
) -> None:
    result = train_for(results["stages"], "15.6T")
    names = {path.name for path in write_report(result, tmp_path / "report")}
    assert set(training_page.FILES) <= names
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report/training.csv").read_text())))
    parts = sum(float(row["value"]) for row in rows if row["figure"] == "parts")
    assert parts == pytest.approx(result.latency)
    saved = json.loads((tmp_path / "report/result.json").read_text())
    assert saved["training"]["budget"]["tokens"] == 15.6e12
    page = (tmp_path / "report/index.html").read_text()
    for text in ("Training step", "Pipeline stages of one replica", "to train", "tensor parallel"):
        assert text in page
    other = simulate(make_scenario("llama-3.1-8b", "h100", context=1024))
    write_report(other, tmp_path / "report")
    assert not (tmp_path / "report/training.csv").exists()


def test_the_same_result_is_drawn_in_the_same_bytes(results: dict[str, Result]) -> None:
    assert training_page.files(results["alone"]) == training_page.files(results["alone"])


def test_hostile_names_stay_text(results: dict[str, Result]) -> None:
    use = results["alone"].training
    assert use is not None
    bad = "</script><b>\u202e"
    parts = tuple(replace(part, name=bad) for part in use.parts)
    spans = tuple(replace(span, kind=bad) for span in use.spans)
    page = render_page(replace(results["alone"], training=replace(use, parts=parts, spans=spans)))
    assert "<b>" not in page.partition('id="training"')[2].partition("</section>")[0]
    assert "\u202e" not in page


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("width", [60, 80])
def test_the_table_says_how_the_step_uses_its_devices_in_its_width(
    name: str, width: int, results: dict[str, Result]
) -> None:
    text = render(train_for(results[name], "15.6T"), width)
    assert max(map(len, text.splitlines())) <= width
    words = " ".join(text.split())
    for part in ("MFU", "HFU", "Megatron-LM", "per device", "to train", "device-hours", "J"):
        assert part in words
    assert ("bubble" in words) == (ASKED[name].get("pp", 1) != 1)


def test_what_is_not_known_is_said_to_be_unknown() -> None:
    asked = {"dp": 8, "zero": 1, "recompute": "full", "sequence": 4096, "global_batch": 64}
    result = simulate(make_scenario("llama-3.1-8b", "mi430x", phase="train", **asked))  # type: ignore[arg-type]
    text = " ".join(render(train_for(result, "1T"), 80).split())
    assert "energy unknown the device states no power" in text
    assert "cost unknown no price" in text


def test_neighbours_that_hold_the_same_are_one_bar(results: dict[str, Result]) -> None:
    use = results["zero bubble"].training
    assert use is not None
    assert [bar.stages for bar in training_memory.bars(use)] == [(0,), (1, 2), (3,)]
    assert training.stage_names((1, 2)) == "stages 1-2"
