"""An expert layer over several ranks: rows are sent, multiplied where their experts are, returned.

Knows who holds which expert and which rank has which token. Never touches links or time. Each rank
works on what it has received alone: its own tokens, its own experts' weights, and parcels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.check.functional import Backend, OpCheck
from simulator.check.memory import Array
from simulator.check.moe import Ran, chosen, report
from simulator.check.moe_choice import Choice
from simulator.check.moe_layer import MoELayer
from simulator.check.moe_stages import Ints, Stages
from simulator.mapping.experts import ExpertPlacement
from simulator.mapping.routers import Assignment
from simulator.mapping.tiling import Tiling
from simulator.ops.pointwise import Pointwise
from simulator.specs.hardware import DataMover


@dataclass(frozen=True, slots=True, eq=False)
class Parcel:
    """What one rank sends another: rows of tokens, each once, and what is asked for them."""

    rows: Array
    """(rows, hidden), in the format in which they travel."""
    token: Ints
    """The token of each row, as its rank counts them."""
    row: Ints
    """For each pair of token and expert: the row that it needs."""
    slot: Ints
    """For each pair: the slot of the rank that gets the parcel."""
    expert: Ints
    """For each pair: the expert in that slot."""
    weight: Array


@dataclass(frozen=True, slots=True, eq=False)
class RankedRun:
    """The result of a layer over ranks, and the rows that travelled, (from, to)."""

    ran: Ran
    sent: Ints
    """Rows that each rank sent to each other one for its experts."""
    used: Ints
    """Rows of each sender that the experts of a rank worked on, (sender, rank)."""
    returned: Ints
    """Rows that came back, (rank of the experts, rank of the tokens)."""

    def faults(self, *, merged: bool) -> tuple[str, ...]:
        """Rows that were lost on the way, or that came back otherwise than they went."""
        found = []
        for sender, rank in np.argwhere(self.sent != self.used).tolist():
            found.append(
                f"rank {rank} worked on {self.used[sender, rank]} rows of rank {sender}, "
                f"which sent {self.sent[sender, rank]}"
            )
        if merged and (self.sent != self.returned.T).any():
            found.append("what came back is not the mirror of what was sent")
        return tuple(found)


def run_ranks(
    stages: Stages,
    placement: ExpertPlacement,
    home: Ints,
    *,
    merged: bool = True,
    assignment: Assignment | None = None,
) -> RankedRun:
    """Run the layer on every rank in turn; token t is on rank ``home[t]``.

    ``merged``: a rank adds up what its experts made of a token, in their order, rounds the sum
    to the format and returns one row; the token's rank adds those in the order of ranks.
    Otherwise each expert's row returns and is added as on one rank, in ascending order of experts.
    """
    layer, x, ranks = stages.layer, stages.arrays["x"], placement.ranks
    own = [np.flatnonzero(home == rank) for rank in range(ranks)]
    choice = _choice(stages, own, assignment)
    boxes = [_parcels(stages, placement, x[mine], mine, choice.kept) for mine in own]
    used = np.zeros((ranks, ranks), dtype=np.int64)
    back: list[list[_Returned]] = [[] for _ in range(ranks)]
    for rank, slots in enumerate(placement.slots):
        parcels = [box[rank] for box in boxes]
        arrived = _experts(stages, parcels, np.array(slots, dtype=np.int64), rank, merged=merged)
        for sender, part in enumerate(arrived):
            used[sender, rank] = len(np.unique(parcels[sender].row))
            back[sender].append(part)
    result = np.zeros((len(x), layer.hidden), dtype=x.dtype)
    for mine, some in zip(own, back, strict=True):
        if len(mine):
            rows, token, order, share = (
                np.concatenate([getattr(part, name) for part in some])
                for name in ("rows", "token", "order", "share")
            )
            result[mine] = stages.joined(
                x[mine], stages.combine(rows, token, order, share, len(mine))
            )
    sent = np.array([[len(parcel.rows) for parcel in box] for box in boxes])
    returned = np.array([[len(part.rows) for part in some] for some in back]).T
    return RankedRun(Ran(result, choice), sent, used, returned)


def check_moe_ranks(
    layer: MoELayer,
    mover: DataMover | None,
    rng: np.random.Generator,
    placement: ExpertPlacement,
    *,
    home: Sequence[int] | None = None,
    merged: bool = True,
    tiling: Tiling | None = None,
    libraries: Iterable[Backend] = ("numpy",),
    assignment: Assignment | None = None,
) -> list[OpCheck]:
    """Run a whole layer over the ranks of ``placement`` and compare it as on one rank.

    ``home`` is the rank of each token; without it ranks have as many tokens each, in order.
    """
    stages = Stages(layer, layer.inputs(rng), mover, tiling)
    tokens = np.arange(layer.tokens)
    place = tokens * placement.ranks // layer.tokens if home is None else np.asarray(home)
    run = run_ranks(stages, placement, place, merged=merged, assignment=assignment)
    return report(
        f"experts on {placement.ranks} ranks", stages, run.ran, libraries,
        routed=assignment is None, sums=placement.ranks if merged else 0,
        faults=run.faults(merged=merged),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _Returned:
    """Rows that come back to a rank: their tokens, by what they are ordered, shares to apply."""

    rows: Array
    token: Ints
    order: Ints
    share: Array


def _choice(stages: Stages, own: list[Ints], assignment: Assignment | None) -> Choice:
    """Each rank's logits for its own tokens; capacities and expert choice see the whole batch."""
    x = stages.arrays["x"]
    seen = np.empty((len(x), stages.layer.net.experts), dtype=np.float32)
    for mine in own:
        if len(mine):
            seen[mine] = stages.logits(x[mine])
    return chosen(stages, seen, assignment)


