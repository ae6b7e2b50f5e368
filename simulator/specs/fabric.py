"""The system around an accelerator: how many, how they are joined, and what leaves the box.

Knows counts, links and topology, and what an accelerator's links become in a system. Never touches
collectives or time. Bandwidths of links come from the accelerator unless the system states its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from simulator.errors import Fault, SpecError
from simulator.specs.fields import Amount, Checked, Count, Flag, Natural, Share
from simulator.specs.hardware import Accelerator, Link, Origins
from simulator.units import Bytes

NO_LINK = Link(kind="pcie", bandwidth=32e9)
"""PCIe 4 x16, for a device whose spec states no link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Devices that reach each other without a network: a mesh, a switch, a ring or a PCIe tree."""

    devices: Count
    topology: Literal["mesh", "switch", "ring", "pcie"]
    planes: Count = 1
    """Parallel switch planes that share the traffic."""
    link: Link | None = None
    """Overrides the accelerator's scale-up link."""
    shared: Share | None = None
    """``Link.shared`` of a PCIe tree, for a link that does not state it."""
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
    """A node or rack of equal accelerators, and what joins many of them."""

    name: str
    description: str = ""
    accelerators: tuple[str, ...] = ()
    """Accelerators that this system is sold with; any other is a what-if."""
    scale_up: Domain
    nics_per_accelerator: Amount | None = None
    """NICs for each accelerator, below 1 where they share; None: as the accelerator states."""
    nic: Link | None = None
    """One NIC; None: the accelerator's own."""
    network: Literal["switch", "rails"] = "switch"
    """What the NICs lead to: a network that joins all, or one switch for the first accelerators of
    all nodes, one for the second, and so on."""
    host: Host | None = None
    links_lost: Natural = 0
    """Scale-up links of one device that are down."""
    planes_lost: Natural = 0
    """Switch planes that are down."""
    nics_lost: Natural = 0
    """NICs of one node that are down; the others carry its traffic."""
    provenance: Origins = field(default=(), compare=False)


def placed(accelerator: Accelerator, system: System) -> Accelerator:
    """The accelerator with the links that it has in ``system``.

    The domain says the peers, the topology and whether a switch adds; NICs times bandwidth is the
    link out of the domain, whose achieved share and latency are the accelerator's own where the
    system states none. In a PCIe tree a device with another scale-up link uses its link to the
    host. What is lost is taken off: 1/planes of the scale-up bandwidth for a plane, 1/links for a
    link to a switch, and the NICs that are left are shared by their node. Raises SpecError where
    more is lost than there is.
    """
    link, out = _joined(accelerator, system), _network(accelerator, system)
    faults = [*_lost_up(link, system), *_lost_out(accelerator, system)]
    if faults:
        raise SpecError(faults)
    left = 1 - system.planes_lost / system.scale_up.planes
    if link.topology in ("mesh", "ring"):
        link = replace(link, lost=system.links_lost)
    else:
        left *= 1 - system.links_lost / link.links
    if left < 1:
        link = replace(link, bandwidth=link.bandwidth * left)
    if out is not None and system.nics_lost:
        working = 1 - system.nics_lost / _nics(accelerator, system)
        out = replace(out, bandwidth=out.bandwidth * working)
    origins = _origins(accelerator, system, link, out)
    return replace(accelerator, scale_up=link, scale_out=out, provenance=origins)


def losses(accelerator: Accelerator, system: System) -> tuple[str, ...]:
    """What is down in ``system`` and what that leaves, a sentence each; empty where nothing is."""
    told = []
    if system.planes_lost:
        planes = system.scale_up.planes
        told.append(
            f"{system.planes_lost} of {planes} switch planes lost: "
            f"{planes - system.planes_lost}/{planes} of the scale-up bandwidth is left"
        )
    if system.links_lost:
        link = _joined(accelerator, system)
        of = f"{system.links_lost} of {_ways(link)} scale-up links of a device lost"
        if link.topology in ("mesh", "ring"):
            told.append(f"{of}: its traffic goes around, over the links of others")
        else:
            left = 1 - system.links_lost / link.links
            told.append(f"{of}: {left:.3g} of its bandwidth is left, and the group waits for it")
    if system.nics_lost:
        nics = _nics(accelerator, system)
        told.append(f"{system.nics_lost} of {nics:g} NICs of a node lost: the others are shared")
    return tuple(told)


