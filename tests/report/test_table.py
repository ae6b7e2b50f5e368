"""The terminal table. Its text is held in files beside this one; rewrite them, and read the
difference, with ``pytest tests/report/test_table.py --force-regen``."""

from __future__ import annotations

import io

import pytest
from pytest_regressions.file_regression import FileRegressionFixture
from rich.cells import cell_len

from simulator.report.table import print_table, render
from simulator.result import Result

CASES = (
    *("decode", "calibrated", "prefill", "experts", "generate"),
    *("single", "copies", "hostile", "many", "overfull"),
)


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Ascii(io.StringIO):
    """A pipe into something that reads 7-bit letters."""

    encoding = "ascii"


class Pipe(io.StringIO):
    """A pipe into something that reads UTF-8."""

    encoding = "utf-8"


@pytest.fixture(params=CASES)
def result(request: pytest.FixtureRequest) -> Result:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Result)
    return found


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("case", ["decode", "calibrated", "experts"])
def test_the_table_reads_as_recorded(
    case: str,
    width: int,
    request: pytest.FixtureRequest,
    file_regression: FileRegressionFixture,
) -> None:
    text = render(request.getfixturevalue(case), width)
    file_regression.check(text, extension=".txt", encoding="utf-8")


def test_the_ascii_table_reads_as_recorded(
    decode: Result, file_regression: FileRegressionFixture
) -> None:
    file_regression.check(render(decode, 80, ascii_only=True), extension=".txt", encoding="ascii")


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_sheet(result: Result, width: int) -> None:
    text = render(result, width)
    assert max(cell_len(line) for line in text.splitlines()) <= max(40, width)
    assert all(line == line.rstrip() for line in text.splitlines())


def test_plain_text_has_no_escape_codes_and_ascii_has_only_ascii(result: Result) -> None:
    assert "\x1b" not in render(result, 80)
    plain = render(result, 80, ascii_only=True)
    assert plain.isascii()
    assert "\x1b" not in plain


def test_the_answer_is_in_the_first_lines(decode: Result) -> None:
    head = render(decode, 80).splitlines()[:7]
    for words in ("step time", "throughput", "bound by", "memory", "MBU", "MFU", "bounds"):
        assert any(words in line for line in head), words


def test_shares_by_resource_sum_to_one_hundred(result: Result) -> None:
    _, _, rest = render(result, 100, ascii_only=True).partition("share %\n")
    rows = rest.partition("\n\n")[0].splitlines()
    assert [row.split()[0] for row in rows] == list(result.breakdown)
    assert sum(round(10 * float(row.split()[-1])) for row in rows) == 1000


def test_names_are_not_markup(hostile: Result) -> None:
    text = render(hostile, 200)
    assert "[bold]markup[/bold] {{ 7 * 7 }}" in text
    assert "<img src=x onerror=alert(3)>" in text


def test_a_run_without_interval_says_so(decode: Result, calibrated: Result) -> None:
    assert "not calibrated" in render(decode, 120)
    text = render(calibrated, 120)
    assert "not calibrated" not in text
    assert "11.1 ms [9.3, 13.3]" in text
    assert "80 % interval" in text


def test_a_terminal_gets_colour_unless_told_otherwise(decode: Result) -> None:
    coloured, told, dumb, piped, old = Screen(), Screen(), Screen(), Pipe(), Ascii()
    print_table(decode, coloured, {})
    print_table(decode, told, {"NO_COLOR": "1"})
    print_table(decode, dumb, {"TERM": "dumb"})
    print_table(decode, piped, {})
    print_table(decode, old, {})
    assert "\x1b[" in coloured.getvalue()
    assert "\x1b" not in told.getvalue() + dumb.getvalue() + piped.getvalue() + old.getvalue()
    assert piped.getvalue() == render(decode, 80)
    assert old.getvalue() == render(decode, 80, ascii_only=True)


def test_the_environment_of_the_terminal_does_not_change_the_text(
    decode: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = render(decode, 80)
    monkeypatch.setenv("COLUMNS", "33")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    assert render(decode, 80) == before
