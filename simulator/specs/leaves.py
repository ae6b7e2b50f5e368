"""Every value of a loaded spec with its path and its unit, in the order of the file's fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any, get_args, get_type_hints

from simulator.units import Unit


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value: dotted path (list items by kind or name), plain value, unit if it has one."""

    path: str
    value: Any
    unit: Unit | None


@lru_cache(maxsize=64)
def _units(kind: type) -> dict[str, Unit | None]:
    """The unit of each field: of the number itself, or of the values of a table."""
    return {name: _unit(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


def _unit(hint: Any) -> Unit | None:
    for entry in getattr(hint, "__metadata__", ()):
        if isinstance(entry, Unit):
            return entry
    return next(filter(None, map(_unit, get_args(hint))), None)


def leaves(spec: Any, prefix: str = "") -> Iterator[Leaf]:
    """The set values of a spec dataclass; None, empty and provenance are left out."""
    kind: Any = type(spec)
    units = _units(kind)
    for entry in fields(spec):
        value = getattr(spec, entry.name)
        if value is None or entry.name == "provenance":
            continue
        yield from _leaves(value, f"{prefix}{entry.name}", units[entry.name])


def _leaves(value: Any, path: str, unit: Unit | None) -> Iterator[Leaf]:
    if is_dataclass(value):
        yield from leaves(value, f"{path}.")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield Leaf(f"{path}.{key}", item, unit)
    elif isinstance(value, tuple) and value and is_dataclass(value[0]):
        for number, item in enumerate(value):
            label = getattr(item, "kind", None) or getattr(item, "name", None) or number
            yield from leaves(item, f"{path}.{label}.")
    elif value != () and value != "":
        yield Leaf(path, value, unit)
