"""What a group of accelerators reaches over its links: rates and steps, by size of the group.

Knows links. Never touches collectives, messages or fitted constants.

Inside one domain (a switch, a full mesh, a bridge, a host's PCIe tree) devices use their scale-up
link. A group that is larger than the domain leaves it over the scale-out link of each device, or
over the host link where boards of one host are joined by bridges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.costs.target import Target
from simulator.specs.hardware import Link
from simulator.units import BytesPerSecond, Seconds

Floats = NDArray[np.float64]

HOST_MOST = 16
"""Most accelerators that one host has; a domain of more joins hosts, and a group within it stays
inside however many nodes it spans."""

BOARD = 4
"""Fewest accelerators of a domain that has its own way to the network; bridges join fewer."""

CHAIN = 8
"""Devices that a tree joins one after another, as NCCL's tree does inside a host."""

STEP: Seconds = 1e-6
"""One step over a link whose latency no spec states."""

NO_LINK = Link(kind="pcie", bandwidth=32e9)
"""PCIe 4 x16, for a device whose spec states no link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """Links of groups of devices, one row per group; all rates are per device and direction."""

    islands: Floats
    """Domains that the group is spread over."""
    size: Floats
    """Devices of the group in one domain."""
    inside: Floats
    """Bytes per second to the other devices of the domain, all together."""
    outside: Floats
    """Bytes per second out of the domain; infinite for a group inside one."""
    step: Seconds
    """One step inside a domain."""
    far_step: Seconds
    """One step between domains."""
    reduces: bool
    """Whether the switch of the domain adds."""

    @property
    def ring(self) -> Floats:
        """Rate around a ring through all devices.

        A ring leaves each domain once, and as many rings as a domain has devices share their
        ways out.
        """
        return np.minimum(self.inside, self.outside * self.size)

    @property
    def direct(self) -> Floats:
        """Rate of each device to all others at once, as much to each."""
        others = np.maximum(self.islands * self.size - 1, 1e-9)
        near = np.clip((self.size - 1) / others, 0.0, 1.0)
        slowest = np.maximum(near / self.inside, (1 - near) / self.outside)
        return np.asarray(1 / np.maximum(slowest, 1e-30))  # one device has no others to send to

    @property
    def around(self) -> Floats:
        """Seconds of one message once around the ring, its last step back left out."""
        far = self.islands - 1
        return (self.islands * self.size - 1 - far) * self.step + far * self.far_step

    @property
    def across(self) -> Floats:
        """Seconds of one message to the root of a tree: chains of a board, then doubling."""
        board = np.minimum(self.size, CHAIN)
        near = board - 1 + np.log2(self.size / board)
        return near * self.step + np.log2(self.islands) * self.far_step


def fabric(target: Target, n_gpus: Floats, nodes: Floats) -> Fabric:
    """The links of groups of ``n_gpus`` devices; ``nodes`` is -1 where it is not known."""
    device = target.accelerator
    link = device.scale_up or device.host or NO_LINK
    n = np.maximum(n_gpus, 1.0)
    peers = float(link.peers or np.inf)
    islands = np.maximum(np.ceil(n / peers), 1.0)
    if peers <= HOST_MOST:
        islands = np.maximum(islands, np.minimum(nodes, n))
    size = n / islands
    bridged = peers < BOARD
    # Of boards joined by a bridge, one sends over its own host link for all of them.
    out = (None if bridged else device.scale_out) or device.host or NO_LINK
    share = 1 / size if bridged else 1.0
    outside = np.where(islands > 1, _reached(out) * share, np.inf)
    return Fabric(
        islands=islands,
        size=size,
        inside=_inside(link, size),
        outside=outside,
        step=link.latency or STEP,
        far_step=out.latency or STEP,
        reduces=link.reduces,
    )


def _reached(link: Link) -> BytesPerSecond:
    return link.bandwidth * (link.achieved or 1.0)


def _inside(link: Link, size: Floats) -> Floats:
    rate = np.full(size.shape, _reached(link))
    if link.kind == "xgmi":
        # A mesh has one link to each other device: a small group cannot use them all.
        rate *= np.clip((size - 1) / link.links, 1 / link.links, 1.0)
    if link.shared is not None:
        rate = np.where(size > 2, rate * link.shared, rate)
    return rate
