"""Kernels held to the times that fitted models say of their operators.

Knows plans, fitted times and how long a kernel takes by events. Holds no cost formula, and never
touches graphs of models or results.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache

from simulator.costs.plan import KernelPlan
from simulator.costs.target import Target
from simulator.engine.execute import Memo, look_up
from simulator.mapping.kernel import Kernel
from simulator.ops.op import GraphSegment, OpGraph
from simulator.result import Bound
from simulator.runs.line import Line
from simulator.specs.scenario import Fidelity, Scenario
from simulator.specs.stack import Stack
from simulator.tables.alone import Alone
from simulator.units import Seconds

RESOURCES: tuple[Bound, ...] = ("compute", "memory", "cache")


def fused(graph: OpGraph, stack: Stack) -> OpGraph:
    """The graph without the operators that the stack's libraries do inside their neighbours."""
    segments = (
        GraphSegment(
            name=segment.name,
            repeat=segment.repeat,
            ops=tuple(op for op in segment.ops if not inside(op.name, stack.fused)),
        )
        for segment in graph.segments
    )
    return OpGraph(segments=tuple(segments))


@lru_cache(maxsize=4096)
def inside(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether an operator of that name runs inside a neighbouring kernel."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def held(kernel: Kernel, known: Alone, scenario: Scenario, memo: Memo) -> Kernel:
    """The kernel at the pace at which it takes the fitted time when it runs alone.

    The fitted time contains the gap to the next kernel, which the stream adds by itself.
    """
    own = own_time(kernel, scenario.fidelity, memo)
    if own <= 0:
        return kernel
    return kernel.at_pace(within_gap(known.seconds, scenario.stack) / own)


def fastest(plans: tuple[KernelPlan, ...], fidelity: Fidelity, memo: Memo) -> KernelPlan:
    """The plan of least duration where no fit says it."""
    if len(plans) == 1:
        return plans[0]
    return min(plans, key=lambda plan: own_time(plan.kernel, fidelity, memo))


def own_time(kernel: Kernel, fidelity: Fidelity, memo: Memo) -> Seconds:
    """Seconds of the kernel alone; by events, unless the run itself is in closed form."""
    run, _, _ = look_up(kernel, "roofline" if fidelity == "roofline" else "cohort", memo)
    return run.makespan


def within_gap(seconds: Seconds, stack: Stack) -> Seconds:
    """A measured time less the gap to the next kernel, of which no kernel hides more than half."""
    return max(seconds - stack.launch.gap, seconds / 2)


def busy(line: Line, target: Target) -> dict[str, Seconds]:
    """Seconds that units, memory, cache, links and launch are busy: as the fitted model has it,
    where there is one, none of them beyond the line's own time."""
    known, plan, time = line.priced.known, line.priced.plan, line.time
    if plan is None:
        latency = min(line.priced.exchange[0], time)
        return {"link": time - latency, "latency": latency}
    kernel = plan.kernel
    if known is None:
        parts = {"compute": kernel.compute / target.units, "latency": kernel.fixed}
        parts["memory"] = kernel.pipe_bytes / target.bandwidth
        if kernel.bandwidth < target.bandwidth:
            parts["cache"] = kernel.pipe_bytes / kernel.bandwidth
        return parts
    # Under a power limit an operator takes longer than the fit says, and its units are as busy.
    stretch = max(1.0, time / known.seconds) if known.seconds > 0 else 1.0
    parts = {part: min(stretch * known.parts.get(part, 0.0), time) for part in RESOURCES}
    gap = max(known.seconds - time, 0.0)
    idle = max(known.parts.get("latency", 0.0) - gap, 0.0)
    parts["latency"] = min(idle, time - max(parts.values()))
    return parts
