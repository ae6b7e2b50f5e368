"""Quantities: what is read, what is refused, and that what is printed reads back."""

from __future__ import annotations

import math
from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import units
from simulator.units import QuantityError, Unit, parse, show

UNITS = [value for value in vars(units).values() if isinstance(value, Unit)]


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("23.3 TB/s", units.BYTES_PER_SECOND, 23.3e12),
        ("400 Gb/s", units.BYTES_PER_SECOND, 50e9),  # 8 bits to the byte
        ("1440 Gbps", units.BYTES_PER_SECOND, 180e9),
        ("7.58 Gb/s", units.BITS_PER_SECOND, 7.58e9),
        ("80 GB", units.BYTES, 80e9),
        ("80 GiB", units.BYTES, 80 * 2**30),
        ("81559 MiB", units.BYTES, 85_520_809_984),  # 81,559 x 1,048,576
        ("143771 MiB", units.BYTES, 150_754_820_096),
        ("256 KiB", units.BYTES, 262_144),
        ("256 kB", units.BYTES, 256_000),
        ("2.4 GHz", units.HERTZ, 2.4e9),
        ("4.9 us", units.SECONDS, 4.9e-6),
        ("4.9 µs", units.SECONDS, 4.9e-6),
        ("8192 FLOP/clk", units.FLOPS_PER_CLOCK, 8192.0),
        ("989 TFLOP/s", units.FLOPS_PER_SECOND, 989e12),
        ("5.03 POP/s", units.FLOPS_PER_SECOND, 5.03e15),
        ("750 W", units.WATTS, 750.0),
        ("5 pJ", units.JOULES, 5e-12),
        ("2.10 USD/h", units.DOLLARS_PER_HOUR, 2.10),
        ("1e3GB", units.BYTES, 1e12),
        ("  .5  GB ", units.BYTES, 5e8),
        ("64 B / clk", units.BYTES_PER_CLOCK, 64.0),
        ("-3 us", units.SECONDS, -3e-6),  # the loader refuses it, by the field's range
    ],
)
def test_a_quantity_is_read_in_base_units(text: str, unit: Unit, value: float) -> None:
    assert parse(text, unit) == value


@pytest.mark.parametrize(
    ("text", "unit", "message"),
    [
        ("2400", units.HERTZ, "'2400' is not a number with a unit; write it like '1.83 GHz'"),
        ("2400 MB", units.HERTZ, "'2400 MB' is not in clock/second; write it like '1.83 GHz'"),
        ("3 GB/s", units.HERTZ, "'3 GB/s' is not in clock/second; write it like '1.83 GHz'"),
        ("3 GHz", units.BYTES_PER_SECOND, "'3 GHz' is not in byte/second; "),
        ("80 Gb", units.BYTES, "'80 Gb' counts bits, and a capacity is in bytes; "),
        ("80 Gibits", units.BYTES, "'80 Gibits' counts bits, and a capacity is in bytes; "),
        ("80 KB", units.BYTES, "has an unknown unit; write kB (1000) or KiB (1024) in place of KB"),
        ("80 GIB", units.BYTES, "has an unknown unit; write GiB or Gib in place of GIB"),
        ("989 TFLOPS", units.FLOPS_PER_SECOND, "; write TFLOP or TFLOP/s in place of TFLOPS"),
        ("1 mB", units.BYTES, "; write MB or Mb in place of mB"),
        ("3 parsec", units.SECONDS, "'3 parsec' has an unknown unit; write it like '4.9 us'"),
        ("nan GB", units.BYTES, "'nan GB' is not a number with a unit"),
        ("inf GB", units.BYTES, "'inf GB' is not a number with a unit"),
        ("1e999 GB", units.BYTES, "'1e999 GB' is too large"),
        ("1,000 GB", units.BYTES, "'1,000 GB' is not a number with a unit"),
        ("1_000 GB", units.BYTES, "'1_000 GB' is not a number with a unit"),
        ("80 GB/GiB", units.BYTES, "'80 GB/GiB' is not in byte"),
        ("9**9**9 GB", units.BYTES, "is not a number with a unit"),
        ("", units.BYTES, "'' is not a number with a unit"),
    ],
)
def test_what_is_no_such_quantity_is_refused_with_a_fix(
    text: str, unit: Unit, message: str
) -> None:
    with pytest.raises(QuantityError) as refusal:
        parse(text, unit)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (23.3e12, units.BYTES_PER_SECOND, "23.3 TB/s"),
        (3.43e-5, units.SECONDS, "34.3 us"),
        (80e9, units.BYTES, "80 GB"),
        (999.96e9, units.BYTES, "1 TB"),
        (0.5, units.BYTES, "0.5 B"),
        (123.4, units.SECONDS, "123 s"),
        (12345.0, units.SECONDS, "12345 s"),
        (0.0, units.SECONDS, "0 s"),
        (-3.2e-6, units.SECONDS, "-3.2 us"),
        (65536.0, units.FLOPS_PER_CLOCK, "65536 FLOP/clk"),
        (2.1, units.DOLLARS_PER_HOUR, "2.1 USD/h"),
        (7.5846e9, units.BITS_PER_SECOND, "7.58 Gb/s"),
        (750.0, units.WATTS, "750 W"),
        (5e-12, units.JOULES, "5 pJ"),
    ],
)
def test_a_quantity_is_printed_with_a_prefix_and_three_digits(
    value: float, unit: Unit, text: str
) -> None:
    assert show(value, unit) == text


@given(
    unit=st.sampled_from(UNITS),
    size=st.floats(min_value=1, max_value=10, exclude_max=True),
    power=st.integers(min_value=-15, max_value=24),
    sign=st.sampled_from([1, -1]),
)
def test_what_is_printed_reads_back_within_half_of_the_third_digit(
    unit: Unit, size: float, power: int, sign: int
) -> None:
    value = sign * size * 10.0**power
    half = Fraction(10) ** (math.floor(math.log10(abs(value))) - 2) / 2
    error = abs(Fraction(parse(show(value, unit), unit)) - Fraction(value))
    assert error <= half * (1 + Fraction(1, 10**9))


@given(unit=st.sampled_from(UNITS), value=st.floats(min_value=1e-30, max_value=1e30))
def test_a_number_with_its_base_unit_reads_back_exactly(unit: Unit, value: float) -> None:
    assert parse(f"{value!r} {unit.symbol}", unit) == value


@given(text=st.text(max_size=30), unit=st.sampled_from(UNITS))
def test_any_text_is_a_finite_number_or_refused(text: str, unit: Unit) -> None:
    with suppress(QuantityError):
        assert math.isfinite(parse(text, unit))


def test_what_is_not_finite_has_no_text() -> None:
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="not finite"):
            show(value, units.SECONDS)


def test_each_unit_reads_its_own_example() -> None:
    assert all(parse(unit.example, unit) > 0 for unit in UNITS)
