"""A device under one software stack, as the rates that costs ask for.

Knows an accelerator and a stack. Never touches operators, tiles or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf

from simulator.costs.energy import clock_share
from simulator.costs.hbm import channel_rate, share, timing
from simulator.errors import Fault, SpecError
from simulator.specs.frozen import FrozenMap
from simulator.specs.hardware import Accelerator, MemoryLevel
from simulator.specs.precision import FORMATS, number_format
from simulator.specs.stack import Stack
from simulator.units import Bytes, BytesPerSecond, FlopsPerSecond, Hertz

CACHE_PORT = 64.0
"""Bytes per clock and unit out of the shared cache where the device states no bandwidth: the port
of one SM in DeepGEMM's tile ranking (sm90.hpp, 2026-06), and of one CU's vector L1."""

UNIT_FILL = 128.0
"""Bytes per clock into the local memory of one unit where the device states no width: the width
on every generation since Volta and CDNA 2."""

_WIDER = {
    "fp4": "fp6",
    "fp6": "fp8",
    "fp8": "bf16",
    "int8": "bf16",
    "int4": "fp16",
    "bf16": "fp16",
    "fp16": "tf32",
    "tf32": "fp32",
    "fp32": "fp64",
}
"""The next format that can hold every product, for a device without a path of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One accelerator with the stack that runs on it."""

    accelerator: Accelerator
    stack: Stack

    @property
    def units(self) -> int:
        """Compute units of the package."""
        return self.accelerator.compute.units

    @property
    def held_clock(self) -> Hertz:
        """The clock under matrix load: as measured, else of the data sheet; lower under a cap."""
        compute = self.accelerator.compute
        return (compute.held_clock or compute.clock) * clock_share(self.accelerator.power)

    @property
    def peak_bandwidth(self) -> BytesPerSecond:
        """Device-memory bandwidth of the data sheet."""
        peak = _device_bandwidth(self.accelerator, self.accelerator.dram)
        assert peak is not None, "the loader refuses device memory without a bandwidth"
        return peak

    @property
    def bandwidth(self) -> BytesPerSecond:
        """Device-memory bandwidth that kernels reach in a stream.

        As measured where the device states it, else by the mechanism of ``hbm``, else the stack's
        share of the peak.
        """
        achieved = self.accelerator.dram.achieved or _stream(self.accelerator.dram)
        return self.peak_bandwidth * (achieved or self.stack.bandwidth)

    def gather_bandwidth(self, contiguous: Bytes) -> BytesPerSecond:
        """Device-memory bandwidth, in useful bytes, for runs of ``contiguous`` bytes anywhere."""
        dram = self.accelerator.dram
        reached, stream = _stream(dram, contiguous), _stream(dram)
        return self.bandwidth * min(1.0, reached / stream) if reached and stream else self.bandwidth

    @property
    def cache(self) -> Bytes:
        """Capacity of the last cache before the device memory, whole package; 0 without one."""
        for kind in ("mall", "l2"):
            level = self.accelerator.level(kind)
            if level is not None:
                return level.capacity * _instances(self.accelerator, level)
        return 0.0

    @property
    def last_caches(self) -> tuple[Bytes, int]:
        """What one unit can hold in the last cache before the device memory, and how many such
        caches there are. Each partition of a cache keeps a copy of what its units read."""
        for kind in ("mall", "l2"):
            level = self.accelerator.level(kind)
            if level is not None:
                return level.capacity / level.partitions, _instances(self.accelerator, level)
        return 0.0, 1

    @property
    def cache_bandwidth(self) -> BytesPerSecond:
        """Bytes per second out of the cache that all units share."""
        level = self.accelerator.level("l2")
        total = None if level is None else _device_bandwidth(self.accelerator, level)
        return CACHE_PORT * self.accelerator.compute.clock * self.units if total is None else total

    def level_bandwidth(self, kind: str) -> BytesPerSecond | None:
        """Bytes per second of all instances of a level; None where the device states none."""
        level = self.accelerator.level(kind)
        return None if level is None else _device_bandwidth(self.accelerator, level)

    @property
    def fill(self) -> BytesPerSecond:
        """Most bytes per second from the cache into the local memory of one unit."""
        level = self.accelerator.level("lds")
        width = UNIT_FILL if level is None or level.per_clock is None else level.per_clock
        return width * self.accelerator.compute.clock

    def matrix_format(self, *formats: str) -> str:
        """The format in which the matrix units multiply operands of these formats.

        The widest operand decides; a device without a rate for it takes the next wider one.
        Raises SpecError where no wider format has a rate either.
        """
        wanted = max((number_format(name) for name in formats), key=lambda entry: entry.bits)
        rates = self.accelerator.compute.matrix
        name: str | None = wanted.compute or wanted.name
        while name is not None:
            if name in rates:
                return name
            name = _WIDER.get(name)
        raise SpecError(
            [
                Fault(
                    self.accelerator.name,
                    None,
                    "compute.matrix",
                    f"no matrix rate for {wanted.name} or anything wider",
                    f"formats with a rate: {', '.join(rates)}",
                )
            ]
        )

    def matrix_rate(
        self, name: str, library: FrozenMap[str, float], *operands: str
    ) -> FlopsPerSecond:
        """FLOP/s of one unit in ``name`` at the held clock with the library's efficiency.

        The library's entry for an operand's own format (fp8_block, nvfp4) goes before the one for
        the rate that multiplies it.
        """
        own = [entry for entry in operands if (FORMATS[entry].compute or entry) == name]
        entry = next((entry for entry in (*own, name) if entry in library), "default")
        return self.accelerator.compute.matrix[name] * self.held_clock * library[entry]

    def matrix_peak(self, name: str) -> FlopsPerSecond:
        """FLOP/s of one unit in ``name`` at the data-sheet clock."""
        return self.accelerator.compute.matrix[name] * self.accelerator.compute.clock

    def vector_rate(self, name: str = "fp32") -> FlopsPerSecond:
        """FLOP/s of one unit's vector ALUs; 16-bit formats without an entry run as fp32."""
        compute = self.accelerator.compute
        rate = compute.vector.get(name) or compute.vector["fp32"]
        return rate * compute.clock

    def exponential_rate(self) -> FlopsPerSecond:
        """Exponentials per second of one unit.

        Where the device states none, a quarter of the fp32 lanes (two FLOP each) is assumed, the
        usual rate of transcendental instructions on vector units.
        """
        compute = self.accelerator.compute
        per_clock = compute.exponentials or compute.vector["fp32"] / 8
        return per_clock * compute.clock


@lru_cache(maxsize=1024)
def _stream(dram: MemoryLevel, contiguous: Bytes = inf) -> float | None:
    """Share of the peak that reads in runs of ``contiguous`` bytes reach; None if nobody knows."""
    memory = timing(dram)
    return None if memory is None else float(share(memory, channel_rate(memory, dram), contiguous))


def _instances(accelerator: Accelerator, level: MemoryLevel) -> int:
    compute = accelerator.compute
    return {"device": 1, "die": compute.dies, "unit": compute.units}[level.scope]


def _device_bandwidth(accelerator: Accelerator, level: MemoryLevel) -> BytesPerSecond | None:
    """Bandwidth of all instances of a level, or None where the device does not state it."""
    if level.bandwidth is not None:
        return level.bandwidth * _instances(accelerator, level)
    if level.per_clock is not None:
        clock = accelerator.compute.clock
        return level.per_clock * clock * _instances(accelerator, level)
    return None
