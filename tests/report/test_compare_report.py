"""Pages and pictures of comparisons and sensitivities say what their data say."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.report import compare_front, compare_picture, experts_pen, pen, sensitivity_picture
from simulator.report.compare import Comparison, Entry, Point, Sheet
from simulator.report.compare_page import write_comparison
from simulator.report.compare_words import faster, notes, ratio_cells
from simulator.report.experts_picture import Drawing
from simulator.report.placement import text_width
from simulator.report.sensitivity import Elasticity, Sensitivity, Side
from simulator.report.sensitivity_page import write_sensitivity
from simulator.result import Interval, Result

SHEET = Sheet(dtype="bf16", peak=5e15, bandwidth=23.3e12, capacity=432e9, hour=None)
WIDTHS = (960.0, 336.0)


def curve(scale: float) -> tuple[Point, ...]:
    return tuple(
        Point(batch=1 << place, latency=1.0, user=scale * (90 - 9 * place),
              device=scale * (20.0 * 2**place if place < 6 else 600.0), bound_by="memory")
        for place in range(7)
    )  # fmt: skip


def entry(result: Result | None, name: str, speed: float, points: bool = True) -> Entry:
    run = None
    if result is not None:
        at = result.latency / speed
        within = Interval(lower=0.8 * at, upper=1.25 * at)
        limits = replace(result.bounds, lower=0.0, upper=2 * at)
        run = replace(result, hardware=name, latency=at, interval=within, bounds=limits)
    return Entry(
        hardware=name, sheet=SHEET, result=run, plan="tp1", least=2, least_plan="tp2",
        refused="" if run else f"it does not fit on 1 x {name}", unknown=(("cost", "no rent"),),
        points=curve(speed) if points and run else (), full="a batch of 128 does not fit",
    )  # fmt: skip


@pytest.fixture
def comparison(decode: Result) -> Comparison:
    entries = (
        entry(decode, "base", 1.0),
        entry(decode, "near", 1.2),
        entry(decode, "far", 2.0),
        entry(None, "small", 1.0),
    )
    return Comparison(entries=entries, unit="tok", about="a model decode, batch 32", command="x")


@pytest.fixture
def sensitivity(decode: Result) -> Sensitivity:
    rate = decode.throughput or 0.0
    entries = [
        Elasticity(
            path=f"hardware.memory.hbm4.{place}", value=1.0, unit="", throughput=rate,
            less=Side(value=0.9, throughput=rate * (1 - 0.09 / (place + 1)), bound_by="memory"),
            more=Side(
                value=1.1,
                throughput=None if place == 1 else rate * (1 + 0.07 / (place + 1)),
                bound_by="compute",
                refused="too large" if place == 1 else "",
                turned=(("head", "memory", "compute"),) if place == 0 else (),
            ),
        )
        for place in range(30)
    ]  # fmt: skip
    return Sensitivity(
        result=decode, step=0.1, entries=tuple(entries), fixed=(("hardware.dies", "whole"),),
        unused=("hardware.price.rent",), command="tilecast sensitivity m --on d",
    )  # fmt: skip


def test_a_ratio_whose_interval_covers_one_cannot_be_told(comparison: Comparison) -> None:
    """Factors of 1.25 on both sides make one of 1.37 together: 1.2 is inside, 2.0 is not."""
    base, near, far, small = comparison.entries
    assert comparison.verdict(near) == "cannot tell"
    assert comparison.verdict(far) == "above"
    assert "cannot be told from base" in faster(comparison, near)
    assert "far is faster than base" in faster(comparison, far)
    assert "small has no answer" in faster(comparison, small)
    assert ratio_cells(comparison, near)[1].endswith("] ?")
    assert ratio_cells(comparison, base) == ("1.00x", "")
    assert "? cannot tell from the base: the interval covers 1.00x" in list(notes(comparison))


def test_the_data_hold_the_numbers_of_the_rows(comparison: Comparison, tmp_path: Path) -> None:
    write_comparison(comparison, tmp_path)
    rows = json.loads((tmp_path / "compare.json").read_text())["devices"]
    table = list(csv.DictReader(io.StringIO((tmp_path / "compare.csv").read_text())))
    assert [row["hardware"] for row in rows] == ["base", "near", "far", "small"]
    for row, line in zip(rows[:3], table, strict=False):
        assert row["ratio"] == pytest.approx(float(line["ratio"]))
        assert row["per_device"] == pytest.approx(float(line["per_device"]))
    assert rows[3]["refused"] == table[3]["refused"] == "it does not fit on 1 x small"
    assert rows[0]["dollars_per_million"] is None
    assert rows[0]["unknown"] == {"cost": "no rent"}
    flags = [point["front"] for point in rows[0]["curve"]]
    assert flags == [True] * 6 + [False]  # the last batch is slower in both rates


def test_marks_of_the_curve_stand_at_their_rates(comparison: Comparison) -> None:
    """Read from the SVG: users on x and devices on y, both from zero."""
    figure, words = compare_front.draw(comparison, 960.0)
    text = pen.svg(figure, words)
    at = {}
    for found in re.finditer(
        r'id="batch-(\d)-(\d+)".*?<use [^>]*?x="([\d.]+)" y="([\d.]+)"', text, re.DOTALL
    ):
        at[int(found[1]), int(found[2])] = float(found[3]), float(found[4])
    assert len(at) == 21
    scale = at[1, 1][0] - at[1, 2][0], at[1, 1][1] - at[1, 2][1]  # 9 tok/s, and 20 tok/s
    for number, speed in ((1, 1.0), (2, 1.2), (3, 2.0)):
        for point in curve(speed):
            x, y = at[number, point.batch]
            assert x - compare_front.LEFT == pytest.approx(point.user * scale[0] / 9, abs=0.5)
            assert at[1, 1][1] - y == pytest.approx((point.device - 20) * scale[1] / 20, abs=0.5)


def test_bars_are_as_long_as_the_gains(sensitivity: Sensitivity) -> None:
    drawing = sensitivity_picture.picture(sensitivity, 960.0)
    bars = {patch.gid: patch.rects[0] for patch in drawing.patches if patch.gid}
    zero = bars["less-1"].left + bars["less-1"].width
    scale = bars["less-1"].width / 0.09
    assert len(sensitivity_picture.shown(sensitivity)) == sensitivity_picture.BARS
    assert "more-2" not in bars  # the device cannot be so
    for place in range(sensitivity_picture.BARS):
        less = bars[f"less-{place + 1}"]
        assert less.width == pytest.approx(scale * 0.09 / (place + 1))
        if place != 1:
            assert bars[f"more-{place + 1}"].left == pytest.approx(zero)
    assert "18 smaller ones are in the table" in drawing.caption
    assert "*: what binds changes within the step" in drawing.caption


@pytest.mark.parametrize("width", WIDTHS)
def test_words_stay_inside_and_off_each_other(
    comparison: Comparison, sensitivity: Sensitivity, width: float
) -> None:
    for drawing in (
        compare_picture.picture(comparison, width),
        sensitivity_picture.picture(sensitivity, width),
    ):
        boxes = [box(words.x, words.y, words.align, words.text) for words in drawing.words]
        for place, one in enumerate(boxes):
            assert one[0] >= -2, drawing.words[place].text
            assert one[1] <= width + 2, drawing.words[place].text
            for two in boxes[:place]:
                apart = one[1] <= two[0] or two[1] <= one[0] or abs(one[2] - two[2]) >= 11
                assert apart, (one, two)


def box(x: float, y: float, align: str, text: str) -> tuple[float, float, float]:
    wide = 0.88 * text_width(text, 12.0)  # what DejaVu Sans takes, and less
    left = x - {"left": 0.0, "center": 0.5, "right": 1.0}[align] * wide
    return left, left + wide, y


def test_the_same_comparison_gives_the_same_bytes(
    comparison: Comparison, sensitivity: Sensitivity, tmp_path: Path
) -> None:
    for kind, write in (("c", write_comparison), ("s", write_sensitivity)):
        one = write(comparison if kind == "c" else sensitivity, tmp_path / f"{kind}1")  # type: ignore[operator]
        two = write(comparison if kind == "c" else sensitivity, tmp_path / f"{kind}2")  # type: ignore[operator]
        assert [path.name for path in one] == [path.name for path in two]
        for first, second in zip(one, two, strict=True):
            assert first.read_bytes() == second.read_bytes()


def test_pages_have_the_one_script_of_all_pages_and_no_address(
    comparison: Comparison, sensitivity: Sensitivity, tmp_path: Path
) -> None:
    write_comparison(comparison, tmp_path / "c")
    write_sensitivity(sensitivity, tmp_path / "s")
    for name in "cs":
        page = (tmp_path / name / "index.html").read_text()
        assert page.count("<script") == 1
        assert "<script>" in page
        assert not re.findall(r'(?:src|href)="(?!#)', page)
        ids = re.findall(r' id="([^"]+)"', page)
        assert len(ids) == len(set(ids))


def test_names_appear_as_text(comparison: Comparison, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    base, *others = comparison.entries
    assert base.result is not None
    run = replace(base.result, hardware=evil)
    entries = (replace(base, hardware=evil, result=run), *others)
    write_comparison(replace(comparison, entries=entries, about=evil), tmp_path)
    assert evil not in (tmp_path / "index.html").read_text()


def test_one_device_has_a_curve_and_no_ratios(comparison: Comparison, tmp_path: Path) -> None:
    alone = replace(comparison, entries=comparison.entries[:1])
    names = {path.name for path in write_comparison(alone, tmp_path)}
    assert "curves.svg" in names
    assert "ratios.svg" not in names


def test_nothing_that_moves_is_said_so(sensitivity: Sensitivity) -> None:
    still: Drawing = sensitivity_picture.picture(replace(sensitivity, entries=()), 960.0)
    assert "nothing moves it" in [
        words.text.replace("\N{NO-BREAK SPACE}", " ") for words in still.words
    ]
    experts_pen.draw(still)
