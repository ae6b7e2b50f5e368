"""The bandwidths that a device states beside that of its memory, as roofs of a Result."""

from __future__ import annotations

from simulator.costs.target import Target
from simulator.result import RoofLevel

CACHES = {"lds": "LDS", "l1": "L1", "l2": "L2", "mall": "last cache"}
"""Levels that get a roof, and what they are called."""


def roof_levels(target: Target, devices: int) -> tuple[RoofLevel, ...]:
    """Caches of one device, and links that a run on ``devices`` goes over, fastest first; what
    states no bandwidth is left out."""
    accelerator = target.accelerator
    found = []
    for kind, name in CACHES.items():
        level, bandwidth = accelerator.level(kind), target.level_bandwidth(kind)
        if level is not None and bandwidth is not None:
            achieved = None if level.achieved is None else level.achieved * bandwidth
            found.append(RoofLevel(name=name, link=False, bandwidth=bandwidth, achieved=achieved))
    near, far = accelerator.scale_up, accelerator.scale_out
    reached = near.peers or devices if near is not None else 1
    for link, used in ((near, devices > 1), (far, devices > reached)):
        if link is not None and used:
            achieved = None if link.achieved is None else link.achieved * link.bandwidth
            found.append(
                RoofLevel(name=link.kind, link=True, bandwidth=link.bandwidth, achieved=achieved)
            )
    return tuple(sorted(found, key=lambda level: (-level.bandwidth, level.name)))
