"""Pages and pictures of studies say what their rows say."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.report import (
    experts_pen,
    numbers,
    palette,
    sweep_bars,
    sweep_front,
    sweep_line,
    sweep_map,
)
from simulator.report.experts_picture import Drawing
from simulator.report.placement import text_width
from simulator.report.sweep import LETTERS, Swept, reasons, throughput_ends, varied
from simulator.report.sweep_page import ROWS, findings, write_sweep

WIDTHS = (960.0, 336.0)
EVIL = "</script><b>bold</b>"


def swept(**axes: Sequence[str]) -> Swept:
    """A grid whose step takes the longest of a compute time that grows with the batch, a memory
    time by bandwidth, and a floor; a batch beyond 512 does not fit."""
    rows: list[dict[str, Any]] = []
    for index, values in enumerate(itertools.product(*axes.values())):
        row: dict[str, Any] = {"index": index, **dict(zip(axes, values, strict=True))}
        batch = float(row.get("batch", "32"))
        bandwidth = float(row.get("hbm.bandwidth", "8 TB/s").split()[0])
        speed = {"fp8": 2.0}.get(str(row.get("dtype")), 1.0)
        times = {"compute": batch * 1e-4 / speed, "memory": (100 + batch) * 1e-3 / bandwidth / 8}
        times["latency"] = 1e-3
        bound = max(times, key=times.__getitem__)
        answer: dict[str, Any] = {
            "latency": times[bound], "latency_lower": 0.8 * times[bound],
            "latency_upper": 1.25 * times[bound], "throughput": batch / times[bound],
            "bound_by": bound, "mfu": 0.1, "mbu": 0.5, "memory_bytes": 1e9 * batch, "devices": 1,
            "energy": batch / 3, "cost": None,
        }  # fmt: skip
        state: dict[str, Any] = {"status": "ok", "reason": None}
        if batch > 512:
            answer = dict.fromkeys(answer)
            state = {"status": "does not fit", "reason": f"needs {batch} GB"}
        rows.append(row | answer | state)
    best = [row for row in rows if row["status"] == "ok" and not any(map(beats(row), rows))]
    return Swept(
        rows=tuple(rows), paths=tuple(axes), base="tilecast run m --on d", about="m decode on d",
        front=tuple(sorted(best, key=lambda row: row["latency"])), unit="tok/s",
        name="study.yaml", text="base: m\n", version="0",
    )  # fmt: skip


def beats(row: dict[str, Any]) -> Any:
    """Whether another row does: no slower, no less, and one of both is better; or is the same
    and comes earlier."""

    def beaten(other: dict[str, Any]) -> bool:
        if other["status"] != "ok":
            return False
        mine, its = ((one["latency"], -one["throughput"]) for one in (row, other))
        if mine == its:
            return bool(other["index"] < row["index"])
        return bool(its[0] <= mine[0] and its[1] <= mine[1])

    return beaten


BATCHES = [str(1 << place) for place in range(11)]
RATES = [f"{rate} TB/s" for rate in (4, 8, 12, 16)]


@pytest.fixture(scope="module")
def line() -> Swept:
    return swept(batch=BATCHES)


@pytest.fixture(scope="module")
def grid() -> Swept:
    return swept(batch=BATCHES, **{"hbm.bandwidth": RATES})


@pytest.fixture(scope="module")
def cube() -> Swept:
    return swept(batch=BATCHES, **{"hbm.bandwidth": RATES}, dtype=["bf16", "fp8"], tp=["1", "2"])


def axis_of(drawing: Drawing, x: float | None = None, y: float | None = None) -> dict[str, float]:
    """Texts along an axis and where they stand."""
    return {
        words.text: words.y if y is None else words.x
        for words in drawing.words
        if (x is not None and words.x == x) or (y is not None and abs(words.y - y) < 1e-6)
    }


def mark(drawing: Drawing, gid: str) -> tuple[float, float]:
    rect = next(patch.rects[0] for patch in drawing.patches if patch.gid == gid)
    return rect.left + rect.width / 2, rect.bottom + rect.height / 2


def test_marks_of_a_line_stand_at_their_values(line: Swept) -> None:
    """Between the ticks at 1,000 and 10,000, and by ratio along batches."""
    drawing = sweep_line.picture(line, 960.0)
    ticks = axis_of(drawing, x=sweep_line.LEFT - 8)
    low, high = ticks["1,000"], ticks["10,000"]
    first = mark(drawing, "throughput-0")[0]
    step = mark(drawing, "throughput-1")[0] - first
    for row in line.answered:
        x, y = mark(drawing, f"throughput-{row['index']}")
        share = math.log(row["throughput"] / 1000) / math.log(10)
        assert y == pytest.approx(low + share * (high - low), abs=0.5)
        assert x == pytest.approx(first + step * math.log2(float(row["batch"])), abs=0.01)
    assert not any(patch.gid == "throughput-10" for patch in drawing.patches)
    assert sum(len(patch.rects) for patch in drawing.patches if patch.hatched) == 2  # both curves


def test_a_band_is_the_interval_of_equal_work(line: Swept) -> None:
    row = line.answered[3]
    assert throughput_ends(row) == pytest.approx(
        (row["throughput"] / 1.25, row["throughput"] / 0.8)
    )
    drawing = sweep_line.picture(line, 960.0)
    bands = [patch.corners for patch in drawing.patches if patch.corners]
    assert [len(corners) for corners in bands] == [20, 20]
    ticks = axis_of(drawing, x=sweep_line.LEFT - 8)
    step = (ticks["10,000"] - ticks["1,000"]) / math.log(10)
    upper, lower = bands[0][3], bands[0][-4]
    assert upper[1] - lower[1] == pytest.approx(step * math.log(1.25 / 0.8), abs=0.01)


def test_what_binds_changes_where_neighbours_differ(line: Swept) -> None:
    """Memory takes (100 + b) / 64 ms and compute b / 10 ms: they meet at a batch of 18.5."""
    assert [(a["batch"], b["batch"]) for a, b in sweep_line.changes(line)] == [("16", "32")]
    assert "between 16 and 32 from memory to compute" in sweep_line.caption(line)
    drawing = sweep_line.picture(line, 960.0)
    dashed = [stroke for stroke in drawing.strokes if stroke.dash == "dashed"]
    a, b = (mark(drawing, f"throughput-{place}")[0] for place in (4, 5))
    assert [stroke.points[0][0] for stroke in dashed] == pytest.approx([(a + b) / 2] * 2)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_map_has_a_letter_for_each_answer_and_is_darker_for_more(
    grid: Swept, width: float
) -> None:
    drawing = sweep_map.picture(grid, width)
    shades = {
        (rect.left, rect.bottom): (patch.fill, rect)
        for patch in drawing.patches
        if patch.gid.startswith("shade-1-")
        for rect in patch.rects
    }
    assert len(shades) == len(grid.answered) == 40
    lefts = sorted({left for left, _ in shades})
    bottoms = sorted({bottom for _, bottom in shades})
    seen = []
    for row in grid.answered:
        at = lefts[BATCHES.index(row["batch"])], bottoms[RATES.index(row["hbm.bandwidth"])]
        fill, rect = shades[at]
        seen.append((row["throughput"], palette.luminance(fill)))
        letters = [
            words.text
            for words in drawing.words
            if abs(words.x - rect.left - rect.width / 2) < 0.01
            and rect.bottom < words.y < rect.bottom + rect.height
            and words.text.isalpha()
        ]
        assert letters == [LETTERS[row["bound_by"]]]
    order = [light for _, light in sorted(seen)]
    assert order == sorted(order, reverse=True)
    hatched = [patch for patch in drawing.patches if patch.hatched]
    assert len(hatched[0].rects) == 4


def test_lines_of_a_map_part_what_binds(grid: Swept) -> None:
    """As many edges as neighbours of different bounds, counted on the rows."""
    bound = {(row["batch"], row["hbm.bandwidth"]): row["bound_by"] for row in grid.answered}
    edges = 0
    for (batch, rate), mine in bound.items():
        right, up = BATCHES.index(batch) + 1, RATES.index(rate) + 1
        others = [bound.get((BATCHES[right], rate))] if right < len(BATCHES) else []
        others += [bound.get((batch, RATES[up]))] if up < len(RATES) else []
        edges += sum(other not in (None, mine) for other in others)
    drawing = sweep_map.picture(grid, 960.0)
    assert edges == sum(stroke.weight == 1.6 for stroke in drawing.strokes) > 0


def test_a_cell_is_the_best_of_what_varies_beyond_and_all_maps_share_a_scale(cube: Swept) -> None:
    used = sweep_map.axes(cube)
    assert (used.across.path, used.up.path) == ("batch", "hbm.bandwidth")
    assert used.panel is not None
    assert [one.path for one in used.rest] == ["dtype"]
    drawing = sweep_map.picture(cube, 960.0)
    assert "best over dtype" in drawing.caption
    fills = [
        {patch.fill for patch in drawing.patches if patch.gid.startswith(f"shade-{panel}-")}
        for panel in (1, 2)
    ]
    assert fills[0] == fills[1]  # tp does nothing in this study
    assert sum(len(p.rects) for p in drawing.patches if p.gid.startswith("shade-1-")) == 40


def test_a_large_grid_is_thinned_and_says_so() -> None:
    many = swept(batch=list(map(str, range(1, 101))), tp=list(map(str, range(1, 71))))
    drawing = sweep_map.picture(many, 960.0)
    cells = sum(len(p.rects) for p in drawing.patches if p.gid.startswith("shade-1-"))
    assert cells == sweep_map.CELLS**2
    assert "60 of 100 values of batch" in drawing.caption
    assert not [words for words in drawing.words if words.bold and words.y > 100]


def test_strong_marks_are_those_that_nothing_beats(cube: Swept) -> None:
    drawing = sweep_front.picture(cube, 960.0)
    strong = {patch.gid for patch in drawing.patches if patch.gid.startswith("best-")}
    assert strong == {f"best-{row['index']}" for row in cube.front}
    weak = next(patch for patch in drawing.patches if patch.gid == "beaten")
    assert len(weak.rects) == len(cube.answered) - len(strong)


def test_bars_are_as_long_as_throughputs() -> None:
    found = swept(dtype=["bf16", "fp8", "odd"])
    drawing = sweep_bars.picture(found, 960.0)
    bars = [patch.rects[0] for patch in drawing.patches if patch.gid]
    rates = [row["throughput"] for row in found.rows]
    assert [bar.width / bars[0].width for bar in bars] == pytest.approx(
        [rate / rates[0] for rate in rates]
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_words_stay_inside_and_off_each_other(
    line: Swept, grid: Swept, cube: Swept, width: float
) -> None:
    far = swept(batch=["1", "1024"], **{"hbm.bandwidth": ["4.123456789 TB/s", "5.2 TB/s"]})
    name = f"a.{'long' * 60}"
    dense = swept(batch=list(map(str, range(1, 40))), tp=[str(997 * p) for p in range(1, 41)])
    named = swept(**{name: ["1", "2", "4"], f"{name}er": [f"a {'value' * 40}", "b"]})
    for drawing in (
        sweep_line.picture(line, width),
        sweep_line.picture(swept(**{name: ["1", "2", "4"]}), width),
        sweep_line.picture(swept(**{"hbm.bandwidth": RATES}), width),
        sweep_bars.picture(swept(dtype=["bf16", "fp8", "a format with a long name"]), width),
        *(draw(one, width) for one in (grid, cube, far, named, dense)
          for draw in (sweep_map.picture, sweep_front.picture)),
    ):  # fmt: skip
        experts_pen.draw(drawing)
        boxes = []
        for words in drawing.words:
            wide = 0.88 * text_width(words.text, 12.0)  # what DejaVu Sans takes, and less
            left = words.x - {"left": 0.0, "center": 0.5, "right": 1.0}[words.align] * wide
            boxes.append((left, left + wide, words.y, words.text))
        for place, one in enumerate(boxes):
            assert one[0] >= -2, one
            assert one[1] <= width + 2, one
            assert 0 <= one[2] <= drawing.height, one
            for two in boxes[:place]:
                apart = one[1] <= two[0] or two[1] <= one[0] or abs(one[2] - two[2]) >= 11
                assert apart, (one, two)


@given(
    st.floats(0.1, 1e3),
    st.floats(1.05, 4.0),
    st.integers(4, 12),
    st.booleans(),
)
def test_values_are_spaced_by_ratio_or_by_difference(
    first: float, step: float, many: int, ratio: bool
) -> None:
    spaced = [first * (step**place if ratio else 1 + (step - 1) * place) for place in range(many)]
    assert varied("x", [repr(value) for value in spaced]).by_ratio is ratio


def test_values_of_one_kind_are_numbers_whatever_their_prefix() -> None:
    found = varied("bandwidth", ["1.2 TB/s", "800 GB/s", "5 TB/s"])
    assert found.values == pytest.approx((8e11, 1.2e12, 5e12))
    assert found.labels == ["800 GB/s", "1.2 TB/s", "5 TB/s"]
    assert varied("batch", ["8", "4 TB/s"]).values == ()
    assert varied("dtype", ["nan", "inf"]).values == ()


def test_every_point_without_an_answer_is_counted_once(cube: Swept) -> None:
    bad = [row for row in cube.rows if row["status"] != "ok"]
    kinds = reasons(cube.rows)
    assert sum(many for many, _, _ in kinds) == len(bad) == 16
    assert kinds == [(16, "does not fit", "needs 1024.0 GB")]
    assert f"{len(cube.rows) - 16} of {len(cube.rows)} points" in findings(cube)[0]


def test_shares_of_what_binds_and_where_are_those_of_the_rows(line: Swept) -> None:
    """Five of ten batches are memory-bound: 1 to 16; compute has 32 to 512."""
    assert "memory 50 % (batch 1 .. 16)" in findings(line)[-1]
    assert "compute 50 % (batch 32 .. 512)" in findings(line)[-1]


def test_the_rows_are_the_data_and_the_table_sorts_by_them(grid: Swept, tmp_path: Path) -> None:
    write_sweep(grid, tmp_path)
    table = list(csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text())))
    assert [float(row["latency"] or 0) for row in table] == [
        row["latency"] or 0.0 for row in grid.rows
    ]
    page = (tmp_path / "index.html").read_text()
    assert f"<pre><code>{grid.text.strip()}</code></pre>" in page
    rows = re.findall(r"<tr>.*?</tr>", page[page.index("All points") :], re.DOTALL)[1:45]
    for text, row in zip(rows, grid.rows, strict=True):
        values = re.findall(r'data-value="([^"]*)"', text)
        assert float(values[0]) == row["index"]
        assert values[3] == ("" if row["latency"] is None else repr(row["latency"]))


def test_the_same_study_gives_the_same_bytes_and_other_pictures_go(
    grid: Swept, line: Swept, tmp_path: Path
) -> None:
    write_sweep(line, tmp_path / "two")
    first = write_sweep(grid, tmp_path / "one")
    second = write_sweep(grid, tmp_path / "two")
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
    names = {path.name for path in write_sweep(line, tmp_path / "two")}
    assert {path.name for path in (tmp_path / "two").iterdir()} == names


def test_a_long_table_is_cut_and_says_so(tmp_path: Path) -> None:
    many = swept(batch=list(map(str, range(1, 601))))
    write_sweep(many, tmp_path)
    page = (tmp_path / "index.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert f"The first {ROWS} of 600; all are in rows.csv." in page
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 601
    assert len(page.encode()) < 2_000_000


@pytest.mark.parametrize(
    "axes", [{"batch": ["1024"]}, {"batch": ["8"]}, {"batch": ["600", "1024"]}]
)
def test_a_study_of_one_point_or_without_answers_has_a_page(
    axes: dict[str, list[str]], tmp_path: Path
) -> None:
    names = {path.name for path in write_sweep(swept(**axes), tmp_path)}
    assert names == {"index.html", "rows.csv"}


def test_names_appear_as_text(tmp_path: Path) -> None:
    found = swept(dtype=["bf16", EVIL], **{f"{EVIL}.x": ["1", "2", "3"]})
    rows = tuple(
        {**row, "status": EVIL, "reason": f"{EVIL}\x1b\u202e"} if row["index"] == 0 else row
        for row in found.rows
    )
    hostile = Swept(
        rows=rows, paths=found.paths, front=found.front[:0], base=EVIL, about=EVIL, unit="tok/s",
        name=EVIL, text=f"base: {EVIL}\n\u202e\x00", version=EVIL,
    )  # fmt: skip
    write_sweep(hostile, tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert EVIL not in page
    assert "<b>bold" not in page
    assert not set(page) & {"\x1b", "\u202e", "\x00"}
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@given(st.floats(1e-3, 1e12))
def test_a_number_is_read_back_within_half_its_last_digit(value: float) -> None:
    for text in (numbers.digits(value), numbers.count(value), numbers.quantity(value, "B/s")):
        read = numbers.read(text)
        assert read is not None
        assert read == pytest.approx(value, rel=5.1e-3, abs=5.1e-4)
    assert numbers.read(f"-{numbers.digits(value)} %") == pytest.approx(
        -value, rel=5.1e-3, abs=5.1e-4
    )
    assert numbers.read("none") is None


def test_colours_of_a_map_are_equal_steps() -> None:
    light = [palette.luminance(palette.magnitude(step / 40)) for step in range(41)]
    assert np.all(np.diff(light) < 0)
