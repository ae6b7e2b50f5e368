"""The JSON schema for editors: it names what the loader reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from simulator import units
from simulator.specs.catalog import KINDS
from simulator.specs.hardware import BASES, Accelerator
from simulator.specs.schema import schema
from simulator.specs.shape import fields_of
from simulator.units import PATTERN, Unit


def references(body: Any) -> Iterator[str]:
    if isinstance(body, dict):
        if "$ref" in body:
            yield body["$ref"]
        for value in body.values():
            yield from references(value)
    elif isinstance(body, list):
        for value in body:
            yield from references(value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_json_and_each_of_its_references_is_defined(kind: str) -> None:
    body = json.loads(json.dumps(schema(kind), allow_nan=False))
    assert body["$schema"].startswith("https://json-schema.org/")
    assert {f"#/$defs/{name}" for name in body["$defs"]} >= set(references(body))


def test_the_root_has_each_field_and_refuses_others() -> None:
    body = schema("hardware")
    expected = {*fields_of(Accelerator), "base", "source", "sources", "basis", "note"}
    assert set(body["properties"]) == expected
    assert body["additionalProperties"] is False
    assert body["then"]["required"] == [
        "name", "vendor", "architecture", "status", "compute", "memory",
    ]  # fmt: skip


def test_a_quantity_is_text_with_a_unit_or_an_object_that_cites() -> None:
    plain, cited = schema("hardware")["$defs"]["Compute"]["properties"]["clock"]["anyOf"]
    assert (plain["type"], plain["examples"]) == ("string", ["1.83 GHz"])
    assert cited["required"] == ["value"]
    assert cited["properties"]["basis"]["enum"] == list(BASES)


def test_the_pattern_of_a_quantity_takes_each_example_and_no_bare_number() -> None:
    examples = [value.example for value in vars(units).values() if isinstance(value, Unit)]
    assert all(re.search(PATTERN, example) for example in examples)
    assert not any(re.search(PATTERN, text) for text in ("2400", "", "GB 3", "3 GB GiB"))


def test_each_variant_of_a_model_demands_its_kind() -> None:
    body = schema("workloads")
    kinds = [entry["properties"]["kind"]["const"] for entry in body["oneOf"]]
    assert kinds == ["transformer", "unet"]
    assert body["$defs"]["MoE"]["required"] == ["kind"]
