"""Verification of many operators, or of a model: one check for each family of operators.

Knows graphs, targets and the functional check. Never touches a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace

import numpy as np

from simulator.check.functional import Backend, OpCheck, backends, examine, flops_fault
from simulator.check.moe import MoELayer, check_moe_layer
from simulator.check.reduced import default_tiling, family, fewer_splits, reduce
from simulator.costs.lower import lower
from simulator.costs.target import Target
from simulator.mapping.kernel import Kernel
from simulator.mapping.tiling import Tiling
from simulator.ops.matmul import GroupedMatmul
from simulator.ops.op import GraphSegment, Op, OpGraph, TensorOp
from simulator.ops.pointwise import Pointwise
from simulator.specs.hardware import DataMover


def verify_ops(
    ops: Iterable[Op],
    mover: DataMover | None,
    rng: np.random.Generator,
    *,
    tilings: Callable[[Op], Tiling] = default_tiling,
    backend: Backend | None = None,
) -> list[OpCheck]:
    """Examine each operator, reduced to a few tiles of ``tilings``, on every library or on one.

    Differences are in the checks: ``require_ok`` raises them.
    """
    libraries = (backend,) if backend else backends()
    checks: list[OpCheck] = []
    for op in ops:
        tiling = tilings(op)
        small, kept = reduce(op, tiling), fewer_splits(tiling)
        checks += examine(small, mover, rng, tiling=kept, libraries=libraries)
    return checks


def verify_model(
    graph: OpGraph,
    target: Target | None,
    rng: np.random.Generator,
    *,
    backend: Backend | None = None,
) -> list[OpCheck]:
    """Examine one operator of each family of a model, on the tiles that ``target`` would run.

    A family shares its kind, formats, functions, masks and whether it is split; its first
    operator stands for it. The kernel that is timed for any operator must also do the FLOP that
    the operator states. Each kind of expert layer runs end to end as well. Without a target,
    threads move small tiles.
    """
    libraries: tuple[Backend, ...] = (backend,) if backend else backends()
    mover = None if target is None else target.accelerator.data_mover
    chosen: dict[Hashable, tuple[Op, Tiling]] = {}
    timed: dict[Hashable, tuple[str, ...]] = {}
    for op in dict.fromkeys(op for segment in graph.segments for op in segment.ops):
        if not isinstance(op, TensorOp):
            continue
        plan = None if target is None else lower(op, target)
        tiling = default_tiling(op) if plan is None else plan.tiling
        key = family(op), tiling.split > 1
        chosen.setdefault(key, (op, tiling))
        if plan is not None:
            timed[key] = timed.get(key, ()) + _timed(op, plan.kernel)
    checks: list[OpCheck] = []
    for group, (op, tiling) in chosen.items():
        small, kept = reduce(op, tiling), fewer_splits(tiling)
        for check in examine(small, mover, rng, tiling=kept, libraries=libraries):
            checks.append(replace(check, faults=check.faults + timed.get(group, ())))
    return checks + _layers(graph, mover, rng, libraries)


def _timed(op: TensorOp, kernel: Kernel) -> tuple[str, ...]:
    """The fault of a kernel that does other FLOP than its operator states; it adds in floats."""
    demand = op.demand()
    stated = demand.vector_flops if isinstance(op, Pointwise) else demand.flops
    return flops_fault(f"the kernel timed for {op.name!r} does", kernel.flops, stated, 1e-9)


def _layers(
    graph: OpGraph,
    mover: DataMover | None,
    rng: np.random.Generator,
    libraries: tuple[Backend, ...],
) -> list[OpCheck]:
    layers = dict.fromkeys(expert_layer(segment) for segment in graph.segments)
    return [
        check
        for layer in layers
        if layer is not None
        for check in check_moe_layer(layer, mover, rng, libraries=libraries)
    ]


def expert_layer(segment: GraphSegment) -> MoELayer | None:
    """The gated expert layer of a segment at reduced size, or None where it has none.

    Two products over the experts with a weighted sum after them; tokens and experts are cut, the
    formats and the ratio of experts to choices are kept as far as that goes.
    """
    products = [op for op in segment.ops if isinstance(op, GroupedMatmul)]
    sums = [op for op in segment.ops if getattr(op, "function", "") == "weighted_sum"]
    if len(products) < 2 or not sums:
        return None
    up, down, combine = products[0], products[1], sums[0]
    assert isinstance(combine, Pointwise)
    if up.n != 2 * down.k or combine.written_rows is None:
        return None
    experts = min(len(up.counts), 12)
    return MoELayer(
        tokens=min(combine.written_rows, 37),
        hidden=min(up.k, 160),
        width=min(down.k, 96),
        experts=experts,
        top_k=min(combine.terms, 4, experts),
        format=up.out,
        weights=up.b,
    )
