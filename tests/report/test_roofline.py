"""The roofline tells the truth: marks where the numbers are, nothing above a roof, no text on
text, the same bytes each time."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import math
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import load_scenario, simulate
from simulator.errors import BoundsError, SpecError
from simulator.report import palette, pen, roofline
from simulator.report.picture import Picture
from simulator.report.placement import Box, text_width
from simulator.report.ranking import of_roof, ranked
from simulator.result import Bounds, Result, RoofLevel

SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
PREFIXES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
CASES = (
    *("decode", "calibrated", "prefill", "experts", "generate"),
    *("single", "copies", "hostile", "many", "overfull"),
)


@pytest.fixture(params=CASES)
def result(request: pytest.FixtureRequest) -> Result:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Result)
    return found


def parsed(sheet: Picture) -> ET.Element:
    return ET.fromstring(pen.svg(pen.draw(sheet), sheet))


def ticks(axes: ET.Element, axis: str) -> list[tuple[float, float]]:
    """Value and place of each tick, read from the text and the grid line of the drawing."""
    found = []
    for group in axes.iter(f"{SVG}g"):
        if not group.get("id", "").startswith(f"{axis}tick_"):
            continue
        line, text = group.find(f".//{SVG}path"), group.find(f".//{SVG}text")
        assert line is not None
        assert text is not None
        number, _, prefix = (text.text or "").partition(" ")
        place = line.get("d", "").split()[1 if axis == "x" else 2]
        found.append((float(number) * PREFIXES.get(prefix, 1.0), float(place)))
    return found


def invert(scale: list[tuple[float, float]], place: float) -> float:
    """The value at a place of a logarithmic axis, from its first and last tick."""
    (low, start), (high, end) = scale[0], scale[-1]
    return float(low * (high / low) ** ((place - start) / (end - start)))


def marks(root: ET.Element) -> dict[str, tuple[float, float]]:
    found = {}
    for group in root.iter(f"{SVG}g"):
        if group.get("id", "").startswith("device-"):
            use = group.find(f".//{SVG}use")
            assert use is not None
            found[group.get("id", "")] = float(use.get("x", "")), float(use.get("y", ""))
    return found


@pytest.mark.parametrize("case", ["decode", "prefill", "experts"])
def test_marks_read_back_from_the_drawing_are_the_operators(
    case: str, request: pytest.FixtureRequest
) -> None:
    result = request.getfixturevalue(case)
    sheet = roofline.picture([result])
    root = parsed(sheet)
    axes = next(group for group in root.iter(f"{SVG}g") if group.get("id") == "axes_1")
    across, up = ticks(axes, "x"), ticks(axes, "y")
    assert len(across) >= 3
    assert len(up) >= 3
    drawn = marks(root)
    half_pixel = 10 ** (0.5 / sheet.x.decade)
    checked = 0
    for rank, op in enumerate(ranked(result), start=1):
        place = drawn.get(f"device-1-operator-{rank}")
        if place is None or op.rate is None or op.intensity is None:
            continue
        assert 1 / half_pixel < invert(across, place[0]) / op.intensity < half_pixel
        assert 1 / half_pixel < invert(up, place[1]) / op.rate < half_pixel
        checked += 1
    assert checked >= 6


def test_every_operator_is_drawn_once_or_said_not_to_be(result: Result) -> None:
    sheet = roofline.picture([result])
    drawn = sorted(rank for mark in (*sheet.marks, *sheet.strip_marks) for rank in mark.ranks)
    assert drawn == list(range(1, min(300, len(result.ops)) + 1))
    if len(result.ops) > 300:
        assert "300 of 2,000" in sheet.caption


def test_a_decade_is_as_long_across_as_up(result: Result) -> None:
    sheet = roofline.picture([result])
    assert math.isclose(sheet.x.decade, sheet.y.decade)
    rising = next(ceiling for ceiling in sheet.ceilings if ceiling.gid == "roof-1-memory").line
    assert math.isclose(rising.x1 - rising.x0, rising.y1 - rising.y0)


def test_no_mark_is_above_the_roofs_drawn(result: Result) -> None:
    sheet = roofline.picture([result])
    compute = [c.line.y0 for c in sheet.ceilings if c.gid.startswith("roof-1-compute")]
    rising = next(c for c in sheet.ceilings if c.gid == "roof-1-memory").line
    for mark in sheet.marks:
        x, y = mark.place
        assert y <= max(compute) + 1e-6
        assert y - rising.y0 <= x - rising.x0 + 1e-6
        assert sheet.x.low <= mark.x <= sheet.x.high
        assert sheet.y.low <= mark.y <= sheet.y.high


def test_the_ridge_is_where_the_roofs_meet(decode: Result) -> None:
    sheet = roofline.picture([decode])
    peak = dict(decode.roof.compute)["bf16"]
    ridge = peak / decode.roof.bandwidth
    (drop,) = sheet.drops
    assert math.isclose(sheet.x.value(drop.x0), ridge)
    assert math.isclose(sheet.y.value(drop.y1), peak)
    assert any(words.text == "ridge 215 FLOP/B" for words in sheet.words)


def test_levels_meet_the_highest_roof_at_their_own_ridges_and_links_are_grey(
    decode: Result,
) -> None:
    levels = (
        RoofLevel(name="LDS", link=False, bandwidth=315e12),
        RoofLevel(name="L2", link=False, bandwidth=54e12, achieved=40e12),
        RoofLevel(name="ualink", link=True, bandwidth=1.8e12, achieved=1.6e12),
    )
    wide = dataclasses.replace(decode, roof=dataclasses.replace(decode.roof, levels=levels))
    sheet = roofline.picture([wide])
    peak = dict(decode.roof.compute)["bf16"]
    roofs = {ceiling.gid.removeprefix("roof-1-level-"): ceiling for ceiling in sheet.ceilings}
    for level in levels:
        name = level.name.lower()
        assert sheet.x.value(roofs[name].line.x1) == pytest.approx(peak / level.bandwidth)
        assert roofs[name].dash == "solid"
        assert (roofs[name].colour == palette.OTHER) == level.link
        if level.achieved is not None:
            dashed = roofs[f"{name}-achieved"]
            assert dashed.dash == "dashed"
            assert sheet.x.value(dashed.line.x1) == pytest.approx(peak / level.achieved)
    written = {words.text for words in sheet.words}
    assert f"LDS 315 TB/s, ridge {peak / 315e12:.1f}" in written
    assert "(LDS, L2, ualink) are for the bytes of their own level" in sheet.caption
    against = roofline.picture([wide, decode])
    assert not any("ualink" in ceiling.gid for ceiling in against.ceilings)


def test_a_level_that_never_enters_the_frame_is_not_drawn(decode: Result) -> None:
    slow = RoofLevel(name="ethernet", link=True, bandwidth=1.0)
    fast = RoofLevel(name="L1", link=False, bandwidth=1e30)
    roof = dataclasses.replace(decode.roof, levels=(fast, slow))
    sheet = roofline.picture([dataclasses.replace(decode, roof=roof)])
    assert not any("ethernet" in ceiling.gid or "l1" in ceiling.gid for ceiling in sheet.ceilings)


def test_area_tells_time(decode: Result) -> None:
    sheet = roofline.picture([decode])
    large = [mark for mark in sheet.marks if mark.radius > 4.0]
    assert len(large) >= 4
    assert max(mark.radius for mark in large) == 18.0
    ratios = [mark.radius**2 / mark.time for mark in large]
    assert max(ratios) == pytest.approx(min(ratios))


def boxes(sheet: Picture) -> list[tuple[str, Box]]:
    found = []
    for words in sheet.words:
        if words.turn:
            continue
        width, height = text_width(words.text, words.size), words.size
        shift = {"left": 0.0, "center": -width / 2, "right": -width}[words.align]
        left, bottom = words.x + shift, words.y - height / 2
        found.append((words.text, Box(left, bottom, left + width, bottom + height)))
    return found


@pytest.mark.parametrize("width", [960.0, 336.0])
def test_no_text_is_on_another_text_or_outside_the_sheet(result: Result, width: float) -> None:
    sheet = roofline.picture([result], width)
    within = Box(0, 0, sheet.width, sheet.height)
    texts = boxes(sheet)
    for (one, first), (other, second) in itertools.combinations(texts, 2):
        assert not first.hits(second), (one, other)
    # The caption is set by a mean width; a line of it may be reckoned wider than it is.
    for text, box in texts:
        assert text in sheet.caption or box.inside(within), text


def test_the_longest_operators_are_named(decode: Result, prefill: Result) -> None:
    for result in (decode, prefill):
        written = " ".join(words.text for words in roofline.picture([result]).words)
        for rank, op in enumerate(ranked(result)[:3], start=1):
            assert f"{rank} {op.name}" in written


def test_operators_without_flop_are_in_the_strip_at_their_bytes_per_second(
    decode: Result, copies: Result, prefill: Result
) -> None:
    for result in (decode, copies):
        sheet = roofline.picture([result])
        assert sheet.strip is not None
        rates = {op.name: op.bytes / op.time for op in result.ops if not op.flops}
        assert {mark.name: mark.x for mark in sheet.strip_marks} == rates
        for mark in sheet.strip_marks:
            assert math.isclose(sheet.strip.value(mark.place[0]), mark.x)
    assert roofline.picture([prefill]).strip is None


def test_equal_operators_in_one_spot_are_one_mark_with_all_ranks(single: Result) -> None:
    op = single.ops[0]
    twins = tuple(dataclasses.replace(op, name=f"twin {place}") for place in range(6))
    sheet = roofline.picture(
        [dataclasses.replace(single, ops=twins, bounds=Bounds(lower=0.0, upper=10 * op.time))]
    )
    (mark,) = sheet.marks
    assert mark.ranks == (1, 2, 3, 4, 5, 6)
    assert any(words.text == "1 twin 0 and 5 more" for words in sheet.words)


def test_an_operator_above_its_roof_is_refused(decode: Result, tmp_path: Path) -> None:
    fast = dataclasses.replace(decode.ops[0], time=decode.ops[0].time / 10)
    wrong = dataclasses.replace(decode, ops=(fast, *decode.ops[1:]))
    with pytest.raises(BoundsError, match=r"ffn\.gate_up"):
        roofline.write_roofline(wrong, tmp_path / "wrong.svg")
    assert list(tmp_path.iterdir()) == []


def test_another_device_is_hollow_grey_and_linked(decode: Result, decode_elsewhere: Result) -> None:
    sheet = roofline.picture([decode, decode_elsewhere])
    names = {op.name for op in decode.ops if op.flops}
    assert len(sheet.links) >= len(names) - 3
    assert {ceiling.gid.split("-")[1] for ceiling in sheet.ceilings} == {"1", "2"}
    assert any("h200" in words.text for words in sheet.words)
    front = [place for place, mark in enumerate(sheet.marks) if mark.device == 0]
    assert min(front) > max(p for p, mark in enumerate(sheet.marks) if mark.device == 1)


def test_the_caption_says_what_binds_and_carries_the_warnings(
    decode: Result, prefill: Result, copies: Result, calibrated: Result
) -> None:
    assert roofline.finding(decode).startswith("Memory binds: 96 %")
    assert "ffn.gate_up (38 %), reaches 77 %" in roofline.finding(decode)
    assert roofline.finding(prefill).startswith("Compute binds")
    assert roofline.finding(copies).startswith("Launch and fill latency binds")
    assert calibrated.warnings[0] in roofline.caption(calibrated)


@pytest.mark.parametrize("case", ["experts", "hostile", "copies"])
def test_the_same_result_gives_the_same_bytes(
    case: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    result = request.getfixturevalue(case)
    for ending in ("svg", "png", "csv"):
        one = roofline.write_roofline(result, tmp_path / f"one.{ending}").read_bytes()
        two = roofline.write_roofline([result], tmp_path / f"two.{ending}").read_bytes()
        assert one == two
        assert b"/tmp" not in one
        assert b"Matplotlib v" not in one


def test_the_drawing_does_not_depend_on_hash_seeds_or_on_the_users_style(
    decode: Result, tmp_path: Path
) -> None:
    saved, drawn = tmp_path / "result.json", tmp_path / "drawn.svg"
    decode.save(saved)
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nsvg.fonttype: path\n")
    code = (
        "import sys; from simulator.result import Result; "
        "from simulator.report.roofline import write_roofline; "
        "write_roofline(Result.load(sys.argv[1]), sys.argv[2])"
    )
    package = Path(roofline.__file__).parents[2]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "4711",
        "PYTHONPATH": str(package),
        "MATPLOTLIBRC": str(tmp_path),
    }
    subprocess.run(
        [sys.executable, "-c", code, str(saved), str(drawn)], check=True, env=environment
    )
    here = roofline.write_roofline(decode, tmp_path / "here.svg")
    assert drawn.read_bytes() == here.read_bytes()


def test_hostile_names_are_text_in_the_drawing(hostile: Result) -> None:
    sheet = roofline.picture([hostile])
    root = parsed(sheet)
    assert {element.tag for element in root.iter()}.isdisjoint({f"{SVG}script", f"{SVG}image"})
    assert all((element.get(LINK) or "#").startswith("#") for element in root.iter(f"{SVG}use"))
    written = {text.text for text in root.iter(f"{SVG}text")}
    assert "4 =HYPERLINK(1)" in written


def test_points_are_data_at_full_precision(decode: Result, tmp_path: Path) -> None:
    path = roofline.write_roofline(decode, tmp_path / "deep" / "points.csv")
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert [row["operator"] for row in rows] == [op.name for op in ranked(decode)]
    for row, op in zip(rows, ranked(decode), strict=True):
        assert float(row["time_s"]) == op.time
        assert float(row["of_roof"]) == of_roof(op, decode.roof)
        assert (row["flop_per_s"] == "") == (op.rate is None)


@pytest.mark.parametrize("name", ["picture.pdf", "picture", "taken.svg"])
def test_a_name_that_cannot_be_written_is_refused_with_a_way_out(
    single: Result, tmp_path: Path, name: str
) -> None:
    (tmp_path / "taken.svg").mkdir()
    with pytest.raises(SpecError, match=r"end it in|name a file"):
        roofline.write_roofline(single, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["taken.svg"]


sizes = st.floats(min_value=1.0, max_value=1e18)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(sizes, sizes, st.floats(1e-6, 1.0)), min_size=1, max_size=30),
    st.sampled_from([960.0, 336.0]),
)
def test_any_operators_find_their_place_under_the_roof(
    single: Result, work: list[tuple[float, float, float]], width: float
) -> None:
    roof, model = single.roof, single.ops[0]
    ops = tuple(
        dataclasses.replace(
            model,
            name=f"operator {place}",
            flops=flops,
            bytes=moved,
            time=max(flops / model.roof, moved / roof.bandwidth) / reached,
        )
        for place, (flops, moved, reached) in enumerate(work)
    )
    sheet = roofline.picture([dataclasses.replace(single, ops=ops)], width)
    frame = Box(
        sheet.x.start,
        sheet.y.start,
        sheet.x.start + sheet.x.length,
        sheet.y.start + sheet.y.length,
    )
    ranks = sorted(rank for mark in sheet.marks for rank in mark.ranks)
    assert ranks == list(range(1, len(ops) + 1))
    for mark in sheet.marks:
        x, y = mark.place
        assert Box(x, y, x, y).inside(frame)
    for (one, first), (other, second) in itertools.combinations(boxes(sheet), 2):
        assert not first.hits(second), (one, other)


@pytest.mark.parametrize("override", ["compute.units=1e9", "memory.hbm.bandwidth='1e-29 B/s'"])
def test_a_device_of_any_speed_that_a_spec_may_state_is_drawn(override: str, tmp_path) -> None:
    result = simulate(load_scenario(f"llama-3.1-8b decode {override} on h200"))
    assert roofline.write_roofline(result, tmp_path / "roofline.png").stat().st_size > 0
