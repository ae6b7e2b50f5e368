"""Colours and marks, and what each stands for.

What binds is Okabe-Ito (Okabe and Ito 2008) plus violet and grey, told apart under every common
colour vision deficiency; series are petroff8 (Petroff 2021, arXiv:2107.02270). Colour never
stands alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from simulator.result import Bound

BOUND: dict[Bound, str] = {
    "compute": "#0072b2",
    "memory": "#d55e00",
    "cache": "#8a3ffc",
    "link": "#009e73",
    "latency": "#cc79a7",
    "waiting": "#5f6368",
}
"""Fill by what binds."""

SERIES = (
    "#1845fb",
    "#ff5e02",
    "#c91f16",
    "#c849a9",
    "#adad7d",
    "#86c8dd",
    "#578dff",
    "#656364",
)
"""Fill of components and devices, in this order."""

PAPER = "#ffffff"
INK = "#1f2328"
FAINT = "#59636e"
RULE = "#d1d9e0"
OTHER = "#8c959f"
"""Background, text, secondary text, grid, and what belongs to another device."""

LIGHT: dict[str, str] = {
    "paper": PAPER,
    "ink": INK,
    "faint": FAINT,
    "rule": RULE,
    "other": OTHER,
    **{f"{bound}": colour for bound, colour in BOUND.items()},
    **{f"series-{place}": colour for place, colour in enumerate(SERIES, start=1)},
}
"""Names of the CSS variables and their colours on paper."""

DARK: dict[str, str] = LIGHT | {
    "paper": "#0d1117",
    "ink": "#e6edf3",
    "faint": "#9198a1",
    "rule": "#30363d",
    "other": "#6e7681",
    "compute": "#3d9be0",
    "memory": "#f08a3c",
    "cache": "#a56eff",
    "link": "#2fbf93",
    "latency": "#dd97bd",
    "waiting": "#9aa0a6",
    "series-1": "#6f8cff",
    "series-3": "#ef5a50",
    "series-8": "#9aa0a6",
}
"""The same names on a dark screen."""

MARKS = ("o", "s", "^", "D", "v", "P", "X", "p")
"""Shapes of number formats, in order of use."""


def variables(colours: dict[str, str]) -> str:
    """The colours as CSS declarations."""
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


def themed(svg: str) -> str:
    """A drawing whose colours follow the CSS variables of the page around it."""
    names = {colour: name for name, colour in LIGHT.items()}
    return re.sub(
        r"(?<=: )#[0-9a-f]{6}",
        lambda found: f"var(--{names[found[0]]})" if found[0] in names else found[0],
        svg,
    )


def marks(formats: Iterable[str]) -> dict[str, str]:
    """A shape for each number format; the ninth format shares the first shape."""
    return {name: MARKS[place % len(MARKS)] for place, name in enumerate(dict.fromkeys(formats))}


CIVIDIS = (
    *("#00224e", "#123570", "#3b496c", "#575d6d", "#707173"),
    *("#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"),
)
"""Nine equal steps of cividis (Nunez, Anderton and Renslow 2018, PLOS ONE 13(7)): lightness rises
evenly, in grey and with every common colour vision."""


def magnitude(share: float) -> str:
    """Colour of a size from 0 (light) to 1 (dark)."""
    place = (1.0 - min(1.0, max(0.0, share))) * (len(CIVIDIS) - 1)
    first = min(int(place), len(CIVIDIS) - 2)
    ends = [
        [int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in CIVIDIS[first : first + 2]
    ]
    mixed = (low + (high - low) * (place - first) for low, high in zip(*ends, strict=True))
    return "#" + "".join(f"{round(part):02x}" for part in mixed)


def on(fill: str) -> str:
    """Colour of text on a fill: black on a light one; on a dark one white, or the paper's colour
    where the fill follows the theme of a page, which makes it light on dark paper."""
    if luminance(fill) >= 0.179:
        return "#000000"
    return PAPER if fill in LIGHT.values() else "#fefefe"


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2.2, from 0 (black) to 1 (white)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
