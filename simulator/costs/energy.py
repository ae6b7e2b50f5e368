"""Energy of a run at its accelerators: board power between idle and the limit, by what binds, and
what a lower limit makes of the clock.

Knows a device's power and how long each of its resources bound the run. Never touches operators
or a clock. Servers, switches and cooling are not in it. An estimate: no device states more than its
limit, and shares of it were measured on few devices.

Sources: H100 and H200 products draw the board limit, 661 to 680 of 700 W (public serving benchmarks
of 2026), and a server of eight H100 that trains a language model 76 % of its rating (arXiv
2506.14551); decode that HBM binds draws 137 to 300 of 700 W on H200 (arXiv 2605.11999); an idle
H200 draws 80 of 700 W; gpt-oss on four MI300X draws 47 % of the limit where most is decode, and up
to 89 % in prefill (InferenceX, 2026).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from simulator.result import Bound
from simulator.specs.hardware import IDLE, Power
from simulator.units import Joules, Seconds, Watts

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

PART_OF: Mapping[Bound, str] = {
    "compute": "compute",
    "memory": "memory",
    "cache": "memory",
    "link": "links",
    "latency": "waiting",
    "waiting": "waiting",
}
"""The part of the energy that the draw above idle belongs to, by what binds meanwhile."""

PARTS = ("idle", "compute", "memory", "links", "waiting")

CAPPED = 0.4
"""The clock under matrix load goes with the power above idle to this power.

Between two measured pairs of boards that differ in their limit: MI300X and MI325X hold 1207 and
1447 MHz in bf16 at 750 and 1000 W (0.56), B200 and GB200 reach 1745 and 1822 TFLOP/s at 1000 and
1200 W (0.21). The law of dynamic power, clock x voltage squared, gives 0.33 where the voltage goes
with the clock, and 1 where it does not."""
DOUBT = 0.17
"""How far ``CAPPED`` may be off, 80 %: to either pair."""

BASIS = (
    f"board power by what binds, from {IDLE:.0%} of its limit when idle, where none is stated, to "
    "all of it in products; accelerators alone, without servers and cooling"
)
"""The estimate in words."""
CAP_BASIS = (
    f"the power above idle to the power {CAPPED} +- {DOUBT}, between two measured pairs of boards"
)
"""The clock under a cap in words."""


def clock_share(power: Power | None) -> float:
    """What a power cap leaves of the clock under matrix load; memory keeps its own.

    ((cap - idle) / (limit - idle)) ** ``CAPPED``, 1 without a cap below the limit.

    >>> round(clock_share(Power(peak=700.0, idle=80.0, cap=500.0)), 3)
    0.856
    """
    return 1.0 if power is None else _room(power) ** CAPPED


def clock_doubt(power: Power | None) -> float:
    """Half width of the 80 % interval of the logarithm of that share; 0 where nothing is capped."""
    return 0.0 if power is None else DOUBT * -math.log(_room(power))


def _room(power: Power) -> float:
    if not power.capped:
        return 1.0
    return (power.limit - power.floor) / (power.peak - power.floor)


def draw(power: Power, bound: Bound) -> Watts:
    """Draw of one device while a resource binds it, at most what a cap allows."""
    free = power.floor + ACTIVITY[bound] * (power.peak - power.floor)
    return min(free, power.limit)


def energy_by_part(
    power: Power, parts: Mapping[Bound, Seconds], latency: Seconds, devices: int
) -> dict[str, Joules]:
    """Joules of ``devices`` equal devices over ``latency``, by ``PARTS``.

    ``parts`` says what binds the busiest device for how long; shares of them are spread over the
    latency. Idle is the idle draw all the while; each other part is the draw above it.

    >>> energy_by_part(Power(peak=700.0, idle=100.0), {"compute": 1.0, "link": 1.0}, 2.0, 1)
    {'idle': 200.0, 'compute': 600.0, 'memory': 0.0, 'links': 120.0, 'waiting': 0.0}
    """
    found = dict.fromkeys(PARTS, 0.0)
    found["idle"] = power.floor * latency * devices
    whole = sum(parts.values())
    if whole > 0:
        for bound, time in parts.items():
            above = draw(power, bound) - power.floor
            found[PART_OF[bound]] += above * time / whole * latency * devices
    return found
