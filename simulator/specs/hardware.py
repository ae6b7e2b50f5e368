"""An accelerator as its data sheet describes it, one package.

Knows numbers and where they came from. Never touches files, workloads or time. Rates are dense
and link bandwidths are per direction; a key that means anything else says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from simulator.specs.fields import (
    Amount,
    Checked,
    Count,
    Extra,
    Flag,
    Natural,
    Overhead,
    Share,
    Some,
    Width,
)
from simulator.specs.frozen import FrozenMap
from simulator.specs.precision import FormatName
from simulator.units import (
    BitsPerSecond,
    Bytes,
    BytesPerClock,
    BytesPerSecond,
    Clocks,
    Dollars,
    DollarsPerHour,
    DollarsPerJoule,
    FlopsPerClock,
    FlopsPerSecond,
    Hertz,
    Seconds,
    Watts,
)

BASES = ("datasheet", "vendor", "measured", "derived", "estimated", "assumed")
"""How far a number can be trusted, strongest first."""

Basis = Literal["datasheet", "vendor", "measured", "derived", "estimated", "assumed"]
DRAM = (
    "hbm2", "hbm2e", "hbm3", "hbm3e", "hbm4", "hbm4e", "gddr5", "gddr6", "gddr7", "ddr4", "ddr5",
)  # fmt: skip
MemoryKind = Literal[
    "hbm2", "hbm2e", "hbm3", "hbm3e", "hbm4", "hbm4e", "gddr5", "gddr6", "gddr7", "ddr4", "ddr5",
    "l2", "mall", "l1", "lds", "registers", "tensor_memory",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where one number came from: its path in the file, the source, and the basis."""

    path: str
    source: str
    basis: Basis


def _refuse(value: Any) -> Any:
    raise PydanticCustomError("unexpected_keyword_argument", "Unexpected keyword argument")


Origins = Annotated[tuple[Provenance, ...], BeforeValidator(_refuse), SkipJsonSchema()]
"""Where the numbers of a spec came from: what the loader fills in, and no file states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute(Checked):
    """The compute units of one package. Per-clock rates are dense and per unit."""

    units: Count
    """Active compute units (AMD CU or WGP, NVIDIA SM, Intel Xe core, CPU core)."""
    unit: Literal["CU", "WGP", "SM", "Xe", "core"]
    clock: Hertz
    """The clock at which the data-sheet peak is stated."""
    max_clock: Hertz | None = None
    """The highest clock that the device runs at, where it is above ``clock``."""
    held_clock: Hertz | None = None
    """The clock held under sustained matrix load, where it was measured."""
    sustained: Share | None = None
    """Share of the matrix rate of short runs that is left in a run of minutes, under the power
    limit; None where it was not measured, or where ``held_clock`` has it."""
    threads: Count | None = None
    """Threads that one unit holds at once, all blocks."""
    dies: Count = 1
    """Compute dies that each have their own share of the units."""
    matrix: FrozenMap[FormatName, FlopsPerClock]
    """Dense FLOP per clock per unit that products of a number format run at: on the matrix engine,
    or on the vector ALUs where it has no path for the format."""
    vector: FrozenMap[FormatName, FlopsPerClock]
    """FLOP per clock per unit by number format, vector ALUs."""
    exponentials: FlopsPerClock | None = None
    """Exponentials per clock per unit: what the softmax of attention waits for."""
    sparsity: FrozenMap[FormatName, Amount] = field(default_factory=FrozenMap)
    """Structured-sparse peak over dense peak by number format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLevel(Checked):
    """One level of the memory hierarchy. ``capacity`` and ``bandwidth`` are per ``scope``."""

    kind: MemoryKind
    capacity: Bytes
    scope: Literal["device", "die", "unit"] = "device"
    bandwidth: BytesPerSecond | None = None
    per_clock: BytesPerClock | None = None
    """Bandwidth of an on-chip level in bytes per compute clock, instead of ``bandwidth``."""
    achieved: Share | None = None
    """Streaming read bandwidth that was measured, as a fraction of the peak."""
    latency: Seconds | None = None
    line: Bytes | None = None
    partitions: Count = 1
    """Parts of a cache that each keep a copy of what the units beside them read."""
    stacks: Count | None = None
    stack_ids: Count | None = None
    """Stack ids behind one channel, where the stacks are not as high as the generation's usual."""
    pin_rate: BitsPerSecond | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataMover:
    """Limits of the engine that copies tiles by descriptor (AMD TDM, NVIDIA TMA)."""

    kind: Literal["tdm", "tma"]
    rank: Count
    """Most dimensions of one descriptor."""
    tile_dim: Count
    """Largest extent of a tile along one dimension, in elements."""
    gather_rows: FrozenMap[Width, Count] = field(default_factory=FrozenMap)
    """Rows that one gather descriptor names, by index width in bits; empty: no gather."""
    iterate: Count = 1
    """Most repetitions of one tile by one descriptor."""
    multicast: Count = 1
    """Most workgroups that one load delivers to."""
    alignment: Bytes
    """The row length, and any stride, is a multiple of this."""
    latency: Clocks | None = None
    """Clocks from issue to data in local memory."""
    queues: Count = 1
    """Descriptor queues per unit."""
    issue: Clocks | None = None
    """Clocks until a queue takes its next descriptor; None: the bytes alone decide."""
    depth: Count | None = None
    """Descriptors in flight per queue; None: local memory alone decides."""


