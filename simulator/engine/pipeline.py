"""One training step of one replica: pipeline stages, sends between them, collectives beside them.

Every stage does its work in a given order; what comes when is the longest path through the graph
of what waits for what, found in one pass, work by work. Knows durations and orders. Never touches
specs, operators, devices, or where a duration comes from.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from simulator.errors import Fault, InputError, SpecError
from simulator.policies.pipeline import Lane, PipelineOrder, WorkKind, lay_out
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
    gather: Seconds = 0.0
    """All-gather of the piece's weights."""
    reduce: Seconds = 0.0
    """Reduction of the piece's gradients over the replicas."""
    buckets: int = 1
    """Equal parts, the layers of the piece: a part computes when its weights are there, and its
    gradients are reduced when it is done."""


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

    ``makespan`` = ``pipeline`` + ``exposed_send`` + ``exposed_collectives`` + ``optimizer``, and
    ``pipeline`` = ``ideal`` + ``bubble``. An exposed time is what the makespan loses when that
    communication costs nothing.
    """

    makespan: Seconds
    pipeline: Seconds
    """The last stage's end if all communication cost nothing."""
    exposed_send: Seconds
    exposed_collectives: Seconds
    optimizer: Seconds
    """From the end of computation and collectives to the end of the step."""
    busy: tuple[Seconds, ...]
    """Computation of each stage, without the optimizer."""
    spans: tuple[Span, ...] = field(default=(), repr=False)
    """Of work in the order of each stage; empty unless recorded."""

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


def run_pipeline(
    times: Sequence[Sequence[PieceTimes]],
    order: PipelineOrder,
    micro_batches: int,
    *,
    send: Seconds | Sequence[Seconds] = 0.0,
    latency: Seconds = 0.0,
    overlap_send: bool = True,
    overlap_collectives: bool = True,
    gather: Rhythm = "step",
    reduce: Rhythm = "step",
    optimizer: Seconds | Sequence[Seconds] = 0.0,
    record: bool = False,
) -> PipelineRun:
    """Play one step; ``times[r][c]`` is piece c of stage r, which is piece c p + r of the model.

    ``send`` is the time that a micro-batch's activations, or their gradients, take on the link
    between stage r and the next (of the last: and the first), one number or one for each stage;
    ``latency`` is how much later they arrive. Each direction of a link sends one after another.
    Without ``overlap_send`` a stage computes nothing while it sends.

    Collectives of a stage run one after another on its links, in the order in which the stage
    asks for them. Weights are gathered for a piece's first forward (``gather="step"``), or for
    each work that reads them (``"micro_batch"``, ZeRO-3): asked for as the work before begins.
    Gradients are reduced when the last of the micro-batches has been added, or after each. Without
    ``overlap_collectives`` a stage gathers and reduces while it computes nothing; what is reduced
    once a step is reduced at its end.

    The optimizer, of one duration or one for each stage, begins when every stage has computed and
    reduced, as it does where gradients are clipped by their norm.

    Raises SpecError for times that are none, and InputError for an order that stands still or
    leaves work undone.
    """
    stages = len(times)
    sends = [send] * stages if isinstance(send, (int, float)) else list(send)
    updates = [optimizer] * stages if isinstance(optimizer, (int, float)) else list(optimizer)
    _check(times, sends, latency, updates)
    program = lay_out(order, stages, micro_batches, len(times[0]))
    spans: list[Span] | None = [] if record else None
    play = _Play(
        times=times,
        program=program,
        micro_batches=micro_batches,
        sends=sends,
        latency=latency,
        blocking=not overlap_send,
        collectives=any(piece.gather or piece.reduce for stage in times for piece in stage),
        beside=overlap_collectives,
        gather_each=gather == "micro_batch",
        reduce_each=reduce == "micro_batch",
        spans=spans,
    )
    full = sent = play.run()
    if play.collectives:
        play = replace(play, collectives=False, spans=None)
        sent = play.run()
    bare = sent
    if stages > 1 and (latency or any(sends)):
        bare = replace(play, sends=[0.0] * stages, latency=0.0, spans=None).run()
    if spans is not None:
        spans += (
            Span(stage, "optimizer", -1, -1, full, full + update)
            for stage, update in enumerate(updates)
            if update
        )
    return PipelineRun(
        makespan=full + max(updates),
        pipeline=bare,
        exposed_send=sent - bare,
        exposed_collectives=full - sent,
        optimizer=max(updates),
        busy=tuple(
            micro_batches * math.fsum(part for piece in stage for part in _compute(piece))
            for stage in times
        ),
        spans=tuple(spans or ()),
    )


