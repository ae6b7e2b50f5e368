"""Which plan is fastest, and which is cheapest: every plan that fits estimated, the best simulated.

Knows scenarios, plans and how to run them. Holds no cost formula and no event of its own.

An estimate runs the rank with most rows alone, the routing of the first MoE layer standing for
all, and plays only as many micro-batches of a training step as its pipeline needs to get into
step, without contention for links. It is within a few percent of the simulated time, and equal to
it where a pass has no experts and nothing contends.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from simulator.costs.money import hourly
from simulator.costs.target import Target
from simulator.engine.execute import Memo
from simulator.errors import CapacityError, ImpossibleError, InputError
from simulator.result import Bound
from simulator.runs.experts import quick_latency
from simulator.runs.inference import run_inference, steps, yields
from simulator.runs.plan_space import VARIED, Fitting, Space, fill
from simulator.runs.prices import Prices
from simulator.runs.training import quick_step
from simulator.specs.plan import Plan
from simulator.specs.scenario import Scenario
from simulator.specs.workload import Transformer
from simulator.units import Bytes, Dollars, DollarsPerHour, Seconds

By = Literal["time", "cost", "throughput"]
ORDERS: tuple[By, ...] = ("time", "cost", "throughput")
COUNTS = 1, 2, 4, 8, 16, 32, 64
"""Devices that are searched where none are asked for."""
Told = Callable[[str, int, int | None], None]
"""What is done, how much of it, and of how much, where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPlan:
    """A plan that fits, with its time."""

    hardware: str
    plan: Plan
    text: str
    """The plan in a few words."""
    devices: int
    latency: Seconds
    work: float
    """Tokens that one ``latency`` yields."""
    exact: bool
    """Simulated as ``command`` does it; else estimated."""
    hour: DollarsPerHour | None
    """Of one device for an hour."""
    memory: Bytes
    """Of the fullest device."""
    capacity: Bytes
    bound_by: Bound | None
    """What binds; None for an estimate."""
    command: str
    """The command line that runs the plan."""

    @property
    def throughput(self) -> float:
        """Tokens per second and device."""
        return self.work / self.latency / self.devices

    @property
    def cost(self) -> Dollars | None:
        """Dollars per million tokens, or None where no price is known."""
        return None if self.hour is None else self.hour / 3600 / self.throughput * 1e6

    @property
    def headroom(self) -> Bytes:
        """Memory that is left on the fullest device."""
        return self.capacity - self.memory

    def value(self, by: By) -> float:
        """What plans are ranked by, the least first."""
        if by == "time":
            return self.latency
        if by == "cost":
            return math.inf if self.cost is None else self.cost
        return -self.throughput


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSearch:
    """Every plan that fits, and what became of the others."""

    plans: tuple[RankedPlan, ...]
    spaces: tuple[Space, ...]
    """One for each device, in the order in which they were asked for."""
    bases: tuple[Scenario, ...]
    """What the plans are for, by device."""
    by: tuple[By, ...]
    """The orders whose best plans were simulated."""

    def ranked(self, by: By = "time") -> tuple[RankedPlan, ...]:
        """Plans in order; without those whose cost is not known where it is ranked by.

        Equal ones: fewer devices first, then by plan and by device.
        """
        known = (plan for plan in self.plans if by != "cost" or plan.cost is not None)
        return tuple(sorted(known, key=lambda plan: _order(plan, by)))


def _order(plan: RankedPlan, by: By) -> tuple[float, int, str, str]:
    return plan.value(by), plan.devices, plan.text, plan.hardware


def search(
    bases: Sequence[Scenario],
    counts: Sequence[int] = COUNTS,
    *,
    by: Sequence[By] = ("time", "cost"),
    exact: int = 5,
    held: frozenset[str] = frozenset(),
    told: Told | None = None,
    given: Plan | None = None,
) -> PlanSearch:
    """Plans for each of ``bases``, one scenario for each device, on as many devices as ``counts``.

    ``held`` fields of the plan stay as ``given`` has them, or else the scenario. Of each device
    the ``exact`` best plans are simulated, as many by each order of ``by``, so that none of the
    best is an estimate.

    Raises InputError for a model without layers to cut, ImpossibleError where no plan is legal,
    and CapacityError where none fits, with the nearest one and its shortfall.
    """
    if not all(isinstance(base.model, Transformer) for base in bases):
        raise InputError("plans are searched for language models; of a U-Net replicas alone differ")
    spaces = tuple(Space(hardware=base.hardware.name) for base in bases)
    for base, space in zip(bases, spaces, strict=True):
        for devices in counts:
            count = _counter(told, f"{space.hardware}: plans tried")
            fill(space, base, devices, held, count, given)
    if not any(space.kept for space in spaces):
        raise _none_fits(bases, spaces, counts, held, told, given)
    plans = [
        plan
        for base, space in zip(bases, spaces, strict=True)
        for plan in _timed(base, space, by, exact, held, told)
    ]
    return PlanSearch(plans=tuple(plans), spaces=spaces, bases=tuple(bases), by=tuple(by))


