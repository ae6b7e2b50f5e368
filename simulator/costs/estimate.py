"""A kernel's duration without events, for sweeps."""

from __future__ import annotations

from simulator.costs.bounds import bounds
from simulator.costs.closed_form import closed_form
from simulator.mapping.kernel import Kernel
from simulator.units import Seconds


def estimate(kernel: Kernel) -> Seconds:
    """Seconds of the kernel alone on an idle device."""
    exact = closed_form(kernel)
    return sum(bounds(kernel)) / 2 if exact is None else exact
