"""From a tree to a spec: pydantic checks plain data against the dataclasses, and each of its errors
becomes a fault that says where, what was found and what would do.

Knows trees and shapes. Never touches files or names of a catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Sequence as Items
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

import simulator.specs.rules  # noqa: F401  puts the rules in force
from simulator.errors import Fault, SpecError
from simulator.specs.explain import add, amiss, due, offer, told
from simulator.specs.hardware import Basis, Provenance
from simulator.specs.shape import (
    Choice,
    Listing,
    Number,
    Record,
    Shape,
    Table,
    Text,
    Variants,
    below,
    fields_of,
    shape_of,
)
from simulator.specs.yaml_read import MAX_FAULTS
from simulator.specs.yaml_tree import Mapping, Node, Scalar, Sequence, join, label

Loc = tuple[int | str, ...]
_Number = tuple[str, Scalar]
_OF_FIELDS = ("missing", "unexpected_keyword_argument", "rule")
"""Errors whose location ends in a field, which may not be there."""


@lru_cache(maxsize=64)
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint)


def validate(root: Mapping, hint: Any, faults: Items[Fault] = (), *, cited: bool = True) -> Any:
    """The spec that ``root`` describes, with its provenance.

    ``hint`` is a dataclass, or a union of dataclasses told apart by ``kind``. ``faults`` are those
    that were found on the way here. A number without source and basis is a fault where ``cited``.
    Raises SpecError with every fault, sorted by file and line.
    """
    reading = _Reading()
    data = reading.plain(root, shape_of(hint), (), "")
    errors: list[ErrorDetails] = []
    spec: Any = None
    try:
        spec = _adapter(hint).validate_python(data)
    except ValidationError as error:
        errors = error.errors(include_url=False)
    found = [*filter(None, map(reading.fault, errors[: 2 * MAX_FAULTS]))]
    numbers = reading.numbers({entry["loc"] for entry in errors if entry["type"] != "rule"})
    found += _uncited(numbers) if cited else []
    if faults or found:
        raise SpecError(sort_faults([*faults, *found]))
    return replace(spec, provenance=_provenance(numbers))


def sort_faults(faults: Items[Fault]) -> list[Fault]:
    """By file and line, each once, and not more than a person reads."""
    files = list(dict.fromkeys(fault.file for fault in faults))
    ordered = sorted(set(faults), key=lambda fault: (files.index(fault.file), fault.line or 0,
                                                     fault.path, fault.found))  # fmt: skip
    if len(ordered) > MAX_FAULTS:
        last = ordered[MAX_FAULTS - 1]
        more = f"and at least {len(ordered) - MAX_FAULTS} more faults"
        return [*ordered[:MAX_FAULTS], Fault(last.file, last.line, "", more)]
    return ordered


def list_path(path: str) -> str:
    """The path under which a number is cited: the numbers of one list share that of the list."""
    return re.sub(r"(\.\d+)+$", "", path)


class _Seen(NamedTuple):
    """What stands at one place of the data."""

    node: Node
    shape: Shape | None
    """None below a key that is unknown."""
    path: str


def _provenance(numbers: Items[_Number]) -> tuple[Provenance, ...]:
    entries = [
        Provenance(path=list_path(path), source=node.scope.source, basis=cast(Basis, basis))
        for path, node in numbers
        if node.scope.source is not None and (basis := node.scope.basis) is not None
    ]
    return tuple(dict.fromkeys(entries))


def _uncited(numbers: Items[_Number]) -> list[Fault]:
    """One fault for all numbers that lack a source, and one for those that lack a basis."""
    lacking: dict[str, list[_Number]] = {}
    for path, node in numbers:
        lacks = [key for key in ("source", "basis") if getattr(node.scope, key) is None]
        if lacks:
            lacking.setdefault(" and no ".join(lacks), []).append((path, node))
    fix = "write {value: ..., source: ..., basis: ...}, or state them for the whole file"
    return [
        some[0][1].place.fault(
            some[0][0],
            f"the number has no {lack}" + (f", like {len(some) - 1} more" if some[1:] else ""),
            fix,
        )
        for lack, some in lacking.items()
    ]


class _Reading:
    """One tree as plain data, and what stands where in it, by pydantic's locations."""

    def __init__(self) -> None:
        self.seen: dict[Loc, _Seen] = {}

    def plain(self, node: Node, shape: Shape | None, loc: Loc, path: str) -> Any:
        """The data of ``node``; text that a field takes as text is left as it is written."""
        self.seen[loc] = _Seen(node, shape, path)
        if isinstance(node, Sequence):
            item = shape.item if isinstance(shape, Listing) else None
            return [
                self.plain(child, item, (*loc, at), join(path, label(child, at)))
                for at, child in enumerate(node.items)
            ]
        if isinstance(node, Mapping):
            if isinstance(shape, Variants) and (record := shape.named(node.text("kind"))):
                return self.plain(node, record, (*loc, node.text("kind") or ""), path)
            return {
                key: self.plain(child, below(shape, key), (*loc, key), join(path, key))
                for key, child in node.items.items()
            }
        value = node.value
        if isinstance(shape, Text | Choice) and value is not None:
            return node.text if node.text.strip() else ""
        # 1e6 is a whole number too.
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def numbers(self, failed: set[Loc]) -> list[_Number]:
        """The numbers that hold, with their paths; keys of tables need no source."""
        return [
            (seen.path, seen.node)
            for loc, seen in self.seen.items()
            if isinstance(seen.shape, Number) and isinstance(seen.node, Scalar)
            if loc not in failed and seen.node.value is not None and not seen.node.broken
        ]

    def fault(self, error: ErrorDetails) -> Fault | None:
        """What an error means to who wrote the file; None where it follows from another fault."""
        kind, loc = error["type"], error["loc"]
        if loc[-1:] == ("[key]",):
            table, key = self.seen[loc[:-2]], str(loc[-2])
            name = Scalar(cast(Mapping, table.node).keys[key], key)
            return name.place.fault(table.path, *amiss(name, cast(Table, table.shape).key, error))
        owner = self.seen.get(loc[:-1])
        if kind in _OF_FIELDS and owner and isinstance(owner.shape, Record):
            return _member(cast(Mapping, owner.node), owner.shape, owner.path, error)
        while loc not in self.seen:
            loc = loc[:-1]
        node, shape, path = self.seen[loc]
        if kind.startswith("union_tag") and isinstance(node, Mapping):
            shape, path = Choice(cast(Variants, shape).kinds), join(path, "kind")
            if "kind" not in node.items:
                return node.place.fault(path, "is missing", due(shape))
            node = node.items["kind"]
        if isinstance(node, Scalar) and node.broken:
            return None
        if kind == "too_short" and error["ctx"]["actual_length"] < len(cast(Sequence, node).items):
            return None  # Items are wrong, and pydantic counts those that are right.
        return node.place.fault(path, *amiss(node, cast(Shape, shape), error))


def _member(node: Mapping, record: Record, path: str, error: ErrorDetails) -> Fault:
    """A field that is missing, unknown, or at odds with another."""
    name, known = str(error["loc"][-1]), fields_of(record.cls)
    if error["type"] == "missing":
        return node.place.fault(join(path, name), "is missing", add(name, known[name].shape))
    if error["type"] == "rule":
        return node.where(name).fault(join(path, name), *told(error))
    return node.keys[name].fault(path, f"unknown key {name!r}", offer(name, known))
