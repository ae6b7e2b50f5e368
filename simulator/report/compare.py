"""Devices side by side at equal work, as data: what each does, and what cannot be told apart.

Knows results. Never touches specs or models. Rates are per second; the device of the first row
that has an answer is the base of every ratio.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from simulator.fronts import pareto
from simulator.report import ratio
from simulator.report.ratio import Ends, Verdict
from simulator.result import Bound, Result
from simulator.units import Bytes, BytesPerSecond, DollarsPerHour, FlopsPerSecond, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """What the data sheet of a device prints."""

    dtype: str
    """Number format of ``peak``: that of most products of the run."""
    peak: FlopsPerSecond | None
    bandwidth: BytesPerSecond
    capacity: Bytes
    hour: DollarsPerHour | None
    """What an hour of use costs at the power limit, rented or bought."""
    rented: bool = False
    """Whether that is a rent."""


SPECS = ("peak", "bandwidth", "capacity", "hour")
"""Numbers of a sheet that are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The run at one batch."""

    batch: int
    latency: Seconds
    user: float
    """Tokens per second of one sequence."""
    device: float
    """Tokens per second and device."""
    bound_by: Bound
    interval: Ends | None = None
    """Of the latency, 80 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One device."""

    hardware: str
    sheet: Sheet
    result: Result | None
    refused: str = ""
    """Why there is no result."""
    plan: str = ""
    """Plan of the run in a few words."""
    fitted: bool = False
    """Whether it runs on the fewest devices that hold it, as it does not fit those asked for."""
    least: int | None = None
    """Fewest devices that hold it under a legal plan; None where none was found."""
    least_plan: str = ""
    unknown: tuple[tuple[str, str], ...] = ()
    """What has no answer, energy or cost, and why."""
    points: tuple[Point, ...] = ()
    """The curve over batches, smallest batch first."""
    full: str = ""
    """Why the curve ends."""

    @property
    def headroom(self) -> Bytes | None:
        """Memory that is left on the fullest device."""
        return None if self.result is None else self.sheet.capacity - self.result.memory.total

    @property
    def speed(self) -> float | None:
        """Tokens or samples per second and device."""
        return None if self.result is None else ratio.speed(self.result)

    @property
    def per_joule(self) -> float | None:
        """Tokens or samples per joule, which is per second and watt."""
        run = self.result
        return None if run is None or not run.energy else run.work / run.energy

    @property
    def dollars(self) -> float | None:
        """Dollars per million tokens or samples."""
        run = self.result
        return None if run is None or run.cost is None else run.cost / run.work * 1e6

    @property
    def front(self) -> tuple[Point, ...]:
        """Points that no other one matches in one rate and beats in the other."""
        return front(self.points)


def front(points: Iterable[Point]) -> tuple[Point, ...]:
    """The Pareto front of both rates, in the order given; of equal points the first."""
    first: dict[tuple[float, float], Point] = {}
    for one in points:
        first.setdefault((one.user, one.device), one)
    pool = list(first.values())
    best = pareto([-one.user for one in pool], [-one.device for one in pool])
    return tuple(pool[place] for place in best)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Devices at equal work, in the order in which they were named."""

    entries: tuple[Entry, ...]
    unit: str
    """tok or samples."""
    about: str
    """What runs, in words: model, phase and lengths."""
    command: str

    @property
    def base(self) -> Entry:
        """What ratios are of: the first device that has an answer."""
        return next(entry for entry in self.entries if entry.result is not None)

    def value(self, entry: Entry) -> float | None:
        """Work per second and device over that of the base."""
        if entry.speed is None or self.base.speed is None:
            return None
        return entry.speed / self.base.speed

    def ends(self, entry: Entry) -> Ends | None:
        """The 80 % interval of the ratio; None for the base itself and where there is none."""
        value, base = self.value(entry), self.base.result
        if entry is self.base or value is None or entry.result is None or base is None:
            return None
        return ratio.ends(value, entry.result, base)

    def verdict(self, entry: Entry) -> Verdict | None:
        """On which side of 1 the interval of the ratio lies."""
        within = self.ends(entry)
        return None if within is None else ratio.against(1.0, within)

    def spec(self, entry: Entry, name: str) -> float | None:
        """A number of the sheet over that of the base; a rent over a rent alone."""
        if name == "hour" and entry.sheet.rented != self.base.sheet.rented:
            return None
        new, base = getattr(entry.sheet, name), getattr(self.base.sheet, name)
        return new / base if new and base else None

    def to_dict(self) -> dict[str, Any]:
        """Everything in base units; absent is None, with the reason beside it."""
        return {
            "about": self.about,
            "base": self.base.hardware,
            "unit": self.unit,
            "devices": [self._entry(entry) for entry in self.entries],
            "command": self.command,
        }

    def _entry(self, entry: Entry) -> dict[str, Any]:
        run, within = entry.result, self.ends(entry)
        found: dict[str, Any] = {
            "hardware": entry.hardware,
            "refused": entry.refused or None,
            "devices": None if run is None else run.devices,
            "plan": entry.plan or None,
            "fitted": entry.fitted,
            "least_devices": entry.least,
            "least_plan": entry.least_plan or None,
            "sheet": {name: getattr(entry.sheet, name) for name in ("dtype", *SPECS)},
            "sheet_over_base": {name: self.spec(entry, name) for name in SPECS},
            "unknown": dict(entry.unknown),
        }
        if run is not None:
            found |= {
                "latency": run.latency,
                "interval": None if run.interval is None else [*_ends(run)],
                "throughput": run.throughput,
                "per_device": entry.speed,
                "per_joule": entry.per_joule,
                "dollars_per_million": entry.dollars,
                "headroom": entry.headroom,
                "bound_by": run.bound_by,
                "ratio": self.value(entry),
                "ratio_interval": None if within is None else [*within],
                "verdict": self.verdict(entry),
                "weakest": {
                    "path": run.provenance.weakest.path,
                    "basis": run.provenance.weakest.basis,
                },
                "command": run.provenance.command,
                "warnings": [*run.warnings],
            }
        if entry.points:
            strong = entry.front
            found["curve"] = [
                {
                    "batch": point.batch,
                    "latency": point.latency,
                    "interval": None if point.interval is None else [*point.interval],
                    "per_user": point.user,
                    "per_device": point.device,
                    "bound_by": point.bound_by,
                    "front": point in strong,
                }
                for point in entry.points
            ]
            found["curve_ends"] = entry.full or None
        return found


