"""``sensitivity``: what each number of the device buys, in a table of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from simulator.cli.progress import searching
from simulator.cli.sheet import grid, put
from simulator.report import numbers
from simulator.report.facts import devices, title
from simulator.report.sensitivity import SMALL, Elasticity, Sensitivity, percent, sentence, signed
from simulator.study.sensitivity import STEP, sensitivity

if TYPE_CHECKING:
    from rich.table import Table

    from simulator.specs.scenario import Scenario


def found_sensitivity(base: Scenario, step: float = STEP) -> Sensitivity:
    """The sensitivity of ``base``, behind a bar."""
    with searching() as told:
        return sensitivity(base, step=step, told=told)


def print_sensitivity(found: Sensitivity, stream: TextIO, top: int) -> None:
    """The ``top`` numbers, what turns within the step, and what was left out."""
    run = found.result
    for line in textwrap.wrap(", ".join(title(run)), 78, subsequent_indent="  "):
        stream.write(f"{line}\n")
    rate = numbers.quantity(run.throughput, "tok/s" if run.unit == "tokens" else "samples/s")
    stream.write(f"  {rate} on {devices(run)}, bound by {run.bound_by}\n\n")
    entries = found.felt[:top]
    if entries:
        put(stream, _table(entries, percent(found.step)))
        stream.write("\n")
        for one in entries[:3]:
            stream.write(f"  {sentence(one)}\n")
        turned = dict.fromkeys(
            name for one in entries for side in (one.less, one.more) for name, _, _ in side.turned
        )
        if turned:
            named = numbers.cut(numbers.plain(", ".join(turned)), 36, "..")
            stream.write(f"  * what binds changes within the step: {named}\n")
    for text in _left(found, len(entries)):
        for line in textwrap.wrap(text, 76, subsequent_indent="  "):
            stream.write(f"  {line}\n")


def _table(entries: Sequence[Elasticity], step: str) -> Table:
    rows = []
    for one in entries:
        gains = [one.gain(side) for side in (one.less, one.more)]
        ends = dict.fromkeys(str(side.bound_by or "refused") for side in (one.less, one.more))
        rows.append(
            [
                f"{numbers.cut(one.name, 26, '..')}{' *' if one.kinked else ''}",
                numbers.digits(one.elasticity),
                *(numbers.ABSENT if gain is None else signed(gain) for gain in gains),
                ", ".join(ends),
            ]
        )
    return grid(("number", "% per %", f"-{step}", f"+{step}", "bound at either end"), rows, "lrrrl")


def _left(found: Sensitivity, shown: int) -> list[str]:
    """What the table leaves out."""
    left = []
    if len(found.felt) > shown:
        left.append(f"{len(found.felt) - shown} smaller ones are in the report and the data")
    counts = [
        (len(found.small), f"with an elasticity under {SMALL:g}"),
        (len(found.fixed), "that the step cannot vary"),
        (len(found.unused), "that this run does not use"),
    ]
    left += [f"{count:,} more {text}" for count, text in counts if count]
    refused = [
        f"{one.name} {signed(one.change(side))}: {numbers.plain(side.refused)}"
        for one in found.felt[:shown]
        for side in (one.less, one.more)
        if side.refused
    ]
    left += [f"refused: {text}" for text in refused]
    rounded = [one for one in found.felt if abs(one.change(one.more) - found.step) > 1e-9]
    if rounded:
        named = ", ".join(f"{one.name} {signed(one.change(one.more))}" for one in rounded[:2])
        left.append(f"whole numbers take the nearest step: {named}")
    warned = (f"warning: {numbers.plain(text)}" for text in found.result.warnings)
    return [*left, *found.notes, *warned]
