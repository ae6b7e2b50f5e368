"""The library's face: load specs, state a scenario, simulate it.

Every command does what these functions do. Nothing here computes a time.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from simulator.errors import Fault, InputError, SpecError, UnknownNameError, together
from simulator.mapping.legality import plan_faults, recipe_faults
from simulator.models.load import load_workload
from simulator.models.recipe import with_dtype
from simulator.result import Result
from simulator.runs.inference import run_inference
from simulator.specs.fabric import System, losses, placed
from simulator.specs.hardware import Accelerator
from simulator.specs.load import (
    default_stack,
    default_system,
    load_hardware,
    load_stack,
    load_system,
    overrides_by_spec,
    with_overrides,
)
from simulator.specs.overrides import Override
from simulator.specs.plan import Plan
from simulator.specs.scenario import Fidelity, PhaseName, Scenario, lengths
from simulator.specs.stack import Stack
from simulator.specs.workload import Model, Transformer, UNet

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simulator.costs.target import Target

__all__ = [
    "load_hardware",
    "load_stack",
    "load_workload",
    "make_scenario",
    "make_target",
    "predict",
    "simulate",
]

DEFAULT_CONTEXT = 4096
DEFAULT_INPUT = 2048
PHASES = ("prefill", "decode", "generate", "train", "denoise")
FIDELITIES = ("roofline", "cohort", "tile")

DEGREES = ("tp", "pp", "dp", "cp", "ep", "micro_batch", "zero")
COUNTS = ("batch", "input", "output", "context", "sequence", "global_batch", *DEGREES, "seed")
"""Arguments of ``make_scenario`` that are whole numbers."""
TEXTS = ("dtype", "stack", "system", "fidelity", "phase", "recompute")
"""Those that are names."""

Spec = TypeVar("Spec")


def make_scenario(
    workload: str | Path | Model,
    hardware: str | Path | Accelerator,
    *,
    phase: str | None = None,
    batch: int = 1,
    input: int | None = None,
    output: int | None = None,
    context: int | None = None,
    dtype: str | None = None,
    stack: str | Path | Stack | None = None,
    system: str | Path | None = None,
    tp: int | None = None,
    pp: int | None = None,
    dp: int | None = None,
    cp: int | None = None,
    ep: int | None = None,
    micro_batch: int | None = None,
    zero: int | None = None,
    recompute: str | None = None,
    sequence: int | None = None,
    global_batch: int | None = None,
    fidelity: str = "cohort",
    seed: int = 0,
    overrides: Iterable[str] = (),
) -> Scenario:
    """A complete scenario from names, files or loaded specs.

    ``phase`` follows from what is given: ``output`` makes it generate, ``context`` decode,
    ``input`` prefill; a language model with none of them decodes at 4,096 tokens, and a U-Net
    denoises. ``ep`` ranks, one device each, share the sequences of the batch and the experts; how
    they do it is set by overrides of the plan, such as ``plan.schedule=pipelined``. ``overrides``
    are texts such as ``memory.hbm4.bandwidth=24 TB/s``.

    Raises SpecError, UnknownNameError or, where several inputs are wrong, InputError with all.
    """
    wrong = _wrong_kinds(locals())
    if wrong:
        raise SpecError(wrong)
    texts = tuple(overrides)
    faults: list[InputError] = []
    if phase is None and (sequence is not None or global_batch is not None):
        phase = "train"

    def attempt(load: Callable[[], Spec]) -> Spec | None:
        try:
            return load()
        except InputError as error:
            faults.append(error)
            return None

    parts = attempt(lambda: overrides_by_spec(texts)) or overrides_by_spec(())
    twice = list(_twice(input, sequence, batch, global_batch)) if phase == "train" else []
    if phase == "train":
        input = sequence if sequence is not None else input
        batch = global_batch if global_batch is not None else batch
    model = attempt(
        lambda: (
            load_workload(workload, parts["workload"])
            if isinstance(workload, str | Path)
            else with_overrides(workload, parts["workload"])
        )
    )
    device = attempt(
        lambda: (
            load_hardware(hardware, parts["hardware"])
            if isinstance(hardware, str | Path)
            else with_overrides(hardware, parts["hardware"])
        )
    )
    software = None
    if stack is not None:
        software = attempt(
            lambda: (
                load_stack(stack, parts["stack"])
                if isinstance(stack, str | Path)
                else with_overrides(stack, parts["stack"])
            )
        )
    elif device is not None:
        known = device
        software = attempt(lambda: default_stack(known, parts["stack"]))
    notes: tuple[str, ...] = ()
    alone, box = device, None
    if system is not None or parts["system"]:
        box = around = attempt(lambda: _system(system, alone, parts["system"]))
        if around is not None and alone is not None:
            joined = alone, around
            notes = losses(*joined)
            device = attempt(lambda: placed(*joined)) or device
    degrees = {
        "tp": tp, "pp": pp, "dp": dp, "cp": cp, "ep": ep, "micro_batch": micro_batch, "zero": zero,
        "recompute": recompute,
    }  # fmt: skip
    chosen = [Override(name, str(value)) for name, value in degrees.items() if value is not None]
    said = "is set, but given on its own too", "keep one of them"
    again = {one.path for one in chosen} & {one.path for one in parts["plan"]}
    twice += [Fault("--set", None, f"plan.{name}", *said) for name in sorted(again)]
    if twice:
        faults.append(SpecError(twice))
    settings = (*chosen, *parts["plan"])
    plan = attempt(lambda: _plan(settings, faults))
    if model is not None and dtype is not None:
        base = model
        model = attempt(lambda: with_dtype(base, dtype))
    for kind, value, choices in (
        ("phase", phase, PHASES),
        ("fidelity", fidelity, FIDELITIES),
    ):
        if value is not None and value not in choices:
            faults.append(UnknownNameError(kind, value, choices))
    scenario = None
    if model is not None and plan is not None and (phase is None or phase in PHASES):
        kind = cast(PhaseName, phase or _phase(model, input, output, context))
        if kind == "decode" and context is None:
            context = (input or 0) + (output or 0) or DEFAULT_CONTEXT
            input = output = None
        needed = lengths(model, kind)
        if "input" in needed and input is None:
            input = DEFAULT_INPUT
        broken = plan_faults(
            model, plan, phase=kind, batch=batch, sequence=None if kind == "decode" else input
        )
        if device is not None and kind == "train":
            broken += recipe_faults(model, plan, device)
        if broken:
            faults.append(SpecError(broken))
        given = {"input": input, "output": output, "context": context}
        used = {name: value for name, value in given.items() if name in needed}
        idle = given if kind == "train" else {"sequence": sequence, "global_batch": global_batch}
        # Where a spec could not be loaded, that is a fault of its own, and nothing is returned.
        scenario = attempt(
            lambda: Scenario(
                hardware=cast(Accelerator, device),
                stack=cast(Stack, software),
                model=model,
                phase=kind,
                batch=batch,
                **used,
                ignored=tuple(
                    name
                    for name, value in (given | idle).items()
                    if value is not None and name not in needed
                ),
                plan=plan,
                fidelity=cast(Fidelity, fidelity),
                seed=seed,
                overrides=texts,
                bare=None if box is None else alone,
                notes=notes,
                command=_command(
                    _name(workload),
                    _name(hardware),
                    {
                        "phase": kind,
                        "batch": batch,
                        **used,
                        "dtype": dtype,
                        "stack": None if stack is None else _name(stack),
                        "system": system,
                        **{name.replace("_", "-"): value for name, value in degrees.items()},
                        "fidelity": fidelity,
                        "seed": seed,
                    },
                    texts,
                ),
            )
        )
    if faults:
        raise together(faults)
    assert scenario is not None, "nothing was wrong"
    return scenario


_NAMES = {
    "workload": (str, Path, Transformer, UNet), "hardware": (str, Path, Accelerator),
    "stack": (str, Path, Stack), "system": (str, Path),
    **dict.fromkeys(("dtype", "phase", "fidelity", "recompute"), (str,)),
}  # fmt: skip
_NEEDED = ("workload", "hardware", "batch", "fidelity", "seed", "overrides")


def _wrong_kinds(given: Mapping[str, object]) -> list[Fault]:
    """Arguments of ``make_scenario`` that are neither counts nor names where such are wanted."""
    faults = []
    for name, value in given.items():
        if value is None and name not in _NEEDED:
            continue
        if name in COUNTS:
            fits = isinstance(value, Integral) and not isinstance(value, bool)
            fix = "write a whole number"
        elif name == "overrides":
            fits = isinstance(value, Iterable) and not isinstance(value, str | bytes)
            fix = "write a list of texts such as 'compute.units=300'"
        else:
            fits, fix = isinstance(value, _NAMES[name]) and value != "", "write a name"
        if not fits:
            faults.append(Fault("scenario", None, name, f"found {value!r:.40}", fix))
    return faults


def _plan(overrides: tuple[Override, ...], faults: list[InputError]) -> Plan:
    """The plan that they set; where some are wrong, that of the others, whose faults show too."""
    try:
        return with_overrides(Plan(), overrides)
    except SpecError as error:
        faults.append(error)
        wrong = {fault.path for fault in error.faults}
        return with_overrides(Plan(), [one for one in overrides if one.path not in wrong])


def _twice(
    input: int | None, sequence: int | None, batch: int, global_batch: int | None
) -> Iterator[Fault]:
    """Two names of a training step for one thing, with unequal values."""
    for name, value, other, chosen in (
        ("input", input, "sequence", sequence),
        ("batch", None if batch == 1 else batch, "global_batch", global_batch),
    ):
        if value is not None and chosen is not None and value != chosen:
            found = f"{value:,}, but {other} is {chosen:,}"
            yield Fault("scenario", None, name, found, "they are one thing: keep one of them")


def _system(
    system: str | Path | None, accelerator: Accelerator | None, overrides: tuple[Override, ...]
) -> System | None:
    """The system asked for, or the accelerator's own one."""
    if system is not None:
        return load_system(system, overrides)
    if accelerator is None:
        return None
    own = default_system(accelerator, overrides)
    if own is None:
        fix = "name one with --system"
        raise SpecError([Fault("--set", None, "system", f"{accelerator.name} has none", fix)])
    return own


