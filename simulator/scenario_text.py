"""A scenario as it is written: in one line, or as the keys of a YAML file.

Knows names of arguments and where they stand. Never touches what they mean.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from simulator.api import COUNTS, PHASES, TEXTS, make_scenario
from simulator.errors import Fault, SpecError
from simulator.specs.scenario import Scenario
from simulator.specs.yaml_read import read_tree
from simulator.specs.yaml_tree import Mapping as Tree
from simulator.specs.yaml_tree import Place, Scalar, Sequence


def load_scenario(text: str | Path) -> Scenario:
    """A scenario from one line, or from a YAML file.

    >>> load_scenario("llama-3.1-8b decode batch=32 context=4096 on h200").batch
    32

    The line is WORKLOAD [PHASE] [KEY=VALUE]... on HARDWARE. Keys are those of ``make_scenario``;
    any other key is an override, in quotes where its value has a space, as in
    ``moe.routing="zipf 1.2"``. A file has the keys ``workload``, ``on``, those of
    ``make_scenario``, and ``set``, a list of overrides. Raises SpecError with every fault.
    """
    if not isinstance(text, str | Path):
        fix = "a text such as 'llama-3.1-8b decode batch=32 on h200', or a file"
        raise SpecError([Fault("scenario", None, "", f"found {text!r:.40}", fix)])
    if isinstance(text, Path) or text.strip().endswith((".yaml", ".yml")):
        return _from_file(Path(text.strip()) if isinstance(text, str) else text)
    try:
        words = shlex.split(text)
    except ValueError as error:
        fix = "close the quotes"
        raise SpecError([Fault("scenario", None, "", str(error).lower(), fix)]) from None
    if len(words) < 3 or words[-2] != "on":
        fix = "write it like 'llama-3.1-8b decode batch=32 context=4096 on h200'"
        raise SpecError([Fault("scenario", None, "", f"{text[:80]!r} names no hardware", fix)])
    workload, *rest, _, hardware = words
    here = Place("scenario", None)
    options = _Options()
    for word in rest:
        key, equals, value = word.partition("=")
        if equals:
            options.set(key, value, here)
        elif word in PHASES:
            options.set("phase", word, here)
        else:
            options.fault(
                here, word, "is no phase and no key=value", f"phases: {', '.join(PHASES)}"
            )
    return options.make(workload, hardware)


class _Options:
    """What a line or a file says, gathered with its faults."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.overrides: list[str] = []
        self.faults: list[Fault] = []

    def fault(self, place: Place, path: str, found: str, fix: str) -> None:
        self.faults.append(place.fault(path, found, fix))

    def set(self, key: str, value: str, place: Place) -> None:
        """One key of ``make_scenario``, or an override."""
        if key in self.values:
            self.fault(place, key, "is given twice", "keep one of them")
        elif key in COUNTS:
            if value.isascii() and value.isdigit() and len(value) <= 40:
                self.values[key] = int(value)
            else:
                found = f"{value[:40]!r} is not a whole number of at most 40 digits"
                self.fault(place, key, found, f"like {key}=32")
        elif key in TEXTS:
            self.values[key] = value
        else:
            self.overrides.append(f"{key}={value}")

    def make(self, workload: str, hardware: str) -> Scenario:
        """The scenario, unless there were faults."""
        if self.faults:
            raise SpecError(self.faults)
        return make_scenario(workload, hardware, overrides=self.overrides, **self.values)


def _from_file(path: Path) -> Scenario:
    faults: list[Fault] = []
    return scenario_of(read_tree(path, str(path), faults), faults)


def scenario_of(tree: Tree, faults: Iterable[Fault] = ()) -> Scenario:
    """The scenario that the keys of a YAML mapping state; raises SpecError with ``faults`` too."""
    options = _Options()
    options.faults += faults
    known = ("workload", "on", *COUNTS, *TEXTS, "set")
    for key, node in tree.items.items():
        place = tree.where(key)
        if key == "set" and isinstance(node, Sequence):
            options.overrides += [i.text for i in node.items if isinstance(i, Scalar)]
        elif key not in known:
            options.fault(place, key, "is no key of a scenario", f"keys: {', '.join(known)}")
        elif not isinstance(node, Scalar) or key == "set":
            fix = "a list of texts" if key == "set" else "one value"
            options.fault(place, key, "has the wrong shape", fix)
        elif key in COUNTS or key in TEXTS:
            options.set(key, node.text, place)
    for key in ("workload", "on"):
        if key not in tree.items:
            options.fault(tree.place, key, "is missing", "name a model and a device")
    return options.make(tree.text("workload") or "", tree.text("on") or "")
