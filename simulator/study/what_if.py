"""One question with several answers: a scenario at every combination of changed values.

Knows how to change a scenario and what runs share; never touches a cost or a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import Literal

from simulator.costs.families.library import altered
from simulator.costs.target import Target
from simulator.engine.execute import Memo
from simulator.errors import Fault, InputError, SpecError, UnknownNameError, together
from simulator.result import Result
from simulator.runs.inference import run_inference
from simulator.runs.prices import Prices
from simulator.specs.scenario import Scenario
from simulator.study.change import changed, require_kinds

HOW = ("grid", "zip")
MOST_POINTS = 1 << 20
MOST_PRICES = 64
"""Devices whose prices are kept: studies of the hardware make a new one at every point."""

OUTER = ("scale_up", "scale_out", "host", "price")
"""Of an accelerator, what has no say in the time of a kernel."""


def what_if(
    base: Scenario,
    changes: Mapping[str, Sequence[object]],
    *,
    how: Literal["grid", "zip"] = "grid",
    told: Callable[[], None] | None = None,
) -> Iterator[Result]:
    """The result of ``base`` at each combination of the values of each path in ``changes``.

    A ``grid`` is every value with every other, the last path fastest; ``zip`` takes the first
    values together, then the second ones, and so on. Paths and values are those of ``changed``.
    What was changed is in ``Result.provenance.overrides`` and in its ``command``. ``told`` is
    called after each run.

    >>> from simulator import load_scenario
    >>> base = load_scenario("llama-3.1-8b decode batch=32 context=4096 on h200")
    >>> axes = {"hardware.memory.hbm.bandwidth": ["4 TB/s", "8 TB/s"]}
    >>> [result.bound_by for result in what_if(base, axes)]
    ['memory', 'compute']

    All points are checked before the first is run: raises InputError with the faults of all of
    them. CapacityError is raised when the turn comes to a point that does not fit.
    """
    require_kinds(base, changes)
    return _run(scenarios(base, changes, how=how), told)


def counts_of(
    changes: Mapping[str, Sequence[object]],
    how: str = "grid",
    most: int = MOST_POINTS,
    where: str = "what-if",
) -> tuple[int, ...]:
    """How many values each path has; raises InputError where they cannot be combined, or make
    more than ``most`` points. ``where`` is what faults name: a file, or what was asked."""
    if not isinstance(how, str) or how not in HOW:
        raise UnknownNameError("way to combine values", str(how), HOW)
    fix = "write a list such as ['4 TB/s', '8 TB/s']"
    faults = [
        Fault(where, None, path, f"found {values!r:.40}", fix)
        for path, values in changes.items()
        if isinstance(values, str | bytes) or not isinstance(values, Sequence) or not values
    ]
    if faults:
        raise SpecError(faults)
    counts = tuple(len(values) for values in changes.values())
    if how == "zip" and len(set(counts)) > 1:
        named = ", ".join(f"{path} has {len(values)}" for path, values in changes.items())
        faults.append(Fault(where, None, "", named, "give as many values of each, or a grid"))
    many = prod(counts) if how == "grid" else max(counts, default=0)
    if many > most:
        faults.append(Fault(where, None, "", f"{many:,} points", f"at most {most:,}"))
    if faults:
        raise SpecError(faults)
    return counts


def points(
    changes: Mapping[str, Sequence[object]], *, how: Literal["grid", "zip"] = "grid"
) -> list[dict[str, object]]:
    """The changes of each point, in order; raises InputError where values cannot be combined."""
    counts_of(changes, how)
    rows = product(*changes.values()) if how == "grid" else zip(*changes.values(), strict=True)
    return [dict(zip(changes, row, strict=True)) for row in rows]


def scenarios(
    base: Scenario,
    changes: Mapping[str, Sequence[object]],
    *,
    how: Literal["grid", "zip"] = "grid",
) -> list[Scenario]:
    """The scenario of each point, in order; raises InputError with the faults of all."""
    found: list[Scenario] = []
    faults: list[InputError] = []
    for point in points(changes, how=how):
        try:
            found.append(changed(base, point))
        except InputError as error:
            faults.append(error)
    if faults:
        raise together(faults)
    return found


def _run(found: list[Scenario], told: Callable[[], None] | None) -> Iterator[Result]:
    for scenario in found:
        yield _runner(scenario)
        if told is not None:
            told()


class Runner:
    """Answers scenarios one after another as ``simulate`` does, bit for bit, and keeps what the
    next one may share: whole results, the prices of operators, and runs of kernels."""

    def __init__(self, results: int = 1024) -> None:
        self._memo = Memo()
        self._prices: dict[object, Prices] = {}
        self._answer = lru_cache(maxsize=results)(self._run)

    def __call__(self, scenario: Scenario) -> Result:
        """The result; raises what ``simulate`` raises."""
        return self._answer(scenario.command, scenario)

    def _run(self, command: str, scenario: Scenario) -> Result:
        return run_inference(scenario, prices=self._shared(scenario))

    def _shared(self, scenario: Scenario) -> Prices:
        """The prices of those that differ in nothing that decides the price of an operator."""
        device, plan = scenario.hardware, scenario.plan
        common = (
            scenario.stack, scenario.fidelity, scenario.seed, plan.expert_order, plan.descriptors,
        )  # fmt: skip
        # How far a fit is trusted depends on where each number is from, and on any being set.
        key = device, device.provenance, *common
        prices = self._prices.get(key)
        if prices is None:
            if len(self._prices) >= MOST_PRICES:
                self._prices.clear()
            target = Target(accelerator=device, stack=scenario.stack)
            inner = replace(device, scale_up=None, scale_out=None, host=None, price=None)
            known = tuple(e for e in device.provenance if e.path.split(".")[0] not in OUTER)
            plain = inner, known, altered(device), *common
            near = self._prices.get(plain)
            if near is None:
                prices = self._prices[plain] = Prices(scenario, target, self._memo)
            else:
                prices = near.elsewhere(scenario, target)
            self._prices[key] = prices
        return prices.under(scenario)


_runner = Runner()
"""Of this process, so that a point asked for again is not run again."""
