"""The answer in words: what ran, how fast, what binds it, what it fills, how far to trust it."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.report import numbers, spending, training_facts
from simulator.result import Result

LATENCY = {
    "decode": "step time",
    "prefill": "prefill time",
    "generate": "request time",
    "denoise": "image time",
}
"""What ``latency`` is called in a phase; elsewhere it is a step."""

_TOKENS = {"decode": "output tokens", "prefill": "input tokens", "generate": "output tokens"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One line of the answer."""

    label: str
    value: str
    details: tuple[str, ...] = ()


def title(result: Result) -> list[str]:
    """What ran, in parts: workload, phase and device first, then format and sizes."""
    sizes = {
        "batch": result.batch,
        "input": result.input,
        "output": result.output,
        "context": result.context,
    }
    many = f"{result.devices} x " if result.devices > 1 else ""
    return [
        numbers.plain(f"{result.workload} {result.phase} on {many}{result.hardware}"),
        numbers.plain(_formats(result)),
        *(f"{name} {numbers.count(size)}" for name, size in sizes.items() if size is not None),
    ]


def devices(result: Result) -> str:
    """How many devices, in words."""
    return f"{result.devices:,} devices" if result.devices > 1 else "1 device"


def facts(result: Result) -> list[Fact]:
    """The answer, most wanted first; what was not computed is left out."""
    training = result.training is not None
    found = [_latency(result), _throughput(result)]
    found += _facts(training_facts.utilisation(result) if training else [])
    found.append(_binding(result))
    found += _facts(training_facts.losses(result))
    found.append(_memory(result))
    if result.phases:
        parts = (f"{part.name} {numbers.quantity(part.latency, 's')}" for part in result.phases)
        found.append(Fact(label="phases", value=numbers.plain(", ".join(parts))))
    for lines in (spending.energy, spending.cost, training_facts.to_train):
        found += _facts(lines(result))
    return found


def _facts(lines: training_facts.Lines) -> list[Fact]:
    return [Fact(label=label, value=value, details=details) for label, value, details in lines]


def trust(result: Result) -> str:
    """How far to trust the answer: the weakest number behind it, and the interval if there is."""
    weakest = result.provenance.weakest
    text = f"weakest basis: {weakest.basis} ({weakest.path})"
    if result.interval is None:
        return numbers.plain(f"{text}; no interval yet: not calibrated")
    return numbers.plain(f"{text}; [ ] is the {numbers.percent(result.interval.level)} interval")


def _latency(result: Result) -> Fact:
    value = numbers.quantity(result.latency, "s")
    if result.interval is not None:
        ends = result.interval.lower, result.interval.upper
        value = numbers.interval(result.latency, *ends, "s")
    limits = numbers.span(result.bounds.lower, result.bounds.upper, "s")
    label = LATENCY.get(result.phase, "step time")
    return Fact(label=label, value=value, details=(f"bounds {limits} at these rates",))


def _throughput(result: Result) -> Fact:
    tokens, rate, within = result.unit == "tokens", result.throughput, result.interval
    unit = "tok/s" if tokens else "samples/s"
    value = numbers.quantity(rate, unit)
    if rate is not None and within is not None and within.lower > 0:
        slow, fast = result.work / within.upper, result.work / within.lower
        value = numbers.interval(rate, slow, fast, unit)
    counted = _TOKENS.get(result.phase, "tokens") if tokens else "samples"
    details = [f"{counted}, {devices(result)}"]
    if result.phase == "decode" and rate is not None and result.batch > 1:
        details.append(f"{numbers.quantity(rate / result.batch, unit)} per sequence")
    if result.training is not None and rate is not None and result.devices > 1:
        details.append(f"{numbers.quantity(rate / result.devices, unit)} per device")
    return Fact(label="throughput", value=value, details=tuple(details))


def _binding(result: Result) -> Fact:
    bound = result.bound_by
    details = []
    if result.latency > 0:
        share = numbers.percent(result.breakdown[bound] / result.latency)
        details.append(f"{share} of the time{_nearly(result)}")
    if result.mbu is not None:
        peak = numbers.quantity(result.roof.bandwidth, "B/s")
        details.append(f"MBU {numbers.utilisation(result.mbu)} of {peak}")
    if result.mfu is not None and result.training is None:
        details.append(f"MFU {numbers.utilisation(result.mfu)}")
    return Fact(label="bound by", value=bound, details=tuple(details))


def _nearly(result: Result) -> str:
    """The resource that is as good as as busy for a good part of that time."""
    times: dict[str, float] = {}
    for op in result.ops:
        if op.bound_by == result.bound_by:
            for bound in op.nearly:
                times[bound] = times.get(bound, 0.0) + op.time
    other, time = max(times.items(), key=lambda entry: entry[1], default=("", 0.0))
    share = time / result.breakdown[result.bound_by] if time else 0.0
    return "" if share < 0.1 else f", {other} as busy in {numbers.percent(min(share, 1.0))} of it"


def _memory(result: Result) -> Fact:
    memory = result.memory
    parts = sorted((part for part in memory.parts if part.bytes > 0), key=lambda part: -part.bytes)
    sizes = [memory.capacity, memory.total, *(part.bytes for part in parts)]
    unit, (capacity, total, *cells) = numbers.column(sizes, "B")
    details = []
    if memory.total > memory.capacity:
        over = numbers.quantity(memory.total - memory.capacity, "B")
        details.append(f"does not fit: {over} too much")
    if parts:
        named = (
            f"{numbers.plain(part.name)}{numbers.NO_BREAK}{cell}"
            for part, cell in zip(parts, cells, strict=True)
        )
        details.append(", ".join(named))
    return Fact(label="memory", value=f"{total} of {capacity} {unit}", details=tuple(details))


def _formats(result: Result) -> str:
    """The format of the weights, and of the products where it is another."""
    if result.weights == result.dtype:
        return result.dtype
    return f"{result.weights} weights in {result.dtype} products"
