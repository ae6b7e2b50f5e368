"""Devices side by side at equal work: the runs, what holds the model, and curves over batches.

States a scenario for each device. Holds no cost and no time.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from simulator.api import make_scenario
from simulator.costs.money import hourly
from simulator.errors import (
    CapacityError,
    Fault,
    ImpossibleError,
    InputError,
    SpecError,
    together,
)
from simulator.report import numbers
from simulator.report.compare import Comparison, Entry, Point, Sheet
from simulator.result import Result
from simulator.runs.plan_search import search
from simulator.runs.plan_space import Space, fill, plan_text
from simulator.specs.hardware import Accelerator
from simulator.specs.scenario import LONGEST, Scenario
from simulator.specs.workload import Transformer
from simulator.study.change import changed
from simulator.study.what_if import Runner

Told = Callable[[str, int, int | None], None]
"""Hears what is done, how much of it and of how much."""

COUNTS = (*range(1, 17), 24, 32, 48, 64, 96, 128, 256, 512, 1024)
"""Numbers of devices of which the least that hold a model is looked for."""
CURVES = ("decode", "generate")
"""Phases in which each sequence has a rate of its own."""
Batches = Sequence[int] | Literal["all"]


def compare(
    workload: Any,
    hardware: Sequence[str | Path | Accelerator],
    *,
    fit: bool = False,
    batches: Batches = (),
    told: Told | None = None,
    **options: Any,
) -> Comparison:
    """The same work on each of ``hardware``, with ratios to the first one that has an answer.

    ``options`` are those of ``make_scenario``. A device that does not hold it is a row with the
    reason or, with ``fit``, runs on the fewest devices that do, under the fastest plan for them.
    ``batches`` adds a curve of both rates over these batches, ``all`` for 1, 2, 4, ... until the
    memory is full.

    Raises InputError with all that is wrong, and CapacityError where no device has an answer.
    """
    if isinstance(hardware, str) or not isinstance(hardware, Sequence):
        fix = "a list of devices, such as ['h200', 'mi355x']"
        raise SpecError([Fault("compare", None, "hardware", f"found {hardware!r:.40}", fix)])
    faults: list[InputError] = []
    wrong = list(_wrong(hardware, batches))
    if wrong:
        faults.append(SpecError(wrong))
    bases: list[Scenario] = []
    for kind in hardware:
        try:
            bases.append(make_scenario(workload, kind, **options))
        except InputError as error:
            faults.append(error)
    if bases and batches and bases[0].phase not in CURVES:
        found = f"a {bases[0].phase} run has no rate of one sequence"
        faults.append(SpecError([Fault("compare", None, "batches", found, "decode or generate")]))
    if not wrong:
        faults += _alike(bases)
    if faults:
        raise together(faults)
    entries = []
    for place, base in enumerate(bases):
        if told is not None:
            told(f"devices, now {base.hardware.name}", place, len(bases))
        try:
            entries.append(_entry(base, fit, batches))
        except InputError as error:
            faults.append(error)
    if faults:
        raise together(faults)
    if all(entry.result is None for entry in entries):
        raise CapacityError("\n".join(dict.fromkeys(entry.refused for entry in entries)))
    first = next(entry.result for entry in entries if entry.result is not None)
    return Comparison(
        entries=tuple(entries),
        unit="tok" if first.unit == "tokens" else "samples",
        about=_about(bases[0]),
        command=_command(bases, fit, batches),
    )


def _wrong(hardware: Sequence[Any], batches: Batches) -> Iterator[Fault]:
    if not hardware or any(not kind for kind in hardware):
        yield Fault("compare", None, "on", "a device without a name", "like --on h200,mi355x")
    names = [str(kind) for kind in hardware if isinstance(kind, str | Path)]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Fault("compare", None, name[:80], "is named twice", "name each device once")
    if isinstance(batches, str):
        if batches != "all":
            yield Fault("compare", None, "batches", f"found {batches!r:.40}", "numbers, or all")
        return
    for batch in batches:
        if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= LONGEST:
            fix = f"whole numbers from 1 to {LONGEST:,}, or all"
            yield Fault("compare", None, "batches", f"found {batch!r:.40}", fix)


def _alike(bases: Sequence[Scenario]) -> list[InputError]:
    """Two names of one device."""
    seen: dict[str, int] = {}
    for base in bases:
        seen[base.hardware.name] = seen.get(base.hardware.name, 0) + 1
    return [
        SpecError([Fault("compare", None, name, "is meant by two names", "name it once")])
        for name, many in seen.items()
        if many > 1
    ]


def _entry(base: Scenario, fit: bool, batches: Batches) -> Entry:
    """One device: its run, the fewest devices, and its curve."""
    run = Runner()
    least = _least(base)
    result, refused = _run(run, base)
    fitted = result is None and fit and least is not None
    if fitted and least is not None:
        best = search([base], [least.plan.devices], by=("time",), exact=3).ranked("time")[0]
        base = replace(base, plan=best.plan, command=best.command)
        result, refused = _run(run, base)
    points, full = _curve(run, base, batches) if batches else ((), "")
    return Entry(
        hardware=base.hardware.name,
        sheet=_sheet(base, result),
        result=result,
        refused=refused,
        plan=plan_text(base.plan) if result is not None else "",
        fitted=fitted,
        least=None if least is None else least.plan.devices,
        least_plan="" if least is None else plan_text(least.plan),
        unknown=tuple(_unknown(base, result)),
        points=points,
        full=full,
    )


def _run(run: Runner, base: Scenario) -> tuple[Result | None, str]:
    try:
        return run(base), ""
    except ImpossibleError as error:
        return None, str(error)


def _least(base: Scenario) -> Scenario | None:
    """The scenario on the fewest devices whose memory holds it under a legal plan."""
    if not isinstance(base.model, Transformer):
        return None
    for count in COUNTS:
        space = Space(hardware=base.hardware.name)
        fill(space, base, count)
        if space.kept:
            return space.kept[0].scenario
    return None


def _sheet(base: Scenario, result: Result | None) -> Sheet:
    device = base.hardware
    dtype = result.dtype if result is not None else base.model.activation_format
    return Sheet(
        dtype=dtype,
        peak=device.peak(dtype),
        bandwidth=device.dram.bandwidth or 0.0,
        capacity=device.dram.capacity,
        hour=hourly(device.price, None if device.power is None else device.power.limit),
        rented=device.price is not None and device.price.rent is not None,
    )


def _unknown(base: Scenario, result: Result | None) -> Iterator[tuple[str, str]]:
    if result is None:
        return
    device = base.hardware
    if result.energy is None:
        yield "energy", "no power is known" if device.power is None else "not modelled"
    if result.cost is None:
        yield "cost", "no price is known (--set price.rent=...)"


def _curve(run: Runner, base: Scenario, batches: Batches) -> tuple[tuple[Point, ...], str]:
    """Runs over batches, and why they end."""
    points: list[Point] = []
    full = ""
    for batch in _doubling() if isinstance(batches, str) else sorted(set(batches)):
        try:
            found = run(changed(base, {"batch": batch}))
        except CapacityError:
            full = f"a batch of {batch:,} does not fit"
            break
        except InputError as error:
            full = str(error).partition("\n")[0]
            if points:
                break
            continue
        full = ""
        within = found.interval
        points.append(
            Point(
                batch=batch,
                latency=found.latency,
                user=(found.work / batch) / found.latency,
                device=found.work / found.latency / found.devices,
                bound_by=found.bound_by,
                interval=None if within is None else (within.lower, within.upper),
            )
        )
    return tuple(points), full


def _doubling() -> Iterator[int]:
    batch = 1
    while batch <= LONGEST:
        yield batch
        batch *= 2


def _about(base: Scenario) -> str:
    """What runs, in words."""
    sizes = {"batch": base.batch, "input": base.input, "output": base.output}
    sizes["context"] = base.context
    words = [f"{name} {numbers.count(size)}" for name, size in sizes.items() if size is not None]
    return ", ".join([f"{base.model.name} {base.phase}", *words])


def _command(bases: Sequence[Scenario], fit: bool, batches: Batches) -> str:
    """The command line that gives it again."""
    words = shlex.split(bases[0].command)
    words[1] = "compare"
    words[4] = ",".join(shlex.split(base.command)[4] for base in bases)
    if fit:
        words.append("--fit")
    if batches:
        many = batches if isinstance(batches, str) else ",".join(map(str, batches))
        words += ["--batches", many]
    return shlex.join(words)