def _name(spec: str | Path | Model | Accelerator | Stack) -> str:
    """What was asked for by name or file, or else the name of what was given."""
    return str(spec) if isinstance(spec, str | Path) else spec.name


def _command(
    workload: str, hardware: str, options: dict[str, Any], overrides: tuple[str, ...]
) -> str:
    """The command line of a scenario; what is not given is left out."""
    words = ["tilecast", "run", workload, "--on", hardware]
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    for text in overrides:
        words += ["--set", text]
    return shlex.join(words)


def _phase(model: Model, input: int | None, output: int | None, context: int | None) -> str:
    if not isinstance(model, Transformer):
        return "denoise"
    if output is not None and context is None:
        return "generate"
    if input is not None and context is None:
        return "prefill"
    return "decode"


def simulate(scenario: Scenario, told: Callable[[], None] | None = None) -> Result:
    """Run ``scenario``. Pure: the same scenario gives the same Result.

    ``told`` is called for each kernel that was found, for those who show progress.
    Raises CapacityError where the device does not hold it, with the shortfall and what would, and
    SpecError for what is no scenario.
    """
    if not isinstance(scenario, Scenario):
        fix = "a scenario of make_scenario or load_scenario"
        raise SpecError([Fault("simulate", None, "scenario", f"found {scenario!r:.40}", fix)])
    return run_inference(scenario, told=told)


