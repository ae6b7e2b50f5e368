"""A comparison in words and cells: for the terminal and the page alike.

Rounds through ``numbers`` alone. Lays out nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulator.report import numbers, ratio
from simulator.report.compare import SPECS, Comparison, Entry

BOUGHT = "*"
"""Mark of a cost that is no rent, beside rents."""
NAME = 16
"""Letters of the name of a device in a table."""
Rows = tuple[tuple[str, ...], list[list[str]], str]
"""Heads, rows, and the side of each column: l or r."""
_SPEC = {"peak": "FLOP/s", "bandwidth": "bandwidth", "capacity": "capacity", "hour": "$/h"}


def heading(found: Comparison) -> str:
    """How many devices each row has: ``8 devices each``."""
    counts = {entry.result.devices for entry in found.entries if entry.result is not None}
    if len(counts) > 1:
        return "devices differ"
    count = counts.pop()
    return f"{count:,} devices each" if count > 1 else "1 device each"


def name(entry: Entry) -> str:
    """A device in a table."""
    return numbers.cut(numbers.plain(entry.hardware), NAME, "..")


def per_device(entry: Entry) -> tuple[str, str]:
    """Work per second and device, and its interval in brackets."""
    run, speed = entry.result, entry.speed
    if run is None or speed is None:
        return numbers.ABSENT, ""
    if run.interval is None or run.interval.lower <= 0:
        return numbers.digits(speed), ""
    work = run.work / run.devices
    text = numbers.interval(speed, work / run.interval.upper, work / run.interval.lower, "")
    value, _, ends = text.partition(" [")
    return value.strip(), f"[{ends}"


def ratio_cells(found: Comparison, entry: Entry) -> tuple[str, str]:
    """The ratio to the base, and its interval, with a mark where it cannot be told from 1."""
    value, within = found.value(entry), found.ends(entry)
    if value is None:
        return numbers.ABSENT, ""
    if within is None:
        return "1.00x", ""
    text, _, ends = ratio.times(value, within).partition(" [")
    unsure = found.verdict(entry) == "cannot tell"
    return text, f"[{ends} ?" if unsure else f"[{ends}  "


def rate_rows(found: Comparison) -> Rows:
    """Work per second and device with its interval, and the ratio to the base with its own."""
    rows = [
        [
            name(entry) + (" (base)" if entry is found.base else ""),
            *per_device(entry),
            *ratio_cells(found, entry),
            "" if entry.result is None else str(entry.result.bound_by),
        ]
        for entry in found.entries
    ]
    heads = (heading(found), f"{found.unit}/s/dev", "[80 %]", f"vs {name(found.base)}", "[80 %]",
             "bound")  # fmt: skip
    return heads, rows, "lrrrrl"


def use_rows(found: Comparison) -> Rows:
    """What each device takes: count, time, money, power, memory, and the weakest number behind."""
    runs = [entry.result for entry in found.entries]
    unit, times = numbers.column([None if run is None else run.latency for run in runs], "s")
    size, free = numbers.column([entry.headroom for entry in found.entries], "B")
    rates, mark = numbers.digits, BOUGHT if mixed(found) else ""
    rows = [
        [
            name(entry),
            numbers.ABSENT if run is None else f"{run.devices:,}",
            time,
            numbers.count(None if run is None else run.throughput),
            rates(entry.per_joule),
            rates(entry.dollars) + mark * (entry.dollars is not None and not entry.sheet.rented),
            left,
            numbers.ABSENT if entry.least is None else f"{entry.least:,}",
            "" if run is None else run.provenance.weakest.basis,
        ]
        for entry, run, time, left in zip(found.entries, runs, times, free, strict=True)
    ]
    heads = ("", "dev", unit, f"{found.unit}/s", f"{found.unit}/s/W", f"$/M {found.unit}",
             f"free {size}", "least", "basis")  # fmt: skip
    return heads, rows, "lrrrrrrrl"


def sheet_rows(found: Comparison) -> Rows:
    """Ratios of the data sheets beside the one that is reached."""
    rows = []
    for entry in found.entries:
        if entry is found.base:
            continue
        cells = [found.spec(entry, spec) for spec in SPECS]
        reached = found.value(entry)
        rows.append([name(entry), *map(_times, cells), _times(reached)])
    heads = (f"over {name(found.base)}", *(_SPEC[spec] for spec in SPECS), "reached")
    return heads, rows, "lrrrrr"


def _times(value: float | None) -> str:
    return numbers.ABSENT if value is None else f"{numbers.digits(value)}x"


def refusals(found: Comparison) -> Iterator[str]:
    """Why rows have no answer, and what was done about it."""
    if found.base is not found.entries[0]:
        base = found.base.hardware
        yield numbers.plain(f"ratios are to {base}, the first device that has an answer")
    for entry in found.entries:
        if entry.refused:
            yield numbers.plain(f"{entry.hardware}: {entry.refused}")
        elif entry.fitted:
            run = entry.result
            many = f" {run.devices:,} devices, {entry.plan}" if run else ""
            yield numbers.plain(f"{entry.hardware}: does not fit as asked; runs on{many}")


def notes(found: Comparison) -> Iterator[str]:
    """What marks mean, and what has no answer."""
    if any(found.verdict(entry) == "cannot tell" for entry in found.entries):
        yield "? cannot tell from the base: the interval covers 1.00x"
    for what in ("cost", "energy"):
        lacking: dict[str, list[str]] = {}
        for entry in found.entries:
            for kind, why in entry.unknown:
                if kind == what:
                    lacking.setdefault(why, []).append(entry.hardware)
        for why, names in lacking.items():
            yield numbers.plain(f"no {what} for {', '.join(names)}: {why}")
    if mixed(found):
        rented = ", ".join(entry.hardware for entry in found.entries if entry.sheet.rented)
        yield numbers.plain(
            f"{BOUGHT} bought, while {rented} is rented: such costs are not alike; state a rent of"
            " all, or of none (--set price.rent=null) and a purchase price"
        )
    for entry in found.entries:
        if how := bought(entry):
            yield numbers.plain(f"cost of {entry.hardware}, assumed: {how}")
    yield "least: fewest devices that hold it under a legal plan, whatever their time"
    for entry in found.entries:
        if entry.full:
            yield numbers.plain(f"{entry.hardware}: the curve ends, as {entry.full}")


def warnings(found: Comparison) -> Iterator[str]:
    """What the runs warn of, each with the devices that it is about."""
    about: dict[str, list[str]] = {}
    for entry in found.entries:
        for text in () if entry.result is None else entry.result.warnings:
            about.setdefault(text, []).append(entry.hardware)
    for text, names in about.items():
        yield numbers.plain(f"{', '.join(names)}: {text}")


def bought(entry: Entry) -> str:
    """How the cost of a device comes about that is bought and not rented; empty otherwise."""
    run = entry.result
    return "" if run is None else run.provenance.source_of("cost")


def mixed(found: Comparison) -> bool:
    """Whether some devices are rented and others bought."""
    return len({entry.sheet.rented for entry in found.entries if entry.sheet.hour}) > 1


def faster(found: Comparison, entry: Entry) -> str:
    """One device against the base, as a sentence."""
    base, verdict = numbers.plain(found.base.hardware), found.verdict(entry)
    who = numbers.plain(entry.hardware)
    value, within = found.value(entry), found.ends(entry)
    if value is None or within is None:
        return f"{who} has no answer"
    shown = ratio.times(value, within)
    if verdict == "cannot tell":
        return f"{who} cannot be told from {base}: {shown} per device covers 1"
    return (
        f"{who} is {'faster' if verdict == 'above' else 'slower'} than {base}: {shown} per device"
    )
