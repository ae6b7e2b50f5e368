"""A pass through the graph of a training step: when each stage does each of its works.

Every stage does its work in a given order; what comes when is the longest path through the graph
of what waits for what, found in one pass, work by work. Knows durations and orders. Never touches
specs, operators, devices, or where a duration comes from.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from simulator.engine.pipeline_step import PieceTimes, Span, merged
from simulator.errors import InputError
from simulator.policies.pipeline import Lane, WorkKind
from simulator.units import Seconds

Arrivals: TypeAlias = list[Seconds | None]
"""When each micro-batch is there; None: not known yet."""


@dataclass(slots=True, kw_only=True)
class Play:
    """One pass through the graph."""

    times: Sequence[Sequence[PieceTimes]]
    program: Sequence[Lane]
    pairs: Sequence[Container[int]]
    """Of each stage, where forwards stand that run as one with the backward after them."""
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
        stages, steps = len(self.times), self._steps(stage)
        sends = self.sends[stage], self.sends[stage - 1]  # To the next stage, to the one before.
        latency, blocking = self.latency, self.blocking
        sending = stages > 1 and (latency > 0 or any(sends))
        collectives = _Collectives(self, stage) if self.collectives else None
        spans, times, pairs = self.spans, self.times[stage], self.pairs[stage]
        work = self.program[stage].work
        links = [0.0, 0.0]
        free = 0.0  # When the stage may compute again.
        rest: tuple[Seconds, Seconds] | None = None  # Of a pair whose forward is seen to.
        for index, (kind, piece, batch) in enumerate(work):
            duration, inbox, outbox, way = steps[kind][piece]
            if rest is None:
                while (start := inbox[batch]) is None:
                    yield index
                size = 1
                if index in pairs:
                    size, (_, other, beside) = 2, work[index + 1]
                    while (ready := self._back[other * stages + stage][beside]) is None:
                        yield index + 1
                    start = max(start, ready)
                    duration = merged(times[piece], times[other])
                if free > start:
                    start = free
                if collectives is None or not collectives.near(index, size):
                    free = end = start + duration
                else:
                    start, end, free = collectives.around(index, size, start, duration)
                till = end
                if size == 2:
                    own, total = times[piece].forward, times[piece].forward + times[other].backward
                    till = start + (end - start) * (own / total if total else 1.0)
                    rest = till, end
            else:
                (start, till), rest = rest, None
                end = till
            if spans is not None:
                spans.append(Span(stage, kind, piece, batch, start, till))
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
            forward, inward, weights = time.parts
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

    __slots__ = ("_asked", "_lane", "_late", "_link", "_near", "_play", "_stage")

    def __init__(self, play: Play, stage: int) -> None:
        self._play, self._stage, self._lane = play, stage, play.program[stage]
        self._link: Seconds = 0.0
        lane = self._lane
        self._near: Container[int] = (
            range(len(lane.work))
            if play.gather_each or play.reduce_each
            else lane.first | lane.last | {index - 1 for index in lane.first}
        )
        self._late: list[int] = []
        self._asked: list[tuple[Seconds, Seconds, int]] = []
        """Of the weights that the next works read, when the first part and the last are there,
        and how many there are."""
        self._ask(0, 0.0)

    def near(self, index: int, size: int) -> bool:
        """Whether the work there, or one of both that run as one, waits for a collective or asks
        for one."""
        return index in self._near or (size == 2 and index + 1 in self._near)

    def around(
        self, index: int, size: int, start: Seconds, duration: Seconds
    ) -> tuple[Seconds, Seconds, Seconds]:
        """Start and end of a work, or of two as one, that could start so, and when the stage is
        free again."""
        play, after = self._play, index + size
        _, piece, batch = self._lane.work[after - 1]  # Of two the backward, which is reduced.
        time = play.times[self._stage][piece]
        if not play.beside:
            start = max([start, *(whole for _, whole, _ in self._asked)])
            end = free = start + duration
            if self._reduces(after - 1):
                if play.reduce_each:
                    free = self._use("reduce", piece, batch, end, time.reduce)
                else:
                    self._late.append(piece)
            self._ask(after, free)
            return start, end, free
        start = max([start, *(first for first, _, _ in self._asked)])
        # Parts follow one another; the last may still wait for its weights.
        ends = (whole + duration / parts for _, whole, parts in self._asked)
        end = max([start + duration, *ends])
        self._ask(after, start)
        if self._reduces(after - 1):
            begin = start + duration / time.buckets
            last = end + time.reduce / time.buckets
            self._use("reduce", piece, batch, begin, time.reduce, last)
        return start, end, end

    def close(self, free: Seconds) -> Seconds:
        """When the stage has computed, until ``free``, and reduced."""
        for piece in self._late:
            time = self._play.times[self._stage][piece]
            free = self._use("reduce", piece, -1, free, time.reduce)
        return max(free, self._link)

    def _ask(self, index: int, when: Seconds) -> None:
        """Gather what the work at ``index`` reads, and the one that runs with it."""
        play, lane = self._play, self._lane
        self._asked = []
        size = 2 if index in play.pairs[self._stage] else 1
        for place, (kind, piece, batch) in enumerate(lane.work[index : index + size], index):
            if place in lane.first or (play.gather_each and kind != "weight"):
                time = play.times[self._stage][piece]
                begin = max(self._link, when)
                whole = self._use("gather", piece, batch, when, time.gather)
                first = begin + time.gather / time.buckets if play.beside else whole
                self._asked.append((first, whole, time.buckets))

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
