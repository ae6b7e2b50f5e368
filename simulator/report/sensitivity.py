"""What a run owes to each number of its device, as data and in words.

Knows results. Never touches specs or models.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from simulator.report import numbers
from simulator.result import Bound, Result

SMALL = 0.005
"""Elasticity below which a number is said to change nothing."""
MATTERS = 0.05
"""Share of the time of operators that must turn from one resource to another to make a kink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The run with one number changed to ``value``, in base units."""

    value: float
    throughput: float | None = None
    """Tokens or samples per second; None where it is ``refused``."""
    bound_by: Bound | None = None
    refused: str = ""
    """Why it was not run."""
    turned: tuple[tuple[str, Bound, Bound], ...] = ()
    """Operators that another resource binds than before: name, before, now, longest first; none
    where they have less than ``MATTERS`` of the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elasticity:
    """One number, and what less and more of it does to the throughput."""

    path: str
    value: float
    """In base units, as are those of the sides."""
    unit: str
    throughput: float
    """Of the run as it is."""
    less: Side
    more: Side

    @property
    def name(self) -> str:
        """The number in words: ``HBM bandwidth``."""
        return name_of(self.path)

    @property
    def elasticity(self) -> float:
        """Percent of throughput per percent of the number: the slope between both sides on
        logarithmic axes, or from the run as it is to the one side there is."""
        sides = [
            (math.log(side.value / self.value), math.log(side.throughput / self.throughput))
            for side in (self.less, self.more)
            if side.throughput
        ]
        (x, y) = sides[-1]
        if len(sides) == 2:
            x, y = x - sides[0][0], y - sides[0][1]
        return y / x

    @property
    def kinked(self) -> bool:
        """Whether what binds changes within the step, so that the slope holds on neither side."""
        return bool(self.less.turned or self.more.turned)

    def gain(self, side: Side) -> float | None:
        """Change of the throughput as a share; None where the side was not run."""
        return None if side.throughput is None else side.throughput / self.throughput - 1

    def change(self, side: Side) -> float:
        """Change of the number as a share: the step, or what rounding makes of it."""
        return side.value / self.value - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """A run and what its throughput owes to each number of its device."""

    result: Result
    step: float
    entries: tuple[Elasticity, ...]
    """Largest elasticity first."""
    fixed: tuple[tuple[str, str], ...] = ()
    """Paths of numbers that cannot be varied by the step, and why."""
    unused: tuple[str, ...] = ()
    """Paths of numbers that have no say in this run."""
    notes: tuple[str, ...] = ()
    command: str = ""
    """The command line that gives this again."""

    @property
    def felt(self) -> tuple[Elasticity, ...]:
        """Those that change something."""
        return tuple(one for one in self.entries if abs(one.elasticity) >= SMALL)

    @property
    def small(self) -> tuple[Elasticity, ...]:
        """Those whose elasticity is under ``SMALL``."""
        return self.entries[len(self.felt) :]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the run itself, in base units."""
        run = self.result
        return {
            "workload": run.workload,
            "hardware": run.hardware,
            "phase": run.phase,
            "devices": run.devices,
            "latency": run.latency,
            "throughput": run.throughput,
            "bound_by": run.bound_by,
            "step": self.step,
            "numbers": [
                {
                    "path": one.path,
                    "name": one.name,
                    "value": one.value,
                    "unit": one.unit,
                    "elasticity": one.elasticity,
                    "less": _side(one, one.less),
                    "more": _side(one, one.more),
                    "kinked": one.kinked,
                }
                for one in self.entries
            ],
            "fixed": dict(self.fixed),
            "unused": list(self.unused),
            "notes": list(self.notes),
            "warnings": list(run.warnings),
            "command": self.command,
            "run": run.provenance.command,
        }


def _side(one: Elasticity, side: Side) -> dict[str, Any]:
    return {
        "value": side.value,
        "throughput": side.throughput,
        "gain": one.gain(side),
        "bound_by": side.bound_by,
        "refused": side.refused or None,
        "turned": [list(turn) for turn in side.turned],
    }


def data(found: Sensitivity) -> str:
    """The numbers as CSV, base units."""
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(
        ("path", "value", "unit", "elasticity", "less", "throughput at less", "more",
         "throughput at more", "kink")
    )  # fmt: skip
    for one in found.entries:
        turns = "; ".join(kinks(one))
        writer.writerow(
            (one.path, one.value, one.unit, one.elasticity, one.less.value, one.less.throughput,
             one.more.value, one.more.throughput, turns)
        )  # fmt: skip
    return sheet.getvalue()


def sentence(one: Elasticity) -> str:
    """``10 % more HBM bandwidth buys 7.9 % throughput``; of less where more is refused."""
    way, side = ("more", one.more) if one.more.throughput is not None else ("less", one.less)
    gain = one.gain(side) or 0.0
    what = f"{percent(abs(one.change(side)))} {way} {one.name}"
    if abs(gain) < 5e-4:
        return f"{what} changes nothing"
    return f"{what} {'buys' if gain > 0 else 'costs'} {percent(abs(gain))} throughput"


def finding(found: Sensitivity) -> str:
    """The largest levers in one sentence."""
    levers = [sentence(one) for one in found.felt[:3]]
    if not levers:
        return "No number of the device moves the throughput: every elasticity is under 0.005."
    return "; ".join(levers) + "."


def kinks(one: Elasticity) -> Iterator[str]:
    """What turns within the step, in words: the longest operator of each side."""
    for side in (one.less, one.more):
        for name, was, now in side.turned[:1]:
            at = signed(one.change(side))
            yield numbers.plain(f"at {at} {name} turns from {was} to {now}")


def percent(share: float) -> str:
    """A share in percent to two digits: ``7.9 %``, ``10 %``, ``0.3 %``."""
    shown = 100 * share
    return f"{shown:.0f} %" if shown >= 9.95 else f"{shown:.1f} %"


def signed(share: float) -> str:
    """A change in percent with its sign: ``+7.9 %``, ``-10 %``, ``0 %``."""
    if abs(share) < 5e-4:
        return "0 %"
    return f"{'-' if share < 0 else '+'}{percent(abs(share))}"


_KINDS = {
    "l1": "L1", "l2": "L2", "mall": "MALL", "lds": "LDS", "hbm": "HBM", "gddr": "GDDR",
    "ddr": "DDR",
}  # fmt: skip
_WORDS = {
    "clock": "clock rate", "units": "compute units", "per_clock": "bytes per clock",
    "achieved": "achieved share", "peers": "domain size", "exponentials": "exponential rate",
}  # fmt: skip


def name_of(path: str) -> str:
    """A path of a device in words.

    >>> name_of("hardware.memory.hbm3e.bandwidth"), name_of("hardware.compute.matrix.bf16")
    ('HBM bandwidth', 'BF16 matrix rate')
    >>> name_of("hardware.scale_up.latency"), name_of("hardware.compute.units")
    ('scale-up latency', 'compute units')
    """
    parts = path.removeprefix("hardware.").split(".")
    if parts[0] == "compute" and len(parts) == 3:
        return numbers.plain(f"{parts[2].upper()} {parts[1]} rate")
    if parts[0] == "memory" and len(parts) == 3:
        kind = parts[1].rstrip("0123456789ex") if parts[1] not in _KINDS else parts[1]
        parts = [_KINDS.get(kind, kind.replace("_", " ")), parts[2]]
    elif parts[0] in ("scale_up", "scale_out"):
        parts = [parts[0].replace("_", "-"), *parts[1:]]
    elif parts[0] == "compute":
        parts = parts[1:]
    last = _WORDS.get(parts[-1], parts[-1].replace("_", " "))
    return numbers.plain(" ".join([*(part.replace("_", " ") for part in parts[:-1]), last]))
