"""One training step of one replica: pipeline stages, sends between them, collectives beside them.

Plays the step with all communication and with less of it, to say what each costs. Knows durations
and orders. Never touches specs, operators, devices, or where a duration comes from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from simulator.engine.pipeline_play import Play
from simulator.engine.pipeline_shared import contended, run_shared
from simulator.engine.pipeline_step import (
    PieceTimes,
    PipelineRun,
    Rhythm,
    Shares,
    Span,
    check,
    merged,
)
from simulator.policies.pipeline import Lane, PipelineOrder, lay_out
from simulator.units import Seconds

__all__ = ["PieceTimes", "PipelineRun", "Shares", "Span", "run_pipeline"]


def run_pipeline(
    times: Sequence[Sequence[PieceTimes]],
    order: PipelineOrder,
    micro_batches: int,
    *,
    send: Seconds | Sequence[Seconds] = 0.0,
    latency: Seconds = 0.0,
    overlap_send: bool = True,
    overlap_collectives: bool = True,
    overlap_exchanges: bool = False,
    gather: Rhythm = "step",
    reduce: Rhythm = "step",
    optimizer: Seconds | Sequence[Seconds] = 0.0,
    shares: Shares | None = None,
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

    With ``overlap_exchanges`` a forward and the backward after it in the order of a stage, of
    another micro-batch, run as one (``pipeline_step.merged``): from when both could begin, and
    what they tell others comes at the end of both. The first forwards and the last backwards, which
    have no partner, expose their exchanges, as all do in other orders than ``merged``.

    Communication that asks for more of a tier at once than there is, by its ``shares`` of it, takes
    the longer (``pipeline_shared``); without them nothing contends.

    The optimizer, of one duration or one for each stage, begins when every stage has computed and
    reduced, as it does where gradients are clipped by their norm.

    Raises SpecError for times that are none, and InputError for an order that stands still or
    leaves work undone.
    """
    stages = len(times)
    sends = [send] * stages if isinstance(send, (int, float)) else list(send)
    updates = [optimizer] * stages if isinstance(optimizer, (int, float)) else list(optimizer)
    check(times, sends, latency, updates)
    program = lay_out(order, stages, micro_batches, len(times[0]))
    pairs = [lane.pairs if overlap_exchanges else frozenset[int]() for lane in program]
    spans: list[Span] | None = [] if record else None
    play = Play(
        times=times,
        program=program,
        pairs=pairs,
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
    end, busy = full, contended(play, shares) if shares is not None else None
    if busy is not None:
        if spans is not None:
            spans.clear()
        # Sharing makes nothing shorter but by rounding.
        end = max(full, run_shared(play, busy))
    if play.collectives:
        play = replace(play, collectives=False, spans=None)
        sent = play.run()
    bare = sent
    if stages > 1 and (latency or any(sends)):
        bare = replace(play, sends=[0.0] * stages, latency=0.0, spans=None).run()
    if spans is not None:
        spans += (
            Span(stage, "optimizer", -1, -1, end, end + update)
            for stage, update in enumerate(updates)
            if update
        )
    hidden = [_hidden(*both) for both in zip(times, program, pairs, strict=True)]
    return PipelineRun(
        makespan=end + max(updates),
        pipeline=bare,
        exposed_send=sent - bare,
        exposed_collectives=full - sent,
        contention=end - full,
        optimizer=max(updates),
        busy=tuple(
            micro_batches * math.fsum(part for piece in stage for part in piece.parts) - beside
            for stage, beside in zip(times, hidden, strict=True)
        ),
        exposed_exchanges=tuple(
            max(0.0, micro_batches * math.fsum(piece.exchanges for piece in stage) - beside)
            for stage, beside in zip(times, hidden, strict=True)
        ),
        spans=tuple(spans or ()),
    )


def _hidden(stage: Sequence[PieceTimes], lane: Lane, pairs: Iterable[int]) -> Seconds:
    """What a stage saves by running forwards and backwards as one; no more than its exchanges."""
    saved = []
    for index in pairs:
        forward, backward = (stage[piece] for _, piece, _ in lane.work[index : index + 2])
        saved.append(forward.forward + backward.backward - merged(forward, backward))
    return math.fsum(saved)
