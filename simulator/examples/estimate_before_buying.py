"""How many of a device a service needs before anybody buys one, and how far to trust the answer.

python -m simulator.examples.estimate_before_buying mi455x h200
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import ceil

from simulator import make_scenario, simulate
from simulator.errors import CapacityError

MODEL, CONTEXT, PER_USER, USERS = "llama-3.1-70b", 8192, 20.0, 1000
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


def estimate(device: str) -> str:
    """The largest batch that keeps ``PER_USER`` tokens per second, and what ``USERS`` need."""
    best = None
    for batch in BATCHES:
        try:
            result = simulate(make_scenario(MODEL, device, batch=batch, context=CONTEXT))
        except CapacityError as error:
            if best is None:
                return f"{device:10} does not fit: {str(error).splitlines()[0]}"
            break
        if 1 / result.latency < PER_USER:
            break
        best = result
    if best is None:
        return f"{device:10} is too slow for {PER_USER:.0f} tok/s per user, even alone"
    rates = f"{best.throughput:6,.0f} tok/s"
    if best.interval is not None:
        slow, fast = (best.batch / time for time in (best.interval.upper, best.interval.lower))
        rates += f" [{slow:,.0f}, {fast:,.0f}]"
    return (
        f"{device:10} batch {best.batch:>3}, {rates}, bound by {best.bound_by}: "
        f"{ceil(USERS / best.batch)} devices for {USERS:,} users"
    )


def main(devices: Sequence[str]) -> None:
    """Print one line for each device."""
    for device in devices or ("h200", "mi300x", "mi455x"):
        print(estimate(device))


if __name__ == "__main__":
    main(sys.argv[1:])
