"""What can go wrong, one class per situation.

SimulatorError                   exit 1
├── InputError                   exit 2   the user can mend it
│   ├── SpecError                a file or an override is wrong; carries every fault
│   └── UnknownNameError         no such name; offers the near ones
├── ImpossibleError              exit 3   understood, but it cannot run
│   └── CapacityError            does not fit; carries the shortfall and what would fit
├── CheckError                   a functional check found a difference
└── BoundsError                  a run left its own bounds: a bug of ours
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class SimulatorError(Exception):
    """Root of everything this package raises on purpose."""

    exit_code = 1


class InputError(SimulatorError):
    """The input is wrong and the message says how to mend it."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one input: where it stands, what was found there, what would do."""

    file: str
    line: int | None
    path: str
    found: str
    fix: str = ""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        text = ": ".join(part for part in (self.path, self.found) if part)
        text = f"{text}; {self.fix}" if self.fix else text
        # What stands in a file or an argument never steers the terminal.
        plain = (sign if sign.isprintable() or sign == "\n" else ascii(sign)[1:-1] for sign in text)
        return f"{where}: {''.join(plain)}"


class SpecError(InputError):
    """A file or an override does not hold; all faults at once."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def __reduce__(self) -> tuple[type[SpecError], tuple[tuple[Fault, ...]]]:
        return type(self), (self.faults,)


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three of ``known`` that ``name`` may be meant for, the nearest first."""
    return difflib.get_close_matches(name[:80].lower(), sorted(known), n=3, cutoff=0.5)


SHOWN = 24
"""Known names that a message lists before it only counts the others."""


class UnknownNameError(InputError):
    """No such name; the near ones are offered."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        near = nearest(name, self.known)
        more = f" and {len(self.known) - SHOWN} more" if len(self.known) > SHOWN else ""
        known_names = f"known: {', '.join(self.known[:SHOWN])}{more}"
        hint = f"did you mean {' or '.join(near)}?" if near else known_names
        super().__init__(f"unknown {kind} {name[:80]!r}; {hint}")

    def __reduce__(self) -> tuple[type[UnknownNameError], tuple[str, str, tuple[str, ...]]]:
        return type(self), (self.kind, self.name, self.known)


def together(errors: Sequence[InputError]) -> InputError:
    """One error that says all of them, each fault once."""
    if len(errors) == 1:
        return errors[0]
    faults: dict[tuple[str, str], Fault] = {}
    lines: dict[str, None] = {}
    for error in errors:
        if not isinstance(error, SpecError):
            lines[str(error)] = None
            continue
        for fault in error.faults:
            if faults.setdefault((fault.path, fault.found), fault) is fault:
                lines[str(fault)] = None
    if all(isinstance(error, SpecError) for error in errors):
        return SpecError(faults.values())
    return InputError("\n".join(lines))


class ImpossibleError(SimulatorError):
    """The input is understood, but nothing can run it as asked."""

    exit_code = 3


class CapacityError(ImpossibleError):
    """The memory does not hold it; the message has the shortfall and what would fit."""


class CheckError(SimulatorError):
    """A functional check found blocks that do not add up to the whole operator."""


class BoundsError(SimulatorError):
    """A run left its own bounds; the simulation is wrong, not the input."""
