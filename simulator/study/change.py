"""A scenario with some of its numbers or names changed: the one door of every study.

A change is a path and a value, checked as a file or an override is. Knows how a scenario was
asked for and asks again; never touches a cost or a time.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from numbers import Integral
from pathlib import Path
from typing import Any

from simulator.api import COUNTS, DEGREES, TEXTS, make_scenario
from simulator.errors import Fault, InputError, SpecError, nearest, together
from simulator.specs.leaves import Leaf, leaves
from simulator.specs.load import default_stack, overrides_by_spec
from simulator.specs.overrides import Override, parse_overrides
from simulator.specs.plan import Plan
from simulator.specs.scenario import NEEDS, Scenario

LENGTHS = ("input", "output", "context", "sequence")
PLANNED = (*DEGREES, "recompute")
"""Fields of the plan that are written bare or after ``plan.``."""
FIELDS = (*COUNTS, *TEXTS, "hardware", "workload")
"""What is changed by its bare name; every other path leads into a spec."""

_SAME = {"sequence": "input", "global_batch": "batch"}


def changed(base: Scenario, changes: Mapping[str, object]) -> Scenario:
    """``base`` with the value of each path in ``changes``, complete and checked again.

    A path is a field (``batch``, ``context``, ``dtype``, ``tp``; ``hardware``, ``stack``,
    ``system`` and ``workload`` take a name), or leads into ``hardware.``, ``stack.``, ``system.``,
    ``workload.`` (or ``model.``) or ``plan.``; a path without such a start is read as an override
    is. A value is a text with its unit, a number where the path has no unit, or a name; None takes
    out what was set. A device in a system is placed there again.

    >>> from simulator import load_scenario
    >>> base = load_scenario("llama-3.1-8b decode batch=32 context=4096 on h200")
    >>> changed(base, {"hardware.memory.hbm.bandwidth": "6 TB/s"}).overrides
    ('hardware.memory.hbm.bandwidth=6 TB/s',)

    The new scenario's ``command`` states it, where that of ``base`` states ``base``. Raises
    SpecError or UnknownNameError, or InputError where several are wrong, with every fault.
    """
    require_kinds(base, changes)
    if not changes:
        return base
    asked = _asked(base.command, base)
    options, texts, faults = _sorted(changes, base.phase)
    errors: list[InputError] = [SpecError(faults)] if faults else []
    scenario = None
    try:
        scenario = asked.again(options, texts, base)
    except InputError as error:
        errors.append(error)
    if scenario is not None:
        idle = [name for name in LENGTHS if options.get(name) and name in scenario.ignored]
        if idle:
            use = " and ".join(NEEDS[scenario.phase]) or "no length"
            found = f"a {scenario.phase} run does not use it"
            errors.append(
                SpecError(Fault("change", None, name, found, f"it uses {use}") for name in idle)
            )
    if errors:
        raise together(errors)
    assert scenario is not None, "nothing was wrong"
    return scenario


def require_kinds(base: object, changes: object) -> None:
    """Raise SpecError where ``base`` is no scenario or ``changes`` no mapping of paths."""
    faults = []
    if not isinstance(base, Scenario):
        fix = "a scenario of make_scenario or load_scenario"
        faults.append(Fault("change", None, "base", f"found {base!r:.40}", fix))
    if not isinstance(changes, Mapping):
        fix = "a mapping of paths, like {'batch': ...}"
        faults.append(Fault("change", None, "changes", f"found {changes!r:.40}", fix))
    elif wrong := [path for path in changes if not isinstance(path, str)]:
        fix = "a path is a text, like 'compute.units'"
        faults += (Fault("change", None, "", f"found {path!r:.40}", fix) for path in wrong)
    if faults:
        raise SpecError(faults)


def numbers(base: Scenario) -> list[Leaf]:
    """Every number of the accelerator with its path, as ``changed`` takes it, value and unit.

    In a system the accelerator is the bare one: its links are those it has before it is placed.
    """
    return [
        leaf
        for leaf in leaves(base.bare or base.hardware, "hardware.")
        if isinstance(leaf.value, int | float) and not isinstance(leaf.value, bool)
    ]


def paths(base: Scenario) -> list[str]:
    """The path of every number of the accelerator, in the order of its file."""
    return [leaf.path for leaf in numbers(base)]


def of_hardware(path: str) -> bool:
    """Whether a path leads into the accelerator."""
    return path not in FIELDS and _key(path, "1")[0] == "hardware"


def full_path(path: str, known: Iterable[str]) -> str:
    """The path of the number that ``changed`` finds there: a memory may go by the start of its
    kind (``memory.hbm.bandwidth``) where that is unique."""
    full = path if path.startswith("hardware.") else f"hardware.{path}"
    head, dot, rest = full.removeprefix("hardware.memory.").partition(".")
    if full in known or not dot or not full.startswith("hardware.memory."):
        return full
    fits = [one for one in known if one.startswith(f"hardware.memory.{head}")]
    fits = [one for one in fits if one.split(".")[3:] == rest.split(".")]
    return fits[0] if len(fits) == 1 else full


def written(leaf: Leaf, value: float) -> str:
    """``value``, in base units, as the text that sets ``leaf`` to it."""
    number = round(value) if isinstance(leaf.value, int) else float(value)
    return f"{number!r} {leaf.unit.symbol}" if leaf.unit else repr(number)


def _sorted(
    changes: Mapping[str, object], phase: str
) -> tuple[dict[str, Any], list[str], list[Fault]]:
    """Fields with their values, overrides as texts, and what is neither."""
    options: dict[str, Any] = {}
    texts: list[str] = []
    faults: list[Fault] = []
    train = changes.get("phase", phase) == "train"

    def fault(path: str, found: str, fix: str) -> None:
        faults.append(Fault("change", None, path[:80], found, fix))

    for path, value in changes.items():
        name = path.removeprefix("plan.")
        name = name if name in PLANNED else "workload" if path == "model" else path
        name = _SAME.get(name, name) if train else name
        if name not in FIELDS:
            if "." not in path and not _is_override(path):
                near = nearest(path, FIELDS)
                fix = f"did you mean {' or '.join(near)}?" if near else f"name {', '.join(FIELDS)}"
                fault(path, "no such path", fix)
                continue
            if path.startswith("model."):
                path = f"workload.{path.removeprefix('model.')}"
            texts.append(f"{path}={'null' if value is None else _plain(value)}")
        elif name in options:
            fault(path, "is changed twice", "keep one of them")
        elif value is None or (name not in COUNTS and isinstance(value, str | Path)):
            options[name] = None if value is None else str(value)
        elif name not in COUNTS:
            fault(path, f"found {value!r:.40}", "write a name")
        elif _is_whole(value):
            options[name] = int(value)  # type: ignore[call-overload]
        else:
            fault(path, f"found {value!r:.40}", "write a whole number")
    return options, texts, faults


def _is_whole(value: object) -> bool:
    if isinstance(value, str):
        return value.isascii() and value.isdigit() and len(value) <= 40
    return isinstance(value, Integral) and not isinstance(value, bool)


def _plain(value: object) -> str:
    """A value as an override writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_override(path: str) -> bool:
    """Whether a path of one step is one of a spec, so that its own error says more."""
    try:
        overrides_by_spec([f"{path}=1"])
    except SpecError as error:
        return not any(fault.found == "no such path" for fault in error.faults)
    return True


