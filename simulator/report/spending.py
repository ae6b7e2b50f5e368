"""What a run takes in joules and dollars, in words."""

from __future__ import annotations

from simulator.report import numbers
from simulator.report.training_facts import Lines
from simulator.result import Result


def energy(result: Result) -> Lines:
    """Joules of each token, watts of each device, and all of the run that was asked for."""
    budget = result.training.budget if result.training else None
    if result.energy is None or result.work <= 0:
        return [("energy", "unknown", (result.unknown.get("energy", "nothing is done"),))]
    each = numbers.quantity(result.energy / result.work, "J")
    details = [f"per {result.unit.removesuffix('s')}, estimated at the accelerators"]
    if result.power is not None:
        details.append(f"{numbers.quantity(result.power, 'W')} each{_by_phase(result)}")
    parts = [part for part in result.energy_parts if part.energy > 0]
    if parts and result.energy > 0:
        shares = numbers.shares([part.energy for part in parts], result.energy)
        named = (
            f"{part.name}{numbers.NO_BREAK}{share.strip()}{numbers.NO_BREAK}%"
            for part, share in zip(parts, shares, strict=True)
        )
        details.append(", ".join(named))
    if budget and budget.energy is not None:
        details.append(f"{numbers.quantity(budget.energy / 3600, 'Wh')} in all")
    return [("energy", each, tuple(details))]


def _by_phase(result: Result) -> str:
    """Watts of each device in each phase, where there are several."""
    drawn = [
        f"{numbers.plain(part.name)} {numbers.quantity(watts, 'W')}"
        for part in result.phases
        if part.energy is not None and part.latency > 0
        for watts in (part.energy / part.latency / result.devices,)
    ]
    return f" ({', '.join(drawn)})" if len(drawn) > 1 else ""


def cost(result: Result) -> Lines:
    """Dollars of a million tokens, read and written, and of the run that was asked for."""
    budget = result.training.budget if result.training else None
    if result.cost is None or result.work <= 0:
        return [("cost", "unknown", (result.unknown.get("cost", "nothing is done"),))]
    each = numbers.digits(1e6 * result.cost / result.work)
    several = len(result.phases) > 1
    details = [f"per million {'output tokens, all told' if several else result.unit}"]
    if several:
        sides = ((name, value) for name, value in result.cost_per_million.items() if value)
        details.append(", ".join(f"{name} ${numbers.digits(value)}" for name, value in sides))
    if result.latency > 0:
        hour = numbers.digits(result.cost / result.latency / result.devices * 3600)
        details.append(f"${hour} an hour and device")
    bought = result.provenance.source_of("cost")
    details += [f"assumed: {bought}"] if bought else []
    if budget and budget.cost is not None:
        details.append(f"${numbers.count(budget.cost)} in all")
    return [("cost", f"${each}", tuple(details))]


def prices(result: Result) -> list[tuple[str, str, str]]:
    """What costs how much, and how that comes about; empty where no price is known."""
    if result.cost is None or result.work <= 0 or result.latency <= 0:
        return []
    hour = result.cost / result.latency / result.devices * 3600
    assumed = result.provenance.source_of("cost")
    rent = next((e for e in result.provenance.numbers if e.path.endswith("price.rent")), None)
    how = f"assumed: {assumed}" if assumed else f"rent, {rent.source}" if rent else "rent"
    found = [("one device for an hour", hour, how)]
    many = "all devices" if result.devices > 1 else "the device"
    over = {
        "input": f"what prefill takes of {many}, over the tokens read",
        "output": f"what decode takes of {many}, over the tokens written",
        "total": f"{many}, over the tokens read and written",
    }
    if result.phase not in ("generate", "prefill", "decode"):
        over["total"] = f"{many}, over the {result.unit} of a step"
    for side, text in over.items():
        value = result.cost_per_million.get(side)
        if value is not None and (side != "total" or result.phase not in ("prefill", "decode")):
            found.append((f"a million {result.unit}, {side}", value, text))
    return [(name, f"${numbers.digits(value)}", numbers.plain(text)) for name, value, text in found]
