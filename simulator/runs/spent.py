"""Energy and money of a run, phase by phase.

Knows what devices draw and cost, and what bound a phase for how long. Never touches operators' own
prices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from simulator.costs.energy import PARTS, energy_by_part
from simulator.costs.money import run_cost
from simulator.result import EnergyPart, OpUse, breakdown
from simulator.specs.scenario import Scenario
from simulator.units import Dollars, Joules, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What all devices take over some time; None, and no parts, where it is not known."""

    parts: tuple[EnergyPart, ...] = ()
    cost: Dollars | None = None

    @property
    def energy(self) -> Joules | None:
        """The sum of the parts, rounded once."""
        return math.fsum(part.energy for part in self.parts) if self.parts else None


def spent(scenario: Scenario, ops: Sequence[OpUse], latency: Seconds) -> Spent:
    """Of one phase, whose operators are those of the slowest device."""
    device, devices = scenario.hardware, scenario.plan.devices
    parts: tuple[EnergyPart, ...] = ()
    draw = None
    if device.power is not None:
        found = energy_by_part(device.power, breakdown(ops, latency), latency, devices)
        parts = tuple(EnergyPart(name=name, energy=energy) for name, energy in found.items())
        draw = math.fsum(found.values()) / latency / devices if latency else None
    return Spent(parts=parts, cost=run_cost(device.price, draw, latency, devices))


def together(phases: Sequence[Spent]) -> Spent:
    """Of phases that follow one another."""
    if len(phases) == 1:
        return phases[0]
    costs = [phase.cost for phase in phases if phase.cost is not None]
    sums = dict.fromkeys(PARTS, 0.0)
    for phase in phases:
        for part in phase.parts:
            sums[part.name] += part.energy
    known = all(phase.parts for phase in phases)
    return Spent(
        parts=tuple(EnergyPart(name=name, energy=energy) for name, energy in sums.items())
        if known
        else (),
        cost=math.fsum(costs) if costs else None,
    )
