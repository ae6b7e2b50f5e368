"""What of a scenario was given or set and had no say in its answer, in words.

Knows a scenario, the numbers behind its answer, and what its operators took. Never touches results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from simulator.ops.exchange import Exchange
from simulator.result import Basis
from simulator.runs.prices import Prices
from simulator.specs.plan import Plan
from simulator.specs.scenario import Scenario
from simulator.specs.workload import MoE, Transformer


def without_effect(scenario: Scenario, behind: tuple[Basis, ...], prices: Prices) -> Iterator[str]:
    """A sentence for each input that had no say."""
    for name in scenario.ignored:
        yield f"{name} was given, but has no say in a {scenario.phase} run"
    used = {number.path for number in behind}
    for spec in (scenario.hardware, scenario.stack):
        for entry in spec.provenance:
            if entry.source == "--set" and f"{spec.name}.{entry.path}" not in used:
                yield f"{entry.path} was set, but has no say in this run"
    yield from _idle_of_plan(scenario)
    yield from _idle_system(scenario, prices)
    yield from _idle_draws(scenario)


def _idle_of_plan(scenario: Scenario) -> Iterator[str]:
    plan, idle = scenario.plan, {"name"}
    if plan.ep == 1:
        idle.add("placement")
    if plan.ep == 1 or (plan.ep <= plan.tp and scenario.phase != "train"):
        idle |= {"exchange", "dispatch", "combine"}  # rows go nowhere, or partial sums alone
    if not scenario.has_experts or scenario.hardware.data_mover is None:
        idle.add("descriptors")
    if not scenario.has_experts:
        idle.add("expert_order")
    if scenario.phase == "train":
        idle |= {"schedule", "exchange", "descriptors"}
        if plan.ep == 1:
            idle.add("expert_order")  # experts are taken as equally loaded
        if not isinstance(scenario.model, Transformer):
            idle |= {"recipe", "sequence_parallel"}
    for name in sorted(idle):
        if getattr(plan, name) != getattr(_DEFAULT, name):
            yield f"plan.{name} was set, but has no say in this run"
    if scenario.phase != "train" and plan.ep == 1 and scenario.batch < plan.replicas:
        idle_ones = plan.replicas - scenario.batch
        yield f"{idle_ones} of {plan.replicas} replicas have no part of a batch of {scenario.batch}"


def _idle_system(scenario: Scenario, prices: Prices) -> Iterator[str]:
    """The system that was asked for, where links of the accelerator's own would do as well."""
    bare, hardware = scenario.bare, scenario.hardware
    if bare is None:
        return
    said = "the system was given, but has no say in this run"
    sent = list(prices.sent)
    if not sent:
        yield f"{said}: nothing is sent"
        return
    if any(isinstance(priced.op, Exchange) for priced in sent):
        own, around = bare.scale_up, hardware.scale_up
        if own is None or around is None or own.peers != around.peers:
            return
    target = replace(prices.target, accelerator=bare)
    other = Prices(replace(scenario, hardware=bare, bare=None), target, prices.memo)
    if all(other[priced.op].exchange == priced.exchange for priced in sent):
        yield f"{said}: all that is sent takes as long over the accelerator's own links"


def _idle_draws(scenario: Scenario) -> Iterator[str]:
    """The seed and the routing where no token is routed to another rank or counted."""
    nets = (
        [layer.ffn for layer in scenario.model.layers() if isinstance(layer.ffn, MoE)]
        if isinstance(scenario.model, Transformer)
        else []
    )
    even = scenario.phase == "train" and scenario.plan.ep == 1
    if scenario.seed and (even or not nets):
        yield "seed was given, but nothing is drawn in this run"
    if even and any(net.routing != "uniform" for net in nets):
        yield "the routing has no say in training with ep 1: experts are taken as equally loaded"


_DEFAULT = Plan()
