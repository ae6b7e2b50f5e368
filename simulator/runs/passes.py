"""One simulated pass: what each operator took on the path that decides, and its proven limits.

Runs operators on one device, and says what a result needs of a pass. Holds no cost formula, and
never touches reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from simulator.costs.bounds import bounds
from simulator.engine.execute import Segment, run_stream
from simulator.engine.machine import CommandProcessor, LaunchPolicy
from simulator.expert_use import ExpertUse
from simulator.ops.op import Demand, Op, OpGraph
from simulator.result import Bound, Bounds, Stream, StreamPart
from simulator.runs.line import Line
from simulator.runs.prices import Prices
from simulator.specs.stack import Stack
from simulator.training_use import TrainingUse
from simulator.units import Flops, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One simulated pass through the graph, and how many times the run makes it.

    Lines are those of one device, the slowest where devices differ; ``demand`` is of all devices.
    """

    phase: str
    weight: float
    lines: tuple[Line, ...]
    latency: Seconds
    bounds: Bounds
    events: int
    demand: Demand
    experts: ExpertUse | None = None
    waits: tuple[tuple[str, Bound, Seconds], ...] = ()
    """What else passes on the path that decides, by name and by what it is bound by."""
    hardware_flops: Flops | None = None
    """FLOP that ran, recomputation included; None where that is the demand."""
    training: TrainingUse | None = None

    @property
    def between(self) -> Seconds:
        """Time in no line: launch gaps, and on several devices waiting for others."""
        named = sum(time for _, _, time in self.waits)
        return self.latency - named - sum(line.count * line.time for line in self.lines)

    @property
    def stream(self) -> Stream:
        """The pass in order."""
        return Stream(
            phase=self.phase,
            weight=self.weight,
            latency=self.latency,
            gap=self.between / self.launches if self.launches else 0.0,
            parts=tuple(
                StreamPart(
                    repeat=count, steps=tuple((line.priced.op.name, line.time) for line in lines)
                )
                for count, lines in groupby(self.lines, key=lambda line: line.count)
            ),
        )

    @property
    def launches(self) -> int:
        """Kernels and exchanges that were started."""
        return sum(line.count for line in self.lines)


def launch_policy(stack: Stack) -> LaunchPolicy:
    """How the stack's launches reach the device."""
    launch = stack.launch
    if stack.mode == "graph":
        return LaunchPolicy(mode="graph", gap=launch.gap, first=launch.graph)
    return LaunchPolicy(mode="eager", host=launch.host, gap=launch.gap)


def one_device(phase: str, weight: float, graph: OpGraph, prices: Prices) -> Pass:
    """The pass of a device that holds the whole model."""
    scenario = prices.scenario
    priced = {op: prices[op] for segment in graph.segments for op in segment.ops}
    segments = [
        Segment(
            name=segment.name,
            repeat=segment.repeat,
            kernels=tuple(priced[op].kernel for op in segment.ops),
        )
        for segment in graph.segments
    ]
    launch = launch_policy(scenario.stack)
    stream = run_stream(segments, launch, mode=scenario.fidelity, memo=prices.memo)
    limits = {op: bounds(entry.kernel) for op, entry in priced.items()}
    ends = []
    for side in (0, 1):
        processor = CommandProcessor(launch)
        for segment in graph.segments:
            processor.execute_all([limits[op][side] for op in segment.ops], segment.repeat)
        ends.append(processor.end)
    return Pass(
        phase=phase,
        weight=weight,
        lines=tuple(
            Line(priced=priced[op], count=segment.repeat, time=run.makespan)
            for segment, runs in zip(graph.segments, stream.kernels, strict=True)
            for op, run in zip(segment.ops, runs, strict=True)
        ),
        latency=stream.latency,
        bounds=Bounds(lower=ends[0], upper=ends[1]),
        events=stream.events,
        demand=graph.total(),
    )


def all_ops(graph: OpGraph) -> Iterator[Op]:
    """Operators in stream order, repeats written out."""
    for segment in graph.segments:
        for _ in range(segment.repeat):
            yield from segment.ops
