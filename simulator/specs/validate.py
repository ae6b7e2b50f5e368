"""From a tree to a spec: each value checked against the shape of its field, all faults at once.

Knows trees, shapes and rules. Never touches files or names of a catalogue.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence as Items
from typing import Any, cast

from simulator.errors import Fault, SpecError, nearest
from simulator.specs.frozen import FrozenMap
from simulator.specs.hardware import Basis, Provenance
from simulator.specs.rules import broken_rules
from simulator.specs.shape import (
    Choice,
    Field,
    Flag,
    Listing,
    Number,
    Record,
    Shape,
    Table,
    Text,
    Variants,
    fields_of,
    shape_of,
)
from simulator.specs.yaml_read import MAX_FAULTS
from simulator.specs.yaml_tree import (
    Mapping,
    Node,
    Place,
    Scalar,
    Sequence,
    brief,
    join,
    label,
)
from simulator.units import QuantityError, parse

_LARGEST = 1e30
"""Beyond this, and below its inverse, a spec holds a slip, and products of numbers overflow."""
_INVALID: Any = object()


class _TooManyError(Exception):
    """More faults than anybody reads."""


def validate(root: Mapping, hint: Any, faults: Items[Fault] = (), *, cited: bool = True) -> Any:
    """The spec that ``root`` describes, with its provenance.

    ``hint`` is a dataclass, or a union of dataclasses told apart by ``kind``. ``faults`` are those
    that were found on the way here. A number without source and basis is a fault where ``cited``.
    Raises SpecError with every fault, sorted by file and line.
    """
    reading = _Reading(list(faults), cited)
    spec = _INVALID
    try:
        spec = reading.node(root, shape_of(hint), "")
        reading.close()
    except _TooManyError:
        pass
    if reading.faults:
        raise SpecError(sort_faults(reading.faults))
    return dataclasses.replace(spec, provenance=tuple(reading.provenance))


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


class _Reading:
    """One pass over one tree."""

    def __init__(self, faults: list[Fault], cited: bool) -> None:
        self.faults, self.cited = faults, cited
        self.provenance: dict[Provenance, None] = {}
        self.uncited: dict[str, list[tuple[Place, str]]] = {}

    def fault(self, place: Place, path: str, found: str, fix: str = "") -> Any:
        self.faults.append(place.fault(path, found, fix))
        if len(self.faults) > 2 * MAX_FAULTS:
            raise _TooManyError
        return _INVALID

    def node(self, node: Node, shape: Shape, path: str) -> Any:
        """The value of ``node``, or _INVALID where a fault was reported."""
        if isinstance(node, Scalar) and node.broken:
            return _INVALID
        match shape:
            case Number() | Text() | Flag() | Choice():
                if not isinstance(node, Scalar):
                    return self.fault(node.place, path, f"found {_found(node)}", _due(shape))
                return self.scalar(node, shape, path)
            case Listing():
                return self.listing(node, shape, path)
            case Table():
                return self.table(node, shape, path)
            case Record():
                return self.record(node, shape, path)
            case Variants():
                return self.variant(node, shape, path)

    def scalar(self, node: Scalar, shape: Number | Text | Flag | Choice, path: str) -> Any:
        text = node.text
        match shape:
            case Number():
                return self.number(node, shape, path)
            case Flag():
                value = node.value
                if isinstance(value, bool):
                    return value
                yes = {"yes": "true", "on": "true", "no": "false", "off": "false"}
                fix = f"write {yes.get(text.lower(), 'true or false')}"
                return self.fault(node.place, path, f"found {_found(node)}", fix)
            case Choice(words) if text not in words:
                return self.fault(node.place, path, f"found {_found(node)}", _offer(text, words))
            case Text(names) if names is not None and text not in names.known:
                found = f"unknown {names.kind} {brief(text)!r}"
                return self.fault(node.place, path, found, _offer(text, names.known))
            case _:
                if node.value is None or not text.strip():
                    return self.fault(node.place, path, "is empty", _due(shape))
                return text

    def number(self, node: Scalar, shape: Number, path: str) -> Any:
        value, text, fix = node.value, brief(node.text), _due(shape)
        found = f"found {_found(node)}"
        if isinstance(value, float) and not math.isfinite(value):
            state = "not finite" if node.text[-1].isalpha() else "too large"
            return self.fault(node.place, path, f"{text} is {state}", fix)
        if shape.unit is not None:
            if not isinstance(value, str):
                without = f"{text} has no unit" if value is not None else "is empty"
                return self.fault(node.place, path, without, fix)
            try:
                value = parse(value, shape.unit)
            except QuantityError as error:
                return self.fault(node.place, path, error.found, error.fix)
        if isinstance(value, str):
            return self.fault(node.place, path, found, _plainly(value) or fix)
        if value is None or isinstance(value, bool):
            return self.fault(node.place, path, found, fix)
        if abs(value) > _LARGEST or 0 < abs(value) < 1 / _LARGEST:
            size = "large" if abs(value) > 1 else "small"
            return self.fault(node.place, path, f"{text} is too {size}", fix)
        if shape.integer and value != int(value):
            return self.fault(node.place, path, f"{text} is not a whole number", fix)
        if value < 0 or (value == 0 and not shape.range.zero):
            state = "negative" if value < 0 else "zero"
            least = "zero or more" if shape.range.zero else "more than zero"
            return self.fault(node.place, path, f"{text} is {state}", f"it must be {least}")
        if value > shape.range.most:
            fix = f"it is a share, at most {shape.range.most:g}"
            return self.fault(node.place, path, f"{text} is too large", fix)
        self.cite(node, path)
        return int(value) if shape.integer else float(value)

    def cite(self, node: Scalar, path: str) -> None:
        """Note where a number comes from; where all must be cited, note also which is not."""
        lacks = [key for key in ("source", "basis") if getattr(node.scope, key) is None]
        if not lacks:
            source, basis = cast(str, node.scope.source), cast(Basis, node.scope.basis)
            entry = Provenance(path=list_path(path), source=source, basis=basis)
            self.provenance[entry] = None
        elif self.cited:
            self.uncited.setdefault(" and no ".join(lacks), []).append((node.place, path))

    def close(self) -> None:
        """One fault for all numbers that lack a source, and one for those that lack a basis."""
        for lack, numbers in self.uncited.items():
            place, path = numbers[0]
            others = f", like {len(numbers) - 1} more" if len(numbers) > 1 else ""
            fix = "write {value: ..., source: ..., basis: ...}, or state them for the whole file"
            self.fault(place, path, f"the number has no {lack}{others}", fix)

    def listing(self, node: Node, shape: Listing, path: str) -> Any:
        if not isinstance(node, Sequence):
            return self.fault(node.place, path, f"found {_found(node)}", _due(shape))
        if shape.length is not None and len(node.items) != shape.length:
            found = f"has {len(node.items)} entries"
            return self.fault(node.place, path, found, f"write {shape.length}")
        if not node.items and not shape.empty:
            return self.fault(node.place, path, "is an empty list", "write at least one entry")
        values = [
            self.node(item, shape.item, join(path, label(item, at)))
            for at, item in enumerate(node.items)
        ]
        return _INVALID if any(value is _INVALID for value in values) else tuple(values)

    def table(self, node: Node, shape: Table, path: str) -> Any:
        if not isinstance(node, Mapping):
            return self.fault(node.place, path, f"found {_found(node)}", _due(shape))
        values = {}
        for name, child in node.items.items():
            key = self.key(Scalar(node.keys[name], name), shape.key, path)
            value = self.node(child, shape.value, join(path, name))
            if key is not _INVALID:
                values[key] = value
            else:
                values[name] = _INVALID
        return _INVALID if any(v is _INVALID for v in values.values()) else FrozenMap(values)

    def key(self, node: Scalar, shape: Shape, path: str) -> Any:
        """A key of a table; a number among them needs no source."""
        cited, self.cited = self.cited, False
        try:
            return self.node(node, shape, path)
        finally:
            self.cited = cited

    def variant(self, node: Node, shape: Variants, path: str) -> Any:
        kinds = [record.kind or "" for record in shape.records]
        if not isinstance(node, Mapping):
            fix = f"write a mapping with 'kind', one of {', '.join(kinds)}"
            return self.fault(node.place, path, f"found {_found(node)}", fix)
        kind = node.items.get("kind")
        if kind is None:
            fix = f"one of {', '.join(kinds)}"
            return self.fault(node.place, join(path, "kind"), "is missing", fix)
        record = shape.named(node.text("kind"))
        if record is None:
            fix = _offer(node.text("kind") or "", kinds)
            return self.fault(kind.place, join(path, "kind"), f"found {_found(kind)}", fix)
        return self.record(node, record, path)

    def record(self, node: Node, shape: Record, path: str) -> Any:
        if not isinstance(node, Mapping):
            return self.fault(node.place, path, f"found {_found(node)}", _due(shape))
        known = fields_of(shape.cls)
        sound = True
        for key in node.items:
            if key not in known:
                fix = _offer(key, known)
                sound = self.fault(node.keys[key], path, f"unknown key {key!r}", fix) is None
        values: dict[str, Any] = {}
        for name, entry in known.items():
            value = self.field(node, name, entry, join(path, name))
            if value is _INVALID:
                sound = False
            elif value is not dataclasses.MISSING:
                values[name] = value
        for name, found, fix in broken_rules(shape.cls, values):
            place = node.where(name)
            sound = self.fault(place, join(path, name), found, fix) is None
        return shape.cls(**values) if sound else _INVALID

    def field(self, parent: Mapping, name: str, entry: Field, path: str) -> Any:
        """The value of one field; MISSING where the default holds."""
        node = parent.items.get(name)
        if node is None:
            if entry.required:
                return self.fault(parent.place, path, "is missing", _add(name, entry.shape))
            return dataclasses.MISSING
        if isinstance(node, Scalar) and not node.broken and node.value is None and entry.optional:
            return None
        return self.node(node, entry.shape, path)


def _found(node: Node) -> str:
    """What stands there, as a person would say it."""
    match node:
        case Mapping():
            return "a mapping"
        case Sequence():
            return "a list"
        case Scalar():
            if node.value is None:
                return "nothing"
            text = brief(node.text)
            return repr(text) if isinstance(node.value, str) else text


def _due(shape: Shape) -> str:
    """What a field of that shape takes."""
    match shape:
        case Number(unit=unit) if unit is not None:
            return f"write it with a unit, like '{unit.example}'"
        case Number(integer=True):
            return "write a whole number"
        case Number():
            return "write a plain number"
        case Text(names) if names is not None:
            return f"write a {names.kind}"
        case Text():
            return "write a text"
        case Flag():
            return "write true or false"
        case Choice(words):
            return f"one of {', '.join(words)}"
        case Listing(length=length):
            return f"write a list of {length} entries" if length else "write a list"
        case Table():
            return "write a mapping"
        case Record(cls=cls):
            return f"write a mapping with {', '.join(fields_of(cls))}"
        case Variants(records):
            return f"write a mapping with 'kind', one of {', '.join(r.kind or '' for r in records)}"


def _add(name: str, shape: Shape) -> str:
    if isinstance(shape, Number) and shape.unit:
        return f"add it, like '{name}: {shape.unit.example}'"
    return _due(shape).replace("write", "add", 1) if not isinstance(shape, Choice) else _due(shape)


def _offer(text: str, known: Items[str] | Any) -> str:
    near = nearest(text, known)
    return f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(known)}"


def _plainly(text: str) -> str:
    """How a number that YAML reads as text is written, where it is one."""
    bare = text.strip().replace("_", "").replace(",", "")
    if match := re.fullmatch(r"([0-9.]+)\s*%", bare):
        try:
            return f"write {float(match[1]) / 100:g}"
        except ValueError:
            return ""
    bare = re.sub(r"^([+-]?)0+(?=[0-9])", r"\1", bare)
    number = Scalar(Place("", None), bare).value
    plain = isinstance(number, int | float) and not isinstance(number, bool)
    return f"write {bare}, without quotes" if plain and bare == text else (
        f"write {bare}" if plain else "")  # fmt: skip
