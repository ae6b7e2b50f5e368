"""Energy of a run at its accelerators: board power between idle and the limit, by what binds.

Knows a device's power and how long each of its resources bound the run. Never touches operators
or a clock. Servers, switches and cooling are not in it. An estimate: no device states more than its
limit, and shares of it were measured on few devices.

Sources: H100 and H200 products draw the board limit, 661 to 680 of 700 W (public serving benchmarks
of 2026), and a server of eight H100 that trains a language model 76 % of its rating (arXiv
2506.14551); decode that HBM binds draws 137 to 300 of 700 W on H200 (arXiv 2605.11999); an idle
H200 draws 80 of 700 W.
"""

from __future__ import annotations

from collections.abc import Mapping

from simulator.result import Bound
from simulator.specs.hardware import Power
from simulator.units import Joules, Seconds, Watts

IDLE = 0.12
"""Idle draw over the limit, of a device that states none: 80 of 700 W."""

ACTIVITY: Mapping[Bound, float] = {
    "compute": 1.0,
    "memory": 0.35,
    "cache": 0.35,
    "link": 0.2,
    "latency": 0.2,
    "waiting": 0.2,
}
"""Where a device draws between idle (0) and its limit (1) while a resource binds it. Products run
at the limit: it is what holds their clock. HBM-bound decode at 300 of 700 W is 0.35 of the way.
Devices that wait spin; their 0.2 is an assumption."""

BASIS = (
    f"board power by what binds, from {IDLE:.0%} of its limit when idle, where none is stated, to "
    "all of it in products; accelerators alone, without servers and cooling"
)
"""The estimate in words."""


def mean_power(power: Power, parts: Mapping[Bound, Seconds]) -> Watts:
    """Mean draw of one device over a run whose time is bound as ``parts`` say.

    idle + (limit - idle) x sum of activity x time / sum of time; idle where nothing takes time.
    """
    idle = IDLE * power.peak if power.idle is None else min(power.idle, power.peak)
    whole = sum(parts.values())
    active = sum(ACTIVITY[bound] * time for bound, time in parts.items())
    return idle + (power.peak - idle) * (active / whole if whole > 0 else 0.0)


def run_energy(
    power: Power | None, parts: Mapping[Bound, Seconds], latency: Seconds, devices: int
) -> Joules | None:
    """Joules of ``devices`` equal devices over ``latency``; None where no power is stated.

    ``parts`` are those of the busiest device, so that the others draw as much at most.
    """
    if power is None:
        return None
    return mean_power(power, parts) * latency * devices
