"""A run at a million devices in closed form, to find those that are worth a run of their own.

Knows what a run's operators take at each value of each axis, and combines them. Never touches a
clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.costs.target import Target
from simulator.engine.execute import Memo
from simulator.errors import Fault, InputError, SpecError, together
from simulator.mapping.placement import memory_use, require_fit
from simulator.ops.op import Op
from simulator.result import Bound, Result
from simulator.runs.inference import passes_of, yields
from simulator.runs.line import Line
from simulator.runs.prices import Prices
from simulator.specs.scenario import Scenario
from simulator.study.change import changed, of_hardware, require_kinds
from simulator.study.closed_form import Floats, estimate_many
from simulator.study.what_if import counts_of, what_if

CHUNK = 1 << 14
"""Points worked out at once: arrays of so many floats stay in the cache of a core."""
MOST_POINTS = 1 << 26
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """Latency (seconds, infinite where a point does not fit) and throughput of every point."""

    base: Scenario
    axes: Mapping[str, Sequence[object]]
    how: Literal["grid", "zip"]
    latency: Floats
    throughput: Floats
    kernels: int
    """Operators that were worked out for each point."""

    def places(self, points: ArrayLike) -> dict[str, Ints]:
        """Which value of each axis the ``points``, counted from 0, have."""
        found = np.asarray(points, dtype=np.int64)
        wrong = found[(found < 0) | (found >= len(self.latency))]
        if len(wrong):
            fix = f"a point from 0 to {len(self.latency) - 1:,}"
            raise SpecError([Fault("screen", None, "points", f"found {wrong[0]}", fix)])
        if self.how == "zip":
            return dict.fromkeys(self.axes, found)
        places = np.unravel_index(found, tuple(len(values) for values in self.axes.values()))
        return dict(zip(self.axes, places, strict=True))

    def changes(self, points: ArrayLike) -> dict[str, list[object]]:
        """Path and value of each axis at the ``points``, as ``what_if`` takes them with zip."""
        return {
            path: [self.axes[path][at] for at in places.tolist()]
            for path, places in self.places(points).items()
        }

    def exactly(self, points: Sequence[int]) -> Iterator[Result]:
        """The ``points`` simulated at the fidelity of the base, in that order."""
        return what_if(self.base, self.changes(points), how="zip") if len(points) else iter(())


def screen(
    base: Scenario,
    axes: Mapping[str, Sequence[object]],
    *,
    how: Literal["grid", "zip"] = "grid",
    told: Callable[[], None] | None = None,
) -> Screened:
    """``base`` at every point of ``axes``, whose paths lead into the accelerator, in closed form.

    The run is priced at each value of each axis alone, so there, and at the base, the latency is
    that of a run at ``fidelity="roofline"`` (within 1e-12). Between, an operator takes its closed
    form at the point's rates, times what that was off by at the value of each axis alone: of a
    kernel with the tiles of the base ``estimate``, of one that is held to a fit the fit's parts,
    met as the root of their squares; exchanges and the time between kernels change as the axes
    alone change them. Points are in the order of ``what_if``. ``told`` is called after each
    pricing.

    Raises InputError with all that is wrong: a path that leads elsewhere, a value that does not
    hold, or a run that is no stream of operators one after another: with expert or pipeline
    parallelism, or of training.
    """
    require_kinds(base, axes)
    _require_stream(base, axes)
    counts = counts_of(axes, how, MOST_POINTS)
    plain = changed(base, {"fidelity": "roofline"})
    start = _Priced.of(plain)
    tables, errors = [], []
    for path, values in axes.items():
        scenarios: list[Scenario] = []
        for value in values:
            try:
                scenarios.append(changed(plain, {path: value}))
            except InputError as error:
                errors.append(error)
        if not errors:
            tables.append(_Effects.of(start, scenarios, told))
    if errors:
        raise together(errors)
    changed(base, {path: values[0] for path, values in axes.items()})  # No path stands twice.
    if not any(table.holds is not None for table in tables):
        require_fit(base, memory_use(base))
    many = prod(counts) if how == "grid" else counts[0]
    latency = np.empty(many)
    for first in range(0, many, CHUNK):
        points = np.arange(first, min(first + CHUNK, many))
        places = np.unravel_index(points, counts) if how == "grid" else (points,) * len(counts)
        latency[first : first + CHUNK] = _latency(start, tables, places)
    work = float(base.batch * yields(base))
    return Screened(
        base=base, axes={path: tuple(values) for path, values in axes.items()}, how=how,
        latency=latency, throughput=work / latency, kernels=len(start.lines),
    )  # fmt: skip


def _require_stream(base: Scenario, axes: Mapping[str, Sequence[object]]) -> None:
    faults = [
        Fault("sweep", None, path, "is no number of the accelerator",
              "leave it out, or simulate each point: fidelity cohort")
        for path in axes
        if not of_hardware(path)
    ]  # fmt: skip
    if not axes:
        faults.append(Fault("sweep", None, "", "no axes", "name a path and its values"))
    for what, apart in (
        ("training", base.phase == "train"), ("pipeline parallelism", base.plan.pp > 1),
        ("expert parallelism", base.plan.ep > 1),
    ):  # fmt: skip
        if apart:
            found = f"{what} overlaps operators, which no closed form knows"
            faults.append(Fault("sweep", None, "", found, "simulate each point: fidelity cohort"))
    if faults:
        raise SpecError(faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priced:
    """One run as the operators that its latency is the sum of."""

    target: Target
    lines: tuple[tuple[float, Line], ...]
    """How often, and what in the mean: each operator once."""
    rest: float
    """Seconds in no line."""

    @classmethod
    def of(cls, scenario: Scenario) -> _Priced:
        target = Target(accelerator=scenario.hardware, stack=scenario.stack)
        passes = list(passes_of(Prices(scenario, target, Memo())))
        alike: dict[Op, list[tuple[float, Line]]] = {}
        for one in passes:
            for line in one.lines:
                alike.setdefault(line.priced.op, []).append((one.weight * line.count, line))
        lines = []
        for some in alike.values():
            many = sum(count for count, _ in some)
            mean = sum(count * line.time for count, line in some) / many
            lines.append((many, replace(some[0][1], time=mean)))
        latency = sum(one.weight * one.latency for one in passes)
        rest = latency - sum(many * line.time for many, line in lines)
        return cls(target=target, lines=tuple(lines), rest=rest)

    def rate_of(self, line: Line) -> float:
        """FLOP per second of one unit in the format of an operator that is no exchange."""
        plan, target = line.priced.plan, self.target
        assert plan is not None, "an exchange does not compute"
        if line.priced.op.kind == "pointwise":
            return target.vector_rate(plan.format)
        return target.accelerator.compute.matrix[plan.format] * target.held_clock


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effects:
    """What the values of one axis do alone: factors with an entry a value, and a row a line."""

    memory: Floats
    cache: Floats
    units: Floats
    slower: Floats
    """How much longer tiles compute."""
    off: Floats
    """The time there, by what the closed form makes of the kernel of the base."""
    rest: Floats
    """Seconds that the time in no line is longer."""
    holds: NDArray[np.bool_] | None
    """Whether the device holds the run; None where the axis does not change what it holds."""

    @classmethod
    def of(
        cls, start: _Priced, scenarios: list[Scenario], told: Callable[[], None] | None
    ) -> _Effects:
        base, many = start.target, len(scenarios)
        memory, cache, units, rest = (np.empty(many) for _ in range(4))
        slower, off = np.ones((len(start.lines), many)), np.ones((len(start.lines), many))
        for at, scenario in enumerate(scenarios):
            there = _Priced.of(scenario)
            memory[at] = there.target.bandwidth / base.bandwidth
            cache[at] = there.target.cache_bandwidth / base.cache_bandwidth
            units[at] = there.target.units / base.units
            rest[at] = there.rest - start.rest
            for row, ((_, line), (_, now)) in enumerate(zip(start.lines, there.lines, strict=True)):
                if line.priced.plan is not None:
                    slower[row, at] = start.rate_of(line) / there.rate_of(now)
                rates = _Rates(
                    memory=memory[at], cache=cache[at], units=units[at], slower=slower[row, at]
                )
                alone = _seconds(line, base, rates)
                off[row, at] = now.time / alone if alone > 0 else 1.0
            if told is not None:
                told()
        uses = [memory_use(scenario) for scenario in scenarios]
        kept = all(use.capacity == base.accelerator.dram.capacity for use in uses)
        return cls(
            memory=memory, cache=cache, units=units, slower=slower, off=off, rest=rest,
            holds=None if kept else np.array([use.total <= use.capacity for use in uses]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """Rates as multiples of those of the base, and the time that a tile computes; all broadcast."""

    memory: ArrayLike = 1.0
    cache: ArrayLike = 1.0
    units: ArrayLike = 1.0
    slower: ArrayLike = 1.0


def _seconds(line: Line, base: Target, rates: _Rates) -> Floats:
    """One execution of a line of the base at other rates: a kernel in closed form or, where a fit
    says the time, its parts met as the root of their squares, as the fits of products have it."""
    known = line.priced.known
    if line.priced.plan is None:
        return np.asarray(line.time)
    if known is not None and (before := _met(known.parts, _Rates())) > 0:
        return np.asarray(line.time * _met(known.parts, rates) / before)
    kernel = line.priced.kernel
    memory, cache = np.asarray(rates.memory), np.asarray(rates.cache)
    rate = kernel.bandwidth * memory
    if kernel.bandwidth < base.bandwidth:  # held to the cache, until the memory is slower
        rate = np.minimum(kernel.bandwidth * cache, base.bandwidth * memory)
    units = np.maximum(np.rint(kernel.units * np.asarray(rates.units)), 1)
    return estimate_many(kernel, bandwidth=rate, slower=rates.slower, units=units)


def _met(parts: Mapping[Bound, float], rates: _Rates) -> Floats:
    compute = parts.get("compute", 0.0) * np.asarray(rates.slower) / np.asarray(rates.units)
    memory = parts.get("memory", 0.0) / np.asarray(rates.memory)
    cache = parts.get("cache", 0.0) / np.asarray(rates.cache)
    return np.asarray(
        np.sqrt(compute * compute + memory * memory + cache * cache) + parts.get("latency", 0.0)
    )


def _latency(start: _Priced, tables: list[_Effects], places: Sequence[Ints]) -> Floats:
    """Seconds at the points that have the values at ``places``, an array an axis."""
    axes = list(zip(tables, places, strict=True))

    def combined(name: str) -> Floats:
        return _product(getattr(table, name)[at] for table, at in axes)

    memory, cache, units = (combined(name) for name in ("memory", "cache", "units"))
    total = start.rest + sum(table.rest[at] for table, at in axes)
    for row, (many, line) in enumerate(start.lines):
        slower = _product(table.slower[row][at] for table, at in axes)
        off = _product(table.off[row][at] for table, at in axes)
        rates = _Rates(memory=memory, cache=cache, units=units, slower=slower)
        total = total + many * off * _seconds(line, start.target, rates)
    for table, at in axes:
        if table.holds is not None:
            total = np.where(table.holds[at], total, np.inf)
    return np.asarray(total)


def _product(factors: Iterable[Floats]) -> Floats:
    return np.asarray(reduce(np.multiply, factors))
