"""Simulated ratios and what articles claim of them, as data.

Knows results. Never touches specs or models, and writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.report import ratio
from simulator.report.ratio import Verdict
from simulator.result import Result
from simulator.units import Watts


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A step on one kind of device."""

    label: str
    plan: str
    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times as fast ``new`` is as ``base``, at equal work on as many devices."""

    new: Run
    base: Run

    @property
    def value(self) -> float:
        """Step time of the base over that of the new one."""
        return self.base.result.latency / self.new.result.latency

    @property
    def ends(self) -> tuple[float, float]:
        """The 80 % interval."""
        return ratio.ends(self.value, self.new.result, self.base.result)

    def against(self, figure: float) -> Verdict:
        """On which side of ``figure`` the interval lies."""
        return ratio.against(figure, self.ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What an article says of a workload."""

    speed: float
    """Times as fast as the base."""
    efficiency: float
    """Share by which work per joule is said to grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A workload on a device against another one."""

    workload: str
    claim: Claim | None
    same: Ratio
    """Both under one plan."""
    best: Ratio
    """Each under the fastest of the plans that were tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One number of the data sheets."""

    name: str
    ratios: tuple[float | None, ...]
    """New over base, in the order of the comparisons of a workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """A power that is assumed of the first device."""

    label: str
    watts: Watts


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """Rows of what an article says, what is known, and the verdict."""

    title: str
    rows: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that the page says."""

    title: str
    opening: str
    comparisons: tuple[tuple[Comparison, ...], ...]
    """For each workload those with the base, then those with a rival, in one order."""
    specs: tuple[Spec, ...]
    base_power: Watts
    powers: tuple[Power, ...]
    implied: tuple[str, ...]
    unknown: tuple[str, ...]
    statements: tuple[Statements, ...]
    tried: tuple[str, ...]
    """Plans that were tried, and where they did not fit."""
    command: str
    """Makes the page again."""
