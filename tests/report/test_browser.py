"""The page in a browser: it opens from a file, asks for nothing, and its script tells the truth."""

from __future__ import annotations

import io
import itertools
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib import image

from simulator import load_scenario, simulate
from simulator.report.compare_page import write_comparison
from simulator.report.page import write_report
from simulator.report.sensitivity_page import write_sensitivity
from simulator.report.sweep import Swept
from simulator.report.sweep_page import write_sweep
from simulator.result import Result
from simulator.study.compare import compare
from simulator.study.sensitivity import sensitivity

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed to open pages")

Written = Callable[[Path], object]
"""Writes a page into a folder."""
PAGES = ("calibrated", "experts", "copies", "hostile", "many", "mixture",
         "trained", "layered")  # fmt: skip
STUDIES = ("compared", "felt", "swept")
WIDTHS = (360, 768, 1280)
DRAWN = (  # boxes of the upright texts of each SVG that is shown, and of the SVG
    "() => [...document.querySelectorAll('svg')].filter(s => s.getClientRects().length).map(s => {"
    "const box = e => { const b = e.getBoundingClientRect();"
    " return [b.left, b.top, b.right, b.bottom]; };"
    "return [box(s), [...s.querySelectorAll('text')]"
    ".filter(t => !/rotate\\(-(?!0)/.test(t.getAttribute('transform') ?? ''))"
    ".map(t => [t.textContent, box(t)])]; })"
)


@pytest.fixture(scope="module")
def mixture() -> Result:
    return simulate(load_scenario("mixtral-8x7b decode batch=32 context=512 ep=4 on mi300x"))


@pytest.fixture(scope="module")
def layered() -> Result:
    return simulate(load_scenario("llama-3.1-8b generate batch=4 input=128 output=8 on h200"))


@pytest.fixture(scope="module")
def trained() -> Result:
    return simulate(
        load_scenario("llama-3.1-8b train sequence=1024 global_batch=16 pp=2 tp=2 on h200")
    )


@pytest.fixture(scope="module")
def compared() -> Written:
    found = compare("llama-3.1-8b", ["h200", "mi300x"], context=1024, batches=[1, 8])
    return lambda folder: write_comparison(found, folder)


@pytest.fixture(scope="module")
def felt() -> Written:
    found = sensitivity(load_scenario("llama-3.1-8b decode batch=8 context=1024 on h200"))
    return lambda folder: write_sensitivity(found, folder)


EVIL = "</script><b>bold</b>"


@pytest.fixture(scope="module")
def swept() -> Written:
    """A grid with names that try to leave their place, some points without an answer."""
    rows = []
    for index in range(36):
        rate, batch = divmod(index, 6)
        latency = 1e-3 * (1 + 2**batch / (1 + rate))
        row = {
            "index": index, f"a.{EVIL}": f"{1 + rate} TB/s", "batch": f"{2**batch}",
            "latency": latency, "latency_lower": 0.8 * latency, "latency_upper": 1.3 * latency,
            "throughput": 2**batch / latency, "bound_by": ("memory", "compute")[batch > rate],
            "mfu": 0.5, "mbu": 0.5, "memory_bytes": 1e9, "devices": 1, "energy": 1.0, "cost": None,
            "status": "ok", "reason": None,
        }  # fmt: skip
        empty = dict.fromkeys(list(row)[3:-2])
        bad = {"status": "refused", "reason": EVIL}
        rows.append(row | empty | bad if batch - rate > 3 else row)
    answers = [row for row in rows if row["status"] == "ok"]
    found = Swept(
        rows=tuple(rows), paths=(f"a.{EVIL}", "batch"), front=tuple(answers[-3:]), base=EVIL,
        about=EVIL, unit="tok/s", name=f"{EVIL}.yaml", text=f"base: {EVIL}", version="0",
    )  # fmt: skip
    return lambda folder: write_sweep(found, folder)


class Browser:
    """Pages of results, each opened once, with what the browser said of them."""

    def __init__(self, chromium: Any, folder: Path) -> None:
        self.context = chromium.new_context(offline=True, accept_downloads=False)
        self.folder, self.pages = folder, {}

    def open(self, name: str, found: Result | Written) -> Any:
        if name not in self.pages:
            if isinstance(found, Result):
                write_report(found, self.folder / name)
            else:
                found(self.folder / name)
            page = self.context.new_page()
            page.said, page.asked = [], []
            page.on("console", lambda message: page.said.append(message.text))
            page.on("pageerror", lambda error: page.said.append(str(error)))
            page.on("dialog", lambda dialog: page.said.append(dialog.message))
            page.on("request", lambda request: page.asked.append(request.url))
            page.goto((self.folder / name / "index.html").as_uri())
            self.pages[name] = page
        return self.pages[name]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield Browser(chromium, tmp_path_factory.mktemp("pages"))
        chromium.close()


