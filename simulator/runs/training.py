"""One training step: forward, backward and update over a plan's devices.

Prices the operators of every pipeline piece, plays the pipeline, and says what the step consists
of. Holds no cost formula and no event of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from simulator.costs.bounds import bounds
from simulator.engine.pipeline import PieceTimes, PipelineRun, Shares, run_pipeline
from simulator.mapping.dispatch import Dispatch, Share
from simulator.mapping.held import by_rank, cut, is_routed, rank_weights
from simulator.mapping.stages import Stage
from simulator.models.flops import flops_per_token
from simulator.models.recipes import Place, narrow_weights
from simulator.models.training import (
    TrainingStep,
    embedding_pass,
    head_pass,
    optimizer_step,
    prediction_pass,
    training_layer,
)
from simulator.models.training_flops import hardware_flops_per_token
from simulator.models.training_tape import LayerPass
from simulator.ops.collective import Collective
from simulator.ops.exchange import Exchange
from simulator.ops.matmul import Matmul
from simulator.ops.op import Demand, Op
from simulator.policies.pipeline import PIPELINE_ORDERS
from simulator.result import Bounds
from simulator.runs.fitted import inside
from simulator.runs.line import Line, Priced
from simulator.runs.passes import Pass
from simulator.runs.prices import Prices
from simulator.runs.training_links import reductions, shares_of
from simulator.runs.training_use import Group, Wait, Worked, training_use
from simulator.specs.precision import number_format
from simulator.specs.workload import Layer, MoE, Transformer
from simulator.units import Flops, Seconds

Take = Callable[[Priced], Seconds]
"""How long an operator takes: as it runs, or one of its proven limits."""


SAMPLE = 1 << 16
"""Tokens of all ranks that a quick run draws a routing for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One piece of the model on one pipeline rank, as operators of one micro-batch."""

    stage: Stage
    passes: tuple[tuple[LayerPass, int], ...]
    """Unlike layers and ends, with how many of each there are."""
    dense: int
    """Parameters on this rank, those of routed experts apart."""
    routed: int


class TrainingRun:
    """The pieces of every pipeline rank, and what a step makes of them."""

    def __init__(self, prices: Prices, *, quick: bool = False) -> None:
        scenario = prices.scenario
        self._quick = quick
        model, sequence = scenario.model, scenario.input
        assert isinstance(model, Transformer), "only language models are trained"
        assert sequence is not None, "a training step has a sequence"
        self.prices, self.plan, self.model, self.sequence = prices, scenario.plan, model, sequence
        self.step = TrainingStep.of(self.plan, sequence)
        self.part = cut(model, self.plan)
        self.wide = self.part.activation_format
        self.ranks = [
            [self._piece(stage) for stage in pieces] for pieces in by_rank(self.part, self.plan)
        ]
        once = self.plan.replicas * self.plan.micro_batch
        self.micro_batches = scenario.batch // once
        self.gap = scenario.stack.launch.gap

    def _piece(self, stage: Stage) -> Piece:
        step, part = self.step, self.part
        passes: list[tuple[LayerPass, int]] = []
        if stage.first:
            passes.append((embedding_pass(part, step), 1))
        index, total = stage.start, sum(1 for _ in part.layers())
        for layer, count in stage.layers:
            share = self._share(layer)
            places = [Place(index + number, total) for number in range(count)]
            for _, alike in groupby(places, key=_kind):
                some = list(alike)
                found = training_layer(part, layer, step, place=some[0], share=share)
                passes.append((found, len(some)))
            index += count
        if stage.last:
            passes.append((head_pass(part, step), 1))
            for _ in range(part.mtp_layers):
                share = self._share(part.groups[-1].layers[-1])
                passes.append((prediction_pass(part, step, layers=total, share=share), 1))
        held = list(rank_weights(part, self.plan, (stage,), mtp=True))
        return Piece(
            stage=stage,
            passes=tuple(passes),
            dense=sum(weight.elements for weight in held if not is_routed(weight)),
            routed=sum(weight.elements for weight in held if is_routed(weight)),
        )

    def _share(self, layer: Layer) -> Share | None:
        """The fullest rank's share of a layer whose experts lie on several ranks.

        A quick run draws ``SAMPLE`` tokens at most, and takes the others as routed like them.
        """
        if not isinstance(layer.ffn, MoE) or self.plan.ep == 1:
            return None
        ep, tokens, known = self.plan.ep, self.step.routed, self.prices.shares
        key = layer.ffn, ep, tokens, self._quick
        if key not in known:
            drawn = min(tokens, max(1, SAMPLE // ep)) if self._quick else tokens
            dispatch = Dispatch(
                self.plan, ((drawn,),) * ep, self.prices.scenario.seed, domain=self._domain(ep)
            )
            ranks = dispatch.routed(layer.ffn, 0).shares()
            fullest = max(ranks, key=lambda share: sum(share.counts))
            known[key] = fullest if drawn == tokens else fullest.times(tokens / drawn)
        return known[key]

    def _domain(self, ranks: int) -> int:
        link = self.prices.target.accelerator.scale_up
        return min(ranks, (link.peers if link is not None else None) or ranks)

    def seconds(self, ops: Iterable[Op], take: Take) -> Seconds:
        """Operators of one stream, one after another, with the gaps between them."""
        return sum(time + self.gap for _, time in self.exposed(ops, take))

    def exposed(self, ops: Iterable[Op], take: Take) -> list[tuple[Priced, Seconds]]:
        """The operators of a stream with the part of each that nothing hides.

        Tensor-parallel gathers and scatters run beside the product that they feed or empty, one
        rank's part after another, so that the first part and what outlasts the product stick out.
        """
        fused = self.prices.scenario.stack.fused
        stream = [self.prices[op] for op in ops if not inside(op.name, fused)]
        times = [self.held(priced, take) for priced in stream]
        if not self.plan.overlap or self.plan.tp == 1:
            return list(zip(stream, times, strict=True))
        room = list(times)
        for place, priced in enumerate(stream):
            op = priced.op
            if not isinstance(op, Collective) or op.ranks != self.plan.tp:
                continue
            beside = {"all_gather": place + 1, "reduce_scatter": place - 1}.get(op.algorithm, -1)
            if 0 <= beside < len(stream) and isinstance(stream[beside].op, Matmul):
                hidden = min(times[place] * (1 - 1 / op.ranks), room[beside])
                room[beside] -= hidden
                times[place] -= hidden
        return list(zip(stream, times, strict=True))

    def held(self, priced: Priced, take: Take) -> Seconds:
        """An operator in a run of minutes: its compute at the rate that the power limit leaves."""
        time, share = take(priced), self.prices.target.accelerator.compute.sustained
        known = priced.known
        if share is None or known is None or known.seconds <= 0 or priced.plan is None:
            return time
        compute = min(1.0, known.parts.get("compute", 0.0) / known.seconds)
        return time * (1 + compute * (1 / share - 1))

    def play(
        self,
        take: Take,
        *,
        record: bool = False,
        micro_batches: int | None = None,
        contention: bool = True,
    ) -> PipelineRun:
        """The step with each operator taking as long as ``take`` says; of all its micro-batches,
        or of so many. Its communication shares the links of a rank, unless it is told not to."""
        plan = self.plan
        times = [[self._times(piece, take) for piece in pieces] for pieces in self.ranks]
        name: str = "interleaved" if plan.virtual_stages > 1 else plan.pipeline
        if plan.merged:
            name = "merged"
        return run_pipeline(
            times,
            PIPELINE_ORDERS[name],
            micro_batches or self.micro_batches,
            send=0.0 if plan.pp == 1 else take(self.prices[self.send]),
            overlap_send=plan.overlap,
            overlap_collectives=plan.overlap,
            overlap_exchanges=plan.merged,
            gather="micro_batch" if plan.zero == 3 else "step",
            reduce="micro_batch" if plan.zero >= 2 else "step",
            optimizer=[self._update(pieces, take) for pieces in self.ranks],
            shares=self.shares if contention else None,
            record=record,
        )

    def _times(self, piece: Piece, take: Take) -> PieceTimes:
        def total(kind: str) -> tuple[Seconds, Seconds]:
            """All of it, and what of it exchanges of experts take."""
            whole = moved = 0.0
            for done, count in piece.passes:
                stream = self.exposed(getattr(done, kind), take)
                whole += count * sum(time + self.gap for _, time in stream)
                moved += count * sum(time for priced, time in stream if _is_exchange(priced))
            return whole, moved

        gathered, reduced = self.reductions(piece)
        forward, there = total("forward")
        inward, back = total("dgrad")
        again, there_again = total("recomputed")
        return PieceTimes(
            forward=forward,
            backward_input=inward,
            backward_weight=total("wgrad")[0],
            recompute=again,
            forward_exchange=there,
            backward_exchange=back + there_again,
            gather=sum(take(self.prices[op]) for op in gathered),
            reduce=sum(take(self.prices[op]) for op in reduced),
            buckets=self.buckets(piece),
        )

    def buckets(self, piece: Piece) -> int:
        """Layers of a piece, whose gradients are reduced as they are done."""
        return max(1, piece.stage.count)

    def reductions(self, piece: Piece) -> tuple[list[Op], list[Op]]:
        """What gathers a piece's weights and reduces its gradients over the replicas."""
        return reductions(self.plan, self.wide, piece.dense, piece.routed)

    @cached_property
    def shares(self) -> Shares:
        """What communication takes of a rank's links."""
        return shares_of(self)

    @cached_property
    def send(self) -> Collective:
        """A micro-batch's activations, or their gradients, from one stage to the next."""
        plan, wide = self.plan, self.wide
        return Collective(
            name="stage.send", algorithm="send_recv", ranks=2, format=wide,
            message=number_format(wide).bytes(self.step.own * self.model.hidden),
            stride=plan.devices // plan.pp,
        )  # fmt: skip

    def update(self, pieces: list[Piece]) -> tuple[Op, ...]:
        """The optimizer step of one rank."""
        model, plan = self.part, self.plan
        own = replace(model, groups=tuple(g for p in pieces for g in p.stage.of(model).groups))
        return optimizer_step(
            sum(piece.dense for piece in pieces),
            plan,
            expert_parameters=sum(piece.routed for piece in pieces),
            narrow=narrow_weights(own, plan.recipe, ep=plan.ep),
        )

    def _update(self, pieces: list[Piece], take: Take) -> Seconds:
        return self.seconds(self.update(pieces), take)


