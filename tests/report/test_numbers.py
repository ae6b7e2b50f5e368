"""Numbers as text can be read back, and never look like anything but numbers."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from simulator.report import numbers

PREFIXES = {
    "p": 1e-12,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "": 1.0,
    **{prefix: 10.0 ** (3 * power) for power, prefix in enumerate("kMGTPEZYRQ", start=1)},
}
UNITS = ("s", "J", "W", "B", "B/s", "FLOP", "FLOP/s")
finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=1e-13, max_value=1e32)
anything = st.floats() | st.none()


def parse(text: str, unit: str = "") -> tuple[float, float]:
    """The value that a text stands for, and the worth of its last digit."""
    found = re.fullmatch(rf"(-?)([\d,]+)(\.\d+)? ?([a-zA-Z]?){re.escape(unit)}", text)
    assert found, text
    sign, whole, decimals, prefix = found.groups(default="")
    digits = whole.replace(",", "")
    significant = len(digits) if digits.strip("0") else 1
    last = 10.0 ** -(len(decimals) - 1) if decimals else 10.0 ** max(0, significant - 3)
    scale = PREFIXES[prefix]
    return float(sign + digits + decimals) * scale, last * scale


@given(positive, st.sampled_from(UNITS))
@example(0.9995e-3, "s")
@example(999.5, "s")
@example(999.5e9, "B")
@example(99_950.0, "W")
def test_a_quantity_reads_back_within_half_its_last_digit(value: float, unit: str) -> None:
    text = numbers.quantity(value, unit)
    assume(not text.startswith("<"))
    read, last = parse(text, unit)
    assert abs(read - value) <= 0.5 * last * (1 + 1e-9)


@given(st.floats(min_value=1e-3, max_value=1e15))
@example(9.996)
@example(0.9996)
@example(1234.5)
def test_digits_read_back_within_half_their_last_digit(value: float) -> None:
    read, last = parse(numbers.digits(value))
    assert abs(read - value) <= 0.5 * last * (1 + 1e-9)
    assert len(numbers.digits(value).partition(".")[2]) <= 3


@given(st.integers(min_value=-99_999, max_value=99_999))
def test_a_whole_number_up_to_five_digits_is_written_in_full(value: int) -> None:
    assert int(numbers.count(value).replace(",", "")) == value


@given(st.lists(positive, min_size=1, max_size=8), st.sampled_from(UNITS))
def test_a_column_has_one_prefix_and_each_cell_reads_back(values: list[float], unit: str) -> None:
    name, cells = numbers.column(values, unit)
    scale = PREFIXES[name.removesuffix(unit)]
    for value, cell in zip(values, cells, strict=True):
        if cell == "<0.001":
            assert value < 0.001 * scale
        else:
            read, last = parse(cell)
            assert abs(read * scale - value) <= 0.5 * last * scale * (1 + 1e-9)


@given(anything, st.sampled_from((*UNITS, "tok/s", "FLOP/B")))
def test_no_text_has_nan_infinity_an_exponent_or_a_negative_zero(
    value: float | None, unit: str
) -> None:
    texts = [
        numbers.quantity(value, unit),
        numbers.digits(None if value is None or abs(value) > 1e30 else value),
        numbers.count(value),
        numbers.percent(value),
        numbers.utilisation(value),
        *numbers.column([value, 1.0], unit)[1],
    ]
    for text in texts:
        number = text.removesuffix(unit)
        assert not re.search(r"nan|inf|\de[+-]?\d|^-0(\.0*)?( |$)", number, re.IGNORECASE), text


@given(st.lists(st.floats(min_value=0, max_value=1e12), min_size=1, max_size=20))
def test_shares_sum_to_one_hundred_and_are_a_tenth_off_at_most(values: list[float]) -> None:
    whole = math.fsum(values)
    assume(whole > 1e-300)
    shares = numbers.shares(values)
    tenths = [round(10 * float(share)) for share in shares]
    assert sum(tenths) == 1000
    for value, tenth in zip(values, tenths, strict=True):
        assert abs(tenth / 10 - 100 * value / whole) <= 0.1 + 1e-9


def test_shares_of_nothing_are_absent() -> None:
    assert numbers.shares([0.0, 0.0]) == ["-", "-"]
    assert numbers.shares([]) == []
    assert numbers.shares([math.nan]) == ["-"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (numbers.quantity(10.34e-3, "s"), "10.3 ms"),
        (numbers.quantity(51.42e-6, "s"), "51.4 us"),
        (numbers.quantity(0.9996e-3, "s"), "1.00 ms"),
        (numbers.quantity(432e9, "B"), "432 GB"),
        (numbers.quantity(23.3e12, "B/s"), "23.3 TB/s"),
        (numbers.quantity(5.0332e15, "FLOP/s"), "5.03 PFLOP/s"),
        (numbers.quantity(3114.2, "tok/s"), "3,110 tok/s"),
        (numbers.quantity(123_456.0, "tok/s"), "123 k tok/s"),
        (numbers.quantity(0.0, "s"), "0 s"),
        (numbers.quantity(-0.0, "s"), "0 s"),
        (numbers.quantity(4200.0, "s"), "4,200 s"),
        (numbers.count(131_072), "131 k"),
        (numbers.count(1_234_567), "1.23 M"),
        (numbers.count(99_999), "99,999"),
        (numbers.span(7.9e-3, 12.94e-3, "s"), "7.90 .. 12.9 ms"),
        (numbers.span(0.9e-3, 1.2e-3, "s"), "0.900 .. 1.20 ms"),
        (numbers.interval(10.34e-3, 8.61e-3, 12.41e-3, "s"), "10.3 ms [8.6, 12.4]"),
        (numbers.interval(1294.0, 987.0, 1681.0, "tok/s"), "1,290 tok/s [990, 1,680]"),
        (numbers.interval(1.0, 1.0, 1.0, "s"), "1.00 s"),
        (numbers.percent(0.779), "78 %"),
        (numbers.percent(0.0004), "<1 %"),
        (numbers.percent(0.0), "0 %"),
        (numbers.utilisation(0.0941), "9.4 %"),
        (numbers.utilisation(0.77), "77 %"),
        (numbers.utilisation(0.00943), "0.94 %"),
    ],
)
def test_an_example_is_written_as_expected(text: str, shown: str) -> None:
    assert text == shown


def test_decimal_points_stand_in_line() -> None:
    cells = ["51.4", "9.10", "0.728", "-", "117"]
    padded = numbers.align(cells)
    ends = {len(cell) - (cell + ".").find(".") for cell in padded if "." in cell}
    assert ends == {4}
    assert padded[3] == "-    "


@given(st.text(max_size=40))
def test_a_plain_name_is_one_line_that_can_be_encoded(text: str) -> None:
    name = numbers.plain(text)
    assert len(name) == len(text)
    assert len(name.splitlines()) <= 1
    assert "\x1b" not in name
    name.encode()


@given(st.text(max_size=60), st.integers(min_value=0, max_value=30))
def test_a_cut_name_fits_and_keeps_both_ends(text: str, width: int) -> None:
    short = numbers.cut(text, width)
    assert len(short) <= max(width, 0)
    if len(text) > width >= 5:
        assert short[0] == text[0]
        assert short[-1] == text[-1]


def test_typeset_text_keeps_number_and_unit_together() -> None:
    assert numbers.typeset("12 us of 3 TB/s") == "12\u00a0\u00b5s of 3\u00a0TB/s"
    assert numbers.typeset("us") == "\u00b5s"
    assert numbers.typeset("bus") == "bus"
