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
_REMEMBERED = 2048
"""Most rows of a query whose load is kept."""


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


def load(tokens: Floats, experts: Floats, topk: Floats, ep: Floats, distribution: str) -> Load:
    """Load of the rank that is timed, one entry per row.

    ``tokens`` are those of the whole expert-parallel group of ``ep`` ranks. Distributions:
    ``balanced`` (token i, slot j to expert i + j * stride; rank 0), ``power_law_A`` (shares drawn
    from a truncated power law of exponent A; the rank with most pairs), ``power_law_A_eplb`` (the
    same, evened out by replicas), ``power_law_A_crowded`` (an older form of the generator, whose
    few tokens crowd on one rank), and ``random`` (every expert as likely; the rank with most
    pairs), which also stands for an empty name. The first two follow the workload generator of
    aiconfigurator's collectors. Raises ValueError for other names.
    """
    columns = np.stack([tokens, experts, topk, ep]).astype(np.float64)
    if columns.shape[1] <= _REMEMBERED:
        return _as_load(_remembered(columns.tobytes(), distribution))
    return _as_load(_looked_up(columns, distribution))


@lru_cache(maxsize=2048)
def _remembered(columns: bytes, distribution: str) -> Floats:
    """The same rows again and again: a fit, or the layers of one model."""
    return _looked_up(np.frombuffer(columns).reshape(4, -1), distribution)


