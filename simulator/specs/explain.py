"""What is wrong with a value of a spec and what would do, in the words of who writes YAML.

Knows shapes, and the kinds of error that pydantic has. Never touches files or lines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from pydantic_core import ErrorDetails

from simulator.errors import nearest
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
from simulator.specs.yaml_tree import Mapping, Node, Place, Scalar, Sequence, brief
from simulator.units import LARGEST, MANY

Told = tuple[str, str]
"""What was found, and what would do."""


def told(error: ErrorDetails) -> Told:
    """An error of our own, which says both."""
    return error["ctx"]["found"], error["ctx"]["fix"]


def amiss(node: Node, shape: Shape, error: ErrorDetails) -> Told:
    """What stands in place of a valid value."""
    fix = due(shape)
    if error["type"] == "value_error":
        return str(error["ctx"]["error"]), ""
    if isinstance(node, Sequence) and isinstance(shape, Listing):
        if not node.items and shape.length is None:
            return "is an empty list", "write at least one entry"
        return f"has {len(node.items)} entries", f"write {shape.length}"
    if not isinstance(node, Scalar):
        return f"found {found_at(node)}", fix
    match shape:
        case Number():
            return _number(node, shape, error)
        case Flag():
            yes = {"yes": "true", "on": "true", "no": "false", "off": "false"}
            fix = f"write {yes.get(node.text.lower(), 'true or false')}"
        case Choice(words):
            fix = offer(node.text, words)
        case Text(names) if names is not None:
            return f"unknown {names.kind} {brief(node.text)!r}", offer(node.text, names.known)
        case Text():
            return "is empty", fix
        case _:
            pass
    return f"found {found_at(node)}", fix


def _number(node: Scalar, shape: Number, error: ErrorDetails) -> Told:
    """What is wrong with a number."""
    value, text, fix = node.value, brief(node.text), due(shape)
    if error["type"] == "quantity":
        return told(error)
    if isinstance(value, float) and not math.isfinite(value):
        return f"{text} is {'not finite' if text[-1].isalpha() else 'too large'}", fix
    if error["type"] in ("greater_than_equal", "less_than_equal"):
        # A quantity has been read, a key of a table has not.
        number = error["input"] if shape.unit else value
        return _beyond(number, text, error["ctx"], fix)
    if shape.unit is not None:
        return "is empty" if value in (None, "") else f"{text} has no unit", fix
    if isinstance(value, float):
        return f"{text} is not a whole number", fix
    return f"found {found_at(node)}", (isinstance(value, str) and _plainly(value)) or fix


def _beyond(value: Any, text: str, limit: dict[str, Any], fix: str) -> Told:
    """What is wrong with a number outside its limits."""
    most = limit.get("le", LARGEST)
    if value > most:
        if most == 1:
            fix = f"it is a share, at most {most:g}"
        elif isinstance(most, int) and most <= MANY:
            fix = f"it is at most {most:,}"
        return f"{text} is too large", fix
    if value > 0:
        return f"{text} is too small", fix
    least = "zero or more" if limit["ge"] == 0 else "more than zero"
    return f"{text} is {'negative' if value < 0 else 'zero'}", f"it must be {least}"


def found_at(node: Node) -> str:
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


def due(shape: Shape) -> str:
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
        case Variants():
            return f"write a mapping with 'kind', one of {', '.join(shape.kinds)}"


def add(name: str, shape: Shape) -> str:
    if isinstance(shape, Number) and shape.unit:
        return f"add it, like '{name}: {shape.unit.example}'"
    return due(shape).replace("write", "add", 1) if not isinstance(shape, Choice) else due(shape)


def offer(text: str, known: Iterable[str]) -> str:
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
