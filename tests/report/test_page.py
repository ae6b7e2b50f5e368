"""The page holds the whole answer, works alone, and lets no name out of its place."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from simulator import load_scenario, sensitivity, simulate
from simulator.errors import BoundsError, SpecError
from simulator.report import bars, roofline
from simulator.report.page import FILES, command, render_page, write_report
from simulator.report.ranking import lines, ranked
from simulator.report.spending import prices
from simulator.report.table import render
from simulator.result import Bounds, Result

CASES = ("calibrated", "experts", "single", "copies", "hostile", "overfull", "generate")
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Elements with their attributes and text; fails where tags do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[dict[str, object]] = []
        self.elements: list[dict[str, object]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        element: dict[str, object] = {"tag": tag, "attributes": dict(attributes), "text": ""}
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append({"tag": tag, "attributes": dict(attributes), "text": ""})

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element["text"] = str(element["text"]) + data

    def all(self, tag: str, kind: str = "") -> list[dict[str, object]]:
        """Elements of a tag, and of a class where one is named."""
        return [
            element
            for element in self.elements
            if element["tag"] == tag
            and (not kind or kind in (attributes(element).get("class") or "").split())
        ]


def attributes(element: dict[str, object]) -> dict[str, str | None]:
    found = element["attributes"]
    assert isinstance(found, dict)
    return found


def width(element: dict[str, object]) -> float:
    found = re.search(r"width: ([\d.]+)%", attributes(element).get("style") or "")
    assert found
    return float(found[1])


@pytest.fixture(scope="module", params=CASES)
def result(request: pytest.FixtureRequest) -> Result:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Result)
    return found


@pytest.fixture(scope="module")
def text(result: Result) -> str:
    """The page of the result, rendered once."""
    return render_page(result)


def test_the_page_nests_and_asks_for_nothing(text: str) -> None:
    page = Page(text)
    for element in page.elements:
        for name, value in attributes(element).items():
            assert not name.startswith("on"), name
            if name in {"href", "src", "xlink:href"}:
                assert (value or "").startswith("#"), value
    assert not re.search(r"@import|url\((?!#)", text)
    assert len(text.encode()) < 300_000
    ids = [attributes(element).get("id") for element in page.elements]
    named = [name for name in ids if name]
    assert len(named) == len(set(named))


def test_the_only_script_is_the_one_that_the_policy_names(hostile: Result) -> None:
    text = render_page(hostile)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 1
    assert text.count("<script") == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text


def test_hostile_names_are_text(hostile: Result) -> None:
    page = Page(render_page(hostile))
    names = [str(element["text"]) for element in page.all("span", "name")]
    for name in ("</script><script>alert(1)</script>", "[bold]markup[/bold] {{ 7 * 7 }}"):
        assert name in names
    assert any("<img src=x onerror=alert(3)>" in str(p["text"]) for p in page.all("p"))
    assert not page.all("img")


def test_bars_add_up_to_the_whole(result: Result, text: str) -> None:
    page = Page(text)
    pieces = page.all("span", "piece")
    shown = sum(1 for time in result.breakdown.values() if time > 0)
    assert math.isclose(sum(map(width, pieces[:shown])), 100.0, abs_tol=0.01)
    assert math.isclose(sum(map(width, pieces[shown:])), 100.0, abs_tol=0.01)
    bars, longest = page.all("span", "line"), max(line.total for line in lines(result))
    assert math.isclose(sum(map(width, bars)) / 100 * longest, result.latency, rel_tol=1e-5)


def test_every_operator_is_in_the_table_longest_first(result: Result, text: str) -> None:
    rows = re.findall(r"<tr data-marks=.*?</tr>", text, re.DOTALL)
    assert len(rows) == len(result.ops)
    for row, op in zip(rows, ranked(result), strict=True):
        values = [float(value) for value in re.findall(r'data-value="([^"]+)"', row)]
        assert values[1:4] == [op.count, op.time_each, op.time]
        assert f"</i>{op.bound_by}</td>" in row


def test_two_thousand_operators_give_five_hundred_rows_and_all_points(
    many: Result, tmp_path: Path
) -> None:
    write_report(many, tmp_path)
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert text.count("<tr data-marks") == 500
    assert "The 500 longest of 2,000" in text
    assert len((tmp_path / "operators.csv").read_text(encoding="utf-8").splitlines()) == 2001
    assert len(text.encode()) < 1_000_000


def test_numbers_on_the_page_are_never_raw(text: str) -> None:
    page = Page(text)
    shown = " ".join(str(e["text"]) for tag in ("td", "dd", "li") for e in page.all(tag))
    assert not re.search(r"\bnan\b|\binf\b|\d\.\d{4,}|\de-\d", shown)


def test_what_does_not_fit_is_said_in_words_and_hatched(overfull: Result, decode: Result) -> None:
    text = render_page(overfull)
    assert "does not fit, 46.1\u00a0GB too much" in text
    assert 'class="over"' in text
    assert 'class="over"' not in render_page(decode)


def test_an_answer_that_was_not_computed_is_named(decode: Result, calibrated: Result) -> None:
    assert "Not answered in this run: interval, energy, cost." in render_page(decode)
    assert "Not answered" not in render_page(calibrated)


def test_the_page_has_the_command_that_gives_the_run_again(decode: Result) -> None:
    assert command(decode) == decode.provenance.command
    assert decode.provenance.command in render_page(decode)


def test_a_report_is_five_files_the_same_each_time(calibrated: Result, tmp_path: Path) -> None:
    one = write_report(calibrated, tmp_path / "one")
    two = write_report(calibrated, str(tmp_path / "deep" / "two"))
    assert [path.name for path in one] == list(FILES)
    for first, second in zip(one, two, strict=True):
        assert first.read_bytes() == second.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "one"]
    assert Result.load(one[1]) == calibrated
    json.loads(one[1].read_text(encoding="utf-8"))
    assert one[4].read_bytes().startswith(b"\x89PNG")


def test_an_earlier_report_is_replaced_and_other_files_stay(
    decode: Result, single: Result, tmp_path: Path
) -> None:
    write_report(decode, tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    write_report(single, tmp_path)
    assert Result.load(tmp_path / "result.json") == single
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*FILES, "notes.txt"])


def test_a_place_that_cannot_be_written_is_refused_with_a_way_out(
    single: Result, tmp_path: Path
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for place in (taken, taken / "below"):
        with pytest.raises(SpecError, match="name a directory"):
            write_report(single, place)
    assert taken.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [taken]


def test_a_run_without_operators_or_without_time_is_still_reported(
    single: Result, tmp_path: Path
) -> None:
    empty = dataclasses.replace(single, ops=())
    still = dataclasses.replace(empty, latency=0.0, bounds=Bounds(lower=0.0, upper=0.0))
    for result in (empty, still):
        write_report(result, tmp_path)
        assert "No operator takes any time." in (tmp_path / "index.html").read_text("utf-8")
        assert "step time" in render(result, 80)


def test_nothing_is_left_where_drawing_fails(
    decode: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(result: Result) -> None:
        raise BoundsError("above its roof")

    monkeypatch.setattr(roofline, "_check", broken)
    with pytest.raises(BoundsError):
        write_report(decode, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_the_parts_of_the_energy_and_what_tokens_cost_are_on_the_page() -> None:
    run = simulate(load_scenario("llama-3.1-8b generate batch=4 input=128 output=8 on mi355x"))
    pieces = bars.energy(run)
    shares = [float(piece.share) for piece in pieces]
    assert sum(shares) == pytest.approx(100.0)
    watts = math.fsum(part.energy for part in run.energy_parts) / run.latency
    drawn = math.fsum(float(piece.note.split()[0]) for piece in pieces)
    assert drawn == pytest.approx(watts, rel=5e-3)
    rows = {name: float(value.removeprefix("$")) for name, value, _ in prices(run)}
    read, written = 4 * 128, 4 * 8
    spent = rows["a million tokens, input"] * read + rows["a million tokens, output"] * written
    assert run.cost is not None
    assert spent / 1e6 == pytest.approx(run.cost, rel=5e-3)
    page = render_page(run)
    assert 'id="energy"' in page
    assert "a million tokens, total" in page


def test_a_device_without_power_and_price_has_no_section_of_them(calibrated: Result) -> None:
    bare = dataclasses.replace(calibrated, energy=None, energy_parts=(), cost=None)
    assert 'id="energy"' not in render_page(bare)


def test_what_would_help_is_on_the_page_where_it_was_asked_for(tmp_path: Path) -> None:
    run = load_scenario("llama-3.1-8b decode batch=4 context=512 on h200")
    found = sensitivity(run, ["memory.hbm.bandwidth", "compute.clock"])
    names = {path.name for path in write_report(found.result, tmp_path, found)}
    page = (tmp_path / "index.html").read_text("utf-8")
    assert "sensitivity.csv" in names
    assert 'id="sensitivity"' in page
    assert all(one.path in page for one in found.entries)
    assert found.command.replace('"', "&#34;") in page
    write_report(found.result, tmp_path)
    assert not (tmp_path / "sensitivity.csv").exists()
    assert 'id="sensitivity"' not in (tmp_path / "index.html").read_text("utf-8")