def _is_exchange(priced: Priced) -> bool:
    return isinstance(priced.op, Exchange)


def _kind(place: Place) -> tuple[bool, bool]:
    return place.index == 0, place.index == place.layers - 1


def duration(priced: Priced) -> Seconds:
    """An operator as it runs."""
    return priced.exchange[1] if priced.plan is None else _ran(priced)


def _ran(priced: Priced) -> Seconds:
    assert priced.run is not None, "a kernel has run"
    return priced.run.makespan


def _limit(side: int) -> Take:
    known: dict[int, Seconds] = {}

    def take(priced: Priced) -> Seconds:
        if priced.plan is None:
            return priced.exchange[1]
        if id(priced) not in known:
            known[id(priced)] = bounds(priced.kernel)[side]
        return known[id(priced)]

    return take


def training_pass(prices: Prices) -> Pass:
    """The step of a language model."""
    run = TrainingRun(prices)
    tokens = prices.scenario.batch * run.sequence
    flops = flops_per_token(run.model, run.sequence, "megatron")
    hardware = hardware_flops_per_token(run.model, run.sequence, run.plan.recompute)
    return pass_of(run, flops * tokens, hardware * tokens)


def quick_step(prices: Prices) -> Seconds:
    """The time of ``training_pass`` but for contention, sooner found: once the pipeline is in step,
    as many more micro-batches as it has stages take as long each time."""
    run, stages = TrainingRun(prices, quick=True), prices.scenario.plan.pp
    few, more = 2 * stages, 3 * stages
    if run.micro_batches <= more:
        return run.play(duration, contention=False).makespan
    first, second = (
        run.play(duration, micro_batches=some, contention=False).makespan for some in (few, more)
    )
    return second + (second - first) * (run.micro_batches - more) / stages


