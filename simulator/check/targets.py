"""Devices of measured tables as targets: the accelerator with the stack of its architecture."""

from __future__ import annotations

from functools import lru_cache

from simulator.costs.target import Target
from simulator.specs.load import default_stack, load_hardware


@lru_cache(maxsize=128)
def target_of(device: str) -> Target:
    """The accelerator of that name or alias under the default stack of its architecture."""
    hardware = load_hardware(device)
    return Target(accelerator=hardware, stack=default_stack(hardware))
