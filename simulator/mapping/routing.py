"""How tokens spread over experts: counts, and how many distinct experts a batch hits.

Knows a layer's expert count and top-k. Never touches hardware, weights or time. Chance is passed
in as a generator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.specs.workload import MoE

DRAWN = 1 << 16
"""Tokens drawn at once: as many as the cache holds, in the order of one single draw."""


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


def draw(
    moe: MoE, tokens: int, rng: np.random.Generator, *, layer: int = 0
) -> Iterator[Assignment]:
    """Route ``tokens`` tokens of one MoE layer, a stretch of them at a time.

    ``layer`` counts the MoE layers of the model from 0, for routings that are recorded by layer.
    Tokens of distributions weigh their experts alike.
    """
    for first in range(0, tokens, DRAWN):
        some = min(DRAWN, tokens - first)
        token = np.arange(first, first + some, dtype=np.int64).repeat(moe.top_k)
        if moe.routing == "balanced":
            expert = (np.arange(len(token)) + first * moe.top_k) % moe.experts
        else:
            chosen = _distinct(moe.experts, moe.top_k, some, rng)
            expert = chosen.reshape(moe.top_k, some).T.ravel()
        yield Assignment(
            experts=moe.experts,
            tokens=some,
            first=first,
            token=token,
            expert=expert,
            weight=np.full(len(token), 1 / moe.top_k),
        )


def expected_distinct_experts(experts: int, top_k: int, tokens: float) -> float:
    """Experts that at least one of ``tokens`` uniformly routed tokens chooses, in expectation.

    E (1 - (1 - k/E)^B): each expert is missed by one token with probability 1 - k/E.

    >>> round(expected_distinct_experts(256, 8, 16))
    102
    """
    missed: float = (1.0 - top_k / experts) ** tokens
    return experts * (1.0 - missed)


def expert_counts(moe: MoE, tokens: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Tokens that each expert gets, shape (experts,), summing to ``tokens`` x ``top_k``.

    ``uniform``: each token draws top_k distinct experts with equal chance. The draw of B tokens
    is a prefix of the draw of B + 1 tokens with the same generator state, so more tokens never
    lower any count. ``balanced``: counts that differ by at most one, lowest experts first, which
    keeps the same property.

    Raises ValueError for a routing that is not known here or for a negative number of tokens.
    """
    if tokens < 0:
        raise ValueError(f"a batch has no negative number of tokens, such as {tokens}")
    if moe.routing == "balanced":
        pairs = np.arange(moe.experts, dtype=np.int64)
        return (tokens * moe.top_k - pairs + moe.experts - 1) // moe.experts
    if moe.routing != "uniform":
        raise ValueError(f"unknown routing {moe.routing!r}; known: balanced, uniform")
    counts = np.zeros(moe.experts, dtype=np.int64)
    for done in range(0, tokens, DRAWN):
        some = _distinct(moe.experts, moe.top_k, min(DRAWN, tokens - done), rng)
        counts += np.bincount(some, minlength=moe.experts)
    return counts


def _distinct(experts: int, chosen: int, tokens: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Distinct experts of each token, flattened: Floyd's sampling, one column at a time.

    Column i draws from the first E - k + i + 1 experts and takes the last of them instead where an
    earlier column has the drawn one; every subset is equally likely (CACM 30(9), 1987, page 754).
    """
    draws = rng.random((tokens, chosen))
    picks = np.empty((chosen, tokens), dtype=np.intp)
    for column in range(chosen):
        last = experts - chosen + column
        pick = (draws[:, column] * (last + 1)).astype(np.intp)
        taken = (picks[:column] == pick).any(axis=0)
        picks[column] = np.where(taken, last, pick)
    return picks.ravel()
