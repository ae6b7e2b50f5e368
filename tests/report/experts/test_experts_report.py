"""Pictures, tables and lines about experts: they say what the data say, stay readable and let no
name out of its place. The text is held in files; rewrite them with ``--force-regen``."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import math
import re
from collections import defaultdict
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from pytest_regressions.file_regression import FileRegressionFixture
from rich.cells import cell_len

from simulator.expert_use import ExpertPhase, ExpertUse, Loss, Span
from simulator.report import experts, experts_matrix, experts_pen, experts_timeline, palette, pen
from simulator.report.experts_lanes import lanes
from simulator.report.experts_page import FILES, RANKS
from simulator.report.experts_picture import Drawing, Rect
from simulator.report.experts_sets import plates, sheet
from simulator.report.page import render_page, write_report
from simulator.report.placement import text_width
from simulator.report.table import render
from simulator.result import Result

WIDE, NARROW = 960.0, 336.0
CASES = ("zipf", "one", "balanced", "wide", "domains", "drops", "few", "empty", "crowded")
Uses = dict[str, ExpertUse]
HOSTILE = "</script><script>alert(1)</script> & \u202e"


@pytest.fixture(params=CASES)
def use(request: pytest.FixtureRequest, uses: Uses) -> ExpertUse:
    return uses[request.param]


def drawn(use: ExpertUse, key: str, width: float = WIDE) -> Drawing:
    return next(plate for plate in plates(use) if plate.key == key).drawing(use, width)


def rects(drawing: Drawing, gid: str) -> list[Rect]:
    """Rectangles of the patches whose name begins so, in order."""
    return [rect for patch in drawing.patches if patch.gid.startswith(gid) for rect in patch.rects]


def with_experts(result: Result, *uses: ExpertUse) -> Result:
    return dataclasses.replace(result, workload="deepseek-v3", experts=uses)


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_text_meets_another_or_leaves_the_picture(use: ExpertUse, width: float) -> None:
    for plate in plates(use):
        if plate.layout is None:
            continue
        drawing = plate.drawing(use, width)
        boxes = []
        for words in drawing.words:
            assert words.size >= 12
            # What DejaVu Sans takes is nine tenths of the estimate at the least.
            reach = 0.9 * text_width(words.text, words.size)
            left = words.x - reach * {"left": 0.0, "center": 0.5, "right": 1.0}[words.align]
            boxes.append((left, words.y - 5, left + reach, words.y + 5, words.text))
        for left, low, right, high, text in boxes:
            assert left >= -1, text
            assert right <= width + 1, text
            assert low >= 0, text
            assert high <= drawing.height, text
        for one, other in itertools.combinations(boxes, 2):
            apart = one[2] <= other[0] or other[2] <= one[0]
            assert apart or one[3] <= other[1] or other[3] <= one[1], (one[4], other[4])


def test_bars_are_as_long_as_the_loads_and_the_fullest_rank_is_marked(uses: Uses) -> None:
    use = uses["few"]
    drawing = drawn(use, "loads")
    heights = [rect.height for rect in rects(drawing, "load-per-expert")]
    loads = sorted(use.load, reverse=True)
    np.testing.assert_allclose(np.array(heights) / sum(heights), np.array(loads) / sum(loads))
    (marked,) = rects(drawing, "fullest")
    others = rects(drawing, "load-per-rank")
    assert all(rect.height < marked.height for rect in others)
    order = sorted([*others, marked], key=lambda rect: rect.left)
    place = order.index(marked)
    assert place == use.rank_load.index(max(use.rank_load))
    ratio = marked.height / sum(rect.height for rect in order)
    assert ratio == pytest.approx(max(use.rank_load) / sum(use.rank_load))


def test_many_experts_are_a_stepped_line_over_the_same_area(uses: Uses) -> None:
    use = uses["zipf"]
    drawing = drawn(use, "loads", NARROW)
    steps = rects(drawing, "load-per-expert")
    assert len(steps) == len(set(use.load))
    area = sum(rect.width * rect.height for rect in steps)
    across, tallest = sum(rect.width for rect in steps), max(rect.height for rect in steps)
    mean = area / across / tallest * max(use.load)
    assert mean == pytest.approx(sum(use.load) / len(use.load))


def test_experts_without_a_row_are_counted(uses: Uses) -> None:
    assert uses["empty"].load.count(0) == 3
    assert "3 experts of 256 got no row." in experts.load_finding(uses["empty"])
    assert "got no row" not in experts.load_finding(uses["few"])


@given(
    ranks=st.integers(2, 40),
    domain=st.integers(1, 40),
    most=st.integers(2, 40),
    seed=st.integers(0, 99),
)
def test_a_map_of_groups_keeps_all_bytes(
    uses: Uses, ranks: int, domain: int, most: int, seed: int
) -> None:
    rows = np.random.default_rng(seed).integers(0, 1000, (ranks, ranks))
    use = dataclasses.replace(
        uses["few"],
        ranks=ranks,
        domain=min(domain, ranks),
        rows=tuple(tuple(map(int, row)) for row in rows),
    )
    found = experts_matrix.traffic(use, most)
    assert len(found.cells) <= most
    total = sum(map(sum, found.cells))
    assert total == pytest.approx(use.dispatch_row * (rows.sum() - rows.trace()))
    if ranks <= most:
        assert found.group == 1


def test_more_than_64_ranks_are_shown_by_domain_and_one_domain_by_neighbours(uses: Uses) -> None:
    by_domain = experts_matrix.traffic(uses["domains"], experts_matrix.CELLS)
    assert (by_domain.group, len(by_domain.cells), by_domain.outlined) == (8, 16, 0)
    neighbours = experts_matrix.traffic(uses["wide"], experts_matrix.CELLS)
    assert (neighbours.group, len(neighbours.cells)) == (2, 36)
    plain = experts_matrix.traffic(uses["drops"], experts_matrix.CELLS)
    assert (plain.group, len(plain.cells), plain.outlined) == (1, 16, 8)


def test_a_cell_is_as_dark_as_its_bytes_and_home_is_hatched(uses: Uses) -> None:
    use = uses["drops"]
    drawing = drawn(use, "matrix")
    home = rects(drawing, "home")
    cell, count = home[0].width, use.ranks
    left, top = home[0].left, home[0].bottom + cell
    assert all(patch.hatched for patch in drawing.patches if patch.gid == "home")
    seen: dict[tuple[int, int], str] = {}
    for patch in drawing.patches:
        if patch.gid.startswith("shade-"):
            for rect in patch.rects:
                row = round((top - rect.bottom) / cell) - 1
                first = round((rect.left - left) / cell)
                for column in range(first, first + round(rect.width / cell)):
                    seen[row, column] = patch.fill
    assert len(seen) == count * (count - 1)
    most = max(use.rows[row][column] for row, column in seen)
    for (row, column), colour in seen.items():
        shade = math.ceil(experts_matrix.LEVELS * use.rows[row][column] / most)
        assert colour == palette.magnitude(shade / experts_matrix.LEVELS)


def test_sums_beside_the_map_are_what_leaves_and_arrives(uses: Uses) -> None:
    use = uses["zipf"]
    drawing = drawn(use, "matrix", NARROW)
    sent, got = experts.links(use)
    assert sum(sent) == sum(got)
    widths = np.array([rect.width for rect in rects(drawing, "sent")])
    heights = np.array([rect.height for rect in rects(drawing, "received")])
    np.testing.assert_allclose(heights / heights.max(), np.array(got) / max(got))
    np.testing.assert_allclose(widths / heights.max(), np.array(sent) / max(got))


def test_sizes_are_cividis_and_darker_for_more() -> None:
    shades = [palette.magnitude(place / 90) for place in range(91)]
    bright = [palette.luminance(shade) for shade in shades]
    assert bright == sorted(bright, reverse=True)
    for place, shade in enumerate(shades):
        known = to_hex(matplotlib.colormaps["cividis"](1 - place / 90))
        assert palette.luminance(shade) == pytest.approx(palette.luminance(known), abs=0.01)
        for at in (1, 3, 5):
            assert abs(int(shade[at : at + 2], 16) - int(known[at : at + 2], 16)) <= 16
        text = palette.on(shade)
        assert text not in palette.LIGHT.values()
        light = sorted((palette.luminance(text), palette.luminance(shade)))
        assert (light[1] + 0.05) / (light[0] + 0.05) >= 4.5


def test_lanes_are_slowest_first_and_equal_ranks_are_one(uses: Uses) -> None:
    found = lanes(uses["drops"])
    ends = [lane.done for lane in found]
    assert ends == sorted(ends, reverse=True)
    assert sorted(rank for lane in found for rank in lane.ranks) == list(range(16))
    (alike,) = lanes(uses["balanced"])
    assert alike.ranks == tuple(range(8))


def test_busy_time_in_the_timeline_is_that_of_the_spans(uses: Uses) -> None:
    use = uses["drops"]
    drawing = drawn(use, "timeline", NARROW)
    busy: dict[str, float] = defaultdict(float)
    for patch in drawing.patches:
        if found := re.match(r"rank-(\d+)-(units|links|wait)", patch.gid):
            busy[found[0]] += sum(r.width * r.height for r in patch.rects) / experts_timeline.BAND
    waits = [patch for patch in drawing.patches if patch.gid.endswith("-wait")]
    assert len(waits) == use.ranks
    assert all(patch.hatched for patch in waits)
    time: dict[str, float] = defaultdict(float)
    for span in use.spans:
        time[f"rank-{span.rank}-{span.lane}"] += span.end - span.start
    points = busy["rank-0-links"] / time["rank-0-links"]
    for name, seconds in time.items():
        assert busy[name] == pytest.approx(points * seconds, abs=0.5), name


def test_at_most_sixteen_ranks_and_two_thousand_rectangles_are_drawn(uses: Uses) -> None:
    use = uses["crowded"]
    drawing = drawn(use, "timeline")
    shown = {found[1] for p in drawing.patches if (found := re.match(r"rank-(\d+)-", p.gid))}
    order = [str(rank) for lane in lanes(use) for rank in lane.ranks]
    assert shown == {*order[:8], *order[-8:]}
    assert "the 8 slowest and the 8 fastest of 72" in drawing.caption
    assert len(rects(drawing, "rank-")) <= experts_timeline.RECTS


def test_a_ninth_kind_of_work_shares_the_last_colour(uses: Uses) -> None:
    spans = tuple(
        Span(
            rank=0, lane="units", name=f"part {place}", start=place * 1e-6, end=place * 1e-6 + 9e-7
        )
        for place in range(12)
    )
    use = dataclasses.replace(uses["one"], spans=spans)
    found = experts_timeline.kinds(lanes(use))
    assert len(found.names) == len(palette.SERIES)
    assert {found.colour(f"part {place}") for place in range(12)} == set(palette.SERIES)


def test_the_waterfall_runs_from_the_balanced_run_to_this_one(uses: Uses) -> None:
    use = uses["zipf"]
    drawing = drawn(use, "lost")
    bars = [rects(drawing, f"step-{row}")[0] for row in range(len(use.lost) + 1)]
    scale = bars[0].width / use.lost[0].time
    zero, reached = bars[0].left, 0.0
    for bar, step in zip(bars, use.lost, strict=False):
        start, reached = reached, reached + step.time
        assert bar.left - zero == pytest.approx(scale * min(start, reached), abs=0.01)
        assert bar.width == pytest.approx(scale * abs(step.time), abs=0.01)
    assert bars[-1].width == pytest.approx(scale * sum(step.time for step in use.lost))
    hollow = [patch.gid for patch in drawing.patches if patch.fill == palette.PAPER]
    assert hollow == ["step-3"]
    texts = [words.text for words in drawing.words]
    assert "- smaller tiles" in texts


def test_where_there_is_nothing_to_see_a_line_of_text_says_so(uses: Uses) -> None:
    shown = {plate.key: plate.layout is not None for plate in plates(uses["balanced"])}
    assert shown == {"loads": False, "matrix": False, "timeline": True, "lost": False}
    one = {plate.key: plate.layout is not None for plate in plates(uses["one"])}
    assert one == {"load": True, "matrix": False, "timeline": True, "lost": True}
    assert "One rank: no token travels." in [p.caption for p in plates(uses["one"])]
    bare = dataclasses.replace(uses["zipf"], rows=(), spans=(), lost=(), phases=())
    assert [plate.key for plate in plates(bare)] == ["loads"]


def test_findings_name_the_rank_and_what_balancing_would_save(uses: Uses) -> None:
    use = uses["zipf"]
    rank = use.rank_load.index(max(use.rank_load))
    text = experts.load_finding(use)
    assert text.startswith(f"Rank {rank} gets ")
    assert "even loads would save 20.0 % of the time" in text
    slower = dataclasses.replace(
        use, lost=(Loss(name="balanced", time=2e-3), Loss(name="luck", time=-1e-3))
    )
    assert "even loads would save" not in experts.load_finding(slower)
    assert "1.00 ms faster than with even loads" in experts.lost_finding(slower)


def test_a_pass_without_tokens_is_reported(uses: Uses) -> None:
    none = dataclasses.replace(
        uses["few"],
        tokens=0,
        load=(0,) * 8,
        rank_load=(0,) * 4,
        rows=((0,) * 4,) * 4,
        distinct=0.0,
        phases=(ExpertPhase(name="router", time=0.0, bytes=0.0),),
        spans=(Span(rank=0, lane="units", name="router", start=0.0, end=0.0),),
        lost=(Loss(name="balanced", time=0.0),),
    )
    assert "Nothing crosses a link" in experts.exchange_finding(none)
    for plate in plates(none):
        if plate.layout is not None:
            experts_pen.draw(plate.drawing(none, NARROW))


def test_the_page_shows_every_phase_decode_first(uses: Uses, calibrated: Result) -> None:
    prefill = dataclasses.replace(uses["few"], phase="prefill")
    text = render_page(with_experts(calibrated, prefill, uses["wide"]))
    assert text.index("<h3>decode</h3>") < text.index("<h3>prefill</h3>")
    assert text.index('id="memory"') < text.index('id="experts"') < text.index('id="operators"')
    assert f"The first {RANKS} of 72 ranks" in text.replace("\N{NO-BREAK SPACE}", " ")
    assert len(text.encode()) < 1_000_000
    named = re.findall(r'\bid="([^"]+)"', text)
    assert len(named) == len(set(named))
    for name in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text):
        assert "".join(name) in named
    assert not re.search(r'@import|url\((?!#)|(?:href|src)="(?!#)', text)


def test_a_page_without_experts_says_nothing_of_them(calibrated: Result) -> None:
    assert 'id="experts"' not in render_page(calibrated)


def test_hostile_names_are_text_everywhere(uses: Uses, calibrated: Result) -> None:
    use = uses["few"]
    spans = tuple(dataclasses.replace(span, name=HOSTILE + span.name) for span in use.spans)
    hostile = dataclasses.replace(
        use,
        phase=HOSTILE,
        routing=HOSTILE,
        placement=HOSTILE,
        spans=spans,
        phases=(ExpertPhase(name=HOSTILE, time=1e-6, bytes=1.0),),
        lost=(Loss(name=HOSTILE, time=1e-3), Loss(name=HOSTILE, time=1e-3)),
    )
    result = with_experts(calibrated, hostile, use)
    text = render_page(result)
    assert text.count("<script") == 1
    assert "&lt;/script&gt;" in text
    assert "\u202e" not in text + experts.data(result) + render(result, 80)


def test_files_of_experts_are_the_same_each_time_and_go_with_them(
    uses: Uses, calibrated: Result, tmp_path: Path
) -> None:
    result = with_experts(calibrated, uses["zipf"], uses["few"])
    one, two = write_report(result, tmp_path / "one"), write_report(result, tmp_path / "two")
    assert {path.name for path in one} >= set(FILES)
    for first, second in zip(one, two, strict=True):
        assert first.read_bytes() == second.read_bytes()
    assert (tmp_path / "one" / "experts.png").read_bytes().startswith(b"\x89PNG")
    write_report(calibrated, tmp_path / "one")
    assert not any((tmp_path / "one" / name).exists() for name in FILES)


def test_the_sheet_holds_each_picture_in_its_own_place(uses: Uses, calibrated: Result) -> None:
    result = with_experts(calibrated, uses["zipf"], uses["balanced"])
    whole = sheet(result, WIDE + 28)
    gids = [patch.gid for patch in whole.patches if patch.gid]
    assert len(gids) == len(set(gids))
    assert all(0 <= words.y <= whole.height for words in whole.words)
    assert pen.svg(experts_pen.draw(whole), whole).count("<text") >= len(whole.words)


def test_combine_says_as_in_dispatch_where_rows_are_alike_both_ways(uses: Uses) -> None:
    use = uses["few"]
    alike = dataclasses.replace(use, combine_row=use.dispatch_row)
    assert experts.exchange_finding(alike).endswith("for each copy, as in dispatch.")
    assert " instead of " in experts.exchange_finding(use)


def test_the_table_of_data_holds_every_number(uses: Uses, calibrated: Result) -> None:
    use = uses["few"]
    rows = list(csv.DictReader(io.StringIO(experts.data(with_experts(calibrated, use)))))
    total: dict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        total[row["figure"], row["unit"]] += float(row["value"])
    assert total["expert load", "rows"] == sum(use.load)
    assert total["rank load", "rows"] == sum(use.rank_load)
    copies = sum(map(sum, use.rows))
    assert total["dispatch", "B"] == pytest.approx(copies * use.dispatch_row)
    assert total["combine", "B"] == pytest.approx(copies * use.combine_row)
    assert total["lost", "s"] == pytest.approx(experts.total(use))
    assert {row["warnings"] for row in rows} == {calibrated.warnings[0]}
    there = {(r["item"], r["to"]): r["value"] for r in rows if r["figure"] == "dispatch"}
    back = {(r["item"], r["to"]): r["value"] for r in rows if r["figure"] == "combine"}
    ratio = use.combine_row / use.dispatch_row
    for (source, target), moved in there.items():
        assert float(back[target, source]) == pytest.approx(ratio * float(moved))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_lines_of_the_terminal_read_as_recorded(
    uses: Uses, width: int, decode: Result, file_regression: FileRegressionFixture
) -> None:
    text = render(with_experts(decode, uses["drops"]), width)
    file_regression.check(text, extension=".txt", encoding="utf-8")


def test_the_terminal_says_what_moves_and_what_is_lost(use: ExpertUse, decode: Result) -> None:
    result = with_experts(decode, use)
    for width in (40, 60, 120):
        text = render(result, width)
        assert max(cell_len(line) for line in text.splitlines()) <= width
    text = re.sub(r"\s+", " ", text)
    assert f"of {use.experts} hit per layer" in text
    assert ("rank " in text) or use.ranks == 1
    assert ("dispatch " in text) == (use.ranks > 1)
    if use.dropped:
        assert "1,234 token-expert pairs dropped" in text
    else:
        assert "no token dropped" in text
    assert "lost" in text
    plain = render(dataclasses.replace(result, experts=()), 120)
    added = set(render(result, 120).splitlines()) - set(plain.splitlines())
    assert len(added) <= 4
