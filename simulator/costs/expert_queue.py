"""The queue of a grouped product's tiles, expert by expert: in another order, as rows arrive, or
as fast as a data mover is given its descriptors.

Knows rows per expert and the kernel that they became. Never touches a clock or policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.costs.mover import MoverTimes
from simulator.costs.target import Target
from simulator.mapping.descriptors import index_width
from simulator.mapping.kernel import Kernel
from simulator.mapping.tiling import Tiling
from simulator.ops.matmul import GroupedMatmul
from simulator.units import Seconds


def queued(
    kernel: Kernel,
    op: GroupedMatmul,
    tiling: Tiling,
    order: Sequence[int],
    arrival: tuple[Seconds, Seconds] | None = None,
) -> Kernel:
    """The kernel with its experts taken in ``order``.

    With ``arrival``, (first, last), rows come over the links one expert after another in that
    order, the first rows ``first`` and the last ones ``last`` seconds after the launch, and an
    expert begins when its own are there.

    >>> from simulator.mapping.kernel import TileClass
    >>> op = GroupedMatmul(name="up", counts=(16, 48), n=128, k=64)
    >>> tiles = tuple(TileClass(load=1.0, store=1.0, compute=1.0) for _ in range(2))
    >>> plain = Kernel(
    ...     name="up", classes=tiles, runs=((2, 0), (6, 1)), units=4, bandwidth=1.0
    ... )
    >>> late = queued(plain, op, Tiling(16, 64, 64), (1, 0), (2.0, 4.0))
    >>> late.runs, late.releases
    (((6, 1), (2, 0)), (3.5, 4.0))
    """
    heights = [-(-rows // tiling.rows) for rows in op.counts]
    across = kernel.tiles // max(1, sum(heights))
    classes = {rows: index for index, rows in enumerate(_sizes(op))}
    runs: list[tuple[int, int]] = []
    releases: list[Seconds] = []
    seen, total = 0, max(1, op.rows)
    for expert in order:
        rows = op.counts[expert]
        if not rows:
            continue
        entry = heights[expert] * across, classes[rows]
        seen += rows
        if arrival is not None:
            first, last = arrival
            releases.append(first + (last - first) * seen / total)
        elif runs and runs[-1][1] == entry[1]:
            entry = entry[0] + runs.pop()[0], entry[1]
        runs.append(entry)
    return replace(kernel, runs=tuple(runs), releases=tuple(releases))


def _sizes(op: GroupedMatmul) -> list[int]:
    """Rows of an expert that each class of tiles stands for."""
    return sorted(set(filter(None, op.counts)))


def issued(
    kernel: Kernel, op: GroupedMatmul, tiling: Tiling, target: Target, *, article: bool = False
) -> Kernel:
    """The kernel whose tiles take no less than their descriptors do, one after another.

    A unit is given a descriptor every issue time, and holds only so many under way: where the
    depth of its queues is known, no more than that in each latency (Little's law).

    In each step of its inner loop a tile needs a descriptor of weights and those of its rows:
    gathered, for the first product of the experts, as many at a time as the mover names, or all
    at once in the reading of an article on the MI500 series. A fitted time knows nothing of a
    mover, so this comes on top. Nothing changes without a mover whose times are known.
    """
    mover = target.accelerator.data_mover
    if mover is None or mover.latency is None:
        return kernel
    times = MoverTimes.of(mover, target.accelerator.compute.clock, target.fill)
    each = max(times.issue, times.latency / times.flight if times.flight else 0.0)
    if not each:
        return kernel
    width = index_width(mover, op.tokens or op.rows)
    gathers = op.half in ("up", "gate_up") and width is not None and not article
    named = mover.gather_rows[width] if gathers and width is not None else tiling.rows
    heights = sum(-(-rows // tiling.rows) for rows in op.counts)
    slabs = kernel.tiles / max(1, heights * -(-op.n // tiling.columns))
    steps = -(-op.k // tiling.depth) / slabs
    classes = []
    for rows, tile in zip(_sizes(op), kernel.classes, strict=True):
        least = (1 + -(-min(rows, tiling.rows) // named)) * steps * each
        classes.append(replace(tile, compute=max(tile.compute, least / kernel.pace)))
    return replace(kernel, classes=tuple(classes))
