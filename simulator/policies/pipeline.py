"""Orders in which the stages of a pipeline do the work of a training step.

Knows numbers of stages, pieces and micro-batches. Never touches time, devices or operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from typing import Literal, TypeAlias

from simulator.errors import Fault, InputError, SpecError
from simulator.registry import Registry

WorkKind = Literal["forward", "backward", "input", "weight"]
"""``backward`` makes both gradients; ``input`` and ``weight`` are its two halves, apart."""

Work: TypeAlias = tuple[WorkKind, int, int]
"""(kind, piece of the stage, micro-batch), pieces and micro-batches counted from 0."""

PipelineOrder = Callable[[int, int, int, int], list[Work]]
"""From (stages p, stage r, micro-batches m, pieces v of each stage) to the work of stage r.

Piece c of stage r is piece c p + r of the model. Raises SpecError for sizes that are none, and
InputError for sizes that the order is not made for.
"""

PIPELINE_ORDERS: Registry[PipelineOrder] = Registry(
    "pipeline order", group="tilecast.pipeline_orders"
)


@PIPELINE_ORDERS.register("gpipe")
def gpipe(stages: int, stage: int, micro_batches: int, pieces: int = 1) -> list[Work]:
    """All forwards, then all backwards: m micro-batches in flight (arXiv 1811.06965).

    >>> gpipe(2, 0, 2)
    [('forward', 0, 0), ('forward', 0, 1), ('backward', 0, 0), ('backward', 0, 1)]
    """
    _check("gpipe", stages, stage, micro_batches, pieces, most=1)
    return [*_all("forward", micro_batches), *_all("backward", micro_batches)]


@PIPELINE_ORDERS.register("1f1b")
def one_forward_one_backward(
    stages: int, stage: int, micro_batches: int, pieces: int = 1
) -> list[Work]:
    """PipeDream-flush: p - 1 - r forwards, then one forward and one backward in turn.

    At most p - r micro-batches are in flight (arXiv 2104.04473, section 2.2).

    >>> one_forward_one_backward(2, 1, 2)
    [('forward', 0, 0), ('backward', 0, 0), ('forward', 0, 1), ('backward', 0, 1)]
    """
    _check("1f1b", stages, stage, micro_batches, pieces, most=1)
    return _weave(
        _all("forward", micro_batches), _all("backward", micro_batches), stages - 1 - stage
    )


@PIPELINE_ORDERS.register("interleaved")
def interleaved(stages: int, stage: int, micro_batches: int, pieces: int) -> list[Work]:
    """1F1B over v pieces a stage, micro-batches in groups of p (arXiv 2104.04473, section 2.2).

    A group passes the pieces in turn; 2 (p - 1 - r) + (v - 1) p forwards come before the first
    backward, so that one more than these is in flight. m must be a multiple of p.
    """
    return _grouped("interleaved", stages, stage, micro_batches, pieces)


@PIPELINE_ORDERS.register("merged")
def merged(stages: int, stage: int, micro_batches: int, pieces: int = 1) -> list[Work]:
    """As interleaved, one forward more ahead: no forward stands before its own backward.

    A forward and the backward after it may then run as one, also on the last stage (Megatron-LM,
    ``--overlap-moe-expert-parallel-comm``). m must be a multiple of p.

    >>> merged(1, 0, 2)
    [('forward', 0, 0), ('forward', 0, 1), ('backward', 0, 0), ('backward', 0, 1)]
    """
    return _grouped("merged", stages, stage, micro_batches, pieces, more=1)


@PIPELINE_ORDERS.register("zero_bubble")
def zero_bubble(stages: int, stage: int, micro_batches: int, pieces: int = 1) -> list[Work]:
    """ZB-H1: as 1F1B, the gradients of weights put off by r micro-batches (arXiv 2401.10241).

    The gradient of the input goes on to the stage before at once. p - r micro-batches are in
    flight until it is made, and r wait for the gradients of their weights: never more than the
    p of the first stage of 1F1B.

    >>> zero_bubble(2, 1, 2)[:4]
    [('forward', 0, 0), ('input', 0, 0), ('forward', 0, 1), ('input', 0, 1)]
    """
    _check("zero_bubble", stages, stage, micro_batches, pieces, most=1)
    weights = _all("weight", micro_batches)
    late = min(stage, micro_batches)
    work = _weave(_all("forward", micro_batches), _all("input", micro_batches), stages - 1 - stage)
    # From its r-th on, each gradient of an input is followed by that of the weights r before.
    begin = [index for index, item in enumerate(work) if item[0] == "input"][late:]
    order = work[: begin[0]] if begin else list(work)
    for index, end, weight in zip(begin, [*begin[1:], len(work)], weights, strict=False):
        order += [work[index], weight, *work[index + 1 : end]]
    return order + list(weights[micro_batches - late :])


@dataclass(frozen=True, slots=True)
class Lane:
    """The order of one stage."""

    work: tuple[Work, ...]
    first: frozenset[int]
    """Where the pieces' first forwards stand in it."""
    last: frozenset[int]
    """Where the pieces' gradients are complete."""
    pairs: frozenset[int]
    """Where forwards stand that may run as one with the backward after them: those that are as far
    ahead as ``merged`` lets them be, for the backward then waits for none of them."""


