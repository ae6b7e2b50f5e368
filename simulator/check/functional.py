"""The functional check: blocks and descriptors that are timed, executed on real numbers.

Knows operators, blocks, descriptors and references. Never touches a clock. An operator passes
where its blocked result is the whole operator's within the error that theory allows, where each
element of the result was written once, where the multiply-adds done are the FLOP that it states,
and where the bytes that moved, each element once, are its compulsory traffic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from simulator.check.attention import run_attention
from simulator.check.memory import Array, Bucket, Memory
from simulator.check.pointwise import run_pointwise
from simulator.check.products import Ran, run_conv, run_grouped, run_matmul
from simulator.check.reduced import default_tiling
from simulator.check.tolerance import bound
from simulator.check.torch_reference import has_torch, torch_reference
from simulator.errors import CheckError, InputError
from simulator.mapping.tiling import Tiling
from simulator.ops.attention import Attention
from simulator.ops.conv import Conv2d
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Arrays, Demand, Op, TensorOp
from simulator.ops.pointwise import MOVES, Pointwise
from simulator.ops.rounding import quantise
from simulator.specs.hardware import DataMover
from simulator.units import Bytes, Flops

Backend = Literal["numpy", "torch"]

RUNS: dict[type[TensorOp], Callable[[Any, Arrays, Memory, Tiling], Ran]] = {
    Matmul: run_matmul,
    GroupedMatmul: run_grouped,
    Conv2d: run_conv,
    Attention: run_attention,
    Pointwise: run_pointwise,
}
"""How each kind of operator runs block by block."""
BUCKETS: tuple[Bucket, ...] = ("weights", "kv_read", "kv_written", "read", "written")


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
    libraries: Iterable[Backend] = ("numpy",),
) -> list[OpCheck]:
    """Run ``op`` block by block once and compare it with the whole from each library.

    ``mover`` moves the tiles, threads do without one. Operands are drawn from ``rng``. What
    differs becomes a fault of the check. Raises InputError for an operator that computes nothing,
    such as an exchange.
    """
    if not isinstance(op, TensorOp) or type(op) not in RUNS:
        raise InputError(f"operator {op.name!r} of kind {op.kind} does not compute on tensors")
    tiling = default_tiling(op) if tiling is None else tiling
    arrays = op.inputs(rng)
    memory = Memory(mover)
    flops, blocks = RUNS[type(op)](op, arrays, memory, tiling)
    demand = op.demand()
    counted = _counts(memory, demand, flops)
    exact = op.reference(arrays)
    limit = bound(op, arrays, exact, tiling)
    result = memory.operands["out"].buffer.reshape(exact.shape)
    checks: list[OpCheck] = []
    for library in libraries:
        whole = exact if library == "numpy" else torch_reference(op, arrays)
        if isinstance(op, Pointwise) and op.function in (*MOVES, "quantise"):
            whole = quantise(whole, op.result)
        error, tolerance, faults = compare(result, whole, limit)
        checks.append(
            OpCheck(
                name=op.name,
                kind=op.kind,
                backend=library,
                tile=str(tiling),
                max_error=error,
                tolerance=tolerance,
                flops_counted=flops,
                flops_stated=demand.flops,
                bytes_counted=sum(memory.touched(bucket) for bucket in BUCKETS),
                bytes_stated=demand.bytes,
                bytes_moved=memory.moved,
                blocks=blocks,
                descriptors=memory.descriptors,
                copies=memory.copies,
                faults=(*faults, *counted),
            )
        )
    return checks


def check_op(
    op: Op,
    mover: DataMover | None,
    rng: np.random.Generator,
    *,
    tiling: Tiling | None = None,
    backend: Backend = "numpy",
) -> OpCheck:
    """``examine`` on one library; a difference raises CheckError with every fault."""
    (check,) = examine(op, mover, rng, tiling=tiling, libraries=(backend,))
    require_ok([check])
    return check


def require_ok(checks: Iterable[OpCheck]) -> None:
    """Raise CheckError naming every fault of every check, or return."""
    faults = [
        f"{check.kind} {check.name!r} against {check.backend}: {fault}"
        for check in checks
        for fault in check.faults
    ]
    if faults:
        raise CheckError("\n".join(faults))


def _counts(memory: Memory, demand: Demand, flops: Flops) -> tuple[str, ...]:
    """What the blocks did or moved otherwise than the operator states."""
    faults = list(flops_fault("blocks did", flops, demand.flops, 0.0))
    for bucket in BUCKETS:
        counted, stated = memory.touched(bucket), getattr(demand, bucket)
        if not math.isclose(counted, stated, rel_tol=1e-12):
            faults.append(f"{bucket}: {counted:.0f} bytes moved where {stated:.0f} are stated")
    twice = memory.written_twice("out")
    if twice:
        faults.append(f"{twice} elements were written more than once")
    return tuple(faults)


def compare(result: Array, whole: Array, limit: Array) -> tuple[float, float, tuple[str, ...]]:
    """Error and bound of the worst element of a result, and what is wrong with it."""
    if not result.size:
        return 0.0, 0.0, ()
    missing = np.isnan(result)
    error = np.where(missing, 0.0, np.abs(result - whole))
    # Where a bound is zero any error is infinitely far out of it.
    excess = np.divide(error, limit, out=np.where(error > 0, np.inf, 0.0), where=limit > 0)
    worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
    faults: list[str] = []
    if missing.any():
        faults.append(f"no block wrote {int(missing.sum())} of {result.size} elements")
    if excess[worst] > 1:
        place = ", ".join(str(index) for index in worst)
        faults.append(
            f"element [{place}] is off by {error[worst]:.3g} where {limit[worst]:.3g} is allowed; "
            f"{int((excess > 1).sum())} of {excess.size} elements are off"
        )
    return float(error[worst]), float(limit[worst]), tuple(faults)


def flops_fault(who: str, done: Flops, stated: Flops, slack: float) -> tuple[str, ...]:
    """The fault of doing other than the stated FLOP, beyond a relative slack; none where equal."""
    if math.isclose(done, stated, rel_tol=slack, abs_tol=0.0):
        return ()
    return (f"{who} {done:.0f} FLOP where {stated:.0f} are stated",)
