"""Which layers stand on which pipeline stage, in which piece, and in what order.

Knows layers and a plan. Never touches devices, batches or time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.errors import InputError
from simulator.specs.plan import Plan
from simulator.specs.workload import Layer, LayerGroup, Transformer


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One piece of the model on one pipeline rank."""

    rank: int
    """The pipeline rank, 0 to pp - 1."""
    piece: int
    """Which of the rank's virtual stages, 0 to virtual_stages - 1."""
    start: int
    """Layers of the model before this piece."""
    layers: tuple[tuple[Layer, int], ...]
    """Equal neighbours together, in order."""
    first: bool
    """It holds the embedding."""
    last: bool
    """It holds the final norm, the head, the prediction modules, and the loss."""

    @property
    def count(self) -> int:
        """Layers of this piece."""
        return sum(count for _, count in self.layers)

    def of(self, model: Transformer) -> Transformer:
        """``model`` with the layers of this piece alone; embedding and head are not taken out."""
        groups = tuple(LayerGroup(repeat=count, layers=(layer,)) for layer, count in self.layers)
        return replace(model, groups=groups)


def layer_counts(layers: int, pieces: int) -> tuple[int, ...]:
    """Layers of each of ``pieces`` pieces: as equal as can be.

    Layers that are left over go to the inner pieces first and to the last one last, since the
    first also has the embedding and the last the head. 126 layers on 16 stages so become 7, 14
    times 8, and 7, as Llama 3 was trained (arXiv 2407.21783, section 3.3.2).

    >>> layer_counts(10, 4)
    (2, 3, 3, 2)
    """
    each, left = divmod(layers, pieces)
    order = [*range(1, pieces - 1), 0, pieces - 1][:left]
    counts = [each] * pieces
    for piece in order:
        counts[piece] += 1
    return tuple(counts)


def stages(
    model: Transformer, plan: Plan, counts: Sequence[int] | None = None
) -> tuple[Stage, ...]:
    """The pieces of ``model`` in the order in which a token passes them.

    Piece i stands on rank i mod pp (interleaved as in arXiv 2104.04473, section 2.2).
    ``counts`` gives the layers of each piece where ``layer_counts`` is not what is wanted. Raises
    InputError where they are not one for each piece, or do not sum to the layers of the model.
    """
    pieces = plan.pp * plan.virtual_stages
    runs = layer_runs(model)
    total = sum(count for _, count in runs)
    if counts is None:
        counts = layer_counts(total, pieces)
    if len(counts) != pieces or sum(counts) != total or min(counts) < 0:
        raise InputError(
            f"layers of stages {', '.join(map(str, counts))}: {pieces} counts of 0 or more that "
            f"sum to {total} are needed"
        )
    found, run, used, start = [], 0, 0, 0
    for index, wanted in enumerate(counts):
        start += counts[index - 1] if index else 0
        layers = []
        while wanted:
            layer, count = runs[run]
            taken = min(wanted, count - used)
            layers.append((layer, taken))
            wanted, used = wanted - taken, used + taken
            if used == count:
                run, used = run + 1, 0
        found.append(
            Stage(
                rank=index % plan.pp,
                piece=index // plan.pp,
                start=start,
                layers=tuple(layers),
                first=index == 0,
                last=index == pieces - 1,
            )
        )
    return tuple(found)


def layer_runs(model: Transformer) -> tuple[tuple[Layer, int], ...]:
    """The layers of ``model`` in order, equal neighbours together."""
    runs: list[tuple[Layer, int]] = []
    for group in model.groups:
        alone = len(group.layers) == 1
        for _ in range(1 if alone else group.repeat):
            for layer in group.layers:
                count = group.repeat if alone else 1
                if runs and runs[-1][0] == layer:
                    count += runs.pop()[1]
                runs.append((layer, count))
    return tuple(runs)


def in_flight(plan: Plan, rank: int, micro_batches: int | None = None) -> tuple[int, ...]:
    """Micro-batches whose activations a pipeline rank keeps at its peak, for each of its pieces.

    1F1B: pp - rank. ZB-H1: pp, of which ``rank`` wait for the gradients of their weights (arXiv
    2401.10241, section 2.3); they count whole. Interleaved: the first (v - 1) pp + 2 (pp - rank -
    1) + 1 passes in Megatron-LM's order (pp micro-batches of a piece, then of the next): pp v +
    pp - 1 on the first rank, which is its layers times 1 + (pp - 1) / (pp v). One more where a
    forward runs beside the backward before which it stands (``overlap_exchanges``).
    """
    pp, pieces = plan.pp, plan.virtual_stages
    if pieces == 1:
        passes = pp if plan.pipeline == "zero_bubble" else pp - rank
        passes += plan.merged
        return (passes if micro_batches is None else min(passes, micro_batches),)
    passes = (pieces - 1) * pp + 2 * (pp - rank - 1) + 1 + plan.merged
    if micro_batches is not None:
        passes = min(passes, pieces * micro_batches)
    rounds, rest = divmod(passes, pp * pieces)
    return tuple(rounds * pp + min(pp, max(0, rest - piece * pp)) for piece in range(pieces))


def imbalance(pieces: Sequence[Stage]) -> float:
    """Layers of the fullest rank over those of a mean one, less one: 0 where all are equal."""
    ranks = [0] * (1 + max(stage.rank for stage in pieces))
    for stage in pieces:
        ranks[stage.rank] += stage.count
    return max(ranks) * len(ranks) / max(1, sum(ranks)) - 1
