"""The plan search as a user asks for it: names in, ranked plans out.

States a scenario for each device and hands them to the search. Holds no rule and no time.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from simulator.api import make_scenario
from simulator.costs.money import hourly
from simulator.errors import (
    CapacityError,
    Fault,
    ImpossibleError,
    InputError,
    SpecError,
    UnknownNameError,
)
from simulator.mapping.legality import plan_faults, recipe_faults
from simulator.runs.plan_search import COUNTS, ORDERS, PlanSearch, Told, search
from simulator.runs.plan_space import VARIED
from simulator.specs.hardware import Accelerator
from simulator.specs.load import overrides_by_spec, with_overrides
from simulator.specs.plan import Plan
from simulator.specs.scenario import Scenario
from simulator.specs.stack import Stack
from simulator.specs.workload import Model

MOST_DEVICES = 1 << 16


def search_plans(
    workload: str | Path | Model,
    hardware: str | Path | Accelerator | Sequence[str | Path | Accelerator],
    *,
    phase: str | None = None,
    batch: int = 1,
    input: int | None = None,
    output: int | None = None,
    context: int | None = None,
    sequence: int | None = None,
    global_batch: int | None = None,
    dtype: str | None = None,
    stack: str | Path | Stack | None = None,
    system: str | Path | None = None,
    devices: int | Sequence[int] | None = None,
    by: str | None = None,
    exact: int = 5,
    seed: int = 0,
    overrides: Iterable[str] = (),
    told: Told | None = None,
) -> PlanSearch:
    """Every legal plan that fits on one or several kinds of device, with its time and cost.

    ``devices`` is how many of each kind, one count or several; 1, 2, 4, ... 64 by default. All
    plans are estimated, and the ``exact`` best of each kind, by ``time``, ``cost`` or
    ``throughput``, are simulated; without ``by`` half of them are the best by time and half the
    best by cost. A degree that is set as an override of the plan, such as ``plan.tp=8``, stays. The
    other arguments are those of ``make_scenario``; ``told`` hears what is done and how much of it.

    Raises InputError with all that is wrong, and CapacityError where nothing fits, with the
    nearest plan and its shortfall.
    """
    texts = tuple(overrides)
    several = isinstance(hardware, Sequence) and not isinstance(hardware, str)
    kinds = list(hardware) if isinstance(hardware, Sequence) and several else [hardware]
    counts = COUNTS if devices is None else (devices,) if isinstance(devices, int) else devices
    fix = f"a count from 1 to {MOST_DEVICES:,}"
    wrong = [
        Fault("plan", None, "devices", f"{count!r:.40}", fix)
        for count in counts
        if not isinstance(count, int) or not 1 <= count <= MOST_DEVICES
    ]
    if not counts:
        wrong.append(Fault("plan", None, "devices", "none", fix))
    if exact < 0:
        wrong.append(Fault("plan", None, "exact", str(exact), "0 or more"))
    faults: list[InputError] = [SpecError(wrong)] if wrong else []
    if by is not None and by not in ORDERS:
        faults.append(UnknownNameError("order", by, ORDERS))
    # What is set of the plan meets degrees of the search, not those of a plan for one device.
    set_of_plan = [text for text in texts if _is_of_plan(text)]
    free = [text for text in texts if text not in set_of_plan]
    given: Plan | None = None
    try:
        given = with_overrides(Plan(), overrides_by_spec(set_of_plan)["plan"])
    except InputError as error:
        faults.append(error)
    bases: list[Scenario] = []
    for kind in kinds:
        assert not isinstance(kind, Sequence) or isinstance(kind, str), "kinds are flat"
        try:
            bases.append(
                make_scenario(
                    workload, kind, phase=phase, batch=batch, input=input, output=output,
                    context=context, sequence=sequence, global_batch=global_batch, dtype=dtype,
                    stack=stack, system=system, seed=seed, overrides=free,
                )
            )  # fmt: skip
            if bases[-1].phase == "train" and given is not None:
                wrong = recipe_faults(bases[-1].model, given, bases[-1].hardware)
                faults += [SpecError(wrong)] if wrong else []
        except InputError as error:
            faults.append(error)
    twice = [name for name, many in Counter(b.hardware.name for b in bases).items() if many > 1]
    if twice:
        fix = "name each device once"
        faults.append(SpecError(Fault("plan", None, n, "is named twice", fix) for n in twice))
    if faults:
        lines = dict.fromkeys(line for fault in faults for line in str(fault).split("\n"))
        raise faults[0] if len(faults) == 1 else InputError("\n".join(lines))
    held = frozenset(part.path for part in overrides_by_spec(texts)["plan"]) & frozenset(VARIED)
    assert given is not None, "nothing was wrong"
    said = "".join(f" --set {shlex.quote(text)}" for text in set_of_plan)
    bases = [replace(base, overrides=texts, command=base.command + said) for base in bases]
    priced = any(hourly(base.hardware.price, None) is not None for base in bases)
    if by == "cost" and not priced:
        named = ", ".join(base.hardware.name for base in bases)
        fix = "rank by time or throughput, or set it: price.rent=2 USD/h"
        raise SpecError([Fault("plan", None, "price.rent", f"not known for {named}", fix)])
    orders = tuple(one for one in ORDERS if one == by)
    try:
        return search(
            bases,
            sorted(set(counts)),
            by=orders or ("time", "cost" if priced else "throughput"),
            exact=exact,
            held=held,
            told=told,
            given=given,
        )
    except CapacityError:
        raise
    except ImpossibleError:
        for base in bases:
            _require_sound(base, given)
        raise


def _is_of_plan(text: str) -> bool:
    try:
        return bool(overrides_by_spec((text,))["plan"])
    except InputError:
        return False


def _require_sound(base: Scenario, given: Plan) -> None:
    """Raise SpecError where what is set of a plan breaks a rule whatever the search sets."""
    sequence = None if base.phase == "decode" else base.input
    broken = plan_faults(base.model, given, phase=base.phase, batch=base.batch, sequence=sequence)
    if broken:
        raise SpecError(broken)
    replace(base, plan=given)
