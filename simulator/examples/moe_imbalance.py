"""What unequal experts cost, and what placing them by their load brings back.

python -m simulator.examples.moe_imbalance mi455x
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from simulator import load_scenario, simulate

LINE = "deepseek-v3 prefill batch=8 input=1024 ep=8 {change} on {device}"
SKEWED = 'moe.routing="zipf 1.2"'
CHANGES = {
    "as many tokens to each": "moe.routing=balanced",
    "zipf 1.2": SKEWED,
    "experts packed by load": f"{SKEWED} plan.placement=balanced",
    "and 32 copies of heavy ones": f"{SKEWED} plan.placement=balanced plan.redundant_experts=32",
}


def main(arguments: Sequence[str]) -> None:
    """Print the time of a prefill for each routing and placement."""
    device = arguments[0] if arguments else "mi455x"
    for name, change in CHANGES.items():
        result = simulate(load_scenario(LINE.format(change=change, device=device)))
        widest = max(use.rank_imbalance for use in result.experts)
        print(f"{name:28} {1e3 * result.latency:7.2f} ms, fullest rank {widest:.2f}x the mean")


if __name__ == "__main__":
    main(sys.argv[1:])
