"""What a training step over pipeline stages is made of, and what has become of one. Data alone.

Knows durations. Never touches orders, events or where a duration comes from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Literal, NamedTuple

from simulator.errors import Fault, SpecError
from simulator.units import Seconds

Rhythm = Literal["step", "micro_batch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceTimes:
    """Durations of one micro-batch in one piece of the model, and of the piece's collectives."""

    forward: Seconds
    backward_input: Seconds
    backward_weight: Seconds
    recompute: Seconds = 0.0
    """Activations computed again, before the gradient of the input."""
    forward_exchange: Seconds = 0.0
    """Of ``forward``, rows on their way to experts and back: links work, the stage does not."""
    backward_exchange: Seconds = 0.0
    """As much of ``recompute``, ``backward_input`` and ``backward_weight``."""
    gather: Seconds = 0.0
    """All-gather of the piece's weights."""
    reduce: Seconds = 0.0
    """Reduction of the piece's gradients over the replicas."""
    buckets: int = 1
    """Equal parts, the layers of the piece: a part computes when its weights are there, and its
    gradients are reduced when it is done."""

    @property
    def backward(self) -> Seconds:
        """Both gradients, and what is computed again for them."""
        _, inward, weights = self.parts
        return inward + weights

    @property
    def parts(self) -> tuple[Seconds, Seconds, Seconds]:
        """Forward, backward up to the input's gradient, and the weights' gradients."""
        return self.forward, self.recompute + self.backward_input, self.backward_weight

    @property
    def exchanges(self) -> Seconds:
        """Exchanges of one micro-batch."""
        return self.forward_exchange + self.backward_exchange


def merged(forward: PieceTimes, backward: PieceTimes) -> Seconds:
    """A forward of one piece and the backward of another micro-batch, run as one.

    Computation of one passes beside exchanges of the other; neither computation, nor exchanges,
    nor the two of one micro-batch pass beside one another.
    """
    exchanges = forward.forward_exchange + backward.backward_exchange
    both = forward.forward + backward.backward
    return max(both - exchanges, exchanges, forward.forward, backward.backward)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What the communication of a stage takes of each tier of a rank's links while it is alone: the
    mean over its duration, from 0 to 1."""

    sends: Mapping[str, float] = field(default_factory=dict)
    """To the next stage, and as much to the one before."""
    collectives: Mapping[str, float] = field(default_factory=dict)
    exchanges: Mapping[str, float] = field(default_factory=dict)


DURATIONS = tuple(item.name for item in fields(PieceTimes) if item.name != "buckets")


class Span(NamedTuple):
    """What a stage or its links did; piece and micro-batch are -1 for the optimizer."""

    stage: int
    kind: str
    """A kind of work, or ``send``, ``gather``, ``reduce`` or ``optimizer``."""
    piece: int
    micro_batch: int
    start: Seconds
    end: Seconds


@dataclass(frozen=True, kw_only=True)
class PipelineRun:
    """A step as it ran.

    ``makespan`` = ``pipeline`` + ``exposed_send`` + ``exposed_collectives`` + ``contention`` +
    ``optimizer``, and ``pipeline`` = ``ideal`` + ``bubble``. An exposed time is what the makespan
    loses when that communication costs nothing, where nothing shares a link.
    """

    makespan: Seconds
    pipeline: Seconds
    """The last stage's end if all communication cost nothing."""
    exposed_send: Seconds
    exposed_collectives: Seconds
    contention: Seconds
    """What more the makespan loses because communication shares links."""
    optimizer: Seconds
    """From the end of computation and collectives to the end of the step."""
    busy: tuple[Seconds, ...]
    """What each stage computes and exchanges without the optimizer, beside one another once."""
    exposed_exchanges: tuple[Seconds, ...]
    """Of that, exchanges of experts that no other micro-batch hides."""
    spans: tuple[Span, ...] = field(default=(), repr=False)
    """Of work in the order of each stage; empty unless recorded. A forward and a backward that run
    as one have a share of its time each."""

    @property
    def idle(self) -> tuple[Seconds, ...]:
        """What each stage does not compute until the optimizer begins."""
        end = self.makespan - self.optimizer
        return tuple(end - busy for busy in self.busy)

    @cached_property
    def ideal(self) -> Seconds:
        """The step if all stages were always busy: their mean computation."""
        return math.fsum(self.busy) / len(self.busy)

    @property
    def bubble(self) -> Seconds:
        """Mean idle time of a stage if all communication cost nothing."""
        return max(0.0, self.pipeline - self.ideal)

    @property
    def bubble_over_ideal(self) -> float:
        """(p - 1) / m for equal stages of 1F1B."""
        return self.bubble / self.ideal if self.ideal else 0.0

    @property
    def bubble_over_total(self) -> float:
        """(p - 1) / (m + p - 1) for equal stages of 1F1B."""
        return self.bubble / self.pipeline if self.pipeline else 0.0


def check(
    times: Sequence[Sequence[PieceTimes]],
    sends: Sequence[Seconds],
    latency: Seconds,
    updates: Sequence[Seconds],
) -> None:
    """Raise SpecError that names every time that is none."""
    faults: list[Fault] = []

    def fault(path: str, found: object, fix: str) -> None:
        faults.append(Fault("pipeline", None, path, str(found), fix))

    def seconds(path: str, value: Seconds) -> None:
        if not 0 <= value < math.inf:
            fault(path, value, "use seconds, 0 or more")

    if not times or not times[0]:
        fault("times", "nothing", "state at least one stage of one piece")
    for stage, row in enumerate(times):
        if len(row) != len(times[0]):
            fault(f"times[{stage}]", f"{len(row)} pieces", f"use {len(times[0])}, as stage 0 has")
        for piece, time in enumerate(row):
            for name in DURATIONS:
                seconds(f"times[{stage}][{piece}].{name}", getattr(time, name))
            # Sums of the same operators in another order may differ in their last bits.
            for name in ("forward", "backward"):
                whole, part = getattr(time, name), getattr(time, f"{name}_exchange")
                if 0 <= whole * (1 + 1e-9) < part < math.inf:
                    path = f"times[{stage}][{piece}].{name}_exchange"
                    fault(path, part, f"use at most the {name} that it is part of, {whole}")
            if time.buckets < 1:
                fault(f"times[{stage}][{piece}].buckets", time.buckets, "use 1 or more")
    for name, values in (("send", sends), ("optimizer", updates)):
        if len(values) != len(times):
            fault(name, f"{len(values)} numbers", f"use one, or {len(times)}: one for each stage")
        for index, value in enumerate(values):
            seconds(f"{name}[{index}]", value)
    seconds("latency", latency)
    if faults:
        raise SpecError(faults)
