"""A YAML file as a tree in which each key and value keeps its place.

Scalars are those of YAML 1.2: ``1e12`` is a number, ``no`` and ``12:30:00`` are text. Knows text
and lines. Never touches files, units or meaning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from simulator.errors import Fault

MAX_KEY = 60
"""Characters that a message has room for."""

_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,39})")
_PREFIXED = re.compile(r"0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | float | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
} | {
    sign + word: float(sign + word.lstrip("."))
    for word in (".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN")
    for sign in ("", "+", "-")
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is written."""

    file: str
    line: int | None

    def fault(self, path: str, found: str, fix: str = "") -> Fault:
        """A fault that stands here."""
        return Fault(self.file, self.line, path, found, fix)


@dataclass(frozen=True, slots=True)
class Scope:
    """The source and the basis that hold for what is written here."""

    source: str | None = None
    basis: str | None = None


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value as it is written."""

    place: Place
    text: str
    plain: bool = True
    """Written without quotes, so that it may be a number, a truth value or null."""
    scope: Scope = Scope()
    broken: bool = False
    """A fault has been reported already and nothing more is to be said."""

    @property
    def value(self) -> str | int | float | bool | None:
        """What YAML 1.2 reads: a leading zero, ``1_000`` and ``1,000`` stay text."""
        if not self.plain:
            return self.text
        if self.text in _WORDS:
            return _WORDS[self.text]
        if _INT.fullmatch(self.text):
            return int(self.text)
        if _PREFIXED.fullmatch(self.text):
            return int(self.text, 0)
        return float(self.text) if _FLOAT.fullmatch(self.text) else self.text


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    place: Place
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys with their values; ``keys`` has the place of each key."""

    place: Place
    items: dict[str, Node]
    keys: dict[str, Place]

    def with_item(self, key: str, node: Node, place: Place) -> Mapping:
        """A copy in which ``key`` is ``node``."""
        return Mapping(self.place, self.items | {key: node}, {key: place} | self.keys)

    def without(self, *keys: str) -> Mapping:
        """A copy that lacks ``keys``."""
        items = {key: node for key, node in self.items.items() if key not in keys}
        return Mapping(self.place, items, self.keys)

    def where(self, key: str) -> Place:
        """The place of a scalar, or else of its key, unless the value came from elsewhere."""
        node, place = self.items.get(key), self.keys.get(key, self.place)
        if node is not None and (isinstance(node, Scalar) or node.place.file != place.file):
            return node.place
        return place

    def text(self, key: str) -> str | None:
        """The text at ``key``, or None where there is none or it is no scalar."""
        node = self.items.get(key)
        return node.text if isinstance(node, Scalar) else None


Node = Scalar | Sequence | Mapping


def label(node: Node, index: int) -> str:
    """How a path names an item of a list: by its kind or name, else by its position.

    >>> here = Place("x.yaml", 1)
    >>> label(Mapping(here, {"kind": Scalar(here, "hbm4")}, {}), 0)
    'hbm4'
    """
    if isinstance(node, Mapping):
        name = node.text("kind") or node.text("name") or ""
        if name.isprintable() and 0 < len(name) <= MAX_KEY:
            return name
    return str(index)


def join(path: str, name: str) -> str:
    """A dotted path one step further."""
    return f"{path}.{name}" if path else name


def brief(text: str) -> str:
    """As much of a text as a message has room for."""
    return text if len(text) <= MAX_KEY else f"{text[:MAX_KEY]}..."
