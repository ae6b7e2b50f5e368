"""A training step whose communication shares links: what each stage does, played event by event.

A rank has one way out over each tier of its links. What a stage sends over it at once shares it
fairly: activations to the next stage, gradients to the stage before, its part of collectives, and
rows on their way to experts. What comes in has a way of its own, as wide and no fuller, which is
left out: what two stages send one another shares nothing.

Exchanges of a work come in its middle, and spread over all of it where it hides them. Otherwise
the step is that of ``pipeline_play``, which knows no sharing and is faster. Knows durations,
orders, and tiers by name. Never touches specs, operators, devices, or where a duration comes from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TypeAlias

from simpy import Environment, Event, Timeout

from simulator.engine.instant import Instant
from simulator.engine.links import LinkSet
from simulator.engine.pipeline_play import Play
from simulator.engine.pipeline_step import PieceTimes, Shares, Span, merged
from simulator.policies.pipeline import Work, WorkKind
from simulator.units import Seconds


def contended(play: Play, shares: Shares) -> Shares | None:
    """The shares of tiers that the communication of a stage, all at once, asks for more of than
    there is; None where there are none."""
    used = [
        *[shares.sends] * (2 if len(play.times) > 1 and any(play.sends) else 0),
        *[shares.collectives] * play.collectives,
        *[shares.exchanges] * any(piece.exchanges for row in play.times for piece in row),
    ]
    asked: dict[str, float] = {}
    for kind in used:
        for tier, share in kind.items():
            asked[tier] = asked.get(tier, 0.0) + share
    full = {tier for tier, share in asked.items() if share > 1 + 1e-9}

    def only(kind: Mapping[str, float]) -> dict[str, float]:
        return {tier: share for tier, share in kind.items() if tier in full and share > 0}

    if not full:
        return None
    return Shares(
        sends=only(shares.sends),
        collectives=only(shares.collectives),
        exchanges=only(shares.exchanges),
    )


def run_shared(play: Play, shares: Shares) -> Seconds:
    """The end of the last computation or reduction of any stage, for a ``play`` that comes to its
    end by itself."""
    env = Environment()
    instant = Instant(env)
    pieces = len(play.times) * len(play.times[0])
    forth, back = (
        [[Event(env) for _ in range(play.micro_batches)] for _ in range(pieces)] for _ in range(2)
    )
    for event in forth[0]:
        event.succeed()
    stages = [
        _Stage(play, number, shares, instant, forth, back) for number in range(len(play.times))
    ]
    for stage in stages:
        env.process(stage.run())
    env.run()
    return max(stage.end for stage in stages)


class _Transfer:
    """Seconds of communication, not before it is released."""

    __slots__ = ("begin", "end", "released", "seconds", "told", "waiting")

    def __init__(self, seconds: Seconds, told: _Told, released: bool) -> None:
        self.seconds, self.told, self.released = seconds, told, released
        self.begin: Seconds = 0.0
        self.end: Seconds | None = None
        self.waiting: Event | None = None

    def done(self, env: Environment) -> Iterator[Event]:
        """Wait for the end."""
        if self.end is None:
            self.waiting = Event(env)
            yield self.waiting


_Told: TypeAlias = Callable[[Seconds, Seconds], None] | None
"""Called with begin and end."""


class _Queue:
    """Transfers of one kind, one after another in the order in which they were added."""

    __slots__ = ("_busy", "_env", "_items", "_links", "_shares", "last")

    def __init__(self, links: LinkSet, shares: Mapping[str, float]) -> None:
        self._links, self._shares, self._env = links, shares, links.instant.env
        self._items: deque[_Transfer] = deque()
        self._busy = False
        self.last: _Transfer | None = None
        """What was added last."""

    def add(self, seconds: Seconds, told: _Told = None, *, released: bool = True) -> _Transfer:
        """Take the links for so long; ``told`` is called at the end."""
        self.last = item = _Transfer(seconds, told, released)
        self._items.append(item)
        self._go()
        return item

    def release(self, item: _Transfer) -> None:
        item.released = True
        self._go()

    def _go(self) -> None:
        while not self._busy and self._items and self._items[0].released:
            item = self._items[0]
            item.begin = self._env.now
            if item.seconds:
                self._busy = True
                _taken(self._links, self._shares, item.seconds).callbacks.append(self._over)
            else:
                self._leave()

    def _over(self, _: Event) -> None:
        self._busy = False
        self._leave()
        self._go()

    def _leave(self) -> None:
        item = self._items.popleft()
        item.end = self._env.now
        if item.waiting is not None:
            item.waiting.succeed()
        if item.told is not None:
            item.told(item.begin, item.end)


def _taken(
    links: LinkSet, shares: Mapping[str, float], seconds: Seconds, over: Seconds | None = None
) -> Event:
    """The end of communication that takes ``shares`` of the links for ``seconds``, or as much
    spread over a longer time ``over``, where it is alone."""
    if not shares:
        return Timeout(links.instant.env, over or seconds)
    slower = seconds / (over or seconds)
    return links.start(
        {tier: share * seconds for tier, share in shares.items()},
        caps={tier: share * slower for tier, share in shares.items()},
    )


def _alone(times: Sequence[PieceTimes]) -> dict[WorkKind, list[tuple[Seconds, Seconds]]]:
    """By kind and piece, how long a work takes, and what of it exchanges do."""
    found: dict[WorkKind, list[tuple[Seconds, Seconds]]] = {
        kind: [] for kind in ("forward", "backward", "input", "weight")
    }
    for time in times:
        forward, inward, weights = time.parts
        found["forward"].append((forward, time.forward_exchange))
        found["backward"].append((inward + weights, time.backward_exchange))
        found["input"].append((inward, time.backward_exchange))
        found["weight"].append((weights, 0.0))
    return found


class _Stage:
    """One stage at work."""

    def __init__(
        self,
        play: Play,
        stage: int,
        shares: Shares,
        instant: Instant,
        forth: Sequence[Sequence[Event]],
        back: Sequence[Sequence[Event]],
    ) -> None:
        self.play, self.stage, self.env = play, stage, instant.env
        self.forth, self.back = forth, back
        self.times, self.lane = play.times[stage], play.program[stage]
        self.exchanges = shares.exchanges
        self.alone = _alone(self.times)
        tiers = {**shares.sends, **shares.collectives, **shares.exchanges}
        self.links = LinkSet(instant, dict.fromkeys(tiers, 1.0))
        self.ways = _Queue(self.links, shares.sends), _Queue(self.links, shares.sends)
        self.collectives = _Queue(self.links, shares.collectives)
        self.asked: list[tuple[_Transfer, _Transfer, int]] = []
        """Of the weights that the next works read, the first part and the rest, and how many parts
        there are."""
        self.end: Seconds = 0.0

    def run(self) -> Generator[Event, None, None]:
        """Work through the order of the stage."""
        play, env, work, pairs = self.play, self.env, self.lane.work, self.play.pairs[self.stage]
        late: list[int] = []
        if play.collectives:
            self.ask(0)
        index = 0
        while index < len(work):
            after = index + (2 if index in pairs else 1)
            works, asked = work[index:after], self.asked
            for kind, piece, batch in works:
                if kind != "weight":
                    here = piece * len(play.times) + self.stage
                    yield (self.forth if kind == "forward" else self.back)[here][batch]
            for first, rest, _ in asked:
                yield from (first if play.beside else rest).done(env)
            start, duration = env.now, self.duration(works)
            _, piece, batch = works[-1]  # Of two the backward, which is reduced.
            reduces = play.collectives and self.reduces(after - 1)
            last: _Transfer | None = None
            if play.collectives and play.beside:
                self.ask(after)
                if reduces:
                    last = self.reduce_beside(piece, batch, duration)
            yield from self.compute(works, duration)
            for _, rest, parts in asked:
                # The last part may still wait for its weights.
                yield from rest.done(env)
                wait = (rest.end or 0.0) + duration / parts - env.now
                if play.beside and wait > 1e-12 * env.now:
                    yield Timeout(env, wait)
            if last is not None:
                self.collectives.release(last)
            self.record(works, start)
            sends = [self.send(*one) for one in works]
            if play.collectives and not play.beside:
                if reduces and play.reduce_each:
                    yield from self.reduce(piece, batch).done(env)
                elif reduces:
                    late.append(piece)
                self.ask(after)
            for send in sends:
                if play.blocking and send is not None:
                    yield from send.done(env)
            index = after
        for piece in late:
            yield from self.reduce(piece, -1).done(env)
        if self.collectives.last is not None:
            yield from self.collectives.last.done(env)
        self.end = env.now

    def duration(self, works: Sequence[Work]) -> Seconds:
        """Of a work, or of two as one."""
        kind, piece, _ = works[0]
        if len(works) == 2:
            return merged(self.times[piece], self.times[works[1][1]])
        return self.alone[kind][piece][0]

    def compute(self, works: Sequence[Work], duration: Seconds) -> Iterator[Event]:
        """Compute and exchange."""
        moved = 0.0
        if self.exchanges:
            moved = sum(self.alone[kind][piece][1] for kind, piece, _ in works)
        if not moved:
            if duration:
                yield Timeout(self.env, duration)
        elif len(works) == 2:
            flow = _taken(self.links, self.exchanges, moved, over=duration)
            yield Timeout(self.env, duration)
            yield flow
        else:
            beside = max(0.0, duration - moved) / 2
            yield Timeout(self.env, beside)
            yield _taken(self.links, self.exchanges, min(moved, duration))
            yield Timeout(self.env, beside)

    def send(self, kind: str, piece: int, batch: int) -> _Transfer | None:
        """Tell the next that the work is done, over the links where it is another stage's."""
        play = self.play
        stages = len(play.times)
        here = piece * stages + self.stage
        forward = kind == "forward"
        if kind == "weight" or not (forward or here):
            return None
        if forward and here + 1 == len(self.forth):
            self.back[here][batch].succeed()
            return None
        box = (self.forth[here + 1] if forward else self.back[here - 1])[batch]
        seconds = play.sends[self.stage if forward else self.stage - 1] if stages > 1 else 0.0
        latency = play.latency if stages > 1 else 0.0

        def arrive(begin: Seconds, end: Seconds) -> None:
            self.span("send", piece, batch, begin, end)
            if latency:
                Timeout(self.env, latency).callbacks.append(box.trigger)
            else:
                box.succeed()

        return self.ways[0 if forward else 1].add(seconds, arrive)

    def reduces(self, index: int) -> bool:
        """Whether the gradients of the work there are reduced."""
        each = self.play.reduce_each and self.lane.work[index][0] in ("backward", "weight")
        return each or index in self.lane.last

    def reduce(self, piece: int, batch: int) -> _Transfer:
        """Reduce at once all that a piece has."""
        return self.collectives.add(
            self.times[piece].reduce,
            lambda begin, end: self.span("reduce", piece, batch, begin, end),
        )

    def reduce_beside(self, piece: int, batch: int, duration: Seconds) -> _Transfer:
        """Reduce from when the first part of a work is done, the last part when it is released."""
        time = self.times[piece]
        part = time.reduce / time.buckets
        first = self.collectives.add(time.reduce - part, released=False)
        ready = Timeout(self.env, duration / time.buckets)
        ready.callbacks.append(lambda _: self.collectives.release(first))

        def told(_: Seconds, end: Seconds) -> None:
            if part:
                self.span("reduce", piece, batch, first.begin, end)

        return self.collectives.add(part, told, released=False)

    def ask(self, index: int) -> None:
        """Gather what the work at ``index`` reads, and the one that runs with it."""
        play, lane = self.play, self.lane
        self.asked = []
        if not (play.gather_each or index in lane.first or index + 1 in lane.first):
            return
        size = 2 if index in play.pairs[self.stage] else 1
        for place, (kind, piece, batch) in enumerate(lane.work[index : index + size], index):
            if place in lane.first or (play.gather_each and kind != "weight"):
                self.asked.append(self.gather(piece, batch))

    def gather(self, piece: int, batch: int) -> tuple[_Transfer, _Transfer, int]:
        time = self.times[piece]
        part = time.gather / time.buckets
        first = self.collectives.add(part)
        rest = self.collectives.add(
            time.gather - part,
            lambda _, end: self.span("gather", piece, batch, first.begin, end),
        )
        return first, rest, time.buckets

    def record(self, works: Sequence[Work], start: Seconds) -> None:
        """The spans of what ends now; of two as one, each has its share."""
        if self.play.spans is None:
            return
        ends = [self.env.now]
        if len(works) == 2:
            own, other = (self.duration([work]) for work in works)
            share = own / (own + other) if own + other else 1.0
            ends.insert(0, start + (self.env.now - start) * share)
        for (kind, piece, batch), end in zip(works, ends, strict=True):
            self.play.spans.append(Span(self.stage, kind, piece, batch, start, end))
            start = end

    def span(self, kind: str, piece: int, batch: int, start: Seconds, end: Seconds) -> None:
        """Of what the links have done."""
        if self.play.spans is not None and end > start:
            self.play.spans.append(Span(self.stage, kind, piece, batch, start, end))