Arrivals: TypeAlias = list[Seconds | None]
"""When each micro-batch is there; None: not known yet."""


@dataclass(slots=True, kw_only=True)
class _Play:
    """One pass through the graph."""

    times: Sequence[Sequence[PieceTimes]]
    program: Sequence[Lane]
    micro_batches: int
    sends: Sequence[Seconds]
    latency: Seconds
    blocking: bool
    collectives: bool
    beside: bool
    gather_each: bool
    reduce_each: bool
    spans: list[Span] | None
    _forth: list[Arrivals] = field(init=False)
    """Activations at each piece of the model."""
    _back: list[Arrivals] = field(init=False)
    """Gradients at each piece of the model."""
    _ends: list[Seconds] = field(init=False)

    def run(self) -> Seconds:
        """The end of the last computation or reduction of any stage."""
        stages = len(self.times)
        pieces = stages * len(self.times[0])
        self._forth = [[None] * self.micro_batches for _ in range(pieces)]
        self._forth[0] = [0.0] * self.micro_batches
        self._back = [[None] * self.micro_batches for _ in range(pieces)]
        self._ends = [0.0] * stages
        running = [self._stage(stage) for stage in range(stages)]
        done, before = [0] * stages, -1
        while before != sum(done):
            before = sum(done)
            # There and back, as activations and gradients go.
            for stage in (*range(stages), *range(stages - 1, -1, -1)):
                done[stage] = next(running[stage], len(self.program[stage].work))
        for stage, lane in enumerate(self.program):
            if done[stage] < len(lane.work):
                kind, piece, batch = lane.work[done[stage]]
                raise InputError(
                    f"the order of the pipeline stands still: stage {stage} waits to do the "
                    f"{kind} of micro-batch {batch} in piece {piece}; put what it waits for first"
                )
        return max(self._ends)

    def _stage(self, stage: int) -> Iterator[int]:
        """Work through the order of one stage; yields how much is done whenever it must wait."""
        steps = self._steps(stage)
        sends = self.sends[stage], self.sends[stage - 1]  # To the next stage, to the one before.
        latency, blocking = self.latency, self.blocking
        sending = len(self.times) > 1 and (latency > 0 or any(sends))
        collectives = _Collectives(self, stage) if self.collectives else None
        spans = self.spans
        links = [0.0, 0.0]
        free = 0.0  # When the stage may compute again.
        for index, (kind, piece, batch) in enumerate(self.program[stage].work):
            duration, inbox, outbox, way = steps[kind][piece]
            while (start := inbox[batch]) is None:
                yield index
            if free > start:
                start = free
            if collectives is None or index not in collectives.near:
                free = end = start + duration
            else:
                start, end, free = collectives.around(index, start, duration)
            if spans is not None:
                spans.append(Span(stage, kind, piece, batch, start, end))
            if outbox is None:
                continue
            if sending and way is not None:
                begin = links[way]
                if end > begin:
                    begin = end
                end = begin + sends[way]
                links[way] = end
                if spans is not None and end > begin:
                    spans.append(Span(stage, "send", piece, batch, begin, end))
                if blocking and end > free:
                    free = end
                end += latency
            outbox[batch] = end
        self._ends[stage] = free if collectives is None else collectives.close(free)

    def _steps(self, stage: int) -> dict[WorkKind, list[_Step]]:
        """By kind and piece: how long, what it waits for, whom it tells, and over which link."""
        stages, forth, back = len(self.times), self._forth, self._back
        steps: dict[WorkKind, list[_Step]] = {
            kind: [] for kind in ("forward", "backward", "input", "weight")
        }
        for piece, time in enumerate(self.times[stage]):
            here = piece * stages + stage
            forward, inward, weights = _compute(time)
            to, over = (forth[here + 1], 0) if here + 1 < len(forth) else (back[here], None)
            onto = back[here - 1] if here else None
            steps["forward"].append((forward, forth[here], to, over))
            steps["backward"].append((inward + weights, back[here], onto, 1))
            steps["input"].append((inward, back[here], onto, 1))
            # Its order puts a piece's input gradient before.
            steps["weight"].append((weights, forth[0], None, None))
        return steps