@pytest.fixture
def page(request: pytest.FixtureRequest, browser: Browser) -> Any:
    name = request.param
    found = browser.open(name, request.getfixturevalue(name))
    found.bring_to_front()  # a page behind others draws once a second
    found.set_viewport_size({"width": 1280, "height": 900})
    return found


def table(page: Any) -> list[list[list[str]]]:
    """Text and sorting value of each cell of each operator, in the order of the page."""
    return page.eval_on_selector_all(
        "table.operators tbody tr",
        "rows => rows.map(r => [...r.cells].map(c => [c.textContent.trim(), c.dataset.value]))",
    )


@pytest.mark.parametrize("page", [*PAGES, *STUDIES], indirect=True)
def test_a_page_opens_from_a_file_and_asks_for_nothing_else(page: Any) -> None:
    assert page.said == []
    assert page.asked == [page.url]
    assert page.url.startswith("file:")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", [*PAGES, *STUDIES], indirect=True)
def test_a_page_does_not_scroll_sideways_and_no_text_of_a_picture_is_on_another(
    page: Any, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    root = "document.documentElement"
    assert page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")
    drawn = page.evaluate(DRAWN)
    assert any(texts for _, texts in drawn)
    for (left, top, right, bottom), texts in drawn:
        for text, (x0, y0, x1, y1) in texts:
            assert left - 1 <= x0, text
            assert x1 <= right + 1, text
            assert top - 1 <= y0, text
            assert y1 <= bottom + 1, text
        for (one, a), (other, b) in itertools.combinations(texts, 2):
            across = min(a[2], b[2]) - max(a[0], b[0])
            down = min(a[3], b[3]) - max(a[1], b[1])
            # The box of a line of text is higher than its letters.
            assert across <= 1 or down <= 3, (one, other)


@pytest.mark.parametrize("page", ["calibrated", "experts", "hostile"], indirect=True)
def test_the_card_over_a_mark_is_the_row_of_its_operator_by_pointer_and_by_keyboard(
    page: Any,
) -> None:
    rows = {row[0][0]: [text for text, _ in row if text] for row in table(page)}
    marks = page.locator("svg.wide g[role=button]")
    hover = page.locator(".hover")
    told, cards = set[str](), dict[str, str]()
    assert page.locator("svg.wide g[tabindex='0']").count() == 1
    page.locator("svg.wide g[tabindex='0']").focus()
    for _ in range(marks.count()):
        assert hover.is_visible()
        for list_ in hover.locator("dl").all():
            rank = list_.get_attribute("data-rank")
            assert list_.locator("dd").all_inner_texts() == rows[rank]
            told.add(rank)
        cards[page.evaluate("document.activeElement.id")] = hover.inner_text()
        page.keyboard.press("ArrowRight")
    assert len(set(cards.values())) == len(cards) == marks.count()
    assert len(told) == len(rows)
    page.keyboard.press("Escape")
    assert not hover.is_visible()
    for mark in marks.all():
        mark.dispatch_event("mouseenter")
        assert hover.inner_text() == cards[mark.get_attribute("id")]
        mark.dispatch_event("mouseleave")
        assert not hover.is_visible()


@pytest.mark.parametrize("page", ["calibrated"], indirect=True)
def test_the_mark_in_focus_has_a_dark_edge(page: Any) -> None:
    mark = page.locator("svg.wide g[tabindex='0']")

    def dark() -> int:
        page.evaluate("document.querySelector('.hover').hidden = true")
        pixels = image.imread(io.BytesIO(page.screenshot(clip=mark.bounding_box())))
        return int((pixels[..., :3].max(axis=-1) < 0.25).sum())

    mark.blur()
    mark.scroll_into_view_if_needed()
    before = dark()
    mark.focus()
    assert dark() > before + 50
    mark.blur()
    assert dark() < before + 10


@pytest.mark.parametrize("page", ["calibrated", "hostile", "copies"], indirect=True)
def test_every_column_sorts_both_ways_as_its_numbers_do(page: Any) -> None:
    heads = page.locator("table.operators thead th")
    rows = sorted(table(page), key=lambda row: int(row[0][0]))

    def key(column: int) -> Any:
        numeric = any(value is not None for row in rows for value in row[column][1:])
        if not numeric:
            return lambda row: row[column][0].encode("utf-16-be")
        return lambda row: float(row[column][1] or "-inf")

    for column in range(heads.count()):
        seen = set()
        for _ in range(2):
            heads.nth(column).locator("button").click()
            order = heads.nth(column).get_attribute("aria-sort")
            assert page.locator("table.operators [aria-sort]").count() == 1
            # Equal ones keep the order of their ranks either way.
            down = order == "descending"
            expected = sorted(rows, key=key(column), reverse=down)
            if down:
                groups = itertools.groupby(expected, key=key(column))
                expected = [
                    row for _, group in groups for row in sorted(group, key=lambda r: int(r[0][0]))
                ]
            assert table(page) == expected, (column, order)
            seen.add(order)
        assert seen == {"ascending", "descending"}


@pytest.mark.parametrize("page", ["calibrated"], indirect=True)
def test_the_filter_counts_what_it_leaves_and_fades_the_marks_of_the_rest(page: Any) -> None:
    field, count = page.locator(".filter input"), page.locator(".filter output")
    rows = page.locator("table.operators tbody tr")
    total = rows.count()
    field.fill("attn")
    left = sum("attn" in row.inner_text() for row in rows.all() if row.is_visible())
    assert 0 < left < total
    assert page.locator("table.operators tbody tr:visible").count() == left
    assert count.inner_text() == f"{left} of {total} operators"
    assert page.locator("svg.wide g.out").count() > 0
    field.fill("")
    assert count.inner_text() == f"{total} of {total} operators"
    assert page.locator("g.out").count() == 0


@pytest.mark.parametrize("page", ["hostile"], indirect=True)
def test_hostile_names_are_text_and_run_nothing(page: Any) -> None:
    assert page.said == []
    assert page.locator("script").count() == 1
    assert page.locator("img, iframe, object").count() == 0
    names = [row[1][0] for row in table(page)]
    assert "</script><script>alert(1)</script>" in names


@pytest.mark.parametrize("page", ["mixture", "trained", *STUDIES], indirect=True)
def test_every_column_of_every_table_sorts_both_ways_by_its_values(page: Any) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    tables = page.locator("table.sortable:not(.operators)")
    assert tables.count() > 0
    for table_ in tables.all():
        rows = table_.locator("tbody tr")

        def cells(rows: Any = rows) -> list[list[tuple[str, str | None]]]:
            return [
                [(text, value) for text, value in row]
                for row in rows.evaluate_all(
                    "rows => rows.map(r => [...r.cells].map(c => "
                    "[c.textContent, c.dataset.value ?? null]))"
                )
            ]

        before = cells()
        heads = table_.locator("thead th")
        for column in range(heads.count()):
            for _ in range(2):
                heads.nth(column).locator("button").click()
                assert table_.locator("[aria-sort]").count() == 1
                order = heads.nth(column).get_attribute("aria-sort")

                def key(row: Any, column: int = column) -> Any:
                    text, value = row[column]
                    return text.encode("utf-16-be") if value is None else float(value or "-inf")

                # Python's sort keeps equal ones in their first order, also in reverse.
                assert cells() == sorted(before, key=key, reverse=order == "descending")


@pytest.mark.parametrize("page", ["swept"], indirect=True)
def test_hostile_names_of_a_study_are_text(page: Any) -> None:
    assert page.locator("script").count() == 1
    assert page.locator("b").count() == 0
    assert EVIL in page.locator("h1").inner_text()
    assert page.locator("pre").last.inner_text() == f"base: {EVIL}"
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    field = page.locator(".filter input")
    field.fill("refused")
    assert page.locator(".filter output").inner_text() == "3 of 36 points"
    assert page.locator("table[data-filter] tbody tr:visible").count() == 3
    field.fill("")


@pytest.mark.parametrize("page", ["calibrated", "mixture", *STUDIES], indirect=True)
def test_a_page_prints_its_text_on_few_sheets(page: Any) -> None:
    data = page.pdf(format="A4")
    assert data.startswith(b"%PDF")
    sheets = re.findall(rb"/Type\s*/Page\b", data)
    assert 1 <= len(sheets) <= 12


def test_a_page_is_whole_without_script(calibrated: Result, browser: Browser) -> None:
    browser.open("calibrated", calibrated)
    context = browser.context.browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto((browser.folder / "calibrated" / "index.html").as_uri())
    assert page.locator("table.operators tbody tr:visible").count() == len(calibrated.ops)
    assert page.locator("svg.wide:visible").count() == 1
    context.close()
