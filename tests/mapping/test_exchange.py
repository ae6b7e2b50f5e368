"""What ranks send each other, against a count token by token and against theory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import comb, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.mapping.exchange import Traffic, Volume, shares, traffic
from simulator.mapping.experts import ExpertPlacement, place
from simulator.mapping.routing import Assignment, draw
from simulator.specs.workload import MoE, Router

FORMS = [(True, True), (True, False), (False, False)]
"""(per_rank, relayed)."""


@dataclass
class Case:
    """A small batch: experts of each token, and how many tokens each rank has of each part."""

    placement: ExpertPlacement
    chosen: list[list[int]]
    tokens: list[list[int]]
    domain: int
    stretch: int
    dropped: int

    @property
    def parts(self) -> range:
        return range(len(self.tokens[0]))

    @property
    def owners(self) -> list[tuple[int, int]]:
        """(rank, part) of each token."""
        return [
            (rank, part)
            for rank, held in enumerate(self.tokens)
            for part, count in enumerate(held)
            for _ in range(count)
        ]

    def assignments(self) -> Iterator[Assignment]:
        for first in range(0, len(self.chosen), self.stretch):
            some = self.chosen[first : first + self.stretch]
            token = [first + i for i, experts in enumerate(some) for _ in experts]
            yield Assignment(
                experts=self.placement.experts,
                tokens=len(some),
                first=first,
                token=np.array(token, dtype=np.int64),
                expert=np.array([e for experts in some for e in experts], dtype=np.int64),
                weight=np.ones(len(token)),
                dropped=self.dropped,
            )

    def traffic(self, part: int, tokens: Sequence[Sequence[int]] | None = None) -> Traffic:
        held = self.tokens if tokens is None else tokens
        return traffic(self.assignments(), self.placement, held, part=part, domain=self.domain)

    def sent(self, part: int) -> Iterator[tuple[int, list[int], list[int]]]:
        """(source, slots, experts) of each token of a part; the copies of an expert take turns."""
        slots = [expert for held in self.placement.slots for expert in held]
        for number, (rank, of) in enumerate(self.owners):
            if of == part:
                found = []
                for expert in self.chosen[number]:
                    copies = [slot for slot, held in enumerate(slots) if held == expert]
                    found.append(copies[number % len(copies)])
                yield rank, found, self.chosen[number]


@st.composite
def cases(draw_: st.DrawFn) -> Case:
    """1 to 5 ranks of 1 to 3 slots, with copies of experts, ranks without tokens and drops."""
    ranks, each = draw_(st.integers(1, 5)), draw_(st.integers(1, 3))
    experts = draw_(st.integers(each, ranks * each))
    placement = place(
        experts,
        ranks,
        redundant=ranks * each - experts,
        policy=draw_(st.sampled_from(["contiguous", "round_robin"])),
    )
    parts = draw_(st.integers(1, 3))
    rank_tokens = st.lists(st.integers(0, 4), min_size=parts, max_size=parts)
    tokens = draw_(st.lists(rank_tokens, min_size=ranks, max_size=ranks))
    top_k = draw_(st.integers(1, experts))
    chosen = st.lists(st.integers(0, experts - 1), max_size=top_k, unique=True)
    total = sum(map(sum, tokens))
    return Case(
        placement=placement,
        chosen=draw_(st.lists(chosen, min_size=total, max_size=total)),
        tokens=tokens,
        domain=draw_(st.integers(1, ranks)),
        stretch=draw_(st.integers(1, 9)),
        dropped=draw_(st.integers(0, 2)),
    )


@given(cases())
def test_counting_token_by_token_gives_the_same_traffic(case: Case) -> None:
    ranks, host = case.placement.ranks, case.placement.rank_of_slot
    domains = -(-ranks // case.domain)
    for part in case.parts:
        counts, load = np.zeros(len(host), int), np.zeros(case.placement.experts, int)
        pairs, rows = np.zeros((ranks, ranks), int), np.zeros((ranks, ranks), int)
        visits, tokens = np.zeros((ranks, domains), int), 0
        for source, slots, experts in case.sent(part):
            tokens += 1
            for slot, expert in zip(slots, experts, strict=True):
                counts[slot] += 1
                load[expert] += 1
                pairs[source, host[slot]] += 1
            for rank in {host[slot] for slot in slots}:
                rows[source, rank] += 1
            for domain in {host[slot] // case.domain for slot in slots}:
                visits[source, domain] += 1
        found = case.traffic(part)
        assert found.tokens == tokens
        for name, expected in (
            ("counts", counts), ("load", load), ("pairs", pairs), ("rows", rows),
            ("visits", visits),
        ):  # fmt: skip
            assert getattr(found, name).tolist() == expected.tolist(), name
        assert found.copies(per_rank=True).tolist() == rows.tolist()
        assert found.copies(per_rank=False).tolist() == pairs.tolist()


def moved(case: Case, part: int, per_rank: bool, relayed: bool) -> list[Volume]:
    """The volumes of each rank, message by message."""
    ranks, size = case.placement.ranks, case.domain
    host = case.placement.rank_of_slot
    out, back, kept, home, away, coming, pairs_out, pairs_back = np.zeros((8, ranks), int)
    for source, slots, _ in case.sent(part):
        hosts = [int(host[slot]) for slot in slots]
        pairs_out[source] += len(hosts)
        np.add.at(pairs_back, hosts, 1)
        reached = set()
        for target in sorted(set(hosts)) if per_rank else hosts:
            via, domain = source, target // size
            if domain != source // size:
                there = [rank for rank in range(ranks) if rank // size == domain]
                via = there[source % size % len(there)] if relayed else target
                if not relayed or domain not in reached:
                    away[source] += 1
                    coming[via] += 1
                reached.add(domain)
                if not relayed:
                    continue
            out[via] += 1
            back[target] += 1
            kept[via] += relayed and via == target
            home[via] += via == target
    near, far = np.maximum(out, back), np.maximum(away, coming)
    assert away.sum() == coming.sum(), "what leaves arrives"
    assert out.sum() == back.sum(), "what is sent is received"
    return [
        Volume(near=n, crossing=n - k, far=f, handled=h, leaving=o)
        for n, k, f, h, o in zip(
            near, kept, far, np.maximum(pairs_out, pairs_back), out - home + away, strict=True
        )
    ]


@given(cases(), st.sampled_from(FORMS))
def test_counting_message_by_message_gives_the_same_volumes(
    case: Case, form: tuple[bool, bool]
) -> None:
    per_rank, relayed = form
    for part in case.parts:
        found = case.traffic(part).volumes(per_rank=per_rank, relayed=relayed)
        assert list(found) == moved(case, part, per_rank, relayed)


@given(cases())
def test_nothing_is_lost_or_sent_twice(case: Case) -> None:
    for part in case.parts:
        found = case.traffic(part)
        held = np.array([tokens[part] for tokens in case.tokens])
        kept = [len(experts) for _, _, experts in case.sent(part)]
        assert found.pairs.sum() == found.load.sum() == found.counts.sum() == sum(kept)
        assert (found.rows <= found.pairs).all()
        assert (found.rows <= held[:, None]).all()
        assert (found.visits <= held[:, None]).all()
        assert (found.visits.sum(1) <= found.rows.sum(1)).all()
        assert ((found.rows > 0) == (found.pairs > 0)).all()
        assert found.rows.sum() <= sum(min(k, found.ranks) for k in kept)
        by_host = np.bincount(case.placement.rank_of_slot, found.counts, found.ranks)
        assert found.pairs.sum(0).tolist() == by_host.tolist()


@given(cases())
def test_parts_of_a_batch_add_up_to_the_whole(case: Case) -> None:
    whole = case.traffic(0, [[sum(tokens)] for tokens in case.tokens])
    parts = [case.traffic(part) for part in case.parts]
    for name in ("counts", "load", "pairs", "rows", "visits", "tokens"):
        total = sum(getattr(part, name) for part in parts)
        assert np.array_equal(total, getattr(whole, name)), name


@given(cases(), st.sampled_from(FORMS))
def test_one_domain_has_nothing_far_and_relays_nothing(case: Case, form: tuple[bool, bool]) -> None:
    per_rank, relayed = form
    case.domain = case.placement.ranks
    found = case.traffic(0)
    sent = found.copies(per_rank=per_rank)
    for rank, volume in enumerate(found.volumes(per_rank=per_rank, relayed=relayed)):
        assert volume.near == max(sent[rank].sum(), sent[:, rank].sum())
        assert volume.near >= volume.crossing
        assert volume.far == 0
        if relayed:
            assert volume.near - volume.crossing == sent[rank, rank]


@given(cases(), st.booleans())
def test_combine_mirrors_dispatch(case: Case, per_rank: bool) -> None:
    """The way back has the same volumes: rows by host become rows by source."""
    found = case.traffic(0)
    back = replace(found, pairs=found.pairs.T, rows=found.rows.T)
    volumes = [some.volumes(per_rank=per_rank, relayed=False) for some in (found, back)]
    there, here = (sum(volume.leaving for volume in way) for way in volumes)
    assert there == here, "what leaves in dispatch leaves in combine"
    first, second = ([replace(volume, leaving=0) for volume in way] for way in volumes)
    assert first == second


def net(experts: int, top_k: int, routing: str = "uniform", **router: int) -> MoE:
    return MoE(width=1, experts=experts, top_k=top_k, routing=routing, router=Router(**router))


@pytest.mark.parametrize(
    ("experts", "top_k", "ranks", "domain"),
    [(256, 8, 8, 8), (256, 8, 32, 8), (8, 2, 8, 4), (64, 6, 4, 2), (60, 4, 12, 5), (128, 1, 16, 8)],
)
def test_uniform_routing_reaches_as_many_ranks_as_hypergeometric_chances_say(
    experts: int, top_k: int, ranks: int, domain: int
) -> None:
    """A rank with E/R of E experts is missed with probability C(E - E/R, k) / C(E, k)."""
    each = 512
    found = traffic(
        draw(net(experts, top_k), each * ranks, np.random.default_rng(7)),
        place(experts, ranks),
        [(each,)] * ranks,
        domain=domain,
    )

    def expected(held: int) -> float:
        return 1 - comb(experts - held, top_k) / comb(experts, top_k)

    tokens = each * ranks
    hit = expected(experts // ranks)
    # Whether a token reaches one rank and another is correlated negatively, so the variance of
    # the sum is at most the sum of the variances.
    assert found.rows.sum() == pytest.approx(
        tokens * ranks * hit, abs=5 * sqrt(tokens * ranks * hit * (1 - hit)) + 1e-9
    )
    sizes = [min(domain, ranks - first) for first in range(0, ranks, domain)]
    chances = [expected(size * experts // ranks) for size in sizes]
    for domain_rows, chance in zip(found.visits.sum(0), chances, strict=True):
        spread = 5 * sqrt(tokens * chance * (1 - chance)) + 1e-9
        assert domain_rows == pytest.approx(tokens * chance, abs=spread)
    assert found.pairs.sum() == tokens * top_k


def test_groups_limit_the_nodes_that_a_token_visits() -> None:
    """DeepSeek-V3: each token goes to at most 4 of 8 nodes (arXiv 2412.19437, 2.1.2)."""
    limited, free = (
        traffic(
            draw(net(256, 8, "logits", **router), 256, np.random.default_rng(1)),
            place(256, 64),
            [(4,)] * 64,
            domain=8,
        )
        for router in ({"groups": 8, "top_groups": 4}, {})
    )
    assert (limited.visits.sum(1) <= 4 * 4).all()
    assert free.visits.sum() > 4 * 256
    sent = sum(v.far for v in limited.volumes(per_rank=True, relayed=True))
    straight = sum(v.far for v in limited.volumes(per_rank=True, relayed=False))
    assert sent < straight


def test_shares_are_even_and_add_up() -> None:
    for amount in range(20):
        for ranks in range(1, 7):
            parts = shares(amount, ranks)
            assert len(parts) == ranks
            assert sum(parts) == amount
            assert max(parts) - min(parts) <= 1
            assert list(parts) == sorted(parts, reverse=True)


@given(cases(), st.sampled_from(FORMS))
def test_even_volumes_keep_what_is_sent_up_to_rounding(case: Case, form: tuple[bool, bool]) -> None:
    """Evened ranks send as much in all as the real ones do, and get as much as they send."""
    per_rank, relayed = form
    found = case.traffic(0)
    real, even = (
        found.volumes(per_rank=per_rank, relayed=relayed, even=evenly) for evenly in (False, True)
    )
    assert len(set(even)) == 1
    assert abs(sum(v.leaving for v in real) - sum(v.leaving for v in even)) <= len(real)
    for name in Volume.__slots__:
        assert getattr(even[0], name) <= max(getattr(volume, name) for volume in real)
