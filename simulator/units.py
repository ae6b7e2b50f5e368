"""Quantities: text with a unit at the door, plain floats in base units inside.

Base units are byte, FLOP, second, clock, joule and dollar. An annotation such as ``Bytes`` is a
float whose metadata names its unit; the loader, the JSON schema and the printer read it there.
Each base unit is a dimension of its own, so that GB/s is never taken for GHz, and GB, GiB and Gb
are three things; ``units.txt`` lists them for pint. Knows nothing of specs or hardware.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from pint import UnitRegistry
    from pydantic_core import CoreSchema

LARGEST, SMALLEST = 1e30, 1e-30
"""Beyond these a spec holds a slip, and products of numbers overflow."""
MANY = 10**9
"""The same for counts, whose products are exact in 64 bits."""
PATTERN = r"^\s*[0-9]*\.?[0-9]*([eE][-+]?[0-9]+)?\s*[A-Za-zµμ]+(\s*/\s*[A-Za-z]+)*\s*$"
"""The form of a quantity, for JSON schemas."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit that an annotated float is kept in, and an example as a user would write it."""

    symbol: str
    example: str
    label: str
    """How it is printed, without prefix."""
    prefixes: str = ""
    """The SI prefixes that it is printed with."""
    zero: bool = False
    """Zero is legal."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """A spec states text with a unit; the JSON of a result has the number itself."""
        from pydantic_core import core_schema

        text = core_schema.no_info_after_validator_function(self._read, core_schema.str_schema())
        span = core_schema.float_schema(ge=0 if self.zero else SMALLEST, le=LARGEST)
        return core_schema.json_or_python_schema(
            json_schema=core_schema.float_schema(),
            python_schema=core_schema.chain_schema([text, span]),
        )

    def __get_pydantic_json_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        return {
            "type": "string",
            "pattern": PATTERN,
            "examples": [self.example],
            "description": f"a quantity with its unit, like '{self.example}'",
        }

    def _read(self, text: str) -> float:
        from pydantic_core import PydanticCustomError

        try:
            return parse(text, self)
        except QuantityError as error:
            context = {"found": error.found, "fix": error.fix}
            raise PydanticCustomError("quantity", "{found}; {fix}", context) from None


BYTES = Unit("byte", "80 GB", "B", "kMGTPE")
BYTES_PER_SECOND = Unit("byte/second", "3.35 TB/s", "B/s", "kMGTPE")
BYTES_PER_CLOCK = Unit("byte/clock", "128 B/clk", "B/clk")
BITS_PER_SECOND = Unit("bit/second", "7.58 Gb/s", "b/s", "kMGTPE")
FLOPS = Unit("flop", "2 TFLOP", "FLOP", "kMGTPE")
FLOPS_PER_SECOND = Unit("flop/second", "989 TFLOP/s", "FLOP/s", "kMGTPE")
FLOPS_PER_CLOCK = Unit("flop/clock", "4096 FLOP/clk", "FLOP/clk")
HERTZ = Unit("clock/second", "1.83 GHz", "Hz", "kMGT")
CLOCKS = Unit("clock", "1000 clk", "clk")
SECONDS = Unit("second", "4.9 us", "s", "munp")
WATTS = Unit("joule/second", "750 W", "W", "munpkMGT")
JOULES = Unit("joule", "5 pJ", "J", "munpkMGT")
DOLLARS = Unit("dollar", "30000 USD", "USD")
DOLLARS_PER_JOULE = Unit("dollar/joule", "0.08 USD/kWh", "USD/J")
DOLLARS_PER_HOUR = Unit("dollar/hour", "2.10 USD/h", "USD/h")

Bytes = Annotated[float, BYTES]
BytesPerSecond = Annotated[float, BYTES_PER_SECOND]
BytesPerClock = Annotated[float, BYTES_PER_CLOCK]
BitsPerSecond = Annotated[float, BITS_PER_SECOND]
Flops = Annotated[float, FLOPS]
FlopsPerSecond = Annotated[float, FLOPS_PER_SECOND]
FlopsPerClock = Annotated[float, FLOPS_PER_CLOCK]
Hertz = Annotated[float, HERTZ]
Clocks = Annotated[float, CLOCKS]
Seconds = Annotated[float, SECONDS]
Watts = Annotated[float, WATTS]
Joules = Annotated[float, JOULES]
Dollars = Annotated[float, DOLLARS]
DollarsPerJoule = Annotated[float, DOLLARS_PER_JOULE]
DollarsPerHour = Annotated[float, DOLLARS_PER_HOUR]
Pause = Annotated[float, replace(SECONDS, zero=True)]
"""A time in seconds that may be zero."""
Reserve = Annotated[float, replace(BYTES, zero=True)]
"""Bytes, possibly none."""


class QuantityError(ValueError):
    """The text is not a quantity of the wanted dimension: what was found, and what would do."""

    def __init__(self, found: str, fix: str) -> None:
        self.found, self.fix = found, fix
        super().__init__(f"{found}; {fix}")


_SI = {"": 1.0} | {p: float(f"1e{e}") for p, e in zip("pnumkMGTPE", (
    -12, -9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)}  # fmt: skip
_TABLE = Path(__file__).with_name("units.txt")
_UP, _DOWN = "k M G T P E", "m u µ μ n p"
_SPOKEN = {
    prefix + name: None
    for names, prefixes in (
        ("B byte bytes b bit bits", f"{_UP} Ki Mi Gi Ti"),
        ("bps FLOP FLOPs flop flops OP OPs op ops", _UP),
        ("Hz clk clock clocks cycle cycles USD dollar", _UP),
        ("s second seconds", _DOWN),
        ("J joule W watt Wh", f"{_UP} {_DOWN}"),
        ("min h hour year years", ""),
    )
    for name in names.split()
    for prefix in ("", *prefixes.split())
}
"""What a data sheet says; the registry would take any prefix with any unit, such as mB."""
_NUMBER = re.compile(
    r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*(?:([^0-9.\s].*?)\s*)?"
)
_TEXT = re.compile(
    r"\s*([+-]?(?:[0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?)"
    r"\s*([A-Za-zµμ]+(?:\s*/\s*[A-Za-zµμ]+)*)\s*"
)


@lru_cache(maxsize=1)
def _registry() -> UnitRegistry[Any]:
    import pint

    # Fractions keep every size exact, so that a number is rounded once.
    return pint.UnitRegistry(str(_TABLE), non_int_type=Fraction)


@lru_cache(maxsize=1024)
def _size(name: str, symbol: str) -> Fraction:
    """The unit ``name`` in ``symbol``; raises pint.DimensionalityError where it is another's."""
    registry = _registry()
    one = registry.Quantity(Fraction(1), registry.parse_units(name))
    return Fraction(one.to(symbol).magnitude)


