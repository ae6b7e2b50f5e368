"""The answer of one run: time, what binds it, its bounds, and what it rests on.

Frozen data in base units. Rates, shares and utilisations are properties, never stored twice.
Knows nothing of hardware specs, operators or how the numbers came about.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from simulator.errors import BoundsError, Fault, SpecError
from simulator.expert_use import ExpertUse
from simulator.memory_use import MemoryUse
from simulator.training_use import TrainingUse
from simulator.units import (
    Bytes,
    BytesPerSecond,
    Dollars,
    Flops,
    FlopsPerSecond,
    Joules,
    Seconds,
    Watts,
)

Bound = Literal["compute", "memory", "cache", "link", "latency", "waiting"]
"""What binds: matrix and vector units, device memory, the cache that all units share, links, launch
and fill latencies, or units that wait for each other (ragged waves, first loads, unequal tiles)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Proven limits of the same model: no run of it can be faster or slower."""

    lower: Seconds
    upper: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Where the truth lies with probability ``level``, from errors on held-back measurements."""

    lower: float
    upper: float
    level: float = 0.8


NEARLY = 0.95
"""Share of the busiest resource's time from which another one as good as binds too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpUse:
    """All executions of one operator shape in the run."""

    name: str
    kind: str
    count: int
    time: Seconds
    """All executions together, launch gaps included."""
    compute: Seconds
    """Time that the units are busy, averaged over the units."""
    memory: Seconds
    """Time that the device memory is busy."""
    cache: Seconds = 0.0
    """Time that the shared cache is busy, where it holds the memory up; else 0."""
    link: Seconds = 0.0
    """Time that links are busy."""
    latency: Seconds
    """Launch gaps and time outside the tiles."""
    flops: Flops
    bytes: Bytes
    """Bytes that cross the device memory, rereads included."""
    format: str
    """Number format of the matrix units, or of the data where no matrix is multiplied."""
    roof: FlopsPerSecond
    """Peak rate of the units that do this work, in ``format``."""
    tile: str = ""
    """Tile and split that the mapping chose."""
    units: int = 0
    """Compute units that the kernel occupies."""

    @property
    def time_each(self) -> Seconds:
        """One execution."""
        return self.time / self.count

    @property
    def nearly(self) -> tuple[Bound, ...]:
        """Other resources that are busy for nearly as long as the one that binds."""
        busy: dict[Bound, Seconds] = {
            "memory": self.memory, "cache": self.cache, "compute": self.compute, "link": self.link,
        }  # fmt: skip
        most = busy.pop(self.bound_by, 0.0)
        return tuple(bound for bound, time in busy.items() if 0 < NEARLY * most <= time)

    @property
    def bound_by(self) -> Bound:
        """The resource that accounts for most of the time."""
        busy = max(self.compute, self.memory, self.cache, self.link)
        rest = self.time - busy - self.latency
        parts: tuple[tuple[float, Bound], ...] = (
            (self.memory, "memory"),
            (self.cache, "cache"),
            (self.compute, "compute"),
            (self.link, "link"),
            (self.latency, "latency"),
            (rest, "waiting"),
        )
        return max(parts, key=lambda part: part[0])[1]

    @property
    def intensity(self) -> float | None:
        """FLOP per byte moved, or None for an operator that moves nothing."""
        return self.flops / self.bytes if self.bytes > 0 else None

    @property
    def rate(self) -> FlopsPerSecond | None:
        """FLOP/s reached, or None where there is no work or no time."""
        return self.flops / self.time if self.flops > 0 and self.time > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoofLevel:
    """Bandwidth of what lies nearer to the units than the device memory, or of links."""

    name: str
    link: bool
    bandwidth: BytesPerSecond
    """Of one device; of links per direction."""
    achieved: BytesPerSecond | None = None
    """What was measured of it; None where nothing is stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """Ceilings of one device: matrix rate by number format, and memory bandwidth."""

    compute: tuple[tuple[str, FlopsPerSecond], ...]
    """Dense peak by number format."""
    held: tuple[tuple[str, FlopsPerSecond], ...]
    """The same at the held clock and with the library's efficiency."""
    bandwidth: BytesPerSecond
    achieved_bandwidth: BytesPerSecond
    levels: tuple[RoofLevel, ...] = ()
    """Caches, and links that the run goes over, whose bandwidth is stated; fastest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """One number behind the answer and how far it can be trusted."""

    path: str
    source: str
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProvenance:
    """What the answer rests on."""

    version: str
    fidelity: str
    seed: int
    weakest: Basis
    numbers: tuple[Basis, ...]
    overrides: tuple[str, ...] = ()
    command: str = ""
    """The command line that gives this answer again."""

    def source_of(self, path: str) -> str:
        """The source of the number of that path; empty where none is behind the answer."""
        return next((number.source for number in self.numbers if number.path == path), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase inside a run that has several (prefill, then decode steps)."""

    name: str
    latency: Seconds
    tokens: float
    energy: Joules | None = None
    cost: Dollars | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyPart:
    """What of the energy is drawn anyway, or above that while one resource binds."""

    name: str
    """idle, compute, memory, links, or waiting for launches and for each other."""
    energy: Joules


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPart:
    """Operators that follow one another on a device, and how often in a row they do."""

    repeat: int
    steps: tuple[tuple[str, Seconds], ...]
    """Name and duration of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One pass as the device, the slowest where they differ, goes through it."""

    phase: str
    weight: float
    """How often the run makes the pass."""
    latency: Seconds
    gap: Seconds
    """Mean time between two operators."""
    parts: tuple[StreamPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything that a run answers. ``latency`` is one step (decode), one pass (prefill, image
    step) or one whole request batch (generate)."""

    workload: str
    hardware: str
    stack: str
    phase: str
    batch: int
    input: int | None
    output: int | None
    context: int | None
    dtype: str
    """Number format of most FLOP among products with weights; attention cores count only where
    there is no such product."""
    weights: str
    """Number format in which most bytes of weights are stored."""
    unit: Literal["tokens", "samples"]
    """What ``throughput`` counts."""
    work: float
    """Tokens or samples that one ``latency`` yields."""
    latency: Seconds
    bounds: Bounds
    interval: Interval | None = None
    ops: tuple[OpUse, ...]
    memory: MemoryUse
    roof: Roof
    devices: int = 1
    """Devices that the run is on, all equal; the operators, memory and roof are those of one, the
    slowest where they differ."""
    model_flops: Flops
    """FLOP that the model needs on all devices, whatever ran."""
    hardware_flops: Flops | None = None
    """FLOP that ran on all devices in training, what was computed again included."""
    model_bytes: Bytes
    """Weights and cache that all devices must read once."""
    phases: tuple[Phase, ...] = ()
    stream: tuple[Stream, ...] = ()
    """Operators in order, of each pass of a run that does not train."""
    experts: tuple[ExpertUse, ...] = ()
    """One per phase of a model with MoE layers."""
    training: TrainingUse | None = None
    """Of a training step."""
    energy: Joules | None = None
    """Estimate at the accelerators of all devices; None where their power is not known."""
    energy_parts: tuple[EnergyPart, ...] = ()
    """Their ``math.fsum`` is ``energy``."""
    cost: Dollars | None = None
    """Rent, or purchase and electricity, of all devices; None where no price is known."""
    events: int = 0
    warnings: tuple[str, ...] = ()
    provenance: RunProvenance

    def __post_init__(self) -> None:
        slack = 1e-9 * self.bounds.upper
        if not self.bounds.lower - slack <= self.latency <= self.bounds.upper + slack:
            raise BoundsError(
                f"{self.workload} on {self.hardware}: {self.latency!r} s is outside its bounds "
                f"[{self.bounds.lower!r}, {self.bounds.upper!r}] s"
            )

    @property
    def throughput(self) -> float | None:
        """Tokens (or samples) per second; None where nothing takes time."""
        return self.work / self.latency if self.latency > 0 else None

    @property
    def breakdown(self) -> dict[Bound, Seconds]:
        """Latency by what binds; sums to ``latency``. See ``breakdown``."""
        return breakdown(self.ops, self.latency)

    @property
    def bound_by(self) -> Bound:
        """What binds the run: the largest part of the breakdown."""
        parts = self.breakdown
        return max(parts, key=lambda part: parts[part])

    @property
    def mfu(self) -> float | None:
        """Model FLOP/s over the dense peak of the model's number format, all devices together."""
        peak = dict(self.roof.compute).get(self.dtype)
        if not peak or self.latency <= 0:
            return None
        return self.model_flops / self.latency / peak / self.devices

    @property
    def hfu(self) -> float | None:
        """As ``mfu``, of all FLOP that ran, recomputation included; None outside training."""
        peak = dict(self.roof.compute).get(self.dtype)
        if not peak or self.latency <= 0 or self.hardware_flops is None:
            return None
        return self.hardware_flops / self.latency / peak / self.devices

    @property
    def mbu(self) -> float | None:
        """Bytes that the model must read over what the memory could deliver in that time."""
        if self.latency <= 0 or self.model_bytes <= 0:
            return None
        return self.model_bytes / self.latency / self.roof.bandwidth / self.devices

    @property
    def power(self) -> Watts | None:
        """Mean draw of one device; None where its power is not known or nothing takes time."""
        if self.energy is None or self.latency <= 0:
            return None
        return self.energy / self.latency / self.devices

    @property
    def tokens_per_joule(self) -> float | None:
        """Tokens (or samples) of a joule; None where energy is not known or none is drawn."""
        return self.work / self.energy if self.energy else None

    @property
    def cost_per_million(self) -> dict[str, float | None]:
        """Dollars of a million tokens (or samples): of those read, of those written, and of all.

        A ``generate`` run spends its prefill on the tokens read and its decode steps on all that
        are written; times their tokens the first two add up to the cost. Prefill writes nothing
        and decode reads nothing; training has a total alone. None where no price is known, or
        nothing takes time.
        """
        per: dict[str, float | None] = dict.fromkeys(("input", "output", "total"))
        if self.cost is None or self.latency <= 0 or self.work <= 0:
            return per
        each = 1e6 * self.cost / self.work
        if self.phase != "generate":
            side = {"prefill": "input", "decode": "output"}.get(self.phase, "total")
            return per | {side: each, "total": each}
        read, written = (float(self.batch * (count or 0)) for count in (self.input, self.output))
        costs = {phase.name: phase.cost for phase in self.phases}
        for name, phase, count in (("input", "prefill", read), ("output", "decode", written)):
            spent = costs.get(phase)
            if spent is not None and count:
                per[name] = 1e6 * spent / count
        return per | {"total": 1e6 * self.cost / (read + written)}

    @property
    def unknown(self) -> dict[str, str]:
        """Why energy or cost are None, where they are."""
        why = {
            "energy": (self.energy, "the device states no power (--set power.peak=...)"),
            "cost": (self.cost, "no price of the device is stated (--set price.rent=...)"),
        }
        return {name: reason for name, (value, reason) in why.items() if value is None}

    def to_dict(self) -> dict[str, Any]:
        """Fields and derived rates in base units; absent is None, never NaN or infinity."""
        data = asdict(self)
        for line, op in zip(data["ops"], self.ops, strict=True):
            line |= {
                "time_each": op.time_each,
                "share": op.time / self.latency if self.latency > 0 else None,
                "bound_by": op.bound_by,
                "intensity": op.intensity,
                "rate": op.rate,
            }
        data["memory"]["total"] = self.memory.total
        data |= {
            "throughput": self.throughput,
            "breakdown": self.breakdown,
            "bound_by": self.bound_by,
            "mfu": self.mfu,
            "hfu": self.hfu,
            "mbu": self.mbu,
            "power": self.power,
            "tokens_per_joule": self.tokens_per_joule,
            "cost_per_million": self.cost_per_million,
            "unknown": self.unknown,
        }
        clean = _finite(data)
        assert isinstance(clean, dict)
        return clean

    def to_json(self) -> str:
        """``to_dict`` as JSON text; the same run gives the same bytes."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"

    def save(self, path: str | Path) -> None:
        """Write the JSON whole or not at all."""
        target = Path(path)
        part = target.with_name(target.name + ".part")
        part.write_text(self.to_json(), encoding="utf-8")
        part.replace(target)

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read what ``save`` wrote; raises SpecError where the file is not such a result."""
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(cls).validate_json(Path(path).read_bytes())
        except OSError as error:
            raise SpecError([Fault(str(path), None, "", error.strerror or str(error))]) from None
        except ValidationError as error:
            raise SpecError(
                Fault(str(path), None, ".".join(map(str, fault["loc"])), fault["msg"])
                for fault in error.errors()
            ) from None
        except ValueError as error:
            raise SpecError([Fault(str(path), None, "", f"not a saved result: {error}")]) from None


def breakdown(ops: Sequence[OpUse], latency: Seconds) -> dict[Bound, Seconds]:
    """``latency`` by what binds.

    Inside each operator the busiest of units, cache, memory and links is charged with its time,
    launch and fill with theirs, and the rest is units waiting.
    """
    parts: dict[Bound, Seconds] = dict.fromkeys(
        ("compute", "memory", "cache", "link", "latency", "waiting"), 0.0
    )
    for op in ops:
        busy: tuple[tuple[float, Bound], ...] = (
            (op.memory, "memory"),
            (op.cache, "cache"),
            (op.compute, "compute"),
            (op.link, "link"),
        )
        time, bound = max(busy, key=lambda part: part[0])
        parts[bound] += time
        parts["latency"] += op.latency
    parts["waiting"] = max(0.0, latency - sum(parts.values()))
    return parts


def _finite(value: Any) -> Any:
    """The same value as plain JSON types, with None for anything that is not a finite number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value
