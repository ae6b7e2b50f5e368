"""A spec that is loaded already, as a tree again, so that overrides apply to it as to a file.

Knows specs and shapes. Never touches files.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from simulator.specs.hardware import Provenance
from simulator.specs.shape import Listing, Number, Record, Shape, Table, Text, Variants, fields_of
from simulator.specs.validate import list_path
from simulator.specs.yaml_tree import Mapping, Node, Place, Scalar, Scope, Sequence, join


def tree_of(spec: Any) -> Mapping:
    """The tree of which ``spec`` is read, each number with the source that it has."""
    origins: tuple[Provenance, ...] = spec.provenance
    scopes = {entry.path: Scope(entry.source, entry.basis) for entry in origins}
    return _record(spec, Place(spec.name, None), "", scopes)


def _record(spec: Any, place: Place, path: str, scopes: dict[str, Scope]) -> Mapping:
    cls: Any = type(spec)
    defaults = {entry.name: entry.default for entry in fields(cls)}
    items = {}
    for name, entry in fields_of(cls).items():
        value, inner = getattr(spec, name), join(path, name)
        # A default is left out, unless it was cited, or is the word that tells variants apart.
        if (
            name == "kind"
            or inner in scopes
            or defaults[name] is MISSING
            or value != defaults[name]
        ):
            items[name] = _node(value, entry.shape, place, inner, scopes)
    return Mapping(place, items, dict.fromkeys(items, place))


def _node(value: Any, shape: Shape, place: Place, path: str, scopes: dict[str, Scope]) -> Node:
    if value is None:
        return Scalar(place, "null")
    match shape:
        case Number(unit=unit):
            text = f"{value!r} {unit.symbol}" if unit else repr(value)
            return Scalar(place, text, scope=scopes.get(list_path(path), Scope()))
        case Text():
            return Scalar(place, value, plain=False)
        case Listing(item=item):
            items = []
            for at, entry in enumerate(value):
                name = getattr(entry, "kind", None) or getattr(entry, "name", None) or str(at)
                items.append(_node(entry, item, place, join(path, name), scopes))
            return Sequence(place, tuple(items))
        case Table(value=inner):
            items_by_key = {
                str(key): _node(entry, inner, place, join(path, str(key)), scopes)
                for key, entry in value.items()
            }
            return Mapping(place, items_by_key, dict.fromkeys(items_by_key, place))
        case Record() | Variants():
            return _record(value, place, path, scopes)
        case _:
            return Scalar(place, str(value).lower() if isinstance(value, bool) else str(value))
