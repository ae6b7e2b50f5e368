"""The JSON schema of a kind of spec, for editors that complete and check YAML as it is typed.

Pydantic derives it from the dataclasses; added here is that values cite and that variants are
partial. Never touches files. The loader stays the judge: what two fields must be to each other,
and that each number has a source, no schema says.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from simulator.specs.catalog import KINDS
from simulator.specs.hardware import BASES
from simulator.specs.shape import fields_of

Schema = dict[str, Any]
_SOURCE: Schema = {"type": ["string", "array"], "description": "a key of 'sources', or a text"}
_CITATION: Schema = {
    "source": _SOURCE,
    "basis": {"enum": list(BASES)},
    "note": {"type": "string"},
}


def schema(kind: str) -> Schema:
    """The JSON schema (2020-12) of ``hardware``, ``systems``, ``stacks`` or ``workloads``."""
    entry = KINDS[kind]
    sources = {"type": "object", "additionalProperties": {"type": "string"}}
    base = {"type": "string", "description": f"the {entry.noun} that this one is a variant of"}
    files, definitions = [], Schema()
    for record in entry.records:
        whole = TypeAdapter(record.cls).json_schema(schema_generator=_Writer)
        definitions |= whole.pop("$defs", {})
        whole["properties"] |= {"sources": sources, "base": base}
        # A variant states only what differs from its base.
        whole["if"] = {"not": {"required": ["base"]}}
        whole["then"] = {
            "required": [name for name, field in fields_of(record.cls).items() if field.required]
        }
        files.append(whole | {"required": ["name"]})
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        **(files[0] if len(files) == 1 else {"oneOf": files}),
        "title": f"tilecast {entry.noun}",
        "$defs": definitions,
    }


class _Writer(GenerateJsonSchema):
    """Schemas of parts, which need not be whole, and of values that may be cited."""

    def generate_inner(self, schema: Any) -> Schema:
        body = super().generate_inner(schema)
        if body.get("type") in ("integer", "number", "array") or "pattern" in body:
            return _cited(body)
        return body

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Schema:
        return self.generate_inner(schema["schema"])

    def str_schema(self, schema: core_schema.StringSchema) -> Schema:
        return {"type": ["string", "number"]}

    def dict_schema(self, schema: core_schema.DictSchema) -> Schema:
        body = super().dict_schema(schema) | {"properties": dict(_CITATION)}
        words = self.generate_inner(schema["keys_schema"]).get("enum")
        return body | ({"propertyNames": {"enum": [*words, *_CITATION]}} if words else {})

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> Schema:
        body = super().dataclass_schema(schema)
        properties = _CITATION | body["properties"]
        # The word that tells variants apart is all that a part must state.
        body["required"] = ["kind"] if "const" in properties.get("kind", {}) else []
        return body | {"properties": properties, "additionalProperties": False}


def _cited(inner: Schema) -> Schema:
    """``inner``, plainly or as ``{value, source, basis, note}``."""
    cited = {
        "type": "object",
        "properties": _CITATION | {"value": inner},
        "required": ["value"],
        "additionalProperties": False,
    }
    return {"anyOf": [inner, cited]}
