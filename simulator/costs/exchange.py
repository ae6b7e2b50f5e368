"""An exchange that no fit covers: steps and bytes over the links that the device states.

Knows links and what is exchanged. Never touches fitted constants or a clock.
"""

from __future__ import annotations

import numpy as np

from simulator.costs.fabric import Fabric, fabric
from simulator.costs.target import Target
from simulator.ops.exchange import Exchange
from simulator.units import Seconds


def links_of(ranks: int, target: Target) -> Fabric:
    """The links of so many ranks that exchange."""
    return fabric(target, np.array([float(ranks)]), np.array([-1.0]))


def exchange_seconds(op: Exchange, target: Target) -> tuple[Seconds, Seconds]:
    """Seconds of the steps and of the bytes: alpha-beta of the slowest of both kinds of link.

    One step inside a domain and one between domains; what crosses a domain's links and what
    leaves it flow side by side.
    """
    links = links_of(op.ranks, target)
    steps = links.step + (links.far_step if float(links.islands[0]) > 1 else 0.0)
    near = op.crossing * op.row / float(links.inside[0])
    far = op.far * op.row / float(links.outside[0])
    return steps, max(near, far)
