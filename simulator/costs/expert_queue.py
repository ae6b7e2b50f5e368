"""The queue of a grouped product's tiles, expert by expert: in another order, or as rows arrive.

Knows rows per expert and the kernel that they became. Never touches a clock or policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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
    classes = {rows: index for index, rows in enumerate(sorted(set(filter(None, op.counts))))}
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