def _joined(accelerator: Accelerator, system: System) -> Link:
    """The scale-up link before anything is lost."""
    domain, own = system.scale_up, accelerator.scale_up
    link = domain.link or own or accelerator.host or NO_LINK
    if domain.topology == "pcie" and link.kind != "pcie" and domain.link is None:
        link = accelerator.host or NO_LINK
    shared = (link.shared or domain.shared) if domain.topology == "pcie" else None
    return replace(
        link,
        peers=domain.devices,
        topology=domain.topology,
        reduces=domain.in_network_reduction,
        shared=shared,
    )


def _network(accelerator: Accelerator, system: System) -> Link | None:
    """The link out of the domain before anything is lost."""
    own, nic, count = accelerator.scale_out, system.nic, system.nics_per_accelerator
    if nic is None and own is not None and count is not None:
        nic = replace(own, bandwidth=own.bandwidth / own.links)
    out = own
    if nic is not None:
        count = 1.0 if count is None else count
        out = replace(
            nic,
            bandwidth=nic.bandwidth * count,
            links=max(round(count), 1),
            achieved=nic.achieved or (own.achieved if own else None),
            latency=nic.latency or (own.latency if own else None),
        )
    if out is not None and system.network == "rails":
        out = replace(out, topology="rails")
    return out


def _ways(link: Link) -> int:
    """Links of one device that can be lost one by one."""
    if link.topology == "mesh":
        return (link.peers or 2) - 1
    return 2 if link.topology == "ring" else link.links


def _nics(accelerator: Accelerator, system: System) -> float:
    """NICs of one node."""
    node = system.host.accelerators if system.host else system.scale_up.devices
    own = accelerator.scale_out.links if accelerator.scale_out else 1
    return node * (system.nics_per_accelerator or own)


def _lost_up(link: Link, system: System) -> list[Fault]:
    faults, planes = [], system.scale_up.planes
    if system.planes_lost >= planes:
        found = f"{system.planes_lost} of {planes} switch planes"
        faults.append(_fault(system, "planes_lost", found, _most(planes)))
    ways = _ways(link)
    if system.links_lost and system.links_lost >= ways:
        found = f"{system.links_lost} of {ways} links of a device"
        faults.append(_fault(system, "links_lost", found, _most(ways)))
    return faults


def _lost_out(accelerator: Accelerator, system: System) -> list[Fault]:
    nics = _nics(accelerator, system)
    if not system.nics_lost or system.nics_lost < nics:
        return []
    found = f"{system.nics_lost} of {nics:g} NICs of a node"
    return [_fault(system, "nics_lost", found, f"lose fewer than {nics:g}")]


def _most(count: int) -> str:
    return f"lose at most {count - 1}" if count > 1 else "leave it at 0: there is no other way"


def _fault(system: System, path: str, found: str, fix: str) -> Fault:
    return Fault(system.name, None, path, found, fix)


def _origins(accelerator: Accelerator, system: System, link: Link, out: Link | None) -> Origins:
    """The accelerator's sources, with those of the system for what it gives."""
    replaced: dict[str, str] = {}
    if accelerator.scale_up is None or accelerator.scale_up.peers != link.peers:
        replaced["scale_up.devices"] = "scale_up.peers"
    if out is not None and (
        accelerator.scale_out is None or accelerator.scale_out.bandwidth != out.bandwidth
    ):
        names = ("bandwidth", "achieved", "latency")
        replaced |= {f"nic.{name}": f"scale_out.{name}" for name in names}
    new = [
        replace(entry, path=replaced[entry.path])
        for entry in system.provenance
        if entry.path in replaced
    ]
    paths = {entry.path for entry in new}
    return (*(entry for entry in accelerator.provenance if entry.path not in paths), *new)
