"""Typed reading of the keys of one JSON object: what is wrong is noted, reading goes on.

Knows values and where they stand. Never touches what they mean for a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from simulator.errors import Fault, SpecError
from simulator.models.families import Flag, Key
from simulator.models.json_tree import JsonTree

MOST = 1 << 40
"""No size of a model comes near this."""


class Missing:
    """The type of ``REQUIRED``, which marks a key that has no default."""


REQUIRED: Final = Missing()


class Fields:
    """The keys of one object of a file. Reading a key marks it as known.

    A reader that finds a fault notes it and returns a harmless value, so that one pass finds every
    fault; ``check`` raises them all.
    """

    def __init__(
        self,
        tree: JsonTree,
        data: Mapping[str, Any],
        prefix: str = "",
        faults: list[Fault] | None = None,
    ) -> None:
        self.tree, self.data, self.prefix = tree, data, prefix
        self.known: set[str] = set()
        self.faults: list[Fault] = [] if faults is None else faults

    def path(self, name: str) -> str:
        """The dotted path of a key in the file."""
        return f"{self.prefix}.{name}" if self.prefix else name

    def fault(self, name: str, found: str, fix: str = "") -> None:
        """Note a fault at that key."""
        self.note(self.path(name), found, fix)

    def note(self, path: str, found: str, fix: str = "") -> None:
        """Note a fault at a full path; where the key is absent, at the line of its object."""
        line = self.tree.line(path)
        if line is None:
            line = self.tree.line(self.prefix)
        fault = Fault(self.tree.file, line, path, found, fix)
        if fault not in self.faults:
            self.faults.append(fault)

    def check(self) -> None:
        """Raise SpecError with every fault noted so far."""
        if self.faults:
            raise SpecError(self.faults)

    def raw(self, *names: str) -> Any:
        """The value of the first of these keys that is present and not null, else None."""
        self.known.update(names)
        values = [(name, self.data[name]) for name in names if self.data.get(name) is not None]
        for name, value in values[1:]:
            if value != values[0][1]:
                self.fault(name, f"{value!r}, but {values[0][0]} is {values[0][1]!r}", "keep one")
        return values[0][1] if values else None

    def first(self, *names: str) -> str:
        """The first of these keys that is present and not null, else the first."""
        return next((name for name in names if self.data.get(name) is not None), names[0])

    def has(self, *names: str) -> bool:
        """Whether one of these keys is present, not null and not empty."""
        return any(self.data.get(name) not in (None, False, 0, "", [], {}) for name in names)

    def whole(self, *names: str, default: int | Missing = REQUIRED, least: int = 1) -> int:
        """A whole number of at least ``least``; without a default a missing one is a fault."""
        value = self.raw(*names)
        name = self.first(*names)
        if value is None:
            if isinstance(default, Missing):
                self.fault(name, "missing", "a size is never guessed; give the number")
                return least
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fault(name, f"{_shown(value)} is not a whole number")
            return least
        if not least <= value < MOST:
            self.fault(name, f"{_shown(value)} is out of range", f"give at least {least}")
            return least
        return value

    def optional(self, *names: str, least: int = 1) -> int | None:
        """A whole number, or None where the key is absent or null."""
        return None if self.raw(*names) is None else self.whole(*names, least=least)

    def number(self, name: str, default: float | None = None) -> float | None:
        """A positive finite number, or the default where the key is absent or null."""
        value = self.raw(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < MOST:
            self.fault(name, f"{_shown(value)} is not a positive number")
            return default
        return float(value)

    def flag(self, *names: str, default: bool | Missing = REQUIRED) -> bool:
        """True or false; without a default a missing one is a fault."""
        value = self.raw(*names)
        if value is None:
            if isinstance(default, Missing):
                self.fault(names[0], "missing", "say true or false")
                return False
            return default
        if not isinstance(value, bool):
            self.fault(self.first(*names), f"{_shown(value)} is neither true nor false")
            return False
        return value

    def rule(self, flag: Flag) -> bool:
        """A flag of a family: fixed, or set by a key."""
        return self.flag(flag.name, default=flag.default) if isinstance(flag, Key) else flag

    def text(self, *names: str) -> str | None:
        """A string, or None where the key is absent or null."""
        value = self.raw(*names)
        if value is not None and not isinstance(value, str):
            self.fault(self.first(*names), f"{_shown(value)} is not text")
            return None
        return value

    def items(self, name: str) -> Sequence[Any] | None:
        """A list, or None where the key is absent or null."""
        value = self.raw(name)
        if value is not None and not isinstance(value, list):
            self.fault(name, f"{_shown(value)} is not a list")
            return None
        return value

    def object(self, name: str) -> Fields | None:
        """The fields of an object under that key, or None where it is absent or null."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.fault(name, f"{_shown(value)} is not an object")
            return None
        return Fields(self.tree, value, self.path(name), self.faults)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
