"""What a group of accelerators reaches over its links: rates and steps, by size of the group.

Knows links. Never touches collectives, messages or fitted constants.

Inside one domain (a switch, a full mesh, a ring, a bridge, a host's PCIe tree) devices use their
scale-up link. A group that is larger than the domain leaves it over the scale-out link of each
device, or over the host link where boards of one host are joined by bridges.

What a group of s devices of a domain of D reaches, as a share of one device's links:

- switch, however many planes: all of it, whatever s;
- mesh: (s - 1)/(D - 1), for a device has one link to each other one;
- ring: all of it around the whole ring, both ways at once; half in a part of it, which has no way
  back but the same links, and 1/d of that where the ranks stand d devices apart and as many groups
  share the links. All to all, messages take n/4 hops on average and the middle of a part is
  crossed by (n/2)^2 of them;
- PCIe tree: all of it in pairs, a measured share (``Link.shared``) where more than two send.

A mesh or ring with a link down routes around it over the links of others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.costs.target import Target
from simulator.specs.fabric import NO_LINK
from simulator.specs.hardware import Accelerator, Link
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """Links of groups of devices, one row per group; all rates are per device and direction."""

    islands: Floats
    """Domains that the group is spread over."""
    size: Floats
    """Devices of the group in one domain."""
    inside: Floats
    """Bytes per second to the other devices of the domain, all together."""
    chain: Floats
    """Bytes per second to the next devices of rings through the domain."""
    hops: Floats
    """Most links between two devices of the group in a domain."""
    outside: Floats
    """Bytes per second out of the domain; infinite for a group inside one."""
    step: Seconds
    """One step inside a domain."""
    far_step: Seconds
    """One step between domains."""
    reduces: bool
    """Whether the switch of the domain adds."""
    rails: bool
    """Whether a device reaches only its equals of other domains: the rest goes through them."""

    @property
    def ring(self) -> Floats:
        """Rate around a ring through all devices.

        A ring leaves each domain once, and as many rings as a domain has devices share their
        ways out.
        """
        return np.minimum(self.chain, self.outside * self.size)

    @property
    def direct(self) -> Floats:
        """Rate of each device to all others at once, as much to each."""
        others = np.maximum(self.islands * self.size - 1, 1e-9)
        near = np.clip((self.size - 1) / others, 0.0, 1.0)
        crossing = near + (1 - near) * (1 - 1 / self.size) if self.rails else near
        slowest = np.maximum(crossing / self.inside, (1 - near) / self.outside)
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


def fabric(target: Target, n_gpus: Floats, nodes: Floats, stride: Floats | None = None) -> Fabric:
    """The links of groups of ``n_gpus`` devices, ``stride`` devices apart; ``nodes`` is -1 where
    it is not known."""
    device = target.accelerator
    link = device.scale_up or device.host or NO_LINK
    n = np.maximum(n_gpus, 1.0)
    apart = np.ones(n.shape) if stride is None else np.maximum(stride, 1.0)
    peers = float(link.peers or np.inf)
    islands = np.maximum(np.ceil(n / np.maximum(np.floor(peers / apart), 1.0)), 1.0)
    if peers <= HOST_MOST:
        islands = np.maximum(islands, np.minimum(nodes, n))
    size = n / islands
    # Of boards joined by a bridge, one sends over its own host link for all of them.
    share = 1 / size if _bridged(link) else 1.0
    out = _out(device, link)
    outside = np.where(islands > 1, _reached(out) * share, np.inf)
    inside, chain, hops = _inside(link, size, apart)
    return Fabric(
        islands=islands,
        size=size,
        inside=inside,
        chain=chain,
        hops=hops,
        outside=outside,
        step=link.latency or STEP,
        far_step=out.latency or STEP,
        reduces=link.reduces,
        rails=out.topology == "rails",
    )


def tiers(target: Target) -> tuple[BytesPerSecond, BytesPerSecond]:
    """What a device reaches over all its links inside its domain, and out of it."""
    device = target.accelerator
    link = device.scale_up or device.host or NO_LINK
    return _reached(link), _reached(_out(device, link))


def topology_of(link: Link) -> str:
    """How the peers of a scale-up link are joined."""
    usual = {"xgmi": "mesh", "pcie": "pcie"}.get(link.kind, "switch")
    return link.topology or usual


def _bridged(link: Link) -> bool:
    return link.peers is not None and 1 < link.peers < BOARD


def _out(device: Accelerator, link: Link) -> Link:
    """The link that leaves the domain."""
    return (None if _bridged(link) else device.scale_out) or device.host or NO_LINK


def _reached(link: Link) -> BytesPerSecond:
    return link.bandwidth * (link.achieved or 1.0)


def _inside(link: Link, size: Floats, apart: Floats) -> tuple[Floats, Floats, Floats]:
    """Rate to all others, rate around a ring, and most hops, of groups in one domain."""
    rate = np.full(size.shape, _reached(link))
    topology = topology_of(link)
    if topology == "ring":
        return _in_ring(link, rate, size, apart)
    if topology == "mesh":
        # One link to each other device: a small group cannot use them all.
        links = link.peers - 1 if link.peers and link.peers > 1 else link.links
        rate *= np.clip((size - 1) / links, 1 / links, 1.0)
        if link.lost:
            # What a link carried takes two others; a pair shares those of one device between.
            left = 1 - link.lost / np.maximum(size - 1, 1.0)
            rate *= np.where(size > 1, np.maximum(left, 1 / (1 + link.lost)), 1.0)
    elif topology == "pcie" and link.shared is not None:
        rate = np.where(size > 2, rate * link.shared, rate)
    return rate, rate, np.full(size.shape, 2.0 if topology == "mesh" and link.lost else 1.0)


def _in_ring(
    link: Link, rate: Floats, size: Floats, apart: Floats
) -> tuple[Floats, Floats, Floats]:
    whole = (size * apart >= float(link.peers or np.inf)) & (not link.lost)
    n = np.maximum(size, 2.0)
    chain = rate / apart / np.where(whole, 1.0, 2.0)
    # Messages over the fullest link, in parts of one message to one other device.
    fullest = np.floor(n * n / 4) * np.where(whole, 0.5, 1.0)
    if link.lost:
        # The halves of a part that the gap divides meet over the far side of the ring.
        chain, fullest = chain / 2, fullest * 2
    inside = rate / 2 * (n - 1) / (fullest * apart)
    alone = size <= 1
    inside, chain = np.where(alone, rate, inside), np.where(alone, rate, chain)
    alone = size <= 1
    inside, chain = np.where(alone, rate, inside), np.where(alone, rate, chain)
    hops = np.where(whole, np.floor(n / 2), n - 1) * apart
    return np.minimum(inside, chain), chain, np.where(alone, 1.0, hops)
