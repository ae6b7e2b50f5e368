"""An operator priced, and its executions on the path that decides a latency. Data alone."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.costs.plan import KernelPlan
from simulator.engine.execute import KernelRun
from simulator.mapping.kernel import Kernel
from simulator.ops.op import Op
from simulator.tables.alone import Alone
from simulator.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """An operator and what it becomes: a kernel, or an exchange of a known duration."""

    op: Op
    plan: KernelPlan | None
    known: Alone | None
    """The fitted time; None where no fit covers the operator."""
    exchange: tuple[Seconds, Seconds] = (0.0, 0.0)
    """Seconds of an exchange before its first rows arrive, and until the last ones do."""
    run: KernelRun | None = None
    """The kernel alone on an idle device."""

    @property
    def kernel(self) -> Kernel:
        """The kernel of an operator that is no exchange."""
        assert self.plan is not None, "an exchange is no kernel"
        return self.plan.kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Executions of one operator on the path that decides the latency."""

    priced: Priced
    count: int
    time: Seconds
    """Of one execution."""
