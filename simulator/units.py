"""Quantities: text with a unit at the door, plain floats in base units inside.

Base units are byte, FLOP, second, clock, joule and dollar. An annotation such as ``Bytes`` is a
float whose metadata names its unit; the loader, the JSON schema and the printer read it there.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

if TYPE_CHECKING:
    from pint import UnitRegistry


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit that an annotated float is kept in, and an example as a user would write it."""

    symbol: str
    example: str


Bytes = Annotated[float, Unit("byte", "80 GB")]
BytesPerSecond = Annotated[float, Unit("byte/second", "3.35 TB/s")]
BytesPerClock = Annotated[float, Unit("byte/clock", "128 B/clk")]
BitsPerSecond = Annotated[float, Unit("bit/second", "7.58 Gb/s")]
Flops = Annotated[float, Unit("flop", "2 TFLOP")]
FlopsPerSecond = Annotated[float, Unit("flop/second", "989 TFLOP/s")]
FlopsPerClock = Annotated[float, Unit("flop/clock", "4096 FLOP/clk")]
Hertz = Annotated[float, Unit("clock/second", "1.83 GHz")]
Clocks = Annotated[float, Unit("clock", "1000 clk")]
Seconds = Annotated[float, Unit("second", "4.9 us")]
Watts = Annotated[float, Unit("joule/second", "750 W")]
Joules = Annotated[float, Unit("joule", "5 pJ")]
Dollars = Annotated[float, Unit("dollar", "30000 USD")]
DollarsPerHour = Annotated[float, Unit("dollar/hour", "2.10 USD/h")]


class QuantityError(ValueError):
    """The text is not a quantity of the wanted dimension."""


@lru_cache(maxsize=1)
def _registry() -> UnitRegistry[float]:
    import pint

    registry: UnitRegistry[float] = pint.UnitRegistry(
        str(Path(__file__).with_name("units.txt")), autoconvert_to_preferred=False
    )
    return registry


_TEXT = re.compile(
    r"\s*([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-zµμ%][A-Za-zµμ%/*\s^0-9]*)\s*"
)


@lru_cache(maxsize=4096)
def parse(text: str, unit: Unit) -> float:
    """Read ``text`` as a quantity and return it in ``unit``.

    >>> parse("23.3 TB/s", BytesPerSecond.__metadata__[0])
    23300000000000.0

    Raises QuantityError where the text has no unit, an unknown one, one of another dimension, or
    a value that is not finite.
    """
    import pint

    match = _TEXT.fullmatch(text)
    if match is None:
        raise QuantityError(f"{text!r} is not a number with a unit, such as '{unit.example}'")
    number, name = float(match[1].replace("_", "")), match[2].strip()
    registry = _registry()
    try:
        found = registry.parse_units(name)
        factor = registry.Quantity(1.0, found).to(unit.symbol).magnitude
    except pint.DimensionalityError:
        raise QuantityError(
            f"{text!r} is not in {unit.symbol}; write it like '{unit.example}'"
        ) from None
    except Exception:
        raise QuantityError(
            f"{text!r} has a unit that is not known here; write it like '{unit.example}'"
        ) from None
    if unit.symbol == "byte" and "bit" in str(found).replace("byte", ""):
        raise QuantityError(f"{text!r} counts bits; a capacity is in bytes, like '{unit.example}'")
    value = number * float(factor)
    if not math.isfinite(value):
        raise QuantityError(f"{text!r} is not finite")
    return value
