"""What is run, on what, and at which fidelity: one frozen, hashable question.

Knows specs only. A scenario that exists is complete and valid; ``simulate`` answers it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral
from typing import Literal

from simulator.errors import Fault, SpecError
from simulator.specs.hardware import Accelerator
from simulator.specs.plan import Plan
from simulator.specs.stack import Stack
from simulator.specs.workload import Model, MoE, Transformer

PhaseName = Literal["prefill", "decode", "generate", "train", "denoise"]
Fidelity = Literal["roofline", "cohort", "tile"]

NEEDS: dict[PhaseName, tuple[str, ...]] = {
    "prefill": ("input",),
    "decode": ("context",),
    "generate": ("input", "output"),
    "train": ("input",),
    "denoise": (),
}
"""The lengths that a phase is run with."""

_TEXT: tuple[PhaseName, ...] = ("prefill", "decode", "generate", "train")
_IMAGE: tuple[PhaseName, ...] = ("denoise", "train")


def lengths(model: Model, phase: PhaseName) -> tuple[str, ...]:
    """The lengths that ``phase`` is run with; images have none."""
    return NEEDS[phase] if isinstance(model, Transformer) else ()


MOST_RANKS = 1 << 12
"""Most expert-parallel ranks: far beyond any deployment, small enough for tables by pairs."""
LONGEST = 1 << 27
"""Most tokens of a batch or a context: beyond any machine, small enough for exact counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run. Lengths are tokens per sequence.

    ``prefill`` processes ``input`` new tokens of each sequence; ``decode`` makes one step with
    ``context`` tokens in the cache, the new one included; ``generate`` is a prefill of ``input``
    and ``output`` decode steps; ``train`` makes one step on a global ``batch`` of sequences
    of ``input`` tokens, or of images; ``denoise`` makes all denoising steps of ``batch`` images.
    """

    hardware: Accelerator
    stack: Stack
    model: Model
    phase: PhaseName
    batch: int = 1
    input: int | None = None
    output: int | None = None
    context: int | None = None
    plan: Plan = field(default_factory=Plan)
    fidelity: Fidelity = "cohort"
    seed: int = 0
    overrides: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    """Lengths that were given and that the phase does not use."""
    bare: Accelerator | None = None
    """The accelerator with links of its own, where ``hardware`` has those of a system."""
    notes: tuple[str, ...] = ()
    """What of its system is worth saying beside the answer, such as links that were lost."""
    command: str = field(default="", compare=False)
    """The command line that states this scenario."""

    def __post_init__(self) -> None:
        self._keep_whole("batch", "seed", "input", "output", "context")
        faults = [
            _fault(name, "is needed", f"give {name} to a {self.phase} run")
            for name in lengths(self.model, self.phase)
            if getattr(self, name) is None
        ]
        for name in ("batch", "input", "output", "context"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= LONGEST:
                faults.append(_fault(name, f"{value}", f"a count from 1 to {LONGEST:,}"))
        tokens = self.batch * (self.input or 0)
        if not faults and tokens > LONGEST:
            faults.append(_fault("input", f"{tokens:,} tokens", f"at most {LONGEST:,} at once"))
        if self.seed < 0:
            faults.append(_fault("seed", f"{self.seed}", "a seed is 0 or more"))
        kind = _TEXT if isinstance(self.model, Transformer) else _IMAGE
        if self.phase not in kind:
            fix = f"it runs {', '.join(kind[:-1])} or {kind[-1]}"
            faults.append(_fault("phase", f"{self.model.name} has no {self.phase} phase", fix))
        if isinstance(self.model, Transformer) and self.model.max_context is not None:
            longest = max(self.context or 0, (self.input or 0) + (self.output or 0))
            if longest > self.model.max_context:
                fix = f"{self.model.name} was made for at most {self.model.max_context:,}"
                faults.append(_fault("context", f"{longest:,} tokens", fix))
        faults += self._plan_faults()
        if faults:
            raise SpecError(faults)

    def _keep_whole(self, *counts: str) -> None:
        """Make whole numbers of any kind plain ones, and refuse what is none."""
        faults = []
        for name in counts:
            value = getattr(self, name)
            if value is None and name not in ("batch", "seed"):
                continue
            if isinstance(value, bool) or not isinstance(value, Integral):
                faults.append(_fault(name, f"found {value!r:.40}", "write a whole number"))
            else:
                object.__setattr__(self, name, int(value))
        if faults:
            raise SpecError(faults)

    @property
    def communicates(self) -> bool:
        """Whether devices send each other anything: all but replicas that only infer do."""
        plan = self.plan
        groups = plan.tp * plan.cp * plan.pp * plan.ep
        return plan.devices > 1 and (self.phase == "train" or groups > 1)

    @property
    def has_experts(self) -> bool:
        """Whether some layer of the model routes tokens to experts."""
        return isinstance(self.model, Transformer) and any(
            isinstance(layer.ffn, MoE) for layer in self.model.layers()
        )

    def _plan_faults(self) -> list[Fault]:
        """What of the plan has nothing to work on."""
        plan, faults = self.plan, []
        if plan.ep > 1 and not self.has_experts:
            fix = "leave ep out, or take a model with experts"
            faults.append(_fault("ep", f"{self.model.name} has no experts to spread", fix))
        if plan.redundant_experts and not self.has_experts:
            found = f"{self.model.name} has no experts to copy"
            fix = "leave redundant_experts out, or take a model with experts"
            faults.append(_fault("plan.redundant_experts", found, fix))
        if plan.ep > MOST_RANKS:
            found = f"{plan.ep:,} ranks, each of which may send to each"
            faults.append(_fault("ep", found, f"at most {MOST_RANKS:,}"))
        replicas = plan.replicas
        infers = self.phase != "train"  # where a schedule has a say
        if infers and plan.schedule == "two_batch" and self.batch < 2 * replicas:
            found = f"a batch of {self.batch} leaves no two sequences to each of {replicas} ranks"
            fix = f"a batch of {2 * replicas} or more, or another schedule"
            faults.append(_fault("plan.schedule", found, fix))
        if infers and plan.ep <= plan.tp and plan.schedule != "bulk":
            few = (
                "one rank has none"
                if plan.tp == 1
                else f"ep {plan.ep} has none within tp {plan.tp}"
            )
            found = f"{plan.schedule} hides exchanges, and {few}"
            fix = f"give ep {2 * plan.tp} or more" if self.has_experts else "leave schedule out"
            faults.append(_fault("plan.schedule", found, fix))
        if plan.tp > 1 and infers and self.batch < replicas:
            found = f"a batch of {self.batch} leaves some of {replicas} replicas without a sequence"
            fix = f"with tp {plan.tp}, a batch of {replicas} or more, or fewer replicas"
            faults.append(_fault("batch", found, fix))
        if plan.cp > 1 and infers:
            found = f"{self.phase} does not split a sequence"
            faults.append(_fault("plan.cp", found, "leave it at 1: only training runs with cp"))
        return faults


def _fault(path: str, found: str, fix: str) -> Fault:
    return Fault("scenario", None, path, found, fix)
