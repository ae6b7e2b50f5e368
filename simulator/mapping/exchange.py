"""What ranks send each other in one MoE layer: dispatch, and combine, which mirrors it.

Knows assignments of tokens, placements of experts, and how many ranks a domain has. Never touches
bytes, links or time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.mapping.experts import ExpertPlacement
from simulator.mapping.routing import Assignment

Ints = NDArray[np.int64]


def shares(amount: int, ranks: int) -> tuple[int, ...]:
    """``amount`` things on ``ranks`` ranks, the first ranks one more where it does not divide.

    >>> shares(10, 4)
    (3, 3, 2, 2)
    """
    each, more = divmod(amount, ranks)
    return tuple(each + (rank < more) for rank in range(ranks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """What one rank moves in one exchange, in rows: the larger of what leaves and what comes.

    ``near``: to and from the ranks of its own domain, itself included, and what it passes on for
    others. ``crossing``: the part of it that uses the links of the domain. ``far``: what leaves
    the domain. ``handled``: pairs of token and expert that it reads or writes in its memory.
    ``leaving``: what leaves it over links of either kind, which over all ranks is as much as comes.
    """

    near: int
    crossing: int
    far: int
    handled: int
    leaving: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Traffic:
    """The routed rows of one layer, by where their tokens live and where their experts are."""

    domain: int
    """Ranks of one scale-up domain; the last one may be smaller."""
    counts: Ints
    """Rows of each slot, slots of all ranks in order."""
    load: Ints
    """Rows of each expert, its copies together."""
    pairs: Ints
    """(source, host): pairs of token and expert."""
    rows: Ints
    """(source, host): tokens with at least one expert there, each once."""
    visits: Ints
    """(source, domain): tokens with at least one expert in the domain, each once."""
    tokens: int
    dropped: int
    """Pairs that a capacity left out, of the whole batch."""

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return len(self.rows)

    def copies(self, *, per_rank: bool) -> Ints:
        """(source, host): copies that are sent: one for each token, or one for each pair."""
        return self.rows if per_rank else self.pairs

    def volumes(self, *, per_rank: bool, relayed: bool, even: bool = False) -> tuple[Volume, ...]:
        """What each rank moves; combine moves as much the other way.

        ``per_rank``: a rank gets a token once, however many of its experts are there. ``relayed``:
        a token goes once to each other domain, to the rank that stands there where its source
        stands here, and on from it within the domain; otherwise every copy travels straight.
        ``even``: what each would move if all sent, and got, as much.
        """
        ways = self._relayed() if relayed else self._straight(self.copies(per_rank=per_rank))
        # (what leaves and what comes; near, crossing, far, over links, handled; rank)
        moved = np.stack([(*way, self.pairs.sum(1 - at)) for at, way in enumerate(ways)])
        if even:
            moved = np.rint(moved.mean(axis=2, keepdims=True)).repeat(self.ranks, axis=2)
        near, crossing, far, _, handled = moved.max(axis=0).astype(int).tolist()
        leaving = moved[0, 3].astype(int).tolist()
        return tuple(
            Volume(near=n, crossing=c, far=f, handled=h, leaving=o)
            for n, c, f, h, o in zip(near, crossing, far, handled, leaving, strict=True)
        )

    def _straight(self, sent: Ints) -> tuple[tuple[Ints, ...], ...]:
        """Rows of each rank near, crossing, far and over links, out and in. A rank also writes the
        copies for itself as if they crossed."""
        home = np.arange(self.ranks) // self.domain
        own = np.where(home[:, None] == home, sent, 0)
        kept = np.diagonal(sent)
        return tuple(
            (own.sum(at), own.sum(at), (sent - own).sum(at), sent.sum(at) - kept) for at in (1, 0)
        )

    def _relayed(self) -> tuple[tuple[Ints, ...], ...]:
        """The same by way of one rank in each other domain."""
        ranks = np.arange(self.ranks)
        home, place = ranks // self.domain, ranks % self.domain
        passed = np.zeros_like(self.rows)
        coming = np.zeros(self.ranks, dtype=np.int64)
        # The rank with the place of a row's source passes it on inside the domain of its expert;
        # in a smaller last domain the places go around.
        for domain, size in enumerate(np.bincount(home)):
            hosts = np.flatnonzero(home == domain)
            via, others = hosts[place % size], home != domain
            np.add.at(passed, (via[:, None], hosts), self.rows[:, hosts])
            np.add.at(coming, via[others], self.visits[others, domain])
        away = self.visits.sum(1) - self.visits[ranks, home]
        ways = []
        for at, far in ((1, away), (0, coming)):
            near = passed.sum(at)
            crossing = near - np.diagonal(passed)
            ways.append((near, crossing, far, crossing + far))
        return tuple(ways)


def traffic(
    assignments: Iterable[Assignment],
    placement: ExpertPlacement,
    tokens: Sequence[Sequence[int]],
    *,
    part: int = 0,
    domain: int | None = None,
) -> Traffic:
    """Count what travels in one part of a batch.

    The batch has first the ``tokens[0][0]`` tokens of the first part on rank 0, then those of its
    other parts, then those of rank 1.
    """
    ranks = placement.ranks
    size = min(domain or ranks, ranks)
    domains = -(-ranks // size)
    held = np.asarray(tokens, dtype=np.int64)
    ends, parts = np.cumsum(held.ravel()), held.shape[1]
    slots = len(placement.rank_of_slot)
    counts = np.zeros(slots, dtype=np.int64)
    load = np.zeros(placement.experts, dtype=np.int64)
    pairs = np.zeros((ranks, ranks), dtype=np.int64)
    rows, visits = np.zeros_like(pairs), np.zeros((ranks, domains), dtype=np.int64)
    dropped = 0
    for some in assignments:
        numbers = np.arange(some.first, some.first + some.tokens)
        owner, of = np.divmod(np.searchsorted(ends, numbers, side="right"), parts)
        row = some.token - some.first
        mine = of[row] == part
        row, expert = row[mine], some.expert[mine]
        source, slot = owner[row], placement.serve(row + some.first, expert)
        host = placement.rank_of_slot[slot]
        counts += np.bincount(slot, minlength=slots)
        load += np.bincount(expert, minlength=placement.experts)
        pairs += np.bincount(source * ranks + host, minlength=ranks * ranks).reshape(ranks, ranks)
        dropped += some.dropped
        met = np.zeros((some.tokens, domains * size), dtype=np.bool_)
        met[row, host] = True
        begin = np.flatnonzero(np.diff(owner, prepend=-1))
        if len(begin):
            ranked = owner[begin]
            rows[ranked] += np.add.reduceat(met, begin, axis=0, dtype=np.int64)[:, :ranks]
            seen = met.reshape(some.tokens, domains, size).any(axis=2)
            visits[ranked] += np.add.reduceat(seen, begin, axis=0, dtype=np.int64)
    return Traffic(
        domain=size, counts=counts, load=load, pairs=pairs, rows=rows, visits=visits,
        tokens=int(held[:, part].sum()), dropped=dropped,
    )  # fmt: skip
