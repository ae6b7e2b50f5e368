"""The operators of a result in order of time, and how near each came to its roof."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from simulator.report import numbers
from simulator.result import Bound, OpUse, Result, Roof
from simulator.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line under "where the time goes"."""

    name: str
    total: Seconds
    share: str
    """Percent of the latency; the lines of one list sum to 100.0."""
    bound: Bound
    op: OpUse | None = None
    """The operator, or None where the line stands for several or for none."""


def ranked(result: Result) -> tuple[OpUse, ...]:
    """Operators, longest total time first; equal times by name."""
    return tuple(sorted(result.ops, key=lambda op: (-op.time, op.name)))


def times_each(ops: Sequence[OpUse | None]) -> tuple[str, list[str]]:
    """The column of one execution each: a unit that suits what runs more than once, and cells."""
    times = [op.time_each if op else None for op in ops]
    return numbers.column(times, "s", [op.time_each for op in ops if op and op.count > 1])


def of_roof(op: OpUse, roof: Roof) -> float | None:
    """Achieved over attainable: the time that the roof allows over the time taken.

    For an operator with work this is FLOP/s over min(peak, intensity x bandwidth) (Williams,
    Waterman and Patterson 2009); for one that only moves data it is bytes/s over the bandwidth.
    None where there is neither, or no time.
    """
    if op.time <= 0:
        return None
    least = max(
        op.flops / op.roof if op.roof > 0 else 0.0,
        op.bytes / roof.bandwidth if roof.bandwidth > 0 else 0.0,
    )
    return least / op.time if least > 0 else None


def lines(result: Result, keep: int = 10, least: float = 0.01) -> tuple[Line, ...]:
    """Where the time goes: at most ``keep`` operators of at least ``least`` of the latency each,
    then the smaller ones as one line, then time outside any operator; together the latency."""
    ops = ranked(result)
    inside = math.fsum(op.time for op in ops)
    whole = max(result.latency, inside)
    shown = sum(1 for op in ops[:keep] if op.time >= least * whole)
    if shown == 0 or len(ops) - shown == 1:
        shown = min(shown + 1, len(ops))
    rest = ops[shown:]
    entries: list[tuple[str, Seconds, Bound, OpUse | None]] = [
        (numbers.plain(op.name), op.time, op.bound_by, op) for op in ops[:shown]
    ]
    if rest:
        weight: dict[Bound, Seconds] = {}
        for op in rest:
            weight[op.bound_by] = weight.get(op.bound_by, 0.0) + op.time
        total = math.fsum(op.time for op in rest)
        bound = max(weight, key=lambda name: weight[name])
        entries.append((f"{numbers.count(len(rest))} smaller", total, bound, None))
    if whole - inside > 1e-9 * whole:
        entries.append(("outside the operators", whole - inside, "waiting", None))
    shares = numbers.shares([entry[1] for entry in entries], whole)
    return tuple(
        Line(name=name, total=total, share=share, bound=bound, op=op)
        for (name, total, bound, op), share in zip(entries, shares, strict=True)
    )
