"""The functional check: blocks and descriptors that are timed, executed on real numbers.

Knows operators, blocks, descriptors and references. Never touches a clock. An operator passes
where its blocked result is the whole operator's within the error that theory allows, where each
element of the result was written once, where the multiply-adds done are the FLOP that it states,
and where the bytes that moved, each element once, are its compulsory traffic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from simulator.check.attention import run_attention
from simulator.check.memory import Bucket, Memory
from simulator.check.pointwise import run_pointwise
from simulator.check.products import Ran, run_conv, run_grouped, run_matmul
from simulator.check.reduced import default_tiling, family, fewer_splits, reduce
from simulator.check.tolerance import bound
from simulator.check.torch_reference import has_torch, torch_reference
from simulator.costs.lower import lower
from simulator.costs.target import Target
from simulator.errors import CheckError, InputError
from simulator.mapping.tiling import Tiling
from simulator.ops.attention import Attention
from simulator.ops.conv import Conv2d
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Arrays, Op, OpGraph, TensorOp
from simulator.ops.pointwise import MOVES, Pointwise
from simulator.ops.rounding import quantise
from simulator.specs.hardware import DataMover
from simulator.units import Bytes, Flops

Backend = Literal["numpy", "torch"]

_RUNS: dict[type[TensorOp], Callable[[Any, Arrays, Memory, Tiling], Ran]] = {
    Matmul: run_matmul,
    GroupedMatmul: run_grouped,
    Conv2d: run_conv,
    Attention: run_attention,
    Pointwise: run_pointwise,
}
_BUCKETS: tuple[Bucket, ...] = ("weights", "kv_read", "kv_written", "read", "written")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCheck:
    """What one operator did when its blocks ran on real numbers, beside what it states."""

    name: str
    kind: str
    backend: Backend
    """Which library computed the whole operator."""
    tile: str
    max_error: float
    """Error of the element that comes closest to its bound, or leaves it furthest."""
    tolerance: float
    """The bound of that element."""
    flops_counted: Flops
    flops_stated: Flops
    bytes_counted: Bytes
    """Bytes of the elements that moved at least once."""
    bytes_stated: Bytes
    bytes_moved: Bytes
    """Bytes that crossed the memory, rereads included."""
    blocks: int
    descriptors: int
    copies: int
    """Rows that threads copied where no descriptor could."""
    faults: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.faults


def backends() -> tuple[Backend, ...]:
    """The libraries that can give a reference here: torch only where it is installed."""
    return ("numpy", "torch") if has_torch() else ("numpy",)


def examine(
    op: Op,
    mover: DataMover | None,
    rng: np.random.Generator,
    *,
    tiling: Tiling | None = None,
    backend: Backend = "numpy",
) -> OpCheck:
    """Run ``op`` block by block and compare it with the whole; differences become faults.

    ``mover`` moves the tiles, threads do without one. Operands are drawn from ``rng``. Raises
    InputError for an operator that computes nothing, such as an exchange.
    """
    if not isinstance(op, TensorOp) or type(op) not in _RUNS:
        raise InputError(f"operator {op.name!r} of kind {op.kind} does not compute on tensors")
    tiling = default_tiling(op) if tiling is None else tiling
    arrays = op.inputs(rng)
    memory = Memory(mover)
    flops, blocks = _RUNS[type(op)](op, arrays, memory, tiling)
    faults: list[str] = []
    error, tolerance = _compare(op, arrays, memory, tiling, backend, faults)
    demand = op.demand()
    if flops != demand.flops:
        faults.append(f"blocks did {flops:.0f} FLOP where the operator states {demand.flops:.0f}")
    for bucket in _BUCKETS:
        counted, stated = memory.touched(bucket), getattr(demand, bucket)
        if not math.isclose(counted, stated, rel_tol=1e-12):
            faults.append(f"{bucket}: {counted:.0f} bytes moved where {stated:.0f} are stated")
    return OpCheck(
        name=op.name,
        kind=op.kind,
        backend=backend,
        tile=str(tiling),
        max_error=error,
        tolerance=tolerance,
        flops_counted=flops,
        flops_stated=demand.flops,
        bytes_counted=sum(memory.touched(bucket) for bucket in _BUCKETS),
        bytes_stated=demand.bytes,
        bytes_moved=memory.moved,
        blocks=blocks,
        descriptors=memory.descriptors,
        copies=memory.copies,
        faults=tuple(faults),
    )


def check_op(
    op: Op,
    mover: DataMover | None,
    rng: np.random.Generator,
    *,
    tiling: Tiling | None = None,
    backend: Backend = "numpy",
) -> OpCheck:
    """``examine``, but a difference raises CheckError with every fault of the operator."""
    check = examine(op, mover, rng, tiling=tiling, backend=backend)
    require_ok([check])
    return check


def verify_ops(
    ops: Iterable[Op],
    mover: DataMover | None,
    rng: np.random.Generator,
    *,
    tilings: Callable[[Op], Tiling] = default_tiling,
    backend: Backend | None = None,
) -> list[OpCheck]:
    """Examine each operator, reduced to a few tiles of ``tilings``, on every library or on one.

    The operands of an operator are the same for every library. Differences are in the checks:
    ``require_ok`` raises them.
    """
    return [
        check
        for op in ops
        for check in _on_each(op, tilings(op), mover, rng, (backend,) if backend else backends())
    ]


def _on_each(
    op: Op,
    tiling: Tiling,
    mover: DataMover | None,
    rng: np.random.Generator,
    libraries: tuple[Backend, ...],
) -> list[OpCheck]:
    small, seed, kept = reduce(op, tiling), int(rng.integers(2**63)), fewer_splits(tiling)
    return [
        examine(small, mover, np.random.default_rng(seed), tiling=kept, backend=library)
        for library in libraries
    ]


def verify_model(
    graph: OpGraph,
    target: Target | None,
    rng: np.random.Generator,
    *,
    backend: Backend | None = None,
) -> list[OpCheck]:
    """Examine one operator of each family of a model, on the tiles that ``target`` would run.

    A family shares its kind, formats, functions and masks; the first operator stands for it. The
    kernel that is timed for an operator must also do the FLOP that the operator states. Without a
    target, threads move small tiles.
    """
    first: dict[Hashable, TensorOp] = {}
    for segment in graph.segments:
        for op in segment.ops:
            if isinstance(op, TensorOp):
                first.setdefault(family(op), op)
    if target is None:
        return verify_ops(first.values(), None, rng, backend=backend)
    mover = target.accelerator.data_mover
    libraries = (backend,) if backend else backends()
    checks: list[OpCheck] = []
    for op in first.values():
        plan = lower(op, target)
        demand = op.demand()
        stated = demand.vector_flops if isinstance(op, Pointwise) else demand.flops
        timed: tuple[str, ...] = ()
        if not math.isclose(plan.kernel.flops, stated, rel_tol=1e-9):
            timed = (f"the kernel does {plan.kernel.flops:.0f} FLOP where {stated:.0f} are stated",)
        for check in _on_each(op, plan.tiling, mover, rng, libraries):
            checks.append(replace(check, faults=check.faults + timed))
    return checks


def require_ok(checks: Iterable[OpCheck]) -> None:
    """Raise CheckError naming every fault of every check, or return."""
    faults = [
        f"{check.kind} {check.name!r} against {check.backend}: {fault}"
        for check in checks
        for fault in check.faults
    ]
    if faults:
        raise CheckError("\n".join(faults))


def _compare(
    op: TensorOp,
    arrays: Arrays,
    memory: Memory,
    tiling: Tiling,
    backend: Backend,
    faults: list[str],
) -> tuple[float, float]:
    """Error and bound of the worst element of the result; what is wrong is added to ``faults``."""
    whole = op.reference(arrays) if backend == "numpy" else torch_reference(op, arrays)
    limit = bound(op, arrays, whole, tiling)
    if isinstance(op, Pointwise) and op.function in (*MOVES, "quantise"):
        whole = quantise(whole, op.result)
    result = memory.operands["out"].buffer.reshape(whole.shape)
    missing = int(np.isnan(result).sum())
    if missing:
        faults.append(f"no block wrote {missing} of {result.size} elements")
    twice = memory.written_twice("out")
    if twice:
        faults.append(f"{twice} elements were written more than once")
    if not result.size:
        return 0.0, 0.0
    error = np.abs(np.nan_to_num(result.astype(np.float64)) - whole)
    # Where a bound is zero any error is infinitely far out of it.
    excess = np.divide(error, limit, out=np.where(error > 0, np.inf, 0.0), where=limit > 0)
    worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
    if excess[worst] > 1 and not missing:
        place = ", ".join(str(index) for index in worst)
        faults.append(
            f"element [{place}] is off by {error[worst]:.3g} where {limit[worst]:.3g} is allowed; "
            f"{int((excess > 1).sum())} of {excess.size} elements are"
        )
    return float(error[worst]), float(limit[worst])
