"""What a field of a spec holds in terms of pydantic, and how rules between fields are kept.

A bare ``int`` or ``bool`` would take ``"4"`` and ``"on"``; these take numbers and truth values
alone. Knows nothing of any one spec. Never touches files or messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from functools import lru_cache, partial
from typing import Annotated, Any, ClassVar, TypeVar, get_type_hints

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from simulator.units import LARGEST, MANY, SMALLEST

T = TypeVar("T")
Count = Annotated[int, Field(strict=True, ge=1, le=MANY)]
"""One or more."""
Natural = Annotated[int, Field(strict=True, ge=0, le=MANY)]
"""Zero or more."""
Amount = Annotated[float, Field(strict=True, ge=SMALLEST, le=LARGEST)]
"""A plain number above 0."""
Share = Annotated[float, Field(strict=True, ge=SMALLEST, le=1)]
"""A fraction of something: above 0, at most 1."""
Extra = Annotated[float, Field(strict=True, ge=0, le=LARGEST)]
"""A plain number, possibly zero."""
Overhead = Annotated[float, Field(strict=True, ge=1, le=10)]
"""A whole over one of its parts: from 1 on."""
Flag = Annotated[bool, Field(strict=True)]
Width = Annotated[int, Field(ge=1, le=MANY)]
"""A count that is the key of a table, where YAML has text."""
Some = Annotated[tuple[T, ...], Field(min_length=1)]
"""One or more of a kind."""
BY_KIND = Field(discriminator="kind")
"""Metadata of a union whose members differ in ``kind``."""


class Checked:
    """Base of a spec that refuses unknown keys and keeps the rules of its class."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", str_min_length=1)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(partial(_check, cls), handler(source))


Values = dict[str, Any]
Broken = Iterator[tuple[str, str, str]]
"""The field, what was found, what would do."""
_RULES: dict[type, list[Callable[[Values], Broken]]] = {}


def _check(cls: Any, data: Any, read: Callable[[Any], Any]) -> Any:
    """``data`` as ``read`` makes it, if its rules hold; every fault of both where not."""
    spec, errors = None, []
    try:
        spec = read(data)
        values = {entry.name: getattr(spec, entry.name) for entry in fields(cls)}
    except ValidationError as error:
        errors = error.errors(include_url=False)
        values = _sound(cls, data, {fault["loc"][0] for fault in errors if fault["loc"]})
    broken = [fault for rule in _RULES.get(cls, ()) for fault in rule(values)]
    if not errors and not broken:
        return spec
    told = [(fault["type"], fault["loc"], fault["input"], fault.get("ctx")) for fault in errors]
    told += [("rule", (name,), data, {"found": found, "fix": fix}) for name, found, fix in broken]
    raise ValidationError.from_exception_data(
        cls.__name__,
        [
            InitErrorDetails(type=PydanticCustomError(kind, kind, context), loc=loc, input=given)
            for kind, loc, given, context in told
        ],
    )


def _sound(cls: type, data: Any, failed: set[int | str]) -> Values:
    """The fields that hold, for the rules that need no others."""
    if cls not in _RULES or not isinstance(data, dict):
        return {}
    values = {entry.name: entry.default for entry in fields(cls) if entry.default is not MISSING}
    hints = get_type_hints(cls, include_extras=True)
    for name in data.keys() & hints.keys() - failed:
        values[name] = _adapter(hints[name]).validate_python(data[name])
    return {name: value for name, value in values.items() if name not in failed}


@lru_cache(maxsize=256)
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint)


def rule(*classes: type) -> Callable[[Callable[[Values], Broken]], Callable[[Values], Broken]]:
    """Make a function of a spec's valid fields one of the rules of these classes."""

    def register(function: Callable[[Values], Broken]) -> Callable[[Values], Broken]:
        for cls in classes:
            _RULES.setdefault(cls, []).append(function)
        return function

    return register