def _looked_up(columns: Floats, distribution: str) -> Floats:
    tokens, experts, topk, ep = columns
    out = np.empty((len(TILES) + 3, len(tokens)))
    code = (experts * _BASE + topk) * _BASE + ep
    known, which = np.unique(code.astype(np.int64), return_inverse=True)
    for index, key in enumerate(known.tolist()):
        rows = np.flatnonzero(which == index)
        table = _table(key // _BASE**2, key // _BASE % _BASE, key % _BASE, distribution)
        out[:, rows] = table.at(tokens[rows])
    return out


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
        above = EXACT + PER_OCTAVE * np.log2(np.maximum(tokens, EXACT) / EXACT)
        place = np.where(tokens <= EXACT, np.rint(tokens), above)
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
        return _evened(tokens, experts, topk, ep, float(rest[: -len("_eplb")]))
    if name == "power" and rest.endswith("_crowded"):
        return _fullest(_crowded(tokens, experts, topk, float(rest[: -len("_crowded")])), ep)
    if name == "power":
        return _fullest(_power_law(tokens, experts, topk, ep, float(rest)), ep)
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
    """Every token chooses ``topk`` experts anew, so that counts only grow with the tokens.

    Up to ``EXACT`` tokens each draw is followed token by token; beyond, an expert keeps the
    standard deviations that it was off by then, and no count falls.
    """
    count = np.rint(tokens).astype(np.int64)
    share = min(1.0, topk / experts)
    drawn = _drawn(experts, topk)
    deviation = (drawn[-1] - EXACT * share) / max(np.sqrt(EXACT * share * (1 - share)), 1e-9)
    many = count[:, None, None] * share
    far = np.rint(many + deviation * np.sqrt(many * (1 - share)))
    near = drawn[np.minimum(count, EXACT)]
    return np.asarray(np.where(count[:, None, None] > EXACT, np.maximum(far, near), near))


@lru_cache(maxsize=16)
def _drawn(experts: int, topk: int) -> Floats:
    """Tokens of each expert after 0, 1, ..., EXACT tokens: (EXACT + 1, draws, experts)."""
    chance = np.random.default_rng(experts * 1009 + topk)
    liked = chance.random((EXACT, DRAWS, experts), dtype=np.float32)
    last = min(topk, experts) - 1
    chosen = liked <= np.partition(liked, last, axis=-1)[..., last : last + 1]
    counts = np.zeros((EXACT + 1, DRAWS, experts), dtype=np.float32)
    np.cumsum(chosen, axis=0, out=counts[1:])
    return counts.astype(np.float64)


@lru_cache(maxsize=64)
def _uniform(experts: int) -> Floats:
    return np.random.default_rng(experts).random((DRAWS, experts))


def _power_law(tokens: Floats, experts: int, topk: int, ep: int, alpha: float) -> Floats:
    """Whole counts in proportion to power-law samples; where no expert is worth half a token,
    those that there are lie evenly on the ranks."""
    tok, wanted, share = _shares(tokens, experts, topk, alpha)
    counts = np.floor(share)
    rest = share - counts
    counts += _rank(-rest) < wanted - counts.sum(-1, keepdims=True)
    local = _local(experts, ep)
    strided = np.arange(experts) % local * (experts // local) + np.arange(experts) // local
    none = share.max(-1, keepdims=True) < 0.5
    return _clipped(np.where(none, strided < wanted, counts), tok, wanted)


def _crowded(tokens: Floats, experts: int, topk: int, alpha: float) -> Floats:
    """The same as an older generator rounds: what is lost goes to the first experts, so that few
    tokens crowd on one rank."""
    tok, wanted, share = _shares(tokens, experts, topk, alpha)
    counts = np.rint(share)
    off = wanted - counts.sum(-1, keepdims=True)
    whole = np.floor(np.maximum(off, 0) / experts)
    counts += whole + (np.arange(experts) < np.maximum(off, 0) - whole * experts)
    counts -= (_rank(-counts) >= experts + off) & (counts > 0)
    return _clipped(counts, tok, wanted)


def _shares(tokens: Floats, experts: int, topk: int, alpha: float) -> tuple[Floats, Floats, Floats]:
    """Tokens, pairs, and the share of the pairs of each expert: samples by inverse distribution."""
    tok = tokens[:, None, None]
    wanted = np.rint(tok * topk)
    few = wanted <= experts
    low, high = np.where(few, 0.01, 1.0), np.where(few, 2.0, np.maximum(0.8 * tok, 1.0))
    power = 1.0 - alpha
    start = low**power
    sample = ((high**power - start) * _uniform(experts) + start) ** (1.0 / power)
    return tok, wanted, sample * (wanted / sample.sum(-1, keepdims=True))


def _rank(values: Floats) -> Ints:
    """Place of each in ascending order; equal ones keep their order."""
    place = np.empty(values.shape, dtype=np.int64)
    order = np.argsort(values, axis=-1, kind="stable")
    np.put_along_axis(
        place, order, np.broadcast_to(np.arange(values.shape[-1]), place.shape), axis=-1
    )
    return place


def _clipped(counts: Floats, most: Floats, wanted: Floats) -> Floats:
    """No expert gets a token twice; what is too much goes to the others as they have, and a rest
    to the fullest of those with room."""
    for _ in range(4):
        counts = np.minimum(counts, most)
        short = np.maximum(wanted - counts.sum(-1, keepdims=True), 0.0)
        if not short.any():
            return counts
        room = np.where(counts < most, counts, 0.0)
        counts = np.floor(counts + short * room / np.maximum(room.sum(-1, keepdims=True), 1.0))
    counts = np.minimum(counts, most)
    short = wanted - counts.sum(-1, keepdims=True)
    place = _rank(np.where(counts < most, -counts, np.inf))
    return np.asarray(np.minimum(counts + (place < short), most))


def _evened(tokens: Floats, experts: int, topk: int, ep: int, alpha: float) -> Floats:
    """Power-law counts dealt to the ranks in order of size, the fullest experts split by replicas
    so that every rank has as many pairs."""
    counts = np.sort(_power_law(tokens, experts, topk, ep, alpha), axis=-1)[..., ::-1]
    local = _local(experts, ep)
    ranks = experts // local
    pairs = np.maximum(tokens * topk / ep, 1.0)[:, None, None]
    dealt = np.minimum(counts[..., ::ranks][..., :local], np.maximum(2 * pairs / local, 1.0))
    return np.asarray(dealt * (pairs / np.maximum(dealt.sum(-1, keepdims=True), 1.0)))


def _fullest(counts: Floats, ep: int) -> Floats:
    """The rank with most pairs; experts lie on ranks in order."""
    local = _local(counts.shape[-1], ep)
    ranks = counts.shape[-1] // local
    grouped = counts[..., : ranks * local].reshape(*counts.shape[:-1], ranks, local)
    best = grouped.sum(-1).argmax(-1)
    return np.take_along_axis(grouped, best[..., None, None], axis=-2)[..., 0, :]