def make_target(
    hardware: str | Path | Accelerator,
    *,
    stack: str | Path | Stack | None = None,
    overrides: Iterable[str] = (),
) -> Target:
    """A device under a software stack, its own by default, with ``overrides`` set in them.

    Raises SpecError or UnknownNameError; an override of a model or a system is refused.
    """
    from simulator.costs.target import Target

    parts = overrides_by_spec(tuple(overrides))
    stray = [part for kind in ("workload", "system") for part in parts[kind]]
    if stray:
        fix = "set numbers of the hardware or the stack"
        raise SpecError([Fault("--set", None, part.path, "has no say here", fix) for part in stray])
    device = (
        load_hardware(hardware, parts["hardware"])
        if isinstance(hardware, str | Path)
        else with_overrides(hardware, parts["hardware"])
        if parts["hardware"]
        else hardware
    )
    if stack is None:
        software = default_stack(device, parts["stack"])
    elif isinstance(stack, str | Path):
        software = load_stack(stack, parts["stack"])
    else:
        software = with_overrides(stack, parts["stack"]) if parts["stack"] else stack
    return Target(accelerator=device, stack=software)


def predict(
    family: str,
    table: Any,
    hardware: str | Path | Accelerator,
    *,
    stack: str | Path | Stack | None = None,
    overrides: Iterable[str] = (),
) -> dict[str, NDArray[Any]]:
    """Latency of every operator shape in a table, with its 80 % interval and what binds.

    ``family`` is gemm, attention, moe, collective, moe_comm or elementwise; ``table`` is a polars
    frame, a mapping of columns, or a CSV or parquet file. Returns the columns ``latency_us``,
    ``lower_us``, ``upper_us`` (microseconds) and ``bound_by``, one entry per row, in order.

    >>> predict("gemm", {"m": [4096], "n": [4096], "k": [4096], "dtype": ["bf16"]}, "h200")[
    ...     "bound_by"
    ... ].tolist()
    ['compute']

    Raises UnknownNameError with the near names, SpecError for a file that cannot be read, and
    TableError with every row that cannot be answered.
    """
    from simulator.tables.answer import answer
    from simulator.tables.files import as_frame

    changes = tuple(overrides)
    if not changes and _is_name(hardware) and (stack is None or _is_name(stack)):
        target = _named_target(cast(str, hardware), cast(str | None, stack))
    else:
        target = make_target(hardware, stack=stack, overrides=changes)
    name = str(table) if isinstance(table, str | Path) else "table"
    return answer(family, as_frame(table), target, name=name).columns


def _is_name(spec: object) -> bool:
    """Whether a spec is asked for by a name of the catalogue, not by a file that may change."""
    return isinstance(spec, str) and not Path(spec).suffix and not Path(spec).is_file()


@lru_cache(maxsize=32)
def _named_target(hardware: str, stack: str | None) -> Target:
    return make_target(hardware, stack=stack)
