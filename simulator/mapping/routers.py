"""Routers: which experts a token's logits choose, and with which weights.

Knows logits and the router of a spec. Never touches chance, files, hardware or time. Of equal
scores the lowest expert, or the first token, is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError
from simulator.specs.workload import Router

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assignment:
    """Which experts a stretch of tokens of one layer goes to: one row per token and expert.

    The three arrays have one entry per routed row, ascending by token; a token has no expert
    twice. ``first`` is the number of the first token, ``tokens`` how many the stretch has.
    """

    experts: int
    tokens: int
    first: int = 0
    token: NDArray[np.int64]
    """Number of the row's token in the batch, from ``first`` on."""
    expert: NDArray[np.int64]
    weight: NDArray[np.float64]
    """Share of the expert in the token's result."""
    dropped: int = 0
    """Pairs of token and expert that a capacity left out."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows of each expert, (experts,)."""
        return np.bincount(self.expert, minlength=self.experts)


def token_choice(
    logits: NDArray[np.floating],
    top_k: int,
    router: Router,
    *,
    bias: Floats | None = None,
    first: int = 0,
) -> Assignment:
    """Each token takes its ``top_k`` best experts; ``logits`` are (tokens, experts).

    Softmax scores with ``normalise`` are the softmax over the chosen logits (Mixtral, Qwen3,
    gpt-oss); without, the shares of the softmax over all (Switch). Sigmoid scores are divided by
    their sum where ``normalise``. ``bias`` (experts,) is added for the choice alone. With groups,
    experts outside the ``top_groups`` best are left out; a group is worth the sum of its two best
    biased scores (DeepSeek-V3, arXiv 2412.19437, 2.1.2), or, without a bias, its best (DeepSeek-V2,
    arXiv 2405.04434, 2.2.2). Weights are multiplied by the router's scale.

    Raises InputError for more experts than the kept groups have, and unequal groups.
    """
    tokens, experts = logits.shape
    kept = experts // router.groups * router.top_groups
    if experts % router.groups or router.top_groups > router.groups:
        raise InputError(f"{router.top_groups} of {router.groups} groups of {experts} experts")
    if top_k > kept:
        raise InputError(f"top_k of {top_k}: {kept} experts to choose from")
    scores = _scores(logits, router)
    # Without a bias the order of the scores is that of the logits, which do not underflow.
    liked = logits if bias is None else scores + bias
    if router.top_groups < router.groups:
        size = experts // router.groups
        grouped = liked.reshape(tokens, router.groups, size)
        best = 1 if bias is None else min(2, size)
        worth = np.partition(grouped, size - best, axis=2)[:, :, size - best :].sum(axis=2)
        inside = _best(worth, router.top_groups).repeat(size, axis=1)
        liked = np.where(inside, liked, -np.inf)
    token, expert = np.nonzero(_best(liked, top_k))
    weight = scores[token, expert]
    if router.normalise:
        if router.scoring == "softmax":
            weight = _softmax(logits[token, expert].reshape(tokens, top_k)).ravel()
        else:
            sums = weight.reshape(tokens, top_k).sum(axis=1)
            weight = weight / (sums + 1e-20).repeat(top_k)
    return Assignment(
        experts=experts,
        tokens=tokens,
        first=first,
        token=token + first,
        expert=expert,
        weight=weight * router.scale,
    )


def expert_choice(logits: NDArray[np.floating], taken: int, router: Router) -> Assignment:
    """Each expert takes its ``taken`` best tokens; ``logits`` are (tokens, experts).

    A token may have many experts or none; weights are its scores over all experts (Zhou et al.,
    Mixture-of-experts with expert choice routing, arXiv 2202.09368).
    """
    tokens, experts = logits.shape
    scores = _scores(logits, router)
    token, expert = np.nonzero(_best(scores.T, min(taken, tokens)).T)
    weight = scores[token, expert] * router.scale
    return Assignment(experts=experts, tokens=tokens, token=token, expert=expert, weight=weight)


def capacity(factor: float, tokens: int, top_k: int, experts: int) -> int:
    """Rows that one expert takes: ceil(factor x tokens x top_k / experts).

    Switch transformers, arXiv 2101.03961, equation 3, for a top_k of one.

    >>> capacity(1.25, 1024, 1, 128)
    10
    """
    return math.ceil(Fraction(repr(float(factor))) * tokens * top_k / experts)


def within(assignment: Assignment, capacity: int, used: NDArray[np.int64]) -> Assignment:
    """``assignment`` without the rows beyond each expert's ``capacity``, in token order.

    ``used`` (experts,) has the rows that earlier stretches of the batch took; those of this one are
    added to it. What is left out is counted, and the weights of a token's other experts stay.
    """
    counts = assignment.counts
    order = np.argsort(assignment.expert, kind="stable")
    before = used + counts - counts.cumsum()
    kept = np.empty(len(order), dtype=np.bool_)
    kept[order] = np.arange(len(order)) + before.repeat(counts) < capacity
    used += np.clip(capacity - used, 0, counts)
    return replace(
        assignment,
        token=assignment.token[kept],
        expert=assignment.expert[kept],
        weight=assignment.weight[kept],
        dropped=assignment.dropped + int(np.count_nonzero(~kept)),
    )


def _scores(logits: NDArray[np.floating], router: Router) -> Floats:
    if router.scoring == "softmax":
        return _softmax(logits)
    return np.asarray(0.5 * (1 + np.tanh(0.5 * logits.astype(np.float64))))


def _softmax(logits: NDArray[np.floating]) -> Floats:
    with np.errstate(over="ignore"):  # logits that far apart: the smaller has no weight at all
        powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _best(scores: NDArray[np.floating], count: int) -> Mask:
    """The ``count`` largest of each row; of equal ones the first."""
    rows, columns = scores.shape
    if count == 0 or rows == 0:
        return np.zeros(scores.shape, dtype=np.bool_)
    place = columns - count
    least = np.partition(scores, place, axis=1)[:, place, None]
    best = scores >= least
    tied = np.flatnonzero(np.count_nonzero(best, axis=1) > count)
    above = scores[tied] > least[tied]
    room = count - np.count_nonzero(above, axis=1)[:, None]
    equal = best[tied] & ~above
    best[tied] = above | (equal & (equal.cumsum(axis=1) <= room))
    return best