def pass_of(run: TrainingRun, flops: Flops, hardware: Flops) -> Pass:
    """The step: lines of the busiest pipeline rank, and what of communication nothing hides.

    ``flops`` are those of all devices that the model asks for, ``hardware`` those that ran.
    """
    played = run.play(duration, record=True)
    slowest = max(range(len(run.ranks)), key=lambda rank: played.busy[rank])
    worked = list(_worked(run, run.ranks[slowest], played.exposed_exchanges[slowest]))
    lines = [line for _, line in worked]
    busy = sum(line.count * (line.time + run.gap) for line in lines)
    shown = played.exposed_send, played.exposed_collectives, played.contention
    bubble = played.makespan - busy - sum(shown)
    # Where shorter operators meet more of each other on the links they may contend more.
    low = run.play(_limit(0), contention=False).makespan
    high = run.play(_limit(1)).makespan
    waits: tuple[Wait, ...] = (
        ("stage.send", "link", shown[0]),
        ("gradients and weights", "link", shown[1]),
        ("shared links", "link", shown[2]),
        ("pipeline bubble", "waiting", max(0.0, bubble)),
    )
    return Pass(
        phase="train",
        weight=1.0,
        lines=tuple(lines),
        latency=played.makespan,
        bounds=Bounds(lower=low, upper=high),
        events=0,
        demand=Demand(flops=flops),
        waits=waits,
        hardware_flops=hardware,
        training=training_use(run, played, worked, waits),
    )


def _worked(run: TrainingRun, pieces: list[Piece], exposed: Seconds) -> Iterator[Worked]:
    """Operators of one rank over all micro-batches, and its update, by what they are for.

    Exchanges of experts have their share of the time in which nothing hides them.
    """
    shown = 1.0
    if run.plan.merged:
        lines = [line for _, line in _ran_by(run, pieces) if _is_exchange(line.priced)]
        whole = sum(line.count * line.time for line in lines)
        shown = exposed / whole if whole else 1.0
    for group, line in _ran_by(run, pieces):
        yield group, replace(line, time=line.time * shown) if _is_exchange(line.priced) else line


def _ran_by(run: TrainingRun, pieces: list[Piece]) -> Iterator[Worked]:
    for piece in pieces:
        for done, count in piece.passes:
            many = count * run.micro_batches
            streams: tuple[tuple[Group, tuple[Op, ...]], ...] = (
                ("forward", done.forward), ("recompute", done.recomputed),
                ("backward", done.dgrad), ("backward", done.wgrad),
            )  # fmt: skip
            for group, ops in streams:
                for priced, time in run.exposed(ops, duration):
                    yield group, Line(priced=priced, count=many, time=time)
    for op in run.update(pieces):
        priced = run.prices[op]
        yield "update", Line(priced=priced, count=1, time=duration(priced))
