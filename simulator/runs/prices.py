"""What the operators of one scenario become: kernels held to fitted times, or exchanges.

Each operator is priced and run alone once, whoever asks. Holds no cost formula, and never touches
graphs or results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from simulator.costs.collective import fastest as fastest_way
from simulator.costs.exchange import exchange_seconds
from simulator.costs.expert_queue import issued, queued
from simulator.costs.lower import alternatives, lower
from simulator.costs.plan import KernelPlan
from simulator.costs.target import Target
from simulator.engine.execute import KernelRun, Memo, look_up
from simulator.mapping.dispatch import Share
from simulator.mapping.kernel import Kernel
from simulator.ops.backward import AttentionBackward, Derived
from simulator.ops.collective import Collective
from simulator.ops.exchange import Exchange
from simulator.ops.matmul import GroupedMatmul
from simulator.ops.op import Op
from simulator.policies.order import EXPERT_ORDERS
from simulator.runs.fitted import fastest, held
from simulator.runs.line import Priced
from simulator.specs.scenario import Scenario
from simulator.specs.workload import MoE
from simulator.tables.alone import alone, beside


class Prices:
    """Prices by operator.

    A kernel is held to the fitted time, or is the fastest one where no fit says the time; what
    the plan changes about it, the order of experts or how rows are gathered, comes on top.
    ``told`` is called for each operator that had to be priced.
    """

    def __init__(
        self,
        scenario: Scenario,
        target: Target,
        memo: Memo,
        told: Callable[[], None] | None = None,
    ) -> None:
        self.scenario = scenario
        self.target = target
        self.memo = memo
        self._told = told
        self._known: dict[Op, Priced] = {}
        self._pool: dict[Op, Priced] = {}
        self.shares: dict[tuple[MoE, int, int, bool], Share] = {}
        """Routed shares that training has drawn: of a layer, its ranks and their tokens."""

    def __getitem__(self, op: Op) -> Priced:
        """The operator priced; raises SpecError where the device cannot compute in its formats."""
        found = self._known.get(op)
        if found is None:
            found = self._pool.get(op)
            if found is None:
                found = self._pool[op] = self._priced(op)
                if self._told is not None:
                    self._told()
            self._known[op] = found
        return found

    @property
    def sent(self) -> Iterator[Priced]:
        """What this scenario asked for so far that moves over links."""
        return (one for one in self._known.values() if isinstance(one.op, Exchange | Collective))

    def under(self, scenario: Scenario) -> Prices:
        """Those of another scenario, which share what is known: one with the same device, stack,
        fidelity, seed, order of experts and way to gather rows."""
        other = Prices(scenario, self.target, self.memo, self._told)
        other._pool, other.shares = self._pool, self.shares
        return other

    def elsewhere(self, scenario: Scenario, target: Target) -> Prices:
        """Those of a scenario as ``under`` takes it, on a device that differs in its links and its
        price alone: what is not sent costs the same there."""
        other = self.under(scenario)
        other.target = target
        other._pool = {
            op: priced
            for op, priced in self._pool.items()
            if not isinstance(op, Exchange | Collective)
        }
        return other

    def run(self, kernel: Kernel) -> KernelRun:
        """A kernel alone, by events, or in closed form where the scenario asks for it."""
        run, _, _ = look_up(kernel, self.scenario.fidelity, self.memo)
        return run

    def _priced(self, op: Op) -> Priced:
        target = self.target
        if isinstance(op, Derived):
            return self._derived(op)
        fitted = alone(op, target)
        if isinstance(op, Exchange | Collective):
            if fitted is not None:
                begin = min(fitted.parts["latency"], fitted.seconds)
                end = fitted.seconds
            elif isinstance(op, Exchange):
                begin, transfer = exchange_seconds(op, target)
                end = begin + transfer
            else:
                way = fastest_way(op, target)
                begin, end = way.latency, way.seconds
            return Priced(op=op, plan=None, known=fitted, exchange=(begin, end))
        if fitted is None:
            plan = fastest(alternatives(op, target), self.scenario.fidelity, self.memo)
        else:
            plan = lower(op, target)
            plan = replace(plan, kernel=held(plan.kernel, fitted, self.scenario, self.memo))
        if isinstance(op, GroupedMatmul):
            plan = self._as_planned(plan, op)
        return Priced(op=op, plan=plan, known=fitted, run=self.run(plan.kernel))

    def _derived(self, op: Derived) -> Priced:
        """An operator whose kernel is like another's, at the pace of its factor."""
        like = self[op.priced_as]
        assert like.plan is not None, "kernels are like kernels"
        assert like.run is not None, "a kernel has run"
        factor, known = op.factor, like.known
        if isinstance(op, AttentionBackward):
            factor /= self.target.stack.attention.backward
        if known is not None:
            more = op.more / self.target.bandwidth
            if known.seconds > 0:
                factor += beside(known.parts, more) / known.seconds
            parts = {bound: time * factor for bound, time in known.parts.items()}
            known = replace(known, seconds=known.seconds * factor, parts=parts)
        kernel = replace(like.kernel.at_pace(factor), name=op.name)
        plan, run = replace(like.plan, kernel=kernel), like.run.at_pace(factor)
        return Priced(op=op, plan=plan, known=known, run=run)

    def _as_planned(self, plan: KernelPlan, op: GroupedMatmul) -> KernelPlan:
        wanted = self.scenario.plan
        article = wanted.descriptors == "article"
        kernel = issued(plan.kernel, op, plan.tiling, self.target, article=article)
        if wanted.expert_order != "expert":
            order = EXPERT_ORDERS[wanted.expert_order](op.counts)
            kernel = queued(kernel, op, plan.tiling, order)
        return replace(plan, kernel=kernel)
