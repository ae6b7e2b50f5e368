"""What a field of a spec holds, in terms that pydantic checks.

A bare ``int`` or ``bool`` would take ``"4"`` and ``"on"``; these take numbers and truth values
alone. Knows nothing of any one spec. Never touches files or messages.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from simulator.units import LARGEST, SMALLEST

T = TypeVar("T")
Count = Annotated[int, Field(strict=True, ge=1, le=10**30)]
"""One or more."""
Natural = Annotated[int, Field(strict=True, ge=0, le=10**30)]
"""Zero or more."""
Amount = Annotated[float, Field(strict=True, ge=SMALLEST, le=LARGEST)]
"""A plain number above 0."""
Share = Annotated[float, Field(strict=True, ge=SMALLEST, le=1)]
"""A fraction of something: above 0, at most 1."""
Flag = Annotated[bool, Field(strict=True)]
Width = Annotated[int, Field(ge=1, le=10**30)]
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
        from simulator.specs.rules import check  # Rules know the specs, which start from here.

        return core_schema.no_info_wrap_validator_function(partial(check, cls), handler(source))
