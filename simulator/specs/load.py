"""Specs by name or file: accelerators, systems, stacks and models.

The door of the catalogue. Knows which kinds of spec there are. Never touches how a file is read.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from simulator.errors import Fault, SimulatorError, SpecError, UnknownNameError
from simulator.specs.catalog import KINDS, Catalog, Stamp, Written, find_root
from simulator.specs.dram import Dram
from simulator.specs.fabric import System
from simulator.specs.fit import Fit
from simulator.specs.hardware import Accelerator
from simulator.specs.overrides import (
    Override,
    apply_overrides,
    parse_overrides,
    split_overrides,
)
from simulator.specs.plan import Plan
from simulator.specs.rewrite import tree_of
from simulator.specs.shape import fields_of, shape_of
from simulator.specs.stack import Stack
from simulator.specs.validate import sort_faults, validate
from simulator.specs.workload import Model
from simulator.specs.yaml_tree import Mapping, Scalar, Sequence

T = TypeVar("T")
PREFIXES = {
    "hardware": "hardware", "stack": "stacks", "system": "systems", "workload": "workloads",
}  # fmt: skip
"""How an override names the spec that it means, and the kind of that spec."""


@lru_cache(maxsize=1)
def catalog() -> Catalog:
    """The catalogue that ships with the product."""
    return Catalog(find_root())


def names(kind: str) -> tuple[str, ...]:
    """Names of ``hardware``, ``systems``, ``stacks`` or ``workloads``, without opening a file."""
    return catalog().names(kind)


def load_hardware(name_or_path: str | Path, overrides: Iterable[Override] = ()) -> Accelerator:
    """The accelerator of that name, alias or file, with ``overrides`` set in it.

    Raises UnknownNameError with the near names, and SpecError with every fault of the file.
    """
    return cast(Accelerator, _load("hardware", name_or_path, overrides))


def load_system(name_or_path: str | Path, overrides: Iterable[Override] = ()) -> System:
    """The system of that name or file; raises as load_hardware does."""
    return cast(System, _load("systems", name_or_path, overrides))


def load_stack(name_or_path: str | Path, overrides: Iterable[Override] = ()) -> Stack:
    """The software stack of that name or file; raises as load_hardware does."""
    return cast(Stack, _load("stacks", name_or_path, overrides))


def load_memory(name_or_path: str | Path) -> Dram:
    """The memory generation of that name or file; raises as load_hardware does."""
    return cast(Dram, _load("memories", name_or_path, ()))


def load_fit(name_or_path: str | Path) -> Fit:
    """The fitted constants of that name or file; raises as load_hardware does."""
    return cast(Fit, _load("fits", name_or_path, ()))


def load_model_yaml(name_or_path: str | Path, overrides: Iterable[Override] = ()) -> Model:
    """The model of that name or YAML file; raises as load_hardware does."""
    return cast(Model, _load("workloads", name_or_path, overrides))


def default_stack(accelerator: Accelerator, overrides: Iterable[Override] = ()) -> Stack:
    """The stack that names the accelerator's architecture.

    Raises UnknownNameError with the architectures that have one.
    """
    known: set[str] = set()
    folder = catalog().root / KINDS["stacks"].folder
    for name in names("stacks"):
        tree, _ = catalog().written(folder / f"{name}.yaml")
        listed = tree.items.get("architectures")
        items = listed.items if isinstance(listed, Sequence) else ()
        found = {item.text for item in items if isinstance(item, Scalar)}
        if accelerator.architecture in found:
            return load_stack(name, overrides)
        known |= found
    raise UnknownNameError("architecture of a stack", accelerator.architecture, known)


def default_system(accelerator: Accelerator, overrides: Iterable[Override] = ()) -> System | None:
    """The system that lists the accelerator; None where no system is known to hold it."""
    folder = catalog().root / KINDS["systems"].folder
    for name in names("systems"):
        tree, _ = catalog().written(folder / f"{name}.yaml")
        listed = tree.items.get("accelerators")
        for item in listed.items if isinstance(listed, Sequence) else ():
            if isinstance(item, Scalar) and item.text == accelerator.name:
                return load_system(name, overrides)
    return None


def with_overrides(spec: T, overrides: Iterable[Override]) -> T:
    """A copy of a loaded spec with ``overrides`` set in it, checked like a file.

    Raises SpecError with every fault.
    """
    faults: list[Fault] = []
    cls: Any = type(spec)
    tree = apply_overrides(tree_of(spec), shape_of(cls), overrides, faults)
    return cast(T, validate(tree, cls, faults, cited=False))


def overrides_by_spec(texts: Iterable[str]) -> dict[str, tuple[Override, ...]]:
    """Texts such as ``compute.units=300``, for each of hardware, stack, system, workload and plan.

    Raises SpecError for each text that is none, or whose path fits none of them or more than one.
    """
    shapes = {prefix: shape_of(KINDS[kind].hint) for prefix, kind in PREFIXES.items()}
    shapes["plan"] = shape_of(Plan)
    return split_overrides(parse_overrides(texts), shapes)


def check_file(path: str | Path) -> list[Fault]:
    """Every fault of a YAML spec, of whichever kind it is; an empty list where it holds."""
    path = Path(path)
    try:
        tree, faults = catalog().written(path)
        kind = kind_of(tree, path)
        if kind is None:
            nouns = ", ".join(entry.noun for entry in KINDS.values())
            fix = f"state the keys of one of: {nouns}"
            unclear = tree.place.fault("", "its keys do not tell what this file describes", fix)
            return sort_faults([*faults, unclear])
        _load(kind, path, ())
    except SpecError as error:
        return list(error.faults)
    except SimulatorError as error:
        return [Fault(str(path), None, "", str(error))]
    return []


def kind_of(tree: Mapping, path: Path) -> str | None:
    """The kind of spec whose own keys a file has, then that of its base or its folder."""
    keys = {
        kind: {name for record in entry.records for name in fields_of(record.cls)} - {"basis"}
        for kind, entry in KINDS.items()
    }
    counts = Counter(key for known in keys.values() for key in known)
    score = {
        kind: sum(key in known and counts[key] == 1 for key in tree.items)
        for kind, known in keys.items()
    }
    best = max(score, key=score.__getitem__)
    if score[best]:
        return best
    base = tree.text("base")
    for kind, entry in KINDS.items():
        if base in catalog().names(kind) or entry.folder.endswith(path.absolute().parent.name):
            return kind
    return None


def _load(kind: str, name_or_path: str | Path, overrides: Iterable[Override]) -> Any:
    path = catalog().find(kind, name_or_path)
    stamp = catalog().stamp(path)
    if stamp is None:
        return _checked(kind, catalog().tree(kind, path), overrides)
    return _checked_once(kind, path, tuple(overrides), stamp)


@lru_cache(maxsize=1024)
def _checked_once(kind: str, path: Path, overrides: tuple[Override, ...], stamp: Stamp) -> Any:
    """A spec of the catalogue is checked again only when its file or that of its base changes."""
    return _checked(kind, _tree_once(kind, path, stamp, os.getcwd()), overrides)


@lru_cache(maxsize=256)
def _tree_once(kind: str, path: Path, stamp: Stamp, here: str) -> Written:
    return catalog().tree(kind, path)


def _checked(kind: str, written: Written, overrides: Iterable[Override]) -> Any:
    tree, found = written
    faults = list(found)
    hint = KINDS[kind].hint
    return validate(apply_overrides(tree, shape_of(hint), overrides, faults), hint, faults)
