"""What the tests of all cost models share: a device with more of one thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from simulator.specs.hardware import DRAM, Accelerator, MemoryLevel

_LEVELS = {
    "memory": (DRAM, ("bandwidth",)),
    "cache": (("l2", "mall"), ("capacity",)),
    "cache bandwidth": (("l2",), ("bandwidth", "per_clock")),
    "local": (("lds",), ("capacity",)),
}


def _grown(accelerator: Accelerator, what: str, factor: float) -> Accelerator:
    compute = accelerator.compute
    if what == "units":
        units = int(np.ceil(compute.units * factor))
        return replace(accelerator, compute=replace(compute, units=units))
    if what == "clock":
        held = None if compute.held_clock is None else compute.held_clock * factor
        faster = replace(compute, clock=compute.clock * factor, held_clock=held)
        return replace(accelerator, compute=faster)
    if what == "exponentials":
        rate = compute.exponentials or compute.vector["fp32"] / 8
        return replace(accelerator, compute=replace(compute, exponentials=rate * factor))
    memory = tuple(_level(level, what, factor) for level in accelerator.memory)
    return replace(accelerator, memory=memory)


def _level(level: MemoryLevel, what: str, factor: float) -> MemoryLevel:
    kinds, fields = _LEVELS[what]
    known = [name for name in fields if getattr(level, name) is not None]
    if level.kind not in kinds:
        return level
    return replace(level, **{name: getattr(level, name) * factor for name in known})


@pytest.fixture(scope="session")
def grown() -> Callable[[Accelerator, str, float], Accelerator]:
    """An accelerator with ``factor`` times the units, clock, exponentials, memory bandwidth,
    cache, cache bandwidth or local memory."""
    return _grown
