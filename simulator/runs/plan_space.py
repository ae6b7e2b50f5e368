"""The parallel plans that so many devices could run, and those of them that are legal and fit.

Knows degrees, rules and memory. Never touches time.

Every degree is tried that divides the devices, with these bounds, which keep the search small:
tensor parallelism stays inside the scale-up domain, a replica has a sequence, a context-parallel
rank at least ``CP_TOKENS`` tokens. Where replicas train, they share optimizer states at least: that
saves memory, and takes no longer. Of plans that differ only in what else replicas share and in
what is recomputed, those are left out of which another that fits does less of both: each of the
two takes time and saves memory alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from simulator.errors import SpecError
from simulator.mapping.legality import divisors, plan_faults
from simulator.mapping.placement import memory_use
from simulator.memory_use import MemoryUse
from simulator.specs.hardware import Accelerator
from simulator.specs.plan import Plan
from simulator.specs.scenario import Scenario
from simulator.units import Bytes

CP_TOKENS = 4096
"""Fewest tokens of a sequence that a context-parallel rank is given."""
MICRO_BATCHES = 1, 2, 4
PIECES = 1, 2, 4
"""Pieces of the model on each pipeline stage."""
ZERO = 1, 2, 3
RECOMPUTE: tuple[Literal["none", "selective", "full"], ...] = ("none", "selective", "full")
Value = TypeVar("Value")
VARIED = ("tp", "pp", "cp", "dp", "ep", "virtual_stages", "micro_batch", "zero", "recompute")
"""Fields of a plan that the search sets, in the order in which a plan is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """A legal plan and the memory of its fullest device, which holds it."""

    scenario: Scenario
    memory: MemoryUse

    @property
    def text(self) -> str:
        """The plan in a few words, such as ``tp8 dp4 ep32``."""
        return plan_text(self.scenario.plan)


@dataclass(slots=True, kw_only=True)
class Space:
    """What became of the candidates of one device."""

    hardware: str
    tried: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    """Candidates by the rule that they break; one that breaks several counts for each."""
    illegal: int = 0
    too_large: int = 0
    """Legal candidates whose memory a device does not have."""
    largest: Bytes = 0.0
    """The largest shortfall among them."""
    outdone: int = 0
    """Candidates that share or recompute more than one that fits."""
    nearest: Fitting | None = None
    """Of the candidates that do not fit, that which lacks least."""
    kept: list[Fitting] = field(default_factory=list)

    @property
    def shortfall(self) -> Bytes:
        """What the nearest candidate lacks."""
        return 0.0 if self.nearest is None else _short(self.nearest.memory)


def plan_text(plan: Plan) -> str:
    """The degrees of a plan above one, and how it trains.

    >>> plan_text(Plan(tp=8, dp=2, ep=16)), plan_text(Plan())
    ('tp8 dp2 ep16', 'tp1')
    """
    words = [
        f"{short}{value}"
        for short, value, least in (
            ("tp", plan.tp, 1), ("pp", plan.pp, 1), ("cp", plan.cp, 1), ("dp", plan.replicas, 1),
            ("ep", plan.ep, 1), ("v", plan.virtual_stages, 1), ("mb", plan.micro_batch, 1),
            ("zero", plan.zero, 0),
        )
        if value > least
    ]  # fmt: skip
    if plan.recompute != "none":
        words.append(plan.recompute)
    return " ".join(words) or "tp1"


def fill(
    space: Space,
    base: Scenario,
    devices: int,
    held: frozenset[str] = frozenset(),
    told: Callable[[], None] | None = None,
    given: Plan | None = None,
) -> None:
    """Add the plans for ``devices`` devices; those of ``held`` fields stay as ``given`` has them,
    or else ``base``.

    ``told`` is called for each candidate.
    """
    base = replace(base, command="")
    for family in _families(base, given or base.plan, devices, held):
        fitting: list[Plan] = []
        for plan in family:
            space.tried += 1
            if told is not None:
                told()
            if any(_does_less(other, plan) for other in fitting):
                space.outdone += 1
            elif _admit(space, base, plan, devices):
                fitting.append(plan)


def _does_less(plan: Plan, than: Plan) -> bool:
    recomputed = RECOMPUTE.index
    return plan.zero <= than.zero and recomputed(plan.recompute) <= recomputed(than.recompute)


def _admit(space: Space, base: Scenario, plan: Plan, devices: int) -> bool:
    """Keep a plan that is legal and fits, or count why it is none."""
    rules = _broken(base, plan, devices)
    if not rules:
        try:
            scenario = replace(base, plan=plan)
            memory = memory_use(scenario)
        except SpecError as error:
            rules = {fault.path.removeprefix("plan.") for fault in error.faults}
    if rules:
        space.illegal += 1
        space.broken.update(rules)
        return False
    found, short = Fitting(scenario=scenario, memory=memory), _short(memory)
    if short <= 0:
        space.kept.append(found)
        return True
    space.too_large += 1
    space.largest = max(space.largest, short)
    if space.nearest is None or short < space.shortfall:
        space.nearest = found
    return False


def _short(memory: MemoryUse) -> Bytes:
    return memory.total - memory.capacity


def _broken(base: Scenario, plan: Plan, devices: int) -> set[str]:
    sequence = None if base.phase == "decode" else base.input
    faults = plan_faults(
        base.model, plan, phase=base.phase, batch=base.batch, sequence=sequence, devices=devices
    )
    rules = {fault.path for fault in faults}
    if plan.replicas > base.batch:
        rules.add("batch")
    return rules


def _families(
    base: Scenario, given: Plan, devices: int, held: frozenset[str]
) -> Iterator[list[Plan]]:
    """Candidates, those together that differ only in what replicas share and what is recomputed,
    the least of it first."""
    domain = scale_up_domain(base.hardware, devices)

    def choices(name: str, values: Iterable[Value]) -> Iterable[Value]:
        return (getattr(given, name),) if name in held else values

    for tp in choices("tp", [d for d in divisors(devices) if d <= domain]):
        for pp in choices("pp", _quotients(devices, tp)):
            for cp in choices("cp", _context(base, devices, tp * pp)):
                dp, left = divmod(devices, tp * pp * cp)
                if left or dp not in choices("dp", (dp,)):
                    continue
                for ep in choices("ep", _quotients(tp * cp * dp, 1) if base.has_experts else (1,)):
                    cut = replace(given, tp=tp, pp=pp, cp=cp, dp=dp, ep=ep)
                    if base.phase != "train":
                        yield [cut]
                        continue
                    for pieces in choices("virtual_stages", PIECES if pp > 1 else (1,)):
                        for sequences in choices("micro_batch", MICRO_BATCHES):
                            yield [
                                replace(
                                    cut, virtual_stages=pieces, micro_batch=sequences, zero=zero,
                                    recompute=recompute,
                                )
                                for zero in choices("zero", ZERO if dp * cp > 1 else (0,))
                                for recompute in choices("recompute", RECOMPUTE)
                            ]  # fmt: skip


def _quotients(number: int, by: int) -> list[int]:
    """Divisors of the quotient; none where there is a rest."""
    return [] if number % by else divisors(number // by)


def _context(base: Scenario, devices: int, taken: int) -> list[int]:
    if base.phase != "train":
        return [1]
    tokens = base.input or 0
    return [cp for cp in _quotients(devices, taken) if cp == 1 or tokens // cp >= CP_TOKENS]


def scale_up_domain(device: Accelerator, devices: int) -> int:
    """Devices that reach each other over scale-up links, of so many."""
    link = device.scale_up
    return min(devices, (link.peers if link is not None else None) or devices)