@dataclass(frozen=True, slots=True)
class _Asked:
    """What ``make_scenario`` was called with: names where they state the scenario, else specs."""

    options: Mapping[str, Any]
    overrides: tuple[str, ...]
    held: tuple[str, ...] = ()
    """Overrides that the specs hold already."""

    def again(self, options: Mapping[str, Any], texts: list[str], base: Scenario) -> Scenario:
        """``base`` with ``options`` and ``texts`` in place of those there were."""
        known = dict(self.options)
        old = known["phase"]
        if options.get("phase") not in (None, old):
            # Lengths of the phase before would only be said to be unused.
            decode = options["phase"] == "decode" and options.get("context") is None
            kept = NEEDS.get(options["phase"], ()) if not decode else LENGTHS
            known = {key: known[key] for key in known if key not in LENGTHS or key in kept}
        if "hardware" in options and isinstance(known.get("stack"), _Default):
            del known["stack"]
        stack = known.get("stack")
        if isinstance(stack, _Default):
            known["stack"] = stack.stack
        for name, value in options.items():
            known.pop(name, None)
            if value is not None:
                known[name] = value
        numbered = paths(base) if self.overrides or self.held else ()
        gone = {_place(override, numbered) for override in parse_overrides(texts)}
        gone |= {("plan", name) for name in options if name in PLANNED}
        kept, held = (
            tuple(text for text in some if _place(_override(text), numbered) not in gone)
            for some in (self.overrides, self.held)
        )
        scenario = make_scenario(**known, overrides=(*kept, *texts))
        return replace(scenario, overrides=(*held, *scenario.overrides)) if held else scenario


