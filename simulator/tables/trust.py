"""How far weak numbers of a spec widen an interval.

The interval of a fit holds for devices as well known as those that were measured. Where a number
that decides the time is only estimated or assumed, what is believed of that number is added: the
half widths of the logarithm add in squares, as of independent errors. Knows bases and what binds.
Never touches formulas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from simulator.costs.target import Target
from simulator.errors import InputError
from simulator.result import Bound
from simulator.specs.hardware import Accelerator

OFF: Mapping[str, float] = {"estimated": 0.10, "assumed": 0.20}
"""Standard deviation of the logarithm of a number by its basis; the others are taken as they are.
A judgement, not a fit: an estimate follows from figures of the same part (its stated peak, its
die), an assumption from another part. An interval of 0.75 to 1.33 becomes 0.73 to 1.37 with an
estimate in it, and 0.68 to 1.47 with an assumption."""

NORMAL = 1.2816
"""Standard deviations from the middle to the 90th percentile."""


def widened(lower: float, upper: float, off: float) -> tuple[float, float]:
    """Factors of an 80 % interval with a number in it that is off by ``off``.

    >>> widened(0.8, 1.25, 0.0)
    (0.8, 1.25)
    """
    if off == 0:
        return lower, upper
    middle, half = math.sqrt(lower * upper), math.log(upper / lower) / 2
    wider = math.exp(math.hypot(half, NORMAL * off))
    return middle / wider, middle * wider


def weakness(target: Target, bound: Bound, dtype: str) -> float:
    """How far the weakest number behind a bound may be off, as a deviation of the logarithm.

    A number that the user set is as good as stated.
    """
    paths = _paths(target, bound, dtype)
    return max(
        (
            OFF.get(entry.basis, 0.0)
            for entry in target.accelerator.provenance
            if entry.path in paths and entry.source != "--set"
        ),
        default=0.0,
    )


def _paths(target: Target, bound: Bound, dtype: str) -> frozenset[str]:
    device = target.accelerator
    if bound == "compute":
        rate = f"compute.matrix.{_rate(target, dtype)}"
        return frozenset(("compute.units", "compute.clock", "compute.held_clock", rate))
    if bound == "memory":
        return _level(device, device.dram.kind)
    if bound == "cache":
        return _level(device, "l2") | {"compute.clock"}
    if bound == "link":
        return frozenset(("scale_up.bandwidth", "scale_up.achieved"))
    return frozenset()


def _level(device: Accelerator, kind: str) -> frozenset[str]:
    return frozenset(f"memory.{kind}.{name}" for name in ("bandwidth", "per_clock", "achieved"))


def _rate(target: Target, dtype: str) -> str:
    """The matrix rate behind a format; of unlike operands the activation's."""
    name = {"w8a16": "bf16", "w4a16": "bf16", "w4a8": "fp8"}.get(dtype.partition("_")[0], dtype)
    try:
        return target.matrix_format(name)
    except InputError:
        return name
