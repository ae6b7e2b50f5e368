"""What more HBM bandwidth would buy, and where something else binds.

python -m simulator.examples.bandwidth_what_if "llama-3.1-70b decode batch=64 on mi455x"
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise

from simulator import load_scenario, what_if

LINE = "llama-3.1-70b decode batch=32 context=4096 on mi455x"
TERABYTES = (6.4, 12.0, 19.6, 23.3, 30.0, 40.0)


def main(arguments: Sequence[str]) -> None:
    """Print, of each step up, how much of the added bandwidth arrives as throughput."""
    base = load_scenario(arguments[0] if arguments else LINE)
    axis = {"hardware.memory.hbm.bandwidth": [f"{rate} TB/s" for rate in TERABYTES]}
    results = list(what_if(base, axis))
    for (rate, result), (more, faster) in pairwise(zip(TERABYTES, results, strict=True)):
        share = (result.latency / faster.latency - 1) / (more / rate - 1)
        print(
            f"{rate:4} to {more:4} TB/s: {faster.throughput:8,.0f} tok/s, {share:4.0%} of what "
            f"was added; bound by {faster.bound_by}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
