"""A training step in words: how well it uses its devices, what is lost, and what a run takes.

Reads a Result; draws nothing.
"""

from __future__ import annotations

import math

from simulator.report import numbers
from simulator.result import Result
from simulator.training_use import TrainingUse

DAY = 86400.0
RULE = "Megatron-LM"
"""Whose rule counts the FLOPs of language models: 6 per active parameter without the input
embedding, and causal attention."""

Lines = list[tuple[str, str, tuple[str, ...]]]
"""Label, value and details of each line."""


def share_of(use: TrainingUse, name: str, latency: float) -> float:
    """Share of the step that the part of that name takes."""
    return sum(part.time for part in use.parts if part.name == name) / (latency or 1.0)


def exposed(use: TrainingUse) -> list[tuple[str, float]]:
    """What of communication nothing hides, longest first, by name."""
    sums: dict[str, float] = {}
    for part in use.parts:
        if part.bound == "link":
            sums[part.name] = sums.get(part.name, 0.0) + part.time
    return sorted(sums.items(), key=lambda item: -item[1])


def utilisation(result: Result) -> Lines:
    """MFU and HFU, and by which rule."""
    peak = dict(result.roof.compute).get(result.dtype)
    if result.mfu is None or peak is None:
        return []
    rule = f"FLOPs by {RULE}'s rule" if result.unit == "tokens" else "FLOPs of products"
    of = f"of {numbers.quantity(peak, 'FLOP/s')} dense {numbers.plain(result.dtype)}"
    hfu = f"HFU {numbers.utilisation(result.hfu)} with recomputation"
    return [("utilisation", f"MFU {numbers.utilisation(result.mfu)}", (hfu, of, rule))]


def losses(result: Result) -> Lines:
    """The pipeline's bubble, and communication that nothing hides."""
    use = result.training
    if use is None or result.latency <= 0:
        return []
    plan = dict(use.plan)
    found: Lines = []
    if plan.get("pp", "1") != "1":
        bubble = numbers.points(share_of(use, "pipeline bubble", result.latency))
        mean = f"of the busiest stage; {numbers.points(use.bubble)} % of a mean one"
        many = f"{numbers.count(use.micro_batches)} micro-batches over {plan['pp']} stages"
        schedule = numbers.plain(plan.get("schedule", ""))
        details = (f"{mean} if communication were free", f"{many}, {schedule}")
        found.append(("bubble", f"{bubble} %", details))
    links = exposed(use)
    total = math.fsum(time for _, time in links)
    if total > 0:
        named = ", ".join(
            f"{numbers.plain(name)} {numbers.quantity(time, 's')}" for name, time in links
        )
        share = numbers.points(total / result.latency)
        found.append(("exposed", f"{share} %", (f"communication that nothing hides: {named}",)))
    return found


def to_train(result: Result) -> Lines:
    """Time and device-hours of the run that was asked for."""
    budget = result.training.budget if result.training else None
    if budget is None:
        return []
    unit, factor = ("days", DAY) if budget.time >= 2 * DAY else ("hours", DAY / 24)
    value = numbers.quantity(budget.time / factor, unit)
    if result.interval is not None:
        low, high = (
            budget.steps * end / factor for end in (result.interval.lower, result.interval.upper)
        )
        value = numbers.interval(budget.time / factor, low, high, unit)
    return [
        (
            "to train",
            value,
            (
                f"{numbers.count(budget.tokens)} tokens in {numbers.count(budget.steps)} steps"
                f" of {numbers.count(result.work)}",
                f"{numbers.count(budget.device_hours)} device-hours, without restarts",
            ),
        )
    ]
