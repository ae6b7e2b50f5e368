"""The shape of a spec: what its frozen dataclasses say of their fields, as data.

The dataclasses are the only schema. The loader, the overrides and the JSON schema read it here,
so that a new field is one line in one place. Knows types. Never touches files or values.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from simulator.specs.frozen import FrozenMap
from simulator.specs.precision import Names
from simulator.units import Range, Unit


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number, a plain number, or, where there is a unit, a quantity."""

    integer: bool
    unit: Unit | None
    range: Range


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
    empty: bool
    """An empty list is legal."""


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

    def named(self, kind: str | None) -> Record | None:
        """The record of that kind."""
        return next((record for record in self.records if record.kind == kind), None)


Shape = Number | Text | Flag | Choice | Listing | Table | Record | Variants


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record."""

    shape: Shape
    optional: bool
    """Null is legal."""
    required: bool


def fields_of(cls: Any) -> Mapping[str, Field]:
    """The fields of a dataclass by name, but for the provenance that the loader fills in."""
    return _fields(cls)


@lru_cache(maxsize=256)
def _fields(cls: Any) -> Mapping[str, Field]:
    hints = get_type_hints(cls, include_extras=True)
    return {
        entry.name: _field(hints[entry.name], entry.default, entry.default_factory is not MISSING)
        for entry in fields(cls)
        if entry.name != "provenance"
    }


def _field(hint: Any, default: Any, factory: bool) -> Field:
    required = default is MISSING and not factory
    # A default of zero, or of nothing in a list, says that zero or nothing is legal.
    zero = default == 0 and not isinstance(default, bool)
    shape, optional = _shape(hint, zero=zero, empty=default == ())
    return Field(shape, optional, required)


def shape_of(hint: Any) -> Shape:
    """The shape of a dataclass, or of a union of dataclasses told apart by ``kind``."""
    return _cached_shape(hint)


@lru_cache(maxsize=64)
def _cached_shape(hint: Any) -> Shape:
    return _shape(hint)[0]


def _shape(hint: Any, zero: bool = False, empty: bool = False) -> tuple[Shape, bool]:
    metadata: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *extra = get_args(hint)
        metadata = tuple(extra)
    args = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        inner = [arg for arg in args if arg is not type(None)]
        optional = len(inner) < len(args)
        if len(inner) == 1:
            return _shape(inner[0], zero, empty)[0], optional
        records = [shape_of(arg) for arg in inner]
        return Variants(tuple(entry for entry in records if isinstance(entry, Record))), optional
    return _plain(hint, metadata, zero, empty), False


def _plain(hint: Any, metadata: tuple[Any, ...], zero: bool, empty: bool) -> Shape:
    origin, args = get_origin(hint), get_args(hint)
    if hint is bool:
        return Flag()
    if hint in (int, float):
        unit = next((entry for entry in metadata if isinstance(entry, Unit)), None)
        span = next((entry for entry in metadata if isinstance(entry, Range)), Range(zero=zero))
        return Number(hint is int, unit, span)
    if hint is str:
        return Text(next((entry for entry in metadata if isinstance(entry, Names)), None))
    if origin is Literal:
        return Choice(args)
    if origin is tuple:
        if args[-1] is Ellipsis:
            return Listing(_shape(args[0])[0], None, empty)
        return Listing(_shape(args[0])[0], len(args), empty=False)
    if origin is FrozenMap:
        return Table(_shape(args[0])[0], _shape(args[1])[0])
    if isinstance(hint, type) and is_dataclass(hint):
        kind = fields_of(hint).get("kind")
        words = kind.shape.words if kind and isinstance(kind.shape, Choice) else ()
        return Record(hint, words[0] if len(words) == 1 else None)
    raise TypeError(f"no spec can hold a field of type {hint}")
