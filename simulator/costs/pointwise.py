"""Pointwise operators as kernels: blocks of rows that stream through the units.

Pure functions of an operator and a target. Never touches a clock.
"""

from __future__ import annotations

from simulator.costs.plan import KernelPlan
from simulator.costs.target import Target
from simulator.mapping.kernel import Kernel, TileClass
from simulator.ops.pointwise import Pointwise

BLOCK = 16384
"""Elements of one block: 32 KiB in 16 bits, what one unit keeps in flight to cover the memory's
latency (Little's law: 100 GB/s per unit over 300 ns)."""


def plan_pointwise(op: Pointwise, target: Target) -> KernelPlan:
    """Elements in blocks of equal size, the last one ragged; as many units as there are blocks."""
    demand = op.demand()
    elements = op.rows * op.cols
    blocks = -(-elements // BLOCK)
    waves = -(-blocks // target.units)
    units = -(-blocks // waves) if blocks else 1
    rate = target.vector_rate(op.format)
    per_element = demand.vector_flops / elements if elements else 0.0
    whole, rest = divmod(elements, BLOCK)
    classes, runs = [], []
    for count, size in ((whole, BLOCK), (1 if rest else 0, rest)):
        if not count:
            continue
        share = size / elements
        written = demand.written + demand.kv_written
        classes.append(
            TileClass(
                load=(demand.bytes - written) * share,
                store=written * share,
                compute=max(per_element * size / rate, demand.bytes * share / target.feed),
                flops=per_element * size,
            )
        )
        runs.append((count, len(classes) - 1))
    return KernelPlan(
        kernel=Kernel(
            name=op.name,
            classes=tuple(classes),
            runs=tuple(runs),
            units=units,
            bandwidth=target.bandwidth,
            rate_cap=target.feed,
            fixed=target.stack.fill,
        ),
        format=op.format,
        roof=rate * target.units,
        tile=f"{BLOCK} elements",
    )
