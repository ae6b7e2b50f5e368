"""The JSON schema of a kind of spec, for editors that complete and check YAML as it is typed.

Derived from the dataclasses. Knows shapes. Never touches files. The loader stays the judge: what
two fields must be to each other, and that each number has a source, no schema says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from simulator.specs.catalog import KINDS
from simulator.specs.hardware import BASES
from simulator.specs.shape import (
    Choice,
    Flag,
    Listing,
    Number,
    Record,
    Shape,
    Table,
    Text,
    Variants,
    fields_of,
)
from simulator.units import Unit

Schema = dict[str, Any]
QUANTITY = r"^\s*[0-9]*\.?[0-9]*([eE][-+]?[0-9]+)?\s*[A-Za-zµμ]+(\s*/\s*[A-Za-z]+)*\s*$"
_SOURCE: Schema = {"type": ["string", "array"], "description": "a key of 'sources', or a text"}
_CITATION: Schema = {
    "source": _SOURCE,
    "basis": {"enum": list(BASES)},
    "note": {"type": "string"},
}


def schema(kind: str) -> Schema:
    """The JSON schema (2020-12) of ``hardware``, ``systems``, ``stacks`` or ``workloads``."""
    entry = KINDS[kind]
    writer = _Writer()
    sources = {"type": "object", "additionalProperties": {"type": "string"}}
    base = {"type": "string", "description": f"the {entry.noun} that this one is a variant of"}
    files = []
    for record in entry.records:
        whole = writer.record(record, ["name"])
        whole["properties"] |= {"sources": sources, "base": base}
        # A variant states only what differs from its base.
        whole["if"] = {"not": {"required": ["base"]}}
        required = [name for name, field in fields_of(record.cls).items() if field.required]
        whole["then"] = {"required": required}
        files.append(whole)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"tilecast {entry.noun}",
        **(files[0] if len(files) == 1 else {"oneOf": files}),
        "$defs": writer.definitions,
    }


class _Writer:
    """Writes shapes as schemas; each dataclass and each unit once, among the definitions."""

    def __init__(self) -> None:
        self.definitions: Schema = {}

    def define(self, name: str, body: Callable[[], Schema]) -> Schema:
        if name not in self.definitions:
            self.definitions[name] = {}  # Its place, before what it refers to.
            self.definitions[name] = body()
        return {"$ref": f"#/$defs/{name}"}

    def record(self, record: Record, required: list[str]) -> Schema:
        properties: Schema = {}
        for name, entry in fields_of(record.cls).items():
            inner = self.shape(entry.shape)
            properties[name] = {"anyOf": [inner, {"type": "null"}]} if entry.optional else inner
        if record.kind:
            properties["kind"] = {"const": record.kind}
        return {
            "type": "object",
            "description": (record.cls.__doc__ or "").strip().partition("\n")[0],
            "properties": _CITATION | properties,
            "required": required,
            "additionalProperties": False,
        }

    def shape(self, shape: Shape) -> Schema:
        match shape:
            case Number(unit=unit) if unit is not None:
                name = unit.symbol.replace("/", "_per_")
                return self.define(name, lambda: _cited(_quantity(unit)))
            case Number():
                return _cited(_number(shape))
            case Text(names):
                return {"enum": list(names.known)} if names else {"type": ["string", "number"]}
            case Flag():
                return {"type": "boolean"}
            case Choice(words):
                return {"enum": list(words)}
            case Listing(item=item, length=length, empty=empty):
                least = length if length is not None else int(not empty)
                sizes = {"minItems": least} | ({} if length is None else {"maxItems": length})
                return _cited({"type": "array", "items": self.shape(item)} | sizes)
            case Table(key=key, value=value):
                return self.table(key, value)
            case Record():
                # A part of a variant need not be whole, so that a part requires nothing.
                return self.part(shape, [])
            case Variants(records):
                return {"oneOf": [self.part(record, ["kind"]) for record in records]}

    def part(self, record: Record, required: list[str]) -> Schema:
        return self.define(record.cls.__name__, lambda: self.record(record, required))

    def table(self, key: Shape, value: Shape) -> Schema:
        words: tuple[str, ...] = ()
        if isinstance(key, Choice):
            words = key.words
        elif isinstance(key, Text) and key.names:
            words = key.names.known
        known = {"propertyNames": {"enum": [*words, *_CITATION]}} if words else {}
        return {
            "type": "object",
            "properties": dict(_CITATION),
            "additionalProperties": self.shape(value),
        } | known


def _quantity(unit: Unit) -> Schema:
    return {
        "type": "string",
        "pattern": QUANTITY,
        "examples": [unit.example],
        "description": f"a quantity with its unit, like '{unit.example}'",
    }


def _number(shape: Number) -> Schema:
    least = {"minimum": 0} if shape.range.zero else {"exclusiveMinimum": 0}
    most = {"maximum": shape.range.most} if shape.range.most != math.inf else {}
    return {"type": "integer" if shape.integer else "number"} | least | most


def _cited(inner: Schema) -> Schema:
    """``inner``, plainly or as ``{value, source, basis, note}``."""
    cited = {
        "type": "object",
        "properties": _CITATION | {"value": inner},
        "required": ["value"],
        "additionalProperties": False,
    }
    return {"anyOf": [inner, cited]}