@lru_cache(maxsize=32)
def lay_out(order: PipelineOrder, stages: int, micro_batches: int, pieces: int) -> tuple[Lane, ...]:
    """The orders of all stages. Raises InputError where a stage has too much or too little."""
    each = {(piece, batch) for piece in range(pieces) for batch in range(micro_batches)}
    lanes = []
    for stage in range(stages):
        work = tuple(order(stages, stage, micro_batches, pieces))
        if not _complete(work, each):
            raise InputError(
                f"the order of the pipeline leaves work undone: stage {stage} must do each of "
                f"{len(each)} forwards and backwards (or input and weight) once, in this order"
            )
        places = list(enumerate(work))
        first = {piece: at for at, (kind, piece, _) in reversed(places) if kind == "forward"}
        last = {piece: at for at, (kind, piece, _) in places if kind in ("backward", "weight")}
        ahead = _ahead(stages, stage, pieces) + 1
        pairs = frozenset(_pairs(work, ahead))
        lanes.append(Lane(work, frozenset(first.values()), frozenset(last.values()), pairs))
    return tuple(lanes)


def _pairs(work: Sequence[Work], ahead: int) -> Iterator[int]:
    """Where a forward has so many forwards more than backwards before it, and a backward after."""
    for index, (one, other) in enumerate(pairwise(work)):
        if one[0] == "forward" and other[0] == "backward" and ahead == 0:
            yield index
        ahead -= (one[0] == "forward") - (one[0] == "backward")


def _complete(work: Sequence[Work], each: set[tuple[int, int]]) -> bool:
    """Every forward, and every backward or input and weight, once and in this order."""
    forth, back, weight = set[tuple[int, int]](), set[tuple[int, int]](), set[tuple[int, int]]()
    inputs = 0
    for kind, piece, batch in work:
        what = (piece, batch)
        if kind == "forward":
            forth.add(what)
        elif what not in (back if kind == "weight" else forth):
            return False
        elif kind == "weight":
            weight.add(what)
        else:
            back.add(what)
            inputs += kind == "input"
            if kind == "backward":
                weight.add(what)
    return forth == back == weight == each and len(work) == 2 * len(each) + inputs


@lru_cache(maxsize=16)
def _all(kind: WorkKind, micro_batches: int) -> tuple[Work, ...]:
    return tuple((kind, 0, batch) for batch in range(micro_batches))


@lru_cache(maxsize=16)
def _groups(kind: WorkKind, size: int, micro_batches: int, pieces: int) -> tuple[Work, ...]:
    order = range(pieces) if kind == "forward" else range(pieces - 1, -1, -1)
    return tuple(
        (kind, piece, batch)
        for first in range(0, micro_batches, size)
        for piece in order
        for batch in range(first, first + size)
    )


def _grouped(
    name: str, stages: int, stage: int, micro_batches: int, pieces: int, more: int = 0
) -> list[Work]:
    """The interleaved order, ``more`` forwards further ahead."""
    _check(name, stages, stage, micro_batches, pieces)
    if micro_batches % stages:
        raise InputError(
            f"{name} pipeline: {micro_batches} micro-batches on {stages} stages; "
            f"use a multiple of {stages} micro-batches, or one piece a stage with 1f1b"
        )
    return _weave(
        _groups("forward", stages, micro_batches, pieces),
        _groups("backward", stages, micro_batches, pieces),
        _ahead(stages, stage, pieces) + more,
    )


def _ahead(stages: int, stage: int, pieces: int) -> int:
    """Forwards before the first backward's own in the interleaved order."""
    return 2 * (stages - 1 - stage) + (pieces - 1) * stages


def _weave(forward: Sequence[Work], backward: Sequence[Work], ahead: int) -> list[Work]:
    """``ahead`` of the forwards, then one of each in turn, then the backwards that are left."""
    pairs = zip(forward[ahead:], backward, strict=False)
    rest = backward[max(0, len(forward) - ahead) :]
    return [*forward[:ahead], *chain.from_iterable(pairs), *rest]


def _check(
    name: str, stages: int, stage: int, batches: int, pieces: int, most: int | None = None
) -> None:
    sizes = {"stages": stages, "micro_batches": batches, "pieces": pieces}
    faults = [
        Fault(f"{name} pipeline", None, key, str(value), "use 1 or more")
        for key, value in sizes.items()
        if value < 1
    ]
    if not 0 <= stage < max(1, stages):
        faults.append(Fault(f"{name} pipeline", None, "stage", str(stage), "count from 0"))
    if most is not None and pieces > most:
        faults.append(
            Fault(f"{name} pipeline", None, "pieces", str(pieces), f"use {most}, or interleaved")
        )
    if faults:
        raise SpecError(faults)
