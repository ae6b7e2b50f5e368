"""The system around an accelerator: how many, how they are joined, and what leaves the box.

Knows counts, links and topology. Never touches collectives or time. Bandwidths of links come
from the accelerator unless the system file states its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from simulator.specs.fields import Amount, Checked, Count, Flag
from simulator.specs.hardware import Link, Origins
from simulator.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Devices that reach each other in one hop: a mesh, a switch, or a host's PCIe tree."""

    devices: Count
    topology: Literal["mesh", "switch", "pcie"]
    planes: Count = 1
    """Parallel switch planes that share the traffic."""
    link: Link | None = None
    """Overrides the accelerator's scale-up link."""
    in_network_reduction: Flag = False
    """The switch can add (NVLink SHARP)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The host of one node."""

    accelerators: Count
    """Accelerators per host."""
    memory: Bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class System(Checked):
    """A node or rack of equal accelerators."""

    name: str
    description: str = ""
    accelerators: tuple[str, ...] = ()
    """Accelerators that this system is sold with; any other is a what-if."""
    scale_up: Domain
    nics_per_accelerator: Amount | None = None
    nic: Link | None = None
    host: Host | None = None
    provenance: Origins = field(default=(), compare=False)
