"""Fitted constants of one family of operators: numbers, the data behind them, date and error.

What a cost formula cannot know from a data sheet: what each kernel library reaches, and how far
its predictions are off. Knows numbers. Never touches formulas, devices or measurements.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.specs.fields import Amount, Checked, Count, Flag, Natural
from simulator.specs.frozen import FrozenMap
from simulator.specs.hardware import Origins

DISTANCES = ("same", "sibling", "new")
"""How far a query is from what was measured: the device itself, another device of its
generation, or a generation that nobody measured the library on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLibrary(Checked):
    """Constants of one kernel library, with what differs by generation of the hardware."""

    description: str = ""
    tuned: Flag = True
    """Whether its kernels were tuned for the shapes that they run; an untuned library carries its
    loss in its constants, and no formula foresees it."""
    values: FrozenMap[str, Amount] = field(default_factory=FrozenMap)
    by_generation: FrozenMap[str, FrozenMap[str, Amount]] = field(default_factory=FrozenMap)
    """Values that take the place of ``values`` on a generation it was measured on."""
    kin: Flag = True
    """Whether a generation without values of its own takes those of its kin, or the general
    ones: right where generations differ by the hosts that they were measured in."""
    devices: tuple[str, ...] = ()
    """Accelerators whose measurements went into the constants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread(Checked):
    """An 80 % interval about a prediction, as factors of it."""

    lower: Amount
    upper: Amount
    rows: Natural = 0
    """Held-back measurements that it was read from; 0 where it is taken from another class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(Checked):
    """Error of predictions for held-back measurements, percent."""

    op: str
    dtype: str
    device: str
    distance: str = "same"
    rows: Count
    mean: float
    median: float
    band: float | None = None
    """Mean distance to the band between the fastest and the slowest framework."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit(Checked):
    """Constants of the formulas of one family, as one reproducible fit left them."""

    name: str
    description: str = ""
    date: str
    data: str
    """The measurements that the constants were fitted to, and how some were held back."""
    rows: Count
    """Measurements fitted to."""
    shared: FrozenMap[str, Amount]
    """Constants of all libraries and devices."""
    libraries: FrozenMap[str, FittedLibrary]
    intervals: FrozenMap[str, FrozenMap[str, Spread]] = field(default_factory=FrozenMap)
    """By operator, then by distance."""
    scores: tuple[Score, ...] = ()
    provenance: Origins = field(default=(), compare=False)