_Step: TypeAlias = tuple[Seconds, Arrivals, Arrivals | None, int | None]


class _Collectives:
    """The collectives of one stage: what they wait for and what waits for them."""

    __slots__ = ("_first", "_lane", "_late", "_link", "_play", "_stage", "_whole", "near")

    def __init__(self, play: _Play, stage: int) -> None:
        self._play, self._stage, self._lane = play, stage, play.program[stage]
        self._link: Seconds = 0.0
        lane = self._lane
        self.near: Container[int] = (
            range(len(lane.work))
            if play.gather_each or play.reduce_each
            else lane.first | lane.last | {index - 1 for index in lane.first}
        )
        """Works that wait for a collective or ask for one."""
        self._late: list[int] = []
        self._ask(0, 0.0)

    def around(
        self, index: int, start: Seconds, duration: Seconds
    ) -> tuple[Seconds, Seconds, Seconds]:
        """Start and end of a work that could start so, and when the stage is free again."""
        play = self._play
        _, piece, batch = self._lane.work[index]
        time = play.times[self._stage][piece]
        if not play.beside:
            start = max(start, self._whole)
            end = free = start + duration
            if self._reduces(index):
                if play.reduce_each:
                    free = self._use("reduce", piece, batch, end, time.reduce)
                else:
                    self._late.append(piece)
            self._ask(index + 1, free)
            return start, end, free
        part = duration / time.buckets
        start = max(start, self._first)
        # Parts follow one another; the last may still wait for its weights.
        end = max(start + duration, self._whole + part)
        self._ask(index + 1, start)
        if self._reduces(index):
            last = end + time.reduce / time.buckets
            self._use("reduce", piece, batch, start + part, time.reduce, last)
        return start, end, end

    def close(self, free: Seconds) -> Seconds:
        """When the stage has computed, until ``free``, and reduced."""
        for piece in self._late:
            time = self._play.times[self._stage][piece]
            free = self._use("reduce", piece, -1, free, time.reduce)
        return max(free, self._link)

    def _ask(self, index: int, when: Seconds) -> None:
        """Gather what the work at ``index`` reads."""
        self._first = self._whole = 0.0
        lane = self._lane
        if index == len(lane.work):
            return
        kind, piece, batch = lane.work[index]
        if index not in lane.first and not (self._play.gather_each and kind != "weight"):
            return
        time = self._play.times[self._stage][piece]
        begin = max(self._link, when)
        self._whole = self._use("gather", piece, batch, when, time.gather)
        self._first = begin + time.gather / time.buckets if self._play.beside else self._whole

    def _reduces(self, index: int) -> bool:
        each = self._play.reduce_each and self._lane.work[index][0] in ("backward", "weight")
        return each or index in self._lane.last

    def _use(
        self,
        kind: str,
        piece: int,
        batch: int,
        when: Seconds,
        duration: Seconds,
        last: Seconds = 0.0,
    ) -> Seconds:
        """Take the links as soon as they are free from ``when`` on, and until ``last`` at least."""
        begin = max(self._link, when)
        self._link = max(begin + duration, last)
        if self._play.spans is not None and duration:
            self._play.spans.append(Span(self._stage, kind, piece, batch, begin, self._link))
        return self._link


def _compute(piece: PieceTimes) -> tuple[Seconds, Seconds, Seconds]:
    """Forward, backward up to the input's gradient, and the weights' gradients."""
    return piece.forward, piece.recompute + piece.backward_input, piece.backward_weight


def _check(
    times: Sequence[Sequence[PieceTimes]],
    sends: Sequence[Seconds],
    latency: Seconds,
    updates: Sequence[Seconds],
) -> None:
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
