"""``plan``: what becomes of every plan, and the best ones in tables of 80 columns."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from simulator.cli.progress import searching
from simulator.cli.sheet import put
from simulator.costs.money import basis, hourly
from simulator.report import numbers, palette
from simulator.runs.plan_search import ORDERS, By, PlanSearch, RankedPlan
from simulator.runs.plan_space import VARIED, Space
from simulator.study.plans import search_plans

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 80


def found_plans(workload: str, on: str, devices: str | None, **options: Any) -> PlanSearch:
    """The plans for devices such as ``h200,mi355x`` in counts such as ``8,16``, behind a bar.

    ``options`` are those of ``search_plans``, which refuses counts that are none.
    """
    names = list(dict.fromkeys(name.strip() for name in on.split(",")))
    counts: list[Any] | None = None
    if devices is not None:
        words = [word.strip() for word in devices.split(",")]
        counts = [int(word) if _WHOLE.fullmatch(word) else word for word in words]
    with searching() as told:
        return search_plans(workload, names, devices=counts, told=told, **options)


_WHOLE = re.compile("-?[0-9]{1,9}")


def as_data(found: PlanSearch, top: int) -> dict[str, Any]:
    """The ``top`` plans of each order that was asked for, and what became of the others.

    Base units: seconds, bytes, tokens per second and device, dollars per million tokens.
    """
    ranks = {by: {plan: place for place, plan in _placed(found, by)} for by in ORDERS}
    shown = dict.fromkeys(plan for by in found.by for plan in found.ranked(by)[:top])
    base = found.bases[0]
    return {
        "workload": base.model.name,
        "phase": base.phase,
        "batch": base.batch,
        "input": base.input,
        "output": base.output,
        "context": base.context,
        "by": list(found.by),
        "plans": [
            {
                "ranks": {
                    by: ranks[by][plan] for by in ORDERS if by != "cost" or plan.cost is not None
                },
                "hardware": plan.hardware,
                "devices": plan.devices,
                "text": plan.text,
                "plan": {name: getattr(plan.plan, name) for name in VARIED}
                | {"dp": plan.plan.replicas},
                "latency": plan.latency,
                "throughput": plan.throughput * plan.devices,
                "throughput_per_device": plan.throughput,
                "cost_per_million_tokens": plan.cost,
                "memory": plan.memory,
                "headroom": plan.headroom,
                "bound_by": plan.bound_by,
                "exact": plan.exact,
                "command": plan.command,
            }
            for plan in shown
        ],
        "spaces": [
            {
                "hardware": space.hardware,
                "tried": space.tried,
                "fit": len(space.kept),
                "outdone": space.outdone,
                "illegal": space.illegal,
                "rules": dict(sorted(space.broken.items())),
                "too_large": space.too_large,
                "largest_shortfall": space.largest,
                "nearest": None if space.nearest is None else space.nearest.text,
                "shortfall": space.shortfall,
            }
            for space in found.spaces
        ],
    }


def _placed(found: PlanSearch, by: By) -> Iterator[tuple[int, RankedPlan]]:
    return enumerate(found.ranked(by), start=1)


def print_plans(found: PlanSearch, stream: TextIO, top: int) -> None:
    """The best plans in each order, equal orders once, what was dropped and why, and how to run
    the first one."""
    base = found.bases[0]
    lengths = [
        f"{name} {value:,}"
        for name, value in (
            ("batch", base.batch), ("input", base.input), ("output", base.output),
            ("context", base.context),
        )
        if value is not None
    ]  # fmt: skip
    stream.write(f"{numbers.plain(base.model.name)} {base.phase}, {', '.join(lengths)}\n")
    orders: dict[tuple[RankedPlan, ...], list[str]] = {}
    for by in found.by:
        orders.setdefault(found.ranked(by)[:top], []).append(f"by {_NAMES[by]}")
    for plans, names in orders.items():
        stream.write(f"\n{' and '.join(names)}\n")
        put(stream, _table(plans) if plans else "none")
    each = _of_each(found)
    if len(each) > len({plan.hardware for plan in found.ranked(found.by[0])[:top]}):
        stream.write(f"\nthe best of each device by {_NAMES[found.by[0]]}\n")
        put(stream, _table(each))
    stream.write("\n")
    for line in _notes(found, top):
        under = " " * (4 if line.startswith(" ") else 2)
        stream.write(textwrap.fill(line, WIDTH, subsequent_indent=under) + "\n")
    for best in found.ranked(found.by[0])[:1]:
        stream.write("\nthe first one:\n" + _folded(best.command))


def _of_each(found: PlanSearch) -> tuple[RankedPlan, ...]:
    """The best plan of every device, in the first order that was asked for."""
    best: dict[str, RankedPlan] = {}
    for plan in found.ranked(found.by[0]):
        best.setdefault(plan.hardware, plan)
    return tuple(best.values())


_NAMES = {"time": "time", "cost": "cost", "throughput": "throughput of a device"}


def _table(plans: Sequence[RankedPlan]) -> Table:
    from rich.table import Table
    from rich.text import Text

    unit, times = numbers.column([plan.latency for plan in plans], "s")
    times = [
        f"{'' if plan.exact else '~'}{time}"
        for plan, time in zip(plans, numbers.align(times), strict=True)
    ]
    size, free = numbers.column([plan.headroom for plan in plans], "B")
    columns: list[tuple[str, list[str]]] = [
        ("", [f"{place:,}" for place in range(1, len(plans) + 1)]),
        ("device", [numbers.cut(numbers.plain(plan.hardware), 14, "..") for plan in plans]),
        ("n", [f"{plan.devices:,}" for plan in plans]),
        ("plan", [plan.text for plan in plans]),
        (unit, times),
        ("tok/s/dev", numbers.align([numbers.digits(plan.throughput) for plan in plans])),
        ("$/Mtok", numbers.align([numbers.digits(plan.cost) for plan in plans])),
        (f"free {size}", numbers.align(free)),
        ("bound", [plan.bound_by or "" for plan in plans]),
    ]
    if all(plan.cost is None for plan in plans):
        columns = [column for column in columns if column[0] != "$/Mtok"]
    taken = sum(max(map(len, (head, *cells))) + 1 for head, cells in columns if head != "plan")
    table = Table.grid(padding=(0, 1, 0, 0), pad_edge=False)
    for head, _ in columns:
        if head == "plan":
            table.add_column(max_width=max(16, WIDTH - 1 - taken))
        else:
            left = head in ("device", "bound")
            table.add_column(justify="left" if left else "right", no_wrap=True)
    table.add_row(*(Text(head, "dim") for head, _ in columns))
    colours = {str(name): colour for name, colour in palette.BOUND.items()}
    for row in zip(*(cells for _, cells in columns), strict=True):
        table.add_row(*row[:-1], Text(row[-1], colours.get(row[-1], "")))
    return table


def _notes(found: PlanSearch, top: int) -> Iterator[str]:
    shown = [plan for by in found.by for plan in found.ranked(by)[:top]]
    if any(not plan.exact for plan in shown):
        yield "~ estimated; the others are simulated"
    unpriced = [
        base.hardware.name for base in found.bases if hourly(base.hardware.price, None) is None
    ]
    if unpriced:
        yield f"no cost for {', '.join(unpriced)}: no price is known (--set price.rent=...)"
    rented, bought = [], []
    for base in found.bases:
        price = base.hardware.price
        if price is not None and price.rent is not None:
            rented.append(base.hardware.name)
        elif price is not None and price.purchase is not None:
            bought.append(base.hardware.name)
            yield f"cost of {base.hardware.name}, assumed: {basis(price)}"
    if rented and bought:
        yield f"{', '.join(rented)} rented, {', '.join(bought)} bought: such costs are not alike"
    for name in found.bases[0].ignored:
        yield f"{name} was given, but has no say in a {found.bases[0].phase} run"
    for space in found.spaces:
        yield from _dropped(space)


def _dropped(space: Space) -> Iterator[str]:
    """What became of the candidates of one device, a line for each reason."""
    yield f"{space.hardware}: {space.tried:,} plans tried, {len(space.kept):,} legal and fitting"
    if space.illegal:
        rules = ", ".join(f"{rule} {some:,}" for rule, some in sorted(space.broken.items()))
        yield f"  {space.illegal:,} break a rule: {rules}"
    if space.outdone:
        yield f"  {space.outdone:,} share or recompute more than one that fits"
    if space.nearest is not None:
        yield (
            f"  {space.too_large:,} do not fit, by {numbers.quantity(space.largest, 'B')} at most"
            f" and {numbers.quantity(space.shortfall, 'B')} at least"
        )
        if not space.kept:
            yield f"  nearest: {space.nearest.text} on {space.nearest.scenario.plan.devices:,}"


def _folded(command: str) -> str:
    """A command line over several lines, as a shell reads it."""
    lines = [" "]
    for word in map(shlex.quote, shlex.split(command)):
        if len(lines[-1]) + len(word) > WIDTH - 4:
            lines.append("   ")
        lines[-1] += f" {word}"
    return " \\\n".join(lines) + "\n"
