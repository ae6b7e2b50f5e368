"""One pass on expert-parallel ranks: each rank's own share, met in dispatch and combine.

Builds the graph of every rank, prices it, and runs the ranks as a group. Holds no cost formula
and no event of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from simulator.costs.bounds import bounds
from simulator.costs.exchange import links_of
from simulator.costs.expert_queue import queued
from simulator.costs.target import Target
from simulator.engine.group import GroupRun, Program, Stage, run_group
from simulator.engine.machine import CommandProcessor
from simulator.mapping.dispatch import Dispatch, Even, Share
from simulator.mapping.exchange import shares
from simulator.mapping.kernel import Kernel
from simulator.models.graph import Step, build_graph
from simulator.ops.exchange import Exchange
from simulator.ops.matmul import GroupedMatmul
from simulator.ops.op import Demand, Op
from simulator.policies.order import EXPERT_ORDERS
from simulator.result import Bounds
from simulator.runs.fitted import fused
from simulator.runs.line import Line, Priced
from simulator.runs.passes import Pass, all_ops, launch_policy
from simulator.runs.prices import Prices
from simulator.specs.workload import MoE, Transformer
from simulator.tables.alone import merges
from simulator.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One operator on one rank, priced, with the kernel that runs and how long it takes."""

    priced: Priced
    kernel: Kernel | None
    alone: Seconds
    """Undisturbed, its rows all there."""
    time: Seconds
    """As it runs in this schedule."""
    events: int = 0


Ranks = tuple[tuple[Work, ...], ...]
"""The operators of one batch in stream order, by rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The part of a model that a pass runs on one pipeline stage."""

    model: Transformer
    """Cut over tensor-parallel ranks."""
    first: bool = True
    last: bool = True
    before: int = 0
    """MoE layers on the stages before."""


