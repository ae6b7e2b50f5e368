"""A software stack on one generation: its kernel tiles, achieved fractions and launch costs.

What changes with a ROCm or CUDA release while the silicon stays. Knows numbers and their
sources. Never touches hardware specs or operators.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from simulator.specs.fields import Checked, Count, Natural, Share, Some
from simulator.specs.frozen import FrozenMap
from simulator.specs.hardware import Origins
from simulator.specs.precision import FormatOrDefault
from simulator.units import Pause, Reserve

Tile = tuple[Count, Count, Count]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How kernels reach the device."""

    host: Pause
    """Time between two launches that the host issues one by one (eager)."""
    gap: Pause
    """Idle time of the device between two kernels of one stream."""
    graph: Pause
    """Time to launch a captured graph, once per step."""
    calls: FrozenMap[str, Pause] = field(default_factory=FrozenMap)
    """Time outside the kernel in one eager call that the host waits for, by operator, as the
    campaigns that timed such calls published it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulLibrary(Checked):
    """Tiles (m, n, k) that the GEMM library has, with what it reaches."""

    tiles: Some[Tile]
    split_k: Some[Count] = (1,)
    multicast: Count = 1
    """Tiles of a cluster that one read of an operand serves (thread-block clusters, 2-SM pairs)."""
    efficiency: FrozenMap[FormatOrDefault, Share]
    """Share of the matrix rate at the held clock that a long K-loop of the largest tile keeps,
    by number format; ``default`` for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLibrary(Checked):
    """Query and key-value block of the attention kernels, with what they reach."""

    prefill_tile: tuple[Count, Count]
    decode_tile: tuple[Count, Count]
    """(packed query rows, key-value tokens) of one decode block."""
    efficiency: FrozenMap[FormatOrDefault, Share]
    min_split: Count = 128
    """Fewest key-value tokens that a split of one sequence keeps."""
    backward: Share = 0.86
    """FLOP rate of the backward kernel over the forward's; where none is stated, that of
    FlashAttention-3 on Hopper."""


Limit = Annotated[float, Field(strict=True, ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryRule(Checked):
    """A kernel library, and the sizes that it is chosen for."""

    use: str
    """Name of the library in the fit of the family."""
    where: FrozenMap[str, tuple[Limit, Limit]] = field(default_factory=FrozenMap)
    """Columns of the shape with the lowest and the highest value that the rule holds for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack(Checked):
    """Kernel libraries and launch costs of one software stack on one generation."""

    name: str
    description: str = ""
    architectures: Some[str]
    """Architectures of accelerators that it is the default for."""
    generation: str = "unknown"
    """Name of the hardware generation, under which fits keep what differs by generation."""
    kin: tuple[str, ...] = ()
    """Generations whose kernels come closest, nearest first, for what was not measured on it."""
    framework: str = "trtllm"
    """The serving framework whose kernels run where a question names none."""
    libraries: FrozenMap[str, FrozenMap[str, FrozenMap[str, Some[LibraryRule]]]] = field(
        default_factory=FrozenMap
    )
    """The kernel libraries that run, by family, then framework, then ``op.dtype``, ``op``,
    ``dtype`` or ``default`` (the first of these that is there). The first rule whose sizes hold."""
    fused: tuple[str, ...] = ()
    """Operators by name, with wildcards, that run inside a neighbouring kernel and are no launch of
    their own: what its measured time contains."""
    launch: Launch
    mode: Literal["graph", "eager"] = "graph"
    fill: Pause
    """Time of one kernel outside its tiles: grid setup, first addresses, last drain."""
    bandwidth: Share
    """Share of the peak memory bandwidth that kernels reach where the device states none."""
    matmul: MatmulLibrary
    attention: AttentionLibrary
    exchange_units: Natural = 0
    """Compute units that dispatch and combine of experts keep busy in their throughput form."""
    framework_memory: Reserve = 0.0
    """Bytes per device that the runtime and its libraries hold."""
    provenance: Origins = field(default=(), compare=False)
