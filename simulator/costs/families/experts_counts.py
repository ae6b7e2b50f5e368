"""How many tokens each expert of the fullest rank gets: what decides the time of an MoE layer.

Every distribution is deterministic: random ones are averaged over the same few draws each time.
Knows routing. Never touches devices, formats or constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TILES = (16, 32, 64, 128, 256)
"""Rows of a grouped tile; each expert's tokens are padded to whole ones."""

DRAWS = 5
EXACT = 128
"""Up to so many tokens every number has its own statistics."""
PER_OCTAVE = 8
"""Numbers of tokens with statistics of their own in each octave above; others in between."""
_BASE = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Work of the timed rank, one entry per row, averaged over draws of the routing."""

    pairs: Floats
    """Token-expert pairs."""
    active: Floats
    """Experts with at least one token."""
    largest: Floats
    """Tokens of the fullest expert."""
    blocks: Floats
    """(tiles, rows): row blocks of each height of ``TILES``, every expert padded on its own."""


def load_of_counts(counts: NDArray[np.number]) -> Load:
    """The load of explicit counts, (rows, experts of the rank)."""
    return _as_load(_statistics(np.atleast_2d(counts)[:, None, :]).T)


def load(
    tokens: Floats, experts: Floats, topk: Floats, ep: Floats, distribution: str
) -> Load:
    """Load of the rank that is timed, one entry per row.

    ``tokens`` are those of the whole expert-parallel group of ``ep`` ranks. Distributions:
    ``balanced`` (token i, slot j to expert i + j * stride; rank 0), ``power_law_A`` (shares drawn
    from a truncated power law of exponent A; the rank with most pairs), ``power_law_A_eplb`` (the
    same, evened out by replicas), and ``random`` (every expert as likely; the rank with most
    pairs), which also stands for an empty name. The first two follow the workload generator of
    aiconfigurator's collectors. Raises ValueError for other names.
    """
    out = np.empty((len(TILES) + 3, len(tokens)))
    code = (experts * _BASE + topk) * _BASE + ep
    known, which = np.unique(code.astype(np.int64), return_inverse=True)
    for index, key in enumerate(known.tolist()):
        rows = np.flatnonzero(which == index)
        table = _table(key // _BASE**2, key // _BASE % _BASE, key % _BASE, distribution)
        out[:, rows] = table.at(np.asarray(tokens[rows], dtype=np.float64))
    return _as_load(out)


def _as_load(rows: Floats) -> Load:
    return Load(pairs=rows[0], active=rows[1], largest=rows[2], blocks=rows[3:])


class _Table:
    """Statistics by number of tokens, computed where they are first asked for."""

    def __init__(self, experts: int, topk: int, ep: int, distribution: str) -> None:
        self.key = (experts, topk, ep, distribution)
        self.known = np.zeros(EXACT + 1, dtype=bool)
        self.values = np.zeros((len(TILES) + 3, EXACT + 1))

    def at(self, tokens: Floats) -> Floats:
        """Statistics (names, rows), linear between the tokens that have their own."""
        place = np.where(
            tokens <= EXACT, np.rint(tokens), EXACT + PER_OCTAVE * np.log2(np.maximum(tokens, EXACT) / EXACT)
        )  # fmt: skip
        low = np.floor(place + 1e-9).astype(np.int64)
        self._fill(np.unique(np.concatenate([low, low + 1])))
        left, right = _tokens_at(low), _tokens_at(low + 1)
        share = np.clip((tokens - left) / (right - left), 0.0, 1.0)
        return np.asarray(self.values[:, low] * (1 - share) + self.values[:, low + 1] * share)

    def _fill(self, places: Ints) -> None:
        if places[-1] >= len(self.known):
            grown = int(places[-1]) + 1
            self.known = np.concatenate([self.known, np.zeros(grown - len(self.known), bool)])
            wider = np.zeros((len(self.values), grown))
            wider[:, : self.values.shape[1]] = self.values
            self.values = wider
        missing = places[~self.known[places]]
        for part in np.array_split(missing, max(1, len(missing) // 32)):
            if len(part):
                counts = _counts(_tokens_at(part), *self.key)
                self.values[:, part] = _statistics(counts).T
        self.known[missing] = True


def _tokens_at(place: Ints) -> Floats:
    above = np.rint(EXACT * 2.0 ** (np.maximum(place - EXACT, 0) / PER_OCTAVE))
    return np.where(place <= EXACT, np.maximum(place, 0).astype(np.float64), above)


@lru_cache(maxsize=4096)
def _table(experts: int, topk: int, ep: int, distribution: str) -> _Table:
    return _Table(experts, topk, ep, distribution)


def _statistics(counts: NDArray[np.number]) -> Floats:
    """(rows, names) from counts (rows, draws, experts): pairs, active, largest, blocks."""
    filled = [counts.sum(-1), (counts > 0).sum(-1), counts.max(-1)]
    filled += [np.ceil(counts / tile).sum(-1) for tile in TILES]
    return np.asarray(np.stack([one.mean(-1) for one in filled], axis=-1), dtype=np.float64)


def _counts(tokens: Floats, experts: int, topk: int, ep: int, distribution: str) -> Floats:
    """Tokens of each expert of the timed rank: (tokens, draws, experts of the rank)."""
    name, _, rest = (distribution or "random").partition("_law_")
    if name == "balanced":
        return _balanced(tokens, experts, topk, ep)
    if name == "random":
        return _fullest(_random(tokens, experts, topk), ep)
    if name == "power" and rest.endswith("_eplb"):
        return _evened(tokens, experts, topk, ep)
    if name == "power":
        return _fullest(_power_law(tokens, experts, topk, float(rest)), ep)
    raise ValueError(f"no routing distribution {distribution!r}")


def _local(experts: int, ep: int) -> int:
    return max(1, experts // ep)


def _balanced(tokens: Floats, experts: int, topk: int, ep: int) -> Floats:
    """Counts on rank 0 of a fixed pattern with the experts of a token a stride apart."""
    stride = -(-experts // topk)
    tok = np.rint(tokens).astype(np.int64)[:, None, None]
    offset = np.arange(_local(experts, ep))[:, None] - np.arange(topk) * stride
    offset %= experts
    # Many tokens: token i begins at expert i. Few: they begin evenly spread over the stride.
    many = np.where(offset < tok, (tok - 1 - offset) // experts + 1, 0)
    first = -(-offset * tok // stride)
    few = (offset < stride) & (first < tok) & (first * stride // np.maximum(tok, 1) == offset)
    counts = np.where(tok >= stride, many, few).sum(-1)
    return np.asarray(counts[:, None, :], dtype=np.float64)


def _random(tokens: Floats, experts: int, topk: int) -> Floats:
    """Every token chooses its experts anew: binomial counts."""
    chance = np.random.default_rng(experts * 1009 + topk)
    share = min(1.0, topk / experts)
    size = (len(tokens), DRAWS, experts)
    return chance.binomial(np.rint(tokens).astype(np.int64)[:, None, None], share, size) * 1.0


@lru_cache(maxsize=64)
def _uniform(experts: int) -> Floats:
    return np.random.default_rng(experts).random((DRAWS, experts))


def _power_law(tokens: Floats, experts: int, topk: int, alpha: float) -> Floats:
    """Whole counts in proportion to power-law samples, no expert with more than all tokens."""
    tok = tokens[:, None, None]
    wanted = np.rint(tok * topk)
    few = wanted <= experts
    low, high = np.where(few, 0.01, 1.0), np.where(few, 2.0, np.maximum(0.8 * tok, 1.0))
    power = 1.0 - alpha
    start = low**power
    sample = ((high**power - start) * _uniform(experts) + start) ** (1.0 / power)
    counts = np.rint(sample * (wanted / sample.sum(-1, keepdims=True)))
    # What rounding lost goes to the fullest first, what it gained comes off the emptiest; equal
    # counts keep their order, so that few tokens crowd on the first experts, as they were timed.
    off = wanted - counts.sum(-1, keepdims=True)
    rank = np.empty(counts.shape, dtype=np.int64)
    order = np.argsort(-counts, axis=-1, kind="stable")
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(experts), rank.shape), axis=-1)
    whole = np.floor(np.maximum(off, 0) / experts)
    counts += whole + (rank < np.maximum(off, 0) - whole * experts)
    counts -= (rank >= experts + off) & (counts > 0)
    return _clipped(counts, tok, wanted)


def _clipped(counts: Floats, most: Floats, wanted: Floats) -> Floats:
    for _ in range(4):
        counts = np.minimum(counts, most)
        short = np.maximum(wanted - counts.sum(-1, keepdims=True), 0.0)
        if not short.any():
            break
        room = np.where(counts < most, counts, 0.0)
        counts = np.rint(counts + short * room / np.maximum(room.sum(-1, keepdims=True), 1.0))
    return np.minimum(counts, most)


def _evened(tokens: Floats, experts: int, topk: int, ep: int) -> Floats:
    """Replicas even out the ranks and, within a rank, its expert slots."""
    slots = _local(experts, ep)
    pairs = np.ceil(tokens * topk / ep)[:, None, None]
    whole = np.floor(pairs / slots)
    return whole + (np.arange(slots) < pairs - whole * slots)


def _fullest(counts: Floats, ep: int) -> Floats:
    """The rank with most pairs; experts lie on ranks in order."""
    local = _local(counts.shape[-1], ep)
    ranks = counts.shape[-1] // local
    grouped = counts[..., : ranks * local].reshape(*counts.shape[:-1], ranks, local)
    best = grouped.sum(-1).argmax(-1)
    return np.take_along_axis(grouped, best[..., None, None], axis=-2)[..., 0, :]