def _timed(
    base: Scenario,
    space: Space,
    by: Sequence[By],
    exact: int,
    held: frozenset[str],
    told: Told | None,
) -> list[RankedPlan]:
    """The plans of one device, all estimated and the best of them simulated."""
    prices = Prices(base, Target(accelerator=base.hardware, stack=base.stack), Memo())
    count = _counter(told, f"{space.hardware}: plans estimated", len(space.kept))
    plans = []
    for entry in space.kept:
        plans.append(_ranked(base, entry, estimate(prices.under(entry.scenario)), held))
        count()
    # Of one device the cheapest plan is that of most throughput.
    orders: list[By] = ["time"] if "time" in by else []
    orders += ["throughput"] if set(by) - {"time"} else []
    each = -(-exact // len(orders))
    count = _counter(told, f"{space.hardware}: plans simulated")
    while (place := _unsure(plans, orders, each)) is not None:
        plan = plans[place]
        scenario = replace(space.kept[place].scenario, command=plan.command)
        result = run_inference(scenario, prices=prices)
        plans[place] = replace(plan, latency=result.latency, exact=True, bound_by=result.bound_by)
        count()
    return plans


def _unsure(plans: Sequence[RankedPlan], by: Sequence[By], most: int) -> int | None:
    """The place of a plan that is among the best of an order and only estimated."""
    for one in by:
        order = sorted(range(len(plans)), key=lambda place: _order(plans[place], one))
        for place in order[:most]:
            if not plans[place].exact:
                return place
    return None


def estimate(prices: Prices) -> Seconds:
    """The latency of a scenario, in a small part of the time that simulating it takes."""
    if prices.scenario.phase == "train":
        return quick_step(prices)
    return sum(
        weight * quick_latency(phase, step, prices)
        for phase, weight, step in steps(prices.scenario)
    )


def _ranked(base: Scenario, entry: Fitting, latency: Seconds, held: frozenset[str]) -> RankedPlan:
    plan, device = entry.scenario.plan, base.hardware
    return RankedPlan(
        hardware=base.hardware.name,
        plan=plan,
        text=entry.text,
        devices=plan.devices,
        latency=latency,
        work=float(base.batch * yields(base)),
        exact=False,
        hour=hourly(device.price, None if device.power is None else device.power.limit),
        memory=entry.memory.total,
        capacity=entry.memory.capacity,
        bound_by=None,
        command=command_of(base, plan, held),
    )


def command_of(base: Scenario, plan: Plan, held: frozenset[str]) -> str:
    """The command line of ``base`` with the degrees of ``plan``; ``held`` ones stand in it."""
    words, usual = [base.command], Plan(dp=replace(plan, dp=None).replicas)
    for name in VARIED:
        value = getattr(plan, name)
        if name in held or value == getattr(usual, name):
            continue
        if name == "virtual_stages":
            words += ["--set", shlex.quote(f"plan.{name}={value}")]
        else:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return " ".join(words)


def _none_fits(
    bases: Sequence[Scenario],
    spaces: Sequence[Space],
    counts: Sequence[int],
    held: frozenset[str],
    told: Told | None,
    given: Plan | None,
) -> ImpossibleError:
    """Why there is no plan: for each device the nearest one, and how many devices would do."""
    lines = []
    for base, space in zip(bases, spaces, strict=True):
        many = ", ".join(f"{count:,}" for count in counts)
        near, name = space.nearest, f"{many} x {space.hardware}"
        if not space.tried:
            lines.append(
                f"no plan for {name} is legal: the degrees that are set do not make that many; "
                "take another number of devices"
            )
            continue
        if near is None:
            rules = ", ".join(f"{rule} of {some:,}" for rule, some in space.broken.most_common())
            lines.append(
                f"no plan for {name} is legal: of {space.tried:,} tried, wrong are {rules}; take "
                "another number of devices"
            )
            continue
        lines.append(
            f"no plan of {base.model.name} fits on {name}; the nearest of "
            f"{space.too_large:,} legal ones, {near.text}, needs "
            f"{near.memory.total / 1e9:,.1f} GB of {near.memory.capacity / 1e9:,.1f} GB on each, "
            f"{space.shortfall / 1e9:,.1f} GB short{_more(base, max(counts), held, told, given)}"
        )
    kind = CapacityError if any(space.nearest for space in spaces) else ImpossibleError
    return kind("\n".join(lines))


def _more(
    base: Scenario,
    devices: int,
    held: frozenset[str],
    told: Told | None,
    given: Plan | None,
) -> str:
    """How many devices would hold it, of powers of two up to 16 times as many."""
    for count in (1 << power for power in range(devices.bit_length(), devices.bit_length() + 4)):
        space = Space(hardware=base.hardware.name)
        counter = _counter(told, f"{space.hardware}: plans tried")
        fill(space, base, count, held, counter, given)
        if space.kept:
            return f"; --devices {count} fits, with {space.kept[0].text}"
    return ""


def _counter(told: Told | None, what: str, of: int | None = None) -> Callable[[], None]:
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        if told is not None:
            told(what, done, of)

    return count
