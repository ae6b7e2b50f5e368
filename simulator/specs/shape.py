"""The shape of a spec: what its frozen dataclasses say of their fields, as data.

The dataclasses are the only schema: pydantic checks by them, while paths and messages find here
what stands where. Knows types. Never touches files or values.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from simulator.specs.frozen import FrozenMap
from simulator.specs.precision import Names
from simulator.units import Unit


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number, a plain number, or, where there is a unit, a quantity."""

    integer: bool
    unit: Unit | None


@dataclass(frozen=True, slots=True)
class Text:
    """Free text, or one of ``names``."""

    names: Names | None


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of these words."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of equal items, of fixed ``length`` where it has one."""

    item: Shape
    length: int | None


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping with free keys."""

    key: Shape
    value: Shape


@dataclass(frozen=True, slots=True)
class Record:
    """A dataclass; ``kind`` is the word that its field of that name always holds."""

    cls: type
    kind: str | None


@dataclass(frozen=True, slots=True)
class Variants:
    """One of several records, told apart by their ``kind``."""

    records: tuple[Record, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The words that tell them apart."""
        return tuple(record.kind or "" for record in self.records)

    def named(self, kind: str | None) -> Record | None:
        """The record of that kind."""
        return next((record for record in self.records if record.kind == kind), None)


Shape = Number | Text | Flag | Choice | Listing | Table | Record | Variants


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record."""

    shape: Shape
    required: bool


def fields_of(cls: Any) -> Mapping[str, Field]:
    """The fields of a dataclass by name, but for the provenance that the loader fills in."""
    return _fields(cls)


def below(shape: Shape | None, key: str) -> Shape | None:
    """The shape of what stands at ``key``; None where no such key is known."""
    if isinstance(shape, Record):
        known = fields_of(shape.cls)
        return known[key].shape if key in known else None
    return shape.value if isinstance(shape, Table) else None


@lru_cache(maxsize=256)
def _fields(cls: Any) -> Mapping[str, Field]:
    hints = get_type_hints(cls, include_extras=True)
    return {
        entry.name: Field(
            shape_of(hints[entry.name]),
            required=entry.default is MISSING and entry.default_factory is MISSING,
        )
        for entry in fields(cls)
        if entry.name != "provenance"
    }


@lru_cache(maxsize=1024)
def shape_of(hint: Any) -> Shape:
    """The shape of a field, a dataclass, or a union of dataclasses told apart by ``kind``."""
    metadata: tuple[Any, ...] = getattr(hint, "__metadata__", ())
    hint = hint.__origin__ if metadata else hint
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        inner = [shape_of(arg) for arg in args if arg is not type(None)]
        records = tuple(entry for entry in inner if isinstance(entry, Record))
        return inner[0] if len(inner) == 1 else Variants(records)
    if hint is bool:
        return Flag()
    if hint in (int, float):
        return Number(hint is int, next((e for e in metadata if isinstance(e, Unit)), None))
    if hint is str:
        return Text(next((entry for entry in metadata if isinstance(entry, Names)), None))
    if origin is Literal:
        return Choice(args)
    if origin is tuple:
        return Listing(shape_of(args[0]), None if args[-1] is Ellipsis else len(args))
    if origin is FrozenMap:
        return Table(shape_of(args[0]), shape_of(args[1]))
    if is_dataclass(hint):
        kind = fields_of(hint).get("kind")
        words = kind.shape.words if kind and isinstance(kind.shape, Choice) else ()
        return Record(cast(type, hint), words[0] if len(words) == 1 else None)
    raise TypeError(f"no spec can hold a field of type {hint}")