def _ends(run: Result) -> Iterator[float]:
    if run.interval is not None:
        yield from (run.interval.lower, run.interval.upper)


def data(found: Comparison) -> str:
    """The rows as CSV, base units."""
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    heads = (
        "hardware", "devices", "plan", "latency", "per_device", "ratio", "lower", "upper",
        "verdict", "per_joule", "dollars_per_million", "headroom", "least_devices", "bound_by",
        "weakest", "refused",
    )  # fmt: skip
    writer.writerow(heads)
    for entry in found.entries:
        run, within = entry.result, found.ends(entry) or (None, None)
        writer.writerow(
            (
                entry.hardware, run and run.devices, entry.plan, run and run.latency, entry.speed,
                found.value(entry), *within, found.verdict(entry), entry.per_joule, entry.dollars,
                entry.headroom, entry.least, run and run.bound_by,
                run and run.provenance.weakest.path, entry.refused,
            )
        )  # fmt: skip
    return sheet.getvalue()


def curves(found: Comparison) -> str:
    """The points of the curves as CSV, base units."""
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(("hardware", "batch", "latency", "per_user", "per_device", "bound_by", "front"))
    for entry in found.entries:
        strong = entry.front
        for one in entry.points:
            writer.writerow(
                (entry.hardware, one.batch, one.latency, one.user, one.device, one.bound_by,
                 int(one in strong))
            )  # fmt: skip
    return sheet.getvalue()
