"""The steps of MoE layers: how long each is, what moves in it, and by how many descriptors.

Knows operators with the kernels that they became. Holds no event and no cost formula.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.costs.target import Target
from simulator.expert_use import ExpertPhase
from simulator.mapping.descriptors import REQUEST, Layout, MoveCount
from simulator.mapping.expert_moves import Reading, expert_moves, weight_moves
from simulator.mapping.tiling import Tiling
from simulator.ops.collective import Collective
from simulator.ops.exchange import Exchange
from simulator.ops.matmul import GroupedMatmul
from simulator.ops.op import Op
from simulator.runs.line import Line, Priced
from simulator.specs.plan import Plan
from simulator.specs.precision import number_format
from simulator.units import Bytes, Seconds

PREFIX = "moe."
_STEPS = {
    "top_k": "router",
    "gate_up": "up",
    "down.quantise": "act",
    "join": "shared",
}
"""Steps of operators that do not give theirs their own name."""
ORDER = (
    "router", "dispatch", "permute", "up", "act", "down", "unpermute", "combine", "all_gather",
    "shared", "all_reduce",
)  # fmt: skip


@dataclass(slots=True)
class _Sums:
    time: float = 0.0
    bytes: float = 0.0
    descriptors: int = 0
    copies: int = 0
    requests: int = 0
    issue: float = 0.0
    slot: float = 0.0


def step_of(op: Op) -> str | None:
    """The step of an MoE layer that an operator is part of; None for any other operator.

    >>> from simulator.ops.pointwise import Pointwise
    >>> step_of(Pointwise(name="moe.top_k", function="top_k", rows=1, cols=8))
    'router'
    """
    if not op.name.startswith(PREFIX):
        return None
    name = op.name.removeprefix(PREFIX)
    return _STEPS.get(name) or name.partition(".")[0]


def phases(
    lines: Iterable[Line],
    executed: Iterable[tuple[Priced, int]],
    plan: Plan,
    target: Target,
) -> tuple[ExpertPhase, ...]:
    """Steps in the order in which they run.

    Times are those of ``lines``, on the path that decides; what moves is over all devices, from
    every operator that was ``executed``, with how often.
    """
    each = _issue(target) / target.units / plan.ep
    found: dict[str, _Sums] = {}
    for line in lines:
        step = step_of(line.priced.op)
        if step is not None:
            found.setdefault(step, _Sums()).time += line.count * line.time
    known: dict[Op, tuple[MoveCount, Bytes]] = {}
    for priced, count in executed:
        op = priced.op
        step = step_of(op)
        if step is None:
            continue
        sums = found.setdefault(step, _Sums())
        if isinstance(op, Collective):
            sums.bytes += count * op.sent
            continue
        if isinstance(op, Exchange):
            sums.bytes += count * op.sent
            continue
        sums.bytes += count * priced.kernel.pipe_bytes
        sums.requests += count * round(priced.kernel.pipe_bytes / REQUEST)
        if isinstance(op, GroupedMatmul):
            if op not in known:
                assert priced.plan is not None, "a product has a plan"
                known[op] = _moves(op, priced.plan.tiling, plan.descriptors, target)
            moves, slot = known[op]
            sums.descriptors += count * moves.descriptors
            sums.copies += count * moves.copies
            sums.issue += count * moves.descriptors * each
            sums.slot = max(sums.slot, slot)
    return tuple(
        ExpertPhase(
            name=step,
            time=sums.time,
            bytes=sums.bytes,
            descriptors=sums.descriptors,
            copies=sums.copies,
            requests=sums.requests,
            issue=sums.issue,
            slot=sums.slot,
        )
        for step, sums in sorted(found.items(), key=lambda entry: ORDER.index(entry[0]))
    )


def _issue(target: Target) -> Seconds:
    """Seconds between two descriptors of one unit; 0 where not known."""
    mover, clock = target.accelerator.data_mover, target.accelerator.compute.clock
    return (mover.issue or 0.0) / mover.queues / clock if mover is not None else 0.0


def gathers(
    counts: Sequence[int], sources: int, hidden: int, reading: Reading, target: Target
) -> NDArray[np.int64]:
    """Descriptors, or copies by threads, that bring each expert's rows of one tile of columns;
    its width does not matter, here 128 columns."""
    rows = Layout.of((max(sources, 1), min(hidden, 128)))
    found = expert_moves(counts, rows, target.accelerator.data_mover, reading=reading)
    return found.descriptors + found.copies


def _moves(
    op: GroupedMatmul, tiling: Tiling, reading: Reading, target: Target
) -> tuple[MoveCount, Bytes]:
    """Descriptors and copies of one product, and what its fullest gather fills: its rows for every
    tile of columns, gathered where it is the first product of the experts, and a tile of weights
    for each of them."""
    mover = target.accelerator.data_mover
    across = -(-op.n // tiling.columns)
    heights = [-(-rows // tiling.rows) for rows in op.counts]
    a, b = number_format(op.a), number_format(op.b)
    weights = weight_moves(
        heights,
        Layout.of((op.k, op.n), bits=b.bits),
        mover,
        tile=(tiling.depth, tiling.columns),
    ).count
    if op.half in ("up", "gate_up"):
        rows = Layout.of((max(op.tokens or op.rows, 1), op.k), bits=a.bits)
        found = expert_moves(op.counts, rows, mover, columns=tiling.depth, reading=reading)
        return weights + found.count * across, found.slot
    steps = -(-op.k // tiling.depth) * across
    if mover is None:
        return weights + MoveCount(copies=op.rows * steps), 0.0
    return weights + MoveCount(descriptors=sum(heights) * steps), 0.0