Topology = Literal["mesh", "switch", "ring", "pcie", "rails"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One kind of link of a package. ``bandwidth`` is per direction, all links of the kind."""

    kind: Literal["xgmi", "ualink", "nvlink", "pcie", "ethernet", "infiniband", "c2c"]
    bandwidth: BytesPerSecond
    links: Count = 1
    achieved: Share | None = None
    """What one device sends to another, as a fraction of ``bandwidth``."""
    latency: Seconds | None = None
    """One step of a collective, from a device that has its data to the next that has it."""
    peers: Count | None = None
    """Devices that the link joins in one hop, this one included: 2 for a bridge, 8 for a board."""
    shared: Share | None = None
    """What each of more than two devices keeps of ``achieved`` when all send at once (PCIe)."""
    reduces: Flag = False
    """The switch that it leads to can add (NVLink SHARP)."""
    topology: Topology | None = None
    """How the peers are joined; None: a mesh over xGMI, a tree over PCIe, else a switch. A link
    out of the domain leads to a switch that joins all, or to rails that each join equal ranks."""
    lost: Natural = 0
    """Links of one device of a mesh or ring that are down."""


IDLE = 0.12
"""Idle draw over the limit, of a device that states none: 80 of 700 W of an H200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Power(Checked):
    """Power of the package."""

    peak: Watts
    """The board's own limit."""
    idle: Watts | None = None
    cap: Watts | None = None
    """A limit that its user sets below the board's own; at or above it, it has no effect."""

    @property
    def floor(self) -> Watts:
        """Idle draw, as stated or else as assumed."""
        return IDLE * self.peak if self.idle is None else self.idle

    @property
    def capped(self) -> bool:
        """Whether a cap is below the board's own limit."""
        return self.cap is not None and self.cap < self.peak

    @property
    def limit(self) -> Watts:
        """The board's own limit, or a cap below it."""
        return self.peak if self.cap is None else min(self.cap, self.peak)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one package costs to rent, or else to buy and to run.

    A rent is all that an hour costs, electricity included. Without one, an hour of use is its share
    of the purchase and of the server around it, and the electricity that it takes; what is not
    stated is assumed (``costs/money.py``).
    """

    rent: DollarsPerHour | None = None
    purchase: Dollars | None = None
    server: Extra | None = None
    """What hosts, network and racks cost besides, over the purchase."""
    lifetime: Seconds | None = None
    """Over which a purchase is written off."""
    utilisation: Share | None = None
    """Of the lifetime, what is used."""
    electricity: DollarsPerJoule | None = None
    pue: Overhead | None = None
    """Power of the data centre over that of its devices (power usage effectiveness)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator(Checked):
    """One package that can be bought, or that somebody said could be."""

    name: str
    vendor: str
    architecture: str
    """The instruction set that the software stack is built for, such as gfx1250 or sm_90."""
    status: Literal["shipping", "announced", "prelaunch", "projection", "article", "calibrated"]
    kind: Literal["gpu", "cpu"] = "gpu"
    aliases: tuple[str, ...] = ()
    launched: str | None = None
    process: str | None = None
    transistors: Amount | None = None
    description: str = ""
    compute: Compute
    memory: Some[MemoryLevel]
    data_mover: DataMover | None = None
    scale_up: Link | None = None
    scale_out: Link | None = None
    host: Link | None = None
    power: Power | None = None
    price: Price | None = None
    provenance: Origins = field(default=(), compare=False)

    def level(self, kind: str) -> MemoryLevel | None:
        """The memory level of that kind, or None where the device has none."""
        return next((level for level in self.memory if level.kind == kind), None)

    @property
    def dram(self) -> MemoryLevel:
        """The device memory; the loader refuses a device without one."""
        return next(level for level in self.memory if level.kind in DRAM)

    def peak(self, number_format: str) -> FlopsPerSecond | None:
        """Dense matrix peak at the data-sheet clock, or None where the format has no path."""
        rate = self.compute.matrix.get(number_format)
        return None if rate is None else rate * self.compute.units * self.compute.clock
