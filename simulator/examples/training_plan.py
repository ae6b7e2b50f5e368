"""Which parallel plan trains a model fastest, and what a hundred billion tokens then take.

python -m simulator.examples.training_plan mi300x 64
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from simulator import search_plans, simulate, train_for

MODEL, TOKENS = "llama-3.1-70b", "100B"


def main(arguments: Sequence[str]) -> None:
    """Print the five best plans, then the whole training with the best of them."""
    device, count = arguments or ("mi300x", "64")
    found = search_plans(
        MODEL,
        device,
        phase="train",
        sequence=8192,
        global_batch=512,
        devices=int(count),
        by="throughput",
    )
    ranked = found.ranked("throughput")
    print(f"{len(found.plans)} plans of {MODEL} fit {count} {device}")
    for plan in ranked[:5]:
        print(f"  {plan.latency:6.2f} s a step, {plan.headroom / 1e9:4.0f} GB left  {plan.text}")
    best = train_for(simulate(replace(found.bases[0], plan=ranked[0].plan)), TOKENS)
    budget = best.training.budget if best.training else None
    if budget is not None:
        print(f"{TOKENS} tokens take {budget.time / 86400:,.0f} days at {best.mfu:.0%} MFU")


if __name__ == "__main__":
    main(sys.argv[1:])
