"""Ranks that compute on their own and meet in exchanges: the steps of a model over several devices.

Knows kernels, launches, and how long an exchange takes. Never touches specs, operators or what is
exchanged.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from simpy import Environment, Event, Resource

from simulator.engine.machine import CommandProcessor, Host, LaunchPolicy
from simulator.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What one rank does up to an exchange, and its part of the exchange.

    The exchange begins when the last rank is there, and ends for all when the slowest part is
    done. ``beside`` is an exchange that is still under way while this stage begins: its kernels
    know when what they need arrives, and the stage ends no sooner.
    """

    durations: tuple[Seconds, ...]
    """Of the kernels, in stream order."""
    exchange: Seconds | None = None
    """None: no exchange follows."""
    beside: Seconds = 0.0


Program = tuple[Stage, ...]
"""One batch on one rank. All ranks of a batch have as many stages."""


@dataclass(frozen=True, slots=True)
class Lap:
    """One stage of one batch on one rank, as it ran."""

    begin: Seconds
    computed: Seconds
    """The last kernel is done; the rank is ready to exchange."""
    met: Seconds
    """All ranks are there and the links are free."""
    end: Seconds

    @property
    def computing(self) -> Seconds:
        """From the first kernel to the last."""
        return self.computed - self.begin


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRun:
    """``laps`` by batch, rank and stage; ``latency`` is the end of the last stage of any rank."""

    latency: Seconds
    laps: tuple[tuple[tuple[Lap, ...], ...], ...]


class Meeting:
    """One exchange of one batch: ranks arrive, the links are taken, all go on together."""

    __slots__ = ("_env", "_left", "_links", "_slowest", "done", "met")

    def __init__(self, env: Environment, links: Resource, ranks: int) -> None:
        self._env = env
        self._links = links
        self._left = ranks
        self._slowest: Seconds = 0.0
        self.done: Event = env.event()
        self.met: Seconds = 0.0

    def arrive(self, takes: Seconds) -> Event:
        """A rank is there, whose part takes so long; the event is the end of the exchange."""
        self._left -= 1
        self._slowest = max(self._slowest, takes)
        if not self._left:
            self._env.process(self._exchange())
        return self.done

    def _exchange(self) -> Generator[Event, None, None]:
        with self._links.request() as links:
            yield links
            self.met = self._env.now
            yield self._env.timeout(self._slowest)
        self.done.succeed()


def run_group(batches: Sequence[Sequence[Program]], launch: LaunchPolicy) -> GroupRun:
    """Run each batch on every rank: ``batches[b][r]`` is the program of batch b on rank r.

    A rank computes one stage at a time, batches taking turns as they become ready, and the links
    carry one exchange at a time, so with two batches one computes while the other exchanges. The
    host of a rank issues the launches of all batches, in the order in which they run.
    """
    env = Environment(0.0)
    ranks = len(batches[0])
    links = Resource(env)
    units = [Resource(env) for _ in range(ranks)]
    hosts = [Host() for _ in range(ranks)]
    laps: list[list[list[Lap]]] = []
    for programs in batches:
        stages = {len(program) for program in programs}
        assert len(stages) == 1, "ranks meet in the same exchanges"
        meetings = [Meeting(env, links, ranks) for _ in range(stages.pop())]
        laps.append([[] for _ in programs])
        for program, free, host, done in zip(programs, units, hosts, laps[-1], strict=True):
            processor = CommandProcessor(launch, host)
            env.process(_rank(env, program, free, meetings, processor, launch.gap, done))
    env.run()
    return GroupRun(
        latency=max(done[-1].end for batch in laps for done in batch if done),
        laps=tuple(tuple(map(tuple, batch)) for batch in laps),
    )


def _rank(
    env: Environment,
    program: Program,
    units: Resource,
    meetings: Sequence[Meeting],
    processor: CommandProcessor,
    gap: Seconds,
    laps: list[Lap],
) -> Generator[Event, None, None]:
    for stage, meeting in zip(program, meetings, strict=True):
        with units.request() as free:
            yield free
            begin = env.now
            processor.wait(begin)
            for duration in stage.durations:
                processor.execute(duration)
            computed = max(processor.end, begin + stage.beside)
            if computed > begin:
                yield env.timeout(computed - begin)
        computed = met = env.now
        if stage.exchange is not None:
            yield meeting.arrive(stage.exchange)
            met = meeting.met
            processor.wait(env.now + gap)
        laps.append(Lap(begin, computed, met, env.now))