class Group:
    """The ranks of one stage of a pass that differ, and the batches that they take turns with.

    They are the expert-parallel ranks of one group, or one tensor-parallel rank where no experts
    are spread. ``dispatches`` are those of an equal group or of the stage before, and ``even``
    spreads their loads evenly. Of a ``lone`` group only the fullest rank is run, for all of them,
    and the first MoE layer stands for all layers.
    """

    def __init__(
        self,
        step: Step,
        part: Slice,
        prices: Prices,
        dispatches: list[Dispatch] | None = None,
        even: Even = "nothing",
        *,
        lone: bool = False,
    ) -> None:
        scenario, target = prices.scenario, prices.target
        plan = scenario.plan
        self.scenario, self.target, self.prices, self.part = scenario, target, prices, part
        self.apart = plan.ep > plan.tp
        together = plan.tp if self.apart else plan.ep
        """Ranks that share the tokens of a replica, of those that are simulated."""
        batches = 2 if plan.schedule == "two_batch" else 1
        held = shares(step.batch, plan.replicas)[: plan.ep // together]
        sequences = [shares(-(-mine // plan.pp), batches) for mine in held]
        # Stages behind the first are launched while they wait for it.
        launch = launch_policy(scenario.stack)
        self.launch = launch if part.first else replace(launch, first=0.0)
        self.largest = replace(step, batch=sum(sequences[0]))
        self.domain = _peers(target, plan.ep)
        ranks = [divmod(rank, together) for rank in range(plan.ep)]
        self.dispatches = dispatches or [
            Dispatch(
                plan,
                tuple(
                    tuple(self._tokens(some * step.new, together, rank) for some in sequences[r])
                    for r, rank in ranks
                ),
                step.seed, part=batch, domain=self.domain, apart=self.apart,
                per_rank=merges(step.exchange, target), relayed=step.exchange == "ht", alike=lone,
            )
            for batch in range(batches)
        ]  # fmt: skip
        run = [self._fullest()] if lone else range(plan.ep)
        self.graphs = [
            [
                fused(
                    build_graph(
                        part.model,
                        replace(
                            step, batch=sequences[ranks[number][0]][batch], ranks=plan.ep,
                            tp=plan.tp, first=part.first, last=part.last,
                        ),
                        partial(self._share, batch, number, part.before, even),
                    ),
                    scenario.stack,
                )
                for number in run
            ]
            for batch in range(batches)
        ]  # fmt: skip

    def _tokens(self, tokens: int, together: int, rank: int) -> int:
        """Tokens that a rank routes; where all have all of them, the first one's count."""
        if self.apart:
            return shares(tokens, together)[rank]
        return tokens if rank == 0 else 0

    def _fullest(self) -> int:
        """The rank with most rows in the first MoE layer."""
        nets = (layer.ffn for layer in self.part.model.layers() if isinstance(layer.ffn, MoE))
        net = next(nets, None)
        if net is None:
            return 0
        return int(self.dispatches[0].routed(net, 0).rank_load.argmax())

    def _share(self, batch: int, rank: int, before: int, even: Even, net: MoE, layer: int) -> Share:
        return self.dispatches[batch].share(net, before + layer, rank, even)

    @property
    def demand(self) -> Demand:
        """Work and traffic of all ranks of the stage: those that are not simulated are alike."""
        found = sum_of(graph.total() for ranks in self.graphs for graph in ranks)
        plan = self.scenario.plan
        return times(found, plan.devices / plan.pp / len(self.graphs[0]))

    def priced(self) -> list[Ranks]:
        """Every batch with each operator priced and run alone, in the order of the plan."""
        ops = {op for ranks in self.graphs for graph in ranks for op in all_ops(graph)}
        works = {op: self._work(self.prices[op]) for op in ops}
        return [
            tuple(tuple(works[op] for op in all_ops(graph)) for graph in ranks)
            for ranks in self.graphs
        ]

    def _work(self, entry: Priced) -> Work:
        if entry.plan is None:
            return Work(priced=entry, kernel=None, alone=entry.exchange[1], time=entry.exchange[1])
        assert entry.run is not None, "a kernel has run"
        time = entry.run.makespan
        return Work(
            priced=entry, kernel=entry.kernel, alone=time, time=time, events=entry.run.events
        )

    def disturbed(self, work: Work, kernel: Kernel) -> Work:
        """The work as another kernel, which an exchange beside it delays."""
        run = self.prices.run(kernel)
        return replace(work, kernel=kernel, time=run.makespan, events=run.events)


def _peers(target: Target, ranks: int) -> int:
    """Ranks of a group that share one scale-up domain."""
    return -(-ranks // int(links_of(ranks, target).islands[0]))


def sum_of(demands: Iterable[Demand]) -> Demand:
    """Demands of several graphs together."""
    total = dict.fromkeys(Demand.__dataclass_fields__, 0.0)
    for demand in demands:
        for name in total:
            total[name] += getattr(demand, name)
    return Demand(**total)


def times(demand: Demand, factor: float) -> Demand:
    """So many times as much."""
    names = Demand.__dataclass_fields__
    return Demand(**{name: getattr(demand, name) * factor for name in names})


def scheduled(group: Group, works: list[Ranks]) -> list[Ranks]:
    """The work of each batch as the plan's schedule lets it run.

    ``pipelined``: the first product of the experts begins beside the dispatch, which has some of
    the units until the product is done, and takes each expert as its rows arrive; rows are read
    where they land.
    ``two_batch``: kernels lose the units and the memory bandwidth of the heaviest exchange, for
    the part of the time in which there is any beside them.
    """
    schedule = group.scenario.plan.schedule
    if schedule == "pipelined":
        return [_pipelined(group, ranks) for ranks in works]
    if schedule == "two_batch":
        return _two_batch(group, works)
    return works


def meetings(ranks: Ranks) -> list[Seconds]:
    """Duration of each exchange of a batch: that of the rank with most to move."""
    times = [[w.alone for w in works if w.kernel is None] for works in ranks]
    return [max(parts) for parts in zip(*times, strict=True)]


def _pipelined(group: Group, ranks: Ranks) -> Ranks:
    order_of = EXPERT_ORDERS[group.scenario.plan.expert_order]
    ends = meetings(ranks)
    known: dict[tuple[Op, Op, Seconds], Work] = {}
    done: list[tuple[Work, ...]] = []
    for works in ranks:
        mine: list[Work] = []
        met, dispatch = 0, None
        for work in works:
            op = work.priced.op
            if isinstance(op, Exchange):
                dispatch = work if op.way == "dispatch" else None
                met += 1
            elif dispatch is not None and op.name == "moe.permute":
                continue
            elif dispatch is not None and isinstance(op, GroupedMatmul):
                first, end = dispatch.priced.exchange[0], ends[met - 1]
                key = op, dispatch.priced.op, end
                if key not in known:
                    assert work.priced.plan is not None, "a product has a kernel"
                    assert work.kernel is not None, "a product has a kernel"
                    kernel = queued(
                        beside(work.kernel, dispatch, end, group.target), op,
                        work.priced.plan.tiling, order_of(op.counts), (first, end),
                    )  # fmt: skip
                    known[key] = group.disturbed(work, kernel)
                work, dispatch = known[key], None
            mine.append(work)
        done.append(tuple(mine))
    return tuple(done)


def beside(kernel: Kernel, exchange: Work, lasts: Seconds, target: Target) -> Kernel:
    """The kernel with what an exchange leaves it of the units and of the memory's bandwidth.

    Of the bandwidth an exchange gets at most a half, as two equal flows share a pipe.
    """
    op = exchange.priced.op
    assert isinstance(op, Exchange), "only exchanges run beside kernels"
    taken = op.units if op.form == "ht" else 0
    demand = op.demand()
    share = (demand.read + demand.written) / lasts / target.bandwidth if lasts > 0 else 0.0
    return replace(
        kernel,
        units=max(1, min(kernel.units, target.units - taken)),
        bandwidth=kernel.bandwidth * max(0.5, 1 - share),
    )


def _two_batch(group: Group, works: list[Ranks]) -> list[Ranks]:
    exchanging = sum(sum(meetings(ranks)) for ranks in works)
    computing = max(
        sum(w.alone for batch in works for w in batch[rank] if w.kernel is not None)
        for rank in range(len(works[0]))
    )
    share = min(1.0, exchanging / computing) if computing > 0 else 0.0
    exchanges = [
        w for ranks in works for mine in ranks for w in mine if isinstance(w.priced.op, Exchange)
    ]
    heaviest = max(exchanges, key=lambda w: w.alone)
    known: dict[Op, Work] = {}

    def slowed(work: Work) -> Work:
        if work.kernel is None:
            return work
        if work.priced.op not in known:
            kernel = beside(work.kernel, heaviest, heaviest.alone, group.target)
            loss = max(0.0, group.disturbed(work, kernel).time - work.alone)
            known[work.priced.op] = replace(work, time=work.alone + share * loss)
        return known[work.priced.op]

    return [tuple(tuple(map(slowed, mine)) for mine in ranks) for ranks in works]


def _dispatch(op: Op) -> bool:
    return isinstance(op, Exchange) and op.way == "dispatch"


def programs(group: Group, works: list[Ranks]) -> list[list[Program]]:
    """The stages of each batch on each rank."""
    pipelined = group.scenario.plan.schedule == "pipelined"
    return [[tuple(_stages(mine, meetings(ranks), pipelined)) for mine in ranks] for ranks in works]


def _stages(works: tuple[Work, ...], lasts: list[Seconds], pipelined: bool) -> Iterator[Stage]:
    durations: list[Seconds] = []
    met, under_way = 0, 0.0
    for work in works:
        if work.kernel is not None:
            durations.append(work.time)
            continue
        op = work.priced.op
        hidden = pipelined and _dispatch(op)
        takes = 0.0 if hidden else lasts[met]
        yield Stage(durations=tuple(durations), exchange=takes, beside=under_way)
        durations, under_way = [], lasts[met] if hidden else 0.0
        met += 1
    yield Stage(durations=tuple(durations), beside=under_way)


def run_ranks(group: Group, works: list[Ranks]) -> GroupRun:
    """The ranks as a group, behind their launches."""
    return run_group(programs(group, works), group.launch)


def limits(group: Group, works: list[Ranks]) -> Bounds:
    """Proven limits: below, the rank with most to compute, or what a chain of the slowest stages
    takes; above, every stage and exchange of every batch one after another.

    Above holds since, back from the end, each wait is for the compute of a stage or for an
    exchange that is under way, and none of them is waited for twice.
    """
    launch = group.launch
    # Below, the host is free: while ranks exchange it may issue what comes next.
    policies = replace(launch, host=0.0), launch
    cache: dict[int, tuple[Seconds, Seconds]] = {}

    def bound(work: Work, side: int) -> Seconds:
        assert work.kernel is not None, "an exchange has its own time"
        if id(work) not in cache:
            cache[id(work)] = bounds(work.kernel)
        low, high = cache[id(work)]
        return low if side == 0 else max(high, work.time)

    serial, chains = 0.0, []
    computing = [0.0] * len(works[0])
    for ranks in works:
        lasts = meetings(ranks)
        ends: tuple[list[Seconds], list[Seconds]] = ([], [])
        for side in (0, 1):
            rows = []
            for rank, mine in enumerate(ranks):
                row, processor = [], CommandProcessor(policies[side])
                for work in mine:
                    if work.kernel is None:
                        row.append(processor.end)
                        processor = CommandProcessor(replace(policies[side], first=0.0))
                    else:
                        time = bound(work, side)
                        processor.execute(time)
                        computing[rank] += time if side == 0 else 0.0
                row.append(processor.end)
                rows.append(row)
            ends[side].extend(map(max, zip(*rows, strict=True)))
        pipelined = group.scenario.plan.schedule == "pipelined"
        met = [w.priced.op for w in ranks[0] if w.kernel is None]
        shown = [
            time for op, time in zip(met, lasts, strict=True) if not (pipelined and _dispatch(op))
        ]
        chains.append(sum(ends[0]) + sum(shown))
        gaps = launch.gap * (len(lasts) + 1)
        serial += sum(ends[1]) + sum(lasts) + gaps
    below = max(computing)
    if len(works) == 1:
        below = max(below, chains[0])
    return Bounds(lower=below * (1 - 1e-9), upper=serial * (1 + 1e-9))


def deciding(run: GroupRun) -> list[tuple[int, int, int]]:
    """(batch, stage, rank) of the slowest rank of each stage; one rank throughout, that which
    computes longest, where batches take turns."""
    laps = run.laps
    ranks = range(len(laps[0]))
    if len(laps) == 1:
        (only,) = laps
        return [
            (0, stage, max(ranks, key=lambda rank: only[rank][stage].computing))
            for stage in range(len(only[0]))
        ]
    busy = [sum(lap.computing for batch in laps for lap in batch[rank]) for rank in ranks]
    slowest = busy.index(max(busy))
    return [(b, s, slowest) for b, batch in enumerate(laps) for s in range(len(batch[slowest]))]


def stages_of(works: tuple[Work, ...]) -> list[list[Work]]:
    """The work of one rank, cut behind each exchange."""
    stages: list[list[Work]] = [[]]
    for work in works:
        stages[-1].append(work)
        if work.kernel is None:
            stages.append([])
    return stages


def lines(group: Group, works: list[Ranks], run: GroupRun) -> tuple[Line, ...]:
    """What the latency consists of: kernels of the deciding ranks, and exchanges as far as
    nothing hides them."""
    launch = group.launch
    pipelined = group.scenario.plan.schedule == "pipelined"
    cut = [[stages_of(mine) for mine in ranks] for ranks in works]
    lasts = [meetings(ranks) for ranks in works]
    found: list[Line] = []
    met: list[int] = []  # which of them are exchanges
    for batch, stage, rank in deciding(run):
        for work in cut[batch][rank][stage]:
            if work.kernel is not None:
                waited = max(0.0, work.time - work.alone) if pipelined else 0.0
                found.append(Line(priced=work.priced, count=1, time=work.time - waited))
                if waited:
                    found[met[-1]] = replace(found[met[-1]], time=waited)
                continue
            hidden = pipelined and _dispatch(work.priced.op)
            time = 0.0 if hidden else lasts[batch][stage]
            met.append(len(found))
            found.append(Line(priced=work.priced, count=1, time=time))
    apart = frozenset(met)
    made = [line.time for at, line in enumerate(found) if at not in apart]
    spent = sum(made) + launch.first
    spent += launch.gap * max(0, len(made) - 1)  # before each kernel but the first
    left, total = max(0.0, run.latency - spent), sum(found[at].time for at in met)
    shown = min(1.0, left / total) if total > 0 else 0.0
    for at in met:
        found[at] = replace(found[at], time=found[at].time * shown)
    return tuple(found)


def group_pass(phase: str, weight: float, group: Group, works: list[Ranks], run: GroupRun) -> Pass:
    """The pass of the whole group."""
    distinct = {id(work): work for ranks in works for mine in ranks for work in mine}
    return Pass(
        phase=phase,
        weight=weight,
        lines=lines(group, works, run),
        latency=run.latency,
        bounds=limits(group, works),
        events=sum(work.events for work in distinct.values()),
        demand=group.demand,
    )
