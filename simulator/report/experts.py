"""What the router did to the machine, in words and as data.

Reads an ``ExpertUse``: who got which rows, what moved, who waited, and what that cost. Draws
nothing.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from itertools import chain

from simulator.expert_use import ExpertUse
from simulator.report import numbers
from simulator.report.experts_lanes import Lane, lanes
from simulator.result import Result

EVEN = 1.05
"""Fullest over mean up to which loads are called even, and need no picture."""


def ordered(result: Result) -> tuple[ExpertUse, ...]:
    """The phases with experts, decode first."""
    return tuple(sorted(result.experts, key=lambda use: use.phase != "decode"))


def peak(values: Sequence[float]) -> float:
    """The largest over the mean; 1 where there is nothing."""
    total = math.fsum(values)
    return max(values) * len(values) / total if total > 0 else 1.0


def links(use: ExpertUse) -> tuple[list[int], list[int]]:
    """Token copies that each rank sends to others, and those that it gets from others."""
    sent = [sum(row) - row[place] for place, row in enumerate(use.rows)]
    got = [
        sum(row[place] for row in use.rows) - use.rows[place][place] for place in range(len(sent))
    ]
    return sent, got


def exchanges(use: ExpertUse) -> bool:
    """Whether anything crosses a link in dispatch."""
    return use.dispatch_row > 0 and any(links(use)[0])


def total(use: ExpertUse) -> float:
    """The latency of the run, as the steps from even loads add up to it."""
    return math.fsum(step.time for step in use.lost)


def saved(use: ExpertUse) -> float | None:
    """Share of the latency that even loads would save; None where it is not known."""
    whole = total(use)
    return 1 - use.lost[0].time / whole if use.lost and whole > 0 else None


def setting(use: ExpertUse) -> str:
    """What was routed, and where the experts are."""
    parts = [
        f"Routing {numbers.plain(use.routing)}",
        _many(use.tokens, "token"),
        f"top {use.top_k} of {numbers.count(use.experts)} experts",
        _many(use.layers, "MoE layer"),
        _many(use.ranks, "rank"),
    ]
    if use.ranks > 1 and use.domain > 1:
        parts.append(f"scale-up domains of {numbers.count(min(use.domain, use.ranks))}")
    if use.redundant:
        parts.append(_many(use.redundant, "redundant copy", "redundant copies"))
    for name in ("placement", "schedule", "order"):
        if value := getattr(use, name):
            parts.append(f"{name} {numbers.plain(value)}")
    return f"{', '.join(parts)}; {_dropped(use)}."


def load_finding(use: ExpertUse) -> str:
    """Who got how many rows."""
    rows = f"{_many(sum(use.load), 'row')} over {_many(use.layers, 'layer')}"
    empty = use.load.count(0)
    none = f" {_many(empty, 'expert')} of {numbers.count(use.experts)} got no row."
    one = (
        f"In one layer {numbers.digits(use.distinct)} experts get a row on average, and the"
        f" fullest {_times(use.expert_imbalance)} the mean"
    )
    one += f"; the fullest rank {_times(use.rank_imbalance)}." if use.ranks > 1 else "."
    if even(use):
        who = "experts and ranks" if use.ranks > 1 else "experts"
        text = f"The load is even: {rows}, and all {who} get the mean to within"
        return f"{text} {numbers.percent(EVEN - 1)}.{none if empty else ''} {one}"
    text = f"The fullest expert gets {_times(peak(use.load))} the mean rows"
    if use.ranks > 1:
        fullest = use.rank_load.index(max(use.rank_load))
        text = f"Rank {fullest} gets {_times(peak(use.rank_load))} the mean rows, and the fullest"
        text += f" expert {_times(peak(use.load))}"
    share = saved(use)
    if share is not None and share >= 0.005:
        text += f"; even loads would save {numbers.points(share)} % of the time"
    return f"{text}.{none if empty else ''} {rows[0].upper()}{rows[1:]}. {one}"


def even(use: ExpertUse) -> bool:
    """Whether experts and ranks all get about the same, so that a picture shows nothing."""
    return max(peak(use.load), peak(use.rank_load)) <= EVEN


def exchange_finding(use: ExpertUse) -> str:
    """What ranks send each other."""
    sent, got = links(use)
    if not exchanges(use):
        return "Nothing crosses a link: every token meets its experts on its own rank."
    each = use.dispatch_row
    home = sum(map(sum, use.rows)) - sum(sent)
    there, home_again = (numbers.quantity(size, "B") for size in (each, use.combine_row))
    back = f"Combine is the mirror of this, with {home_again} for each copy"
    back += ", as in dispatch." if there == home_again else f" instead of {there}."
    stays = f"{numbers.percent(home / sum(map(sum, use.rows)))} of the copies stay at home"
    if even_exchange(use):
        pair = numbers.quantity(each * sum(sent) / (len(sent) * (len(sent) - 1)), "B")
        text = f"Every pair of ranks exchanges the same to within {numbers.percent(EVEN - 1)}"
        return f"{text}: {pair} each way in dispatch; {stays}. {back}"
    most = got.index(max(got))
    text = (
        f"Rank {most} receives most in dispatch: {numbers.quantity(each * got[most], 'B')},"
        f" {_times(peak(got))} the mean; {stays}"
    )
    if 1 < use.domain < use.ranks:
        text += f", {numbers.percent(_across(use) / sum(sent))} of the rest crosses domains"
    return f"{text}. {back}"


def even_exchange(use: ExpertUse) -> bool:
    """Whether all pairs of ranks exchange about the same."""
    cells = [
        copies
        for source, row in enumerate(use.rows)
        for target, copies in enumerate(row)
        if source != target
    ]
    return bool(cells) and peak(cells) <= EVEN and min(cells) * EVEN * EVEN >= max(cells)


def timeline_finding(use: ExpertUse) -> str:
    """Who is slowest in the layer, and how long the others wait."""
    shown = lanes(use)
    span = max(lane.end for lane in shown)
    text = f"MoE layer {use.layer}, the slowest, takes {numbers.quantity(span, 's')}"
    if len(shown) == 1:
        alike = f"; all {len(shown[0].ranks)} ranks do the same" if len(shown[0].ranks) > 1 else ""
        return f"{text}{alike}."
    waits = chain.from_iterable([lane.waiting] * len(lane.ranks) for lane in shown[1:])
    others = sum(len(lane.ranks) for lane in shown[1:])
    share = numbers.percent(math.fsum(waits) / others / (span or 1.0))
    return f"{text}. {_who(shown[0])} slowest; the others wait {share} of it on average."


_EVENED = (
    " Even loads: experts and ranks get as many rows each, while tokens meet the same number of"
    " ranks; moe.routing=balanced changes that number too."
)


def lost_finding(use: ExpertUse) -> str:
    """What imbalance costs."""
    whole, share = total(use), saved(use)
    if share is None:
        return ""
    base = numbers.quantity(use.lost[0].time, "s")
    if abs(share) < 0.005:
        return f"Next to no time is lost: with even loads the run would take {base} as well."
    lost = numbers.quantity(abs(whole - use.lost[0].time), "s")
    if share < 0:
        return f"This run is {lost} faster than with even loads, which would take {base}.{_EVENED}"
    worst = max(use.lost[1:], key=lambda step: step.time)
    return (
        f"Even loads would save {lost} or {numbers.points(share)} % of the"
        f" {numbers.quantity(whole, 's')}; the largest step is {numbers.plain(worst.name)}."
        f"{_EVENED}"
    )


def summary(result: Result) -> list[tuple[str, str]]:
    """Labels and texts of a few lines for a terminal; none without experts."""
    found: list[tuple[str, str]] = []
    several = len(result.experts) > 1
    for use in ordered(result):
        where = f"{numbers.plain(use.phase)}: " if several else ""
        hit = f"{numbers.digits(use.distinct)} of {numbers.count(use.experts)} hit per layer"
        fullest = f"fullest {_times(use.expert_imbalance)} the mean"
        if use.ranks > 1:
            fullest += f", rank {_times(use.rank_imbalance)}"
        routing = numbers.plain(use.routing)
        found.append(("experts", f"{where}{hit}; {fullest}; {routing}; {_dropped(use)}"))
        moves = []
        if use.rows and use.ranks > 1 and use.layers:
            copies = sum(links(use)[0]) / use.layers / use.ranks
            sizes = copies * use.dispatch_row, copies * use.combine_row
            unit, (there, back) = numbers.column(sizes, "B")
            moves += [f"dispatch {there} {unit}", f"combine {back} {unit}"]
        units = (use.layers or 1) * use.ranks
        issued = sum(phase.descriptors for phase in use.phases) / units
        copied = sum(phase.copies for phase in use.phases) / units
        if issued:
            moves.append(f"{numbers.count(issued)} descriptors")
        if copied:
            moves.append(f"{numbers.count(copied)} rows copied by threads")
        if moves:
            of = "per layer and rank" if use.ranks > 1 else "per layer"
            found.append(("moves", f"{where}{of}: {', '.join(moves)}"))
        if (share := saved(use)) is not None:
            found.append(("imbalance", f"{where}{_cost(use, share)}"))
    return found


COLUMNS = (*("phase", "figure", "item", "to", "start_s", "end_s", "value", "unit", "warnings"),)


def data(result: Result) -> str:
    """Everything that the pictures show as CSV, in base units; warnings travel with each row."""
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(COLUMNS)
    warnings = numbers.plain("; ".join(result.warnings))
    for use in ordered(result):
        for row in _rows(use):
            writer.writerow([numbers.plain(use.phase), *row, warnings])
    return sheet.getvalue()


def _rows(use: ExpertUse) -> Iterator[tuple[object, ...]]:
    for expert, rows in enumerate(use.load):
        yield "expert load", expert, "", "", "", rows, "rows"
    for expert, made in enumerate(use.gathers):
        yield "gathers per column tile", expert, "", "", "", made, "descriptors"
    for rank, rows in enumerate(use.rank_load):
        yield "rank load", rank, "", "", "", rows, "rows"
    for name, size in (("dispatch", use.dispatch_row), ("combine", use.combine_row)):
        for source, row in enumerate(use.rows):
            for target, copies in enumerate(row):
                ends = (source, target) if name == "dispatch" else (target, source)
                yield name, *ends, "", "", copies * size, "B"
    for span in use.spans:
        length = span.end - span.start
        what = numbers.plain(f"{span.lane}: {span.name}")
        yield f"layer {use.layer}", span.rank, what, span.start, span.end, length, "s"
    for phase in use.phases:
        name = numbers.plain(phase.name)
        yield "steps", name, "", "", "", phase.time, "s"
        yield "steps", name, "", "", "", phase.bytes, "B"
        for kind in ("descriptors", "copies", "requests"):
            yield "steps", name, "", "", "", getattr(phase, kind), kind
        yield "issue", name, "", "", "", phase.issue, "s"
        yield "local memory", name, "", "", "", phase.slot, "B"
    for step in use.lost:
        yield "lost", numbers.plain(step.name), "", "", "", step.time, "s"


def _across(use: ExpertUse) -> int:
    """Token copies that leave their domain."""
    return sum(
        copies
        for source, row in enumerate(use.rows)
        for target, copies in enumerate(row)
        if source // use.domain != target // use.domain
    )


def _cost(use: ExpertUse, share: float) -> str:
    lost = total(use) - use.lost[0].time
    time, whole = numbers.quantity(abs(lost), "s"), numbers.quantity(total(use), "s")
    if numbers.points(share) in ("0.0", "-0.0"):
        return f"no time of {whole} lost"
    what = "lost against even loads" if lost > 0 else "less than with even loads"
    return f"{time} of {whole} {what} ({numbers.points(abs(share))} %)"


def _who(lane: Lane) -> str:
    if len(lane.ranks) == 1:
        return f"Rank {lane.ranks[0]} is"
    return f"{len(lane.ranks)} ranks alike are"


def _dropped(use: ExpertUse) -> str:
    pairs = sum(use.load) + use.dropped
    if not use.dropped:
        return "no token dropped"
    share = numbers.utilisation(use.dropped / pairs)
    return f"{_many(use.dropped, 'token-expert pair')} dropped ({share})"


def _times(ratio: float) -> str:
    return f"{numbers.digits(ratio)}x"


def _many(count: int, one: str, several: str = "") -> str:
    return f"{numbers.count(count)} {one if count == 1 else several or one + 's'}"