def _unknown(name: str) -> str:
    """What to write in place of a unit that nobody uses, where the slip is a known one."""
    part = next(part for part in name.split("/") if part not in _SPOKEN)
    if part.upper().endswith("FLOPS"):
        return f"write {part[:-1]} or {part[:-1]}/s in place of {part}"
    if part in ("KB", "Kb"):
        return f"write k{part[1]} (1000) or Ki{part[1]} (1024) in place of {part}"
    near = [known for known in _SPOKEN if known.lower() == part.lower()]
    return f"write {' or '.join(near)} in place of {part}" if near else ""


def number_and_unit(text: str) -> tuple[float, str] | None:
    """A number and the unit behind it, empty where there is none; None where it is no number.

    >>> number_and_unit("23.3 TB/s"), number_and_unit("64"), number_and_unit("1.2.3 GHz")
    ((23.3, 'TB/s'), (64.0, ''), None)
    """
    match = _NUMBER.fullmatch(text)
    value = float(match[1]) if match else math.inf
    return (value, match[2] or "") if match and math.isfinite(value) else None


@lru_cache(maxsize=4096)
def parse(text: str, unit: Unit) -> float:
    """Read ``text`` as a quantity and return it in ``unit``, correctly rounded.

    Bits convert to bytes in a rate, and are refused in a capacity.

    >>> parse("23.3 TB/s", BYTES_PER_SECOND), parse("400 Gb/s", BYTES_PER_SECOND)
    (23300000000000.0, 50000000000.0)
    >>> parse("80 GiB", BYTES)
    85899345920.0

    Raises QuantityError where the text has no unit, an unknown one, or one of another dimension.
    """
    from pint import DimensionalityError

    shown, example = repr(text[:60]), f"write it like '{unit.example}'"
    match = _TEXT.fullmatch(text)
    if match is None:
        raise QuantityError(f"{shown} is not a number with a unit", example)
    name = "".join(match[2].split())
    if not all(part in _SPOKEN for part in name.split("/")):
        raise QuantityError(f"{shown} has an unknown unit", _unknown(name) or example)
    try:
        size = _size(name, unit.symbol)
    except DimensionalityError:
        raise QuantityError(f"{shown} is not in {unit.symbol}", example) from None
    if unit.symbol == "byte" and name.rstrip("s").endswith(("b", "bit")):
        raise QuantityError(f"{shown} counts bits, and a capacity is in bytes", example)
    try:
        return float(Fraction(match[1]) * size)
    except OverflowError:
        raise QuantityError(f"{shown} is too large for a number", example) from None


def show(value: float, unit: Unit) -> str:
    """``value`` as a person reads it: a prefix and three significant digits.

    Units without prefixes keep every digit before the point. Raises ValueError where the value
    is not finite.

    >>> show(23.3e12, BYTES_PER_SECOND), show(3.43e-5, SECONDS), show(65536, FLOPS_PER_CLOCK)
    ('23.3 TB/s', '34.3 us', '65536 FLOP/clk')
    """
    if not math.isfinite(value):
        raise ValueError(f"{value} {unit.label} is not finite and has no text")
    scales = {prefix: _SI[prefix] for prefix in ("", *unit.prefixes)}
    # Rounding decides too: 999.9 GB is 1 TB.
    rounded = abs(float(f"{value:.2e}"))
    below = [prefix for prefix, scale in scales.items() if scale <= rounded]
    prefix = max(below, key=scales.__getitem__) if below else min(scales, key=scales.__getitem__)
    number = value / scales[prefix if value else ""]
    digits = f"{number:.0f}" if 999.5 <= abs(number) < 1e15 else f"{number:.3g}"
    return f"{digits} {prefix if value else ''}{unit.label}"