def _parcels(
    stages: Stages, placement: ExpertPlacement, x: Array, mine: Ints, kept: Assignment
) -> list[Parcel]:
    """What a rank with the tokens ``mine`` sends to each rank, itself included."""
    layer = stages.layer
    pairs = np.flatnonzero(np.isin(kept.token - kept.first, mine))
    slot = placement.serve(kept.token[pairs], kept.expert[pairs])
    host = placement.rank_of_slot[slot]
    begin = np.searchsorted(placement.rank_of_slot, np.arange(placement.ranks))
    # What a rank weighs before its experts is quantised after that.
    travel = layer.format if layer.net.router.on_input else layer.operand
    parcels = []
    for rank in range(placement.ranks):
        here = pairs[host == rank]
        token = np.searchsorted(mine, kept.token[here] - kept.first)
        which, row = np.unique(token, return_inverse=True)
        pack = Pointwise(
            name="dispatch", function="gather", rows=len(which), cols=layer.hidden,
            format=layer.format, out=travel,
        )  # fmt: skip
        rows = stages.stage(pack, {"x": x, "rows": which})
        parcels.append(
            Parcel(
                rows=rows,
                token=which,
                row=row,
                slot=slot[host == rank] - begin[rank],
                expert=kept.expert[here],
                weight=kept.weight[here].astype(np.float32),
            )
        )
    return parcels


def _experts(
    stages: Stages, parcels: list[Parcel], held: Ints, rank: int, *, merged: bool
) -> list[_Returned]:
    """What ``rank``, which holds the experts ``held``, returns for each parcel."""
    firsts = np.cumsum([0, *(len(parcel.rows) for parcel in parcels)])
    x = np.concatenate([parcel.rows for parcel in parcels])
    row = np.concatenate([p.row + first for p, first in zip(parcels, firsts[:-1], strict=True)])
    slot = np.concatenate([parcel.slot for parcel in parcels])
    share = np.concatenate([parcel.weight for parcel in parcels])
    expert = np.concatenate([parcel.expert for parcel in parcels])
    order = np.argsort(slot, kind="stable")
    counts = tuple(np.bincount(slot, minlength=len(held)).tolist())
    rows = stages.experts(x, row[order], counts, held, share[order])
    left = np.ones_like(share) if stages.layer.net.router.on_input else share
    found = []
    if merged:
        partial = stages.combine(rows, row[order], expert[order], left[order], len(x))
        for parcel, first in zip(parcels, firsts[:-1], strict=True):
            some = partial[first : first + len(parcel.rows)]
            whole = np.ones(len(some), dtype=np.float32)
            found.append(_Returned(some, parcel.token, np.full(len(some), rank), whole))
        return found
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    ends = np.cumsum([0, *(len(parcel.row) for parcel in parcels)])
    for parcel, first, last in zip(parcels, ends[:-1], ends[1:], strict=True):
        token = parcel.token[parcel.row]
        some = rows[place[first:last]]
        found.append(_Returned(some, token, parcel.expert, left[first:last]))
    return found
