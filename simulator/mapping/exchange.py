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
    """

    near: int
    crossing: int
    far: int
    handled: int


def mean(volumes: Sequence[Volume]) -> Volume:
    """What each rank would move if all moved as much."""
    sums = {name: sum(getattr(volume, name) for volume in volumes) for name in Volume.__slots__}
    return Volume(**{name: round(total / len(volumes)) for name, total in sums.items()})


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

    def volumes(self, *, per_rank: bool, relayed: bool) -> tuple[Volume, ...]:
        """What each rank moves; combine moves as much the other way.

        ``per_rank``: a rank gets a token once, however many of its experts are there. ``relayed``:
        a token goes once to each other domain, to the rank that stands there where its source
        stands here, and on from it within the domain; otherwise every copy travels straight.
        """
        home = np.arange(self.ranks) // self.domain
        inside = home[:, None] == home
        if not relayed:
            sent = self.copies(per_rank=per_rank)
            own = np.where(inside, sent, 0)
            out, back = own.sum(1), own.sum(0)
            leaving, coming = (sent.sum(axis) for axis in (1, 0))
            near = np.maximum(out, back)
            return self._volumes(near, near, np.maximum(leaving - out, coming - back))
        place = np.arange(self.ranks) % self.domain
        passed = np.zeros_like(self.rows)
        # The rank with the place of a row's source passes it on inside the domain of its expert;
        # in a smaller last domain the places go around.
        sizes = np.bincount(home)
        for domain in range(len(sizes)):
            hosts = np.flatnonzero(home == domain)
            np.add.at(passed, (hosts[place % sizes[domain]][:, None], hosts), self.rows[:, hosts])
        out, back = passed.sum(1), passed.sum(0)
        kept = np.diagonal(passed)
        own_visits = self.visits[np.arange(self.ranks), home]
        away = self.visits.sum(1) - own_visits
        coming = np.zeros(self.ranks, dtype=np.int64)
        for domain in range(len(sizes)):
            hosts = np.flatnonzero(home == domain)
            others = home != domain
            np.add.at(coming, hosts[place[others] % sizes[domain]], self.visits[others, domain])
        return self._volumes(
            np.maximum(out, back), np.maximum(out, back) - kept, np.maximum(away, coming)
        )

    def _volumes(self, near: Ints, crossing: Ints, far: Ints) -> tuple[Volume, ...]:
        handled = np.maximum(self.pairs.sum(1), self.pairs.sum(0))
        return tuple(
            Volume(near=int(n), crossing=int(c), far=int(f), handled=int(h))
            for n, c, f, h in zip(near, crossing, far, handled, strict=True)
        )


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
        source, of = np.divmod(np.searchsorted(ends, some.token, side="right"), parts)
        token, expert, source = (row[of == part] for row in (some.token, some.expert, source))
        slot = placement.serve(token, expert)
        host = placement.rank_of_slot[slot]
        counts += np.bincount(slot, minlength=slots)
        load += np.bincount(expert, minlength=placement.experts)
        pairs += np.bincount(source * ranks + host, minlength=ranks * ranks).reshape(ranks, ranks)
        dropped += some.dropped
        met = np.zeros((some.tokens, domains * size), dtype=np.bool_)
        met[token - some.first, host] = True
        numbers = np.arange(some.first, some.first + some.tokens)
        owner = np.searchsorted(ends, numbers, "right") // parts
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