@dataclass(frozen=True, slots=True)
class _Default:
    """The stack that a scenario built of specs has, where it is the device's own."""

    stack: Any


@lru_cache(maxsize=4096)
def _key(path: str, value: str) -> tuple[str, str]:
    """The spec and the path in it of an override; the path alone where it has no place."""
    try:
        parts = overrides_by_spec([f"{path}={value}"])
    except SpecError:
        return "", path
    return next((spec, part.path) for spec, found in parts.items() for part in found)


def _place(override: Override, known: Iterable[str]) -> tuple[str, str]:
    """The same, one for all paths to a number among ``known``."""
    spec, path = _key(override.path, override.value)
    return spec, full_path(path, known) if spec == "hardware" else path


def _override(text: str) -> Override:
    (override,) = parse_overrides([text])
    return override


def _key_of(text: str) -> tuple[str, str]:
    override = _override(text)
    return _key(override.path, override.value)


@lru_cache(maxsize=64)
def _asked(command: str, base: Scenario) -> _Asked:
    """How ``base`` is asked for: by its command, where that states it, else by its specs."""
    options = _read(command)
    overrides = base.overrides
    if options is not None and _same(options, overrides, base):
        return _Asked(options, overrides)
    bare = base.bare or base.hardware
    own: Any = base.stack
    try:
        if default_stack(bare) == base.stack:
            own = _Default(base.stack)
    except InputError:
        pass
    parts: dict[str, Any] = {
        "workload": base.model, "hardware": bare, "stack": base.stack, "phase": base.phase,
        "batch": base.batch, "fidelity": base.fidelity, "seed": base.seed,
    }  # fmt: skip
    for name in ("input", "output", "context"):
        if getattr(base, name) is not None:
            parts[name] = getattr(base, name)
    if base.bare is not None and options is not None and "system" in options:
        parts["system"] = options["system"]
    plain = Plan()
    plan = tuple(
        f"plan.{entry.name}={_plain(getattr(base.plan, entry.name))}"
        for entry in fields(plain)
        if entry.name != "provenance"
        and getattr(base.plan, entry.name) != getattr(plain, entry.name)
    )
    around = tuple(text for text in overrides if _key_of(text)[0] == "system")
    if not _same(parts, (*plan, *around), base):
        fix = "state it with make_scenario or load_scenario"
        raise SpecError(
            [Fault("scenario", None, "", "does not say how it was made, so it cannot change", fix)]
        )
    held = tuple(text for text in overrides if _key_of(text)[0] not in ("system", "plan"))
    return _Asked(parts | {"stack": own}, (*plan, *around), held)


def _read(command: str) -> dict[str, Any] | None:
    """The arguments of a command line that runs a scenario, but for its overrides."""
    words = shlex.split(command)
    if words[:2] != ["tilecast", "run"] or len(words) < 5 or words[3] != "--on":
        return None
    options: dict[str, Any] = {"workload": words[2], "hardware": words[4]}
    for option, value in zip(words[5::2], words[6::2], strict=False):
        name = option.removeprefix("--").replace("-", "_")
        if name in FIELDS:
            options[name] = int(value) if name in COUNTS else value
        elif name != "set":
            return None
    return options


def _same(options: Mapping[str, Any], overrides: tuple[str, ...], base: Scenario) -> bool:
    """Whether asking so gives ``base``, up to what is only told beside it."""
    try:
        made = make_scenario(**options, overrides=overrides)
    except InputError:
        return False
    return replace(made, overrides=base.overrides, ignored=base.ignored) == base
