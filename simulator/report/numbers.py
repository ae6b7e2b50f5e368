"""Numbers and names as text: the one place that rounds.

Three significant digits, SI prefixes in powers of 1000, one prefix per column, ``-`` for what is
absent. Knows nothing of results; never writes NaN, infinity, a negative zero or an exponent.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence

ABSENT = "-"
NO_BREAK = "\N{NO-BREAK SPACE}"
FIGURE_SPACE = "\N{FIGURE SPACE}"
POINT_SPACE = "\N{PUNCTUATION SPACE}"

_SMALL = (("n", 1e-9), ("u", 1e-6), ("m", 1e-3))
_LARGE = tuple((prefix, 1e3**power) for power, prefix in enumerate("kMGTPEZYRQ", start=1))
_PREFIXES = {
    "s": (*_SMALL, ("", 1.0)),
    "J": (("p", 1e-12), *_SMALL, ("", 1.0), *_LARGE),
    "Wh": (("", 1.0), *_LARGE),
    "W": (("m", 1e-3), ("", 1.0), *_LARGE),
    "B": (("", 1.0), *_LARGE),
    "B/s": (("", 1.0), *_LARGE),
    "FLOP": (("", 1.0), *_LARGE),
    "FLOP/s": (("", 1.0), *_LARGE),
}
"""Prefixes by unit; a unit that is not here (tok/s, FLOP/B) is counted."""

_READ = re.compile(
    r"(?P<sign>[<>]?)(?P<digits>[-+]?[0-9][0-9,]*(?:\.[0-9]+)?)"
    r"(?:\s(?P<prefix>[numkMGTPEZYRQ])(?=(?:s|J|Wh?|B|B/s|FLOP|FLOP/s)?(?:\s|$)))?"
)

_CEILING = 1e33
"""Past the last prefix; a larger number is said to be larger."""


def digits(value: float | None) -> str:
    """Three significant digits, at most three decimals, commas between thousands.

    >>> [digits(value) for value in (51.42, 3114.0, 0.7284, 0.0004, -0.0, None)]
    ['51.4', '3,110', '0.728', '<0.001', '0', '-']
    """
    if value is None or not math.isfinite(value):
        return ABSENT
    sign, size = ("-" if value < 0 else ""), abs(value)
    if size == 0:
        return "0"
    if size < 1e-3:
        return ">-0.001" if sign else "<0.001"
    rounded = f"{size:.2e}"
    decimals = 2 - int(rounded.partition("e")[2])
    if decimals > 0:
        return f"{sign}{size:.{min(decimals, 3)}f}"
    return f"{sign}{float(rounded):,.0f}"


def column(
    values: Sequence[float | None], unit: str, usual: Sequence[float | None] = ()
) -> tuple[str, list[str]]:
    """The unit of a column, prefixed for its largest value, and its cells without unit.

    Where some values are ``usual``, the prefix is that of the largest of them.

    >>> column([4.11e-3, 0.728e-3, None], "s")
    ('ms', ['4.11', '0.728', '-'])
    """
    prefix, factor = _scale(usual or values, unit)
    return prefix + unit, [_scaled(value, factor) for value in values]


def quantity(value: float | None, unit: str) -> str:
    """One value with its unit; the prefix is chosen for this value alone.

    >>> quantity(0.01034, "s"), quantity(23.3e12, "B/s"), quantity(3114.0, "tok/s")
    ('10.3 ms', '23.3 TB/s', '3,110 tok/s')
    """
    if value is None or not math.isfinite(value):
        return ABSENT
    if unit not in _PREFIXES:
        return f"{_counted(value)} {unit}"
    prefix, factor = _scale([value], unit)
    return f"{_scaled(value, factor)} {prefix}{unit}"


def count(value: float | None) -> str:
    """Whole numbers in full up to 99,999 and anything else to three digits, then k, M, G.

    >>> count(4096), count(123456), count(97.13)
    ('4,096', '123 k', '97.1')
    """
    if value is None or not math.isfinite(value):
        return ABSENT
    if abs(value) < 1e5 and float(value).is_integer():
        return f"{value:,.0f}" if value else "0"
    return _counted(value)


def span(lower: float, upper: float, unit: str) -> str:
    """Two ends under the prefix of the larger: ``7.90 .. 12.9 ms``."""
    name, ends = column([lower, upper], unit)
    return f"{ends[0]} .. {ends[1]} {name}"


def interval(value: float, lower: float, upper: float, unit: str) -> str:
    """A value with its interval, all three to the second digit of the half width.

    >>> interval(12.34e-3, 10.9e-3, 14.1e-3, "s")
    '12.3 ms [10.9, 14.1]'
    """
    prefix, factor = _scale([value], unit)
    half = abs(upper - lower) / factor / 2
    if not all(map(math.isfinite, (value, half))) or half == 0:
        return quantity(value, unit)
    decimals = min(3, 1 - int(f"{half:.1e}".partition("e")[2]))
    shown = [
        f"{round(end / factor, decimals) + 0.0:,.{max(0, decimals)}f}"
        for end in (value, lower, upper)
    ]
    return f"{shown[0]} {prefix}{unit} [{shown[1]}, {shown[2]}]"


def shares(values: Sequence[float], total: float | None = None) -> list[str]:
    """Percent of the total with one decimal, by largest remainder, so that they sum to 100.0.

    ``total`` defaults to the sum; where the values sum to less than it, the rest is kept apart.
    """
    whole = math.fsum(values) if total is None else total
    if not math.isfinite(whole) or whole <= 0:
        return [ABSENT for _ in values]
    exact = [1000 * value / whole for value in values]
    tenths = [math.floor(value) for value in exact]
    missing = round(math.fsum(exact)) - sum(tenths)
    order = sorted(range(len(exact)), key=lambda place: (tenths[place] - exact[place], place))
    for place in order[: max(0, missing)]:
        tenths[place] += 1
    return [
        "0" if value == 0 else f"{tenth // 10:,}.{tenth % 10}"
        for value, tenth in zip(values, tenths, strict=True)
    ]


def percent(fraction: float | None) -> str:
    """A fraction of a roof as a whole percentage: ``78 %``, ``<1 %``, ``0 %``."""
    if fraction is None or not math.isfinite(fraction):
        return ABSENT
    if 0 < fraction < 0.01:
        return "<1 %"
    if fraction > 1e4:
        return ">1,000,000 %"
    return f"{round(100 * max(fraction, -1e4)):,} %"


def utilisation(fraction: float | None) -> str:
    """A fraction in percent to two digits: ``77 %``, ``9.4 %``, ``0.94 %``."""
    if fraction is None or not math.isfinite(fraction):
        return ABSENT
    if fraction >= 0.0995 or fraction == 0:
        return percent(fraction)
    if fraction < 1e-4:
        return "<0.01 %"
    return f"{100 * fraction:.{1 if fraction >= 0.00995 else 2}f} %"


def points(fraction: float | None) -> str:
    """A fraction in percent without the sign, one decimal below 100.

    >>> points(0.0834), points(1.5), points(None)
    ('8.3', '150', '-')
    """
    if fraction is None or not math.isfinite(fraction):
        return ABSENT
    percent = 100 * fraction
    return f"{percent:.1f}" if abs(percent) < 99.95 else f"{percent:,.0f}"


def ticks(
    values: Sequence[float], unit: str, labels: Sequence[float] = ()
) -> tuple[str, list[str], list[str]]:
    """Round values along an axis: the unit, prefixed for the largest, and texts of equal decimals;
    then the texts of values in between, to three digits under the same prefix.

    >>> ticks([0.0, 0.5e-3, 1e-3], "s")
    ('ms', ['0', '0.5', '1.0'], [])
    >>> ticks([0.0, 2e5], "rows", [59392.0]), ticks([0.0, 2e4], "rows", [11856.0])
    (('k rows', ['0', '200'], ['59.4']), ('rows', ['0', '20,000'], ['11,856']))
    """
    prefix, factor = _scale(values, unit)
    if unit not in _PREFIXES and (top := max(map(abs, values), default=0.0)) >= 1e5:
        prefix, factor = _pick(_rounded(top), _LARGE)
        prefix += " "
    scaled = [value / factor for value in values]
    decimals = next(
        (d for d in range(6) if all(abs(v - round(v, d)) < 1e-9 * (1 + abs(v)) for v in scaled)), 6
    )
    texts = [f"{v:,.{decimals}f}" if v else "0" for v in scaled]
    between = _scaled if factor != 1 or unit in _PREFIXES else lambda v, _: count(v)
    return prefix + unit, texts, [between(v, factor) for v in labels]


def read(text: str) -> float | None:
    """The first number in a text of this module, with its prefix, to sort by.

    >>> [read(text) for text in ("3,110", "2.80x [2.11, 3.73]", "123 k", "<0.001", "-")]
    [3110.0, 2.8, 123000.0, 0.0005, None]
    """
    found = _READ.search(text)
    if found is None:
        return None
    value = float(found["digits"].replace(",", ""))
    factor = dict((*_SMALL, *_LARGE)).get(found["prefix"] or "", 1.0)
    return value * factor * (0.5 if found["sign"] == "<" else 1.0)


def length(fraction: float) -> str:
    """A fraction of a line as a CSS length; not for readers."""
    return f"{100 * min(1.0, max(0.0, fraction)):.4f}%"


def align(cells: Sequence[str], fill: str = " ", point: str = " ") -> list[str]:
    """Cells of one column padded on the right so that their decimal points stand in line.

    ``fill`` is as wide as a digit and ``point`` as wide as a decimal point.
    """
    tails = [len(cell) - cell.find(".") if "." in cell else 0 for cell in cells]
    widest = max(tails, default=0)
    return [
        cell + (fill * (widest - tail) if tail or not widest else point + fill * (widest - 1))
        for cell, tail in zip(cells, tails, strict=True)
    ]


def typeset(text: str) -> str:
    """The same text for print and screen: micro sign, no break between number and unit."""
    return re.sub(r"\bu(?=[sJ]\b)", "\N{MICRO SIGN}", unbroken(text))


def unbroken(text: str) -> str:
    """The same text with no break between a number and its unit."""
    return re.sub(r"(?<=\d) (?=[A-Za-z%])", NO_BREAK, text)


def plain(text: str) -> str:
    """A name as one line of printable text: controls, surrogates and direction marks replaced."""
    return "".join(
        "\N{REPLACEMENT CHARACTER}"
        if unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}
        else letter
        for letter in text
    )


def cut(text: str, width: int, mark: str = "\N{HORIZONTAL ELLIPSIS}") -> str:
    """The text in at most ``width`` letters, with the middle left out."""
    if len(text) <= width:
        return text
    kept = width - len(mark)
    if kept < 2:
        return text[: max(0, width)]
    head = (kept + 1) // 2
    return text[:head] + mark + text[len(text) - (kept - head) :]


def _counted(value: float) -> str:
    size = _rounded(value)
    if size < 1e5:
        return digits(value)
    prefix, factor = _pick(size, _LARGE)
    return f"{_scaled(value, factor)} {prefix}"


def _rounded(value: float) -> float:
    return float(f"{abs(value):.2e}")


def _pick(size: float, prefixes: Sequence[tuple[str, float]]) -> tuple[str, float]:
    """The largest prefix that leaves at least 1, or the smallest there is."""
    fitting = [entry for entry in prefixes if entry[1] <= size]
    return fitting[-1] if fitting else prefixes[0]


def _scale(values: Iterable[float | None], unit: str) -> tuple[str, float]:
    sizes = [_rounded(value) for value in values if value is not None and math.isfinite(value)]
    top = max(sizes, default=0.0)
    prefixes = _PREFIXES.get(unit, (("", 1.0),))
    return _pick(top, prefixes) if top else ("", 1.0)


def _scaled(value: float | None, factor: float) -> str:
    if value is not None and math.isfinite(value) and abs(value) >= _CEILING:
        return f"{'<-' if value < 0 else '>'}{digits(0.999 * _CEILING / factor)}"
    return digits(None if value is None else value / factor)
