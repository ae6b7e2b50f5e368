"""What a training step did to the machine: stages, parts, memory, traffic. Data alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.memory_use import MemoryUse
from simulator.units import Bytes, Dollars, Joules, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpan:
    """What one pipeline stage of a replica does, in seconds from the start of the step."""

    stage: int
    kind: str
    """forward, backward, input, weight, send, gather, reduce, optimizer or another exchange."""
    micro_batch: int
    """-1 where it is of none, or of several."""
    start: Seconds
    end: Seconds
    share: float = 1.0
    """Of the time from start to end; below 1 where several spans were joined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart:
    """A part of the step of the busiest stage that nothing hides."""

    name: str
    group: Literal["forward", "recompute", "backward", "update", "exposed"]
    bound: Literal["compute", "link", "latency", "waiting"]
    time: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What one device sends in a step for one purpose, over links inside and out of its domain."""

    name: str
    ranks: int
    """Largest group that exchanges."""
    near: Bytes
    far: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBudget:
    """Training on so many tokens, every step like the one that was simulated."""

    tokens: float
    steps: int
    time: Seconds
    device_hours: float
    energy: Joules | None = None
    cost: Dollars | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingUse:
    """A training step: its plan, what each pipeline stage does and holds, and what is sent."""

    plan: tuple[tuple[str, str], ...]
    """Names and values of the plan's degrees and policies."""
    micro_batches: int
    """Of one replica and step."""
    bubble: float
    """Share of the pipeline's time in which a mean stage idles if all communication were free."""
    spans: tuple[StageSpan, ...] = ()
    """Of one replica, by stage and start; those between warm-up and cool-down joined where there
    are many."""
    folded: tuple[Seconds, Seconds] | None = None
    """From when to when spans are joined; None where none are."""
    parts: tuple[StepPart, ...] = ()
    """The step of the busiest stage; the sum is its time."""
    memory: tuple[MemoryUse, ...] = ()
    """Of a rank of each pipeline stage."""
    traffic: tuple[Traffic, ...] = ()
    """Of a device of the busiest stage."""
    budget: TrainingBudget | None = None
