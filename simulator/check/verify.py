"""Verification of many operators, or of a model: one check for each family of operators.

Knows graphs, targets and the functional check. Never touches a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace

import numpy as np

from simulator.check.functional import Backend, OpCheck, backends, examine, flops_fault
from simulator.check.moe import check_moe_layer
from simulator.check.moe_layer import MoELayer
from simulator.check.moe_ranks import check_moe_ranks
from simulator.check.reduced import default_tiling, family, fewer_splits, reduce
from simulator.costs.lower import lower
from simulator.costs.target import Target
from simulator.mapping.experts import place
from simulator.mapping.kernel import Kernel
from simulator.mapping.tiling import Tiling
from simulator.ops.op import Op, OpGraph, TensorOp
from simulator.ops.pointwise import Pointwise
from simulator.specs.hardware import DataMover

RANKS = 4
"""Ranks over which an expert layer runs beside its run on one."""


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
    layers: Iterable[MoELayer] = (),
    backend: Backend | None = None,
) -> list[OpCheck]:
    """Examine one operator of each family of a model, on the tiles that ``target`` would run.

    A family shares its kind, formats, functions, masks and whether it is split; its first
    operator stands for it. The kernel that is timed for any operator must also do the FLOP that
    the operator states. The expert ``layers`` run end to end as well, on one rank and on RANKS.
    Without a target, threads move small tiles.
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
    return checks + _layers(layers, mover, rng, libraries)


def _timed(op: TensorOp, kernel: Kernel) -> tuple[str, ...]:
    """The fault of a kernel that does other FLOP than its operator states; it adds in floats."""
    demand = op.demand()
    stated = demand.vector_flops if isinstance(op, Pointwise) else demand.flops
    return flops_fault(f"the kernel timed for {op.name!r} does", kernel.flops, stated, 1e-9)


def _layers(
    layers: Iterable[MoELayer],
    mover: DataMover | None,
    rng: np.random.Generator,
    libraries: tuple[Backend, ...],
) -> list[OpCheck]:
    """Each expert layer on one rank, and over RANKS with further copies of some experts."""
    checks: list[OpCheck] = []
    for layer in layers:
        checks += check_moe_layer(layer, mover, rng, libraries=libraries)
        more = RANKS - layer.net.experts % RANKS
        spread = place(layer.net.experts, RANKS, redundant=more)
        checks += check_moe_ranks(layer, mover, rng, spread, libraries=libraries)
    return checks
