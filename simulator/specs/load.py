"""Specs by name or file: accelerators, systems, stacks and models.

The door of the catalogue. Knows which kinds of spec there are. Never touches how a file is read.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from simulator.specs.catalog import KINDS, Catalog, find_root
from simulator.specs.fabric import System
from simulator.specs.hardware import Accelerator
from simulator.specs.stack import Stack
from simulator.specs.validate import validate
from simulator.specs.workload import Model


@lru_cache(maxsize=1)
def catalog() -> Catalog:
    """The catalogue that ships with the product."""
    return Catalog(find_root())


def names(kind: str) -> tuple[str, ...]:
    """Names of ``hardware``, ``systems``, ``stacks`` or ``workloads``."""
    return catalog().names(kind)


def load_hardware(name_or_path: str | Path) -> Accelerator:
    """The accelerator of that name, alias or file.

    Raises UnknownNameError with the near names, and SpecError with every fault of the file.
    """
    return cast(Accelerator, _load("hardware", name_or_path))


def load_system(name_or_path: str | Path) -> System:
    """The system of that name or file; raises as load_hardware does."""
    return cast(System, _load("systems", name_or_path))


def load_stack(name_or_path: str | Path) -> Stack:
    """The software stack of that name or file; raises as load_hardware does."""
    return cast(Stack, _load("stacks", name_or_path))


def load_model_yaml(name_or_path: str | Path) -> Model:
    """The model of that name or YAML file; raises as load_hardware does."""
    return cast(Model, _load("workloads", name_or_path))


def _load(kind: str, name_or_path: str | Path) -> Any:
    tree, faults = catalog().tree(kind, catalog().find(kind, name_or_path))
    return validate(tree, KINDS[kind].hint, faults)
