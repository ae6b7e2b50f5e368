"""Collectives on shared tiers, against arithmetic and against their own prices."""

from __future__ import annotations

from collections.abc import Generator
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simpy import Environment, Event, Timeout

from simulator.check.targets import target_of
from simulator.costs.collective import rates_of
from simulator.engine.links import LinkSet
from simulator.ops.collective import Collective
from simulator.tables.alone import collective

RATES = {"scale_up": 400e9, "scale_out": 50e9}
Started = tuple[float, dict[str, float], float, dict[str, float]]


def play(*started: Started, rates: dict[str, float] = RATES) -> tuple[list[float], LinkSet]:
    """When collectives of (begin, bytes by tier, latency, caps) end, and their links."""
    env = Environment()
    links = LinkSet(env, rates)
    ends = [inf] * len(started)

    def begin(at: int) -> None:
        _, sizes, latency, caps = started[at]

        def ended(_: object) -> None:
            ends[at] = env.now

        links.start(sizes, latency, caps).callbacks.append(ended)

    for at, (when, *_) in enumerate(started):
        Timeout(env, when).callbacks.append(lambda _, at=at: begin(at))
    env.run()
    return ends, links


@pytest.mark.parametrize("algorithm", ["all_reduce", "all_gather", "alltoall", "send_recv"])
@pytest.mark.parametrize("device", ["h100", "mi300x", "h100-pair", "b300"])
@pytest.mark.parametrize(("ranks", "stride"), [(2, 1), (8, 1), (16, 1), (8, 8)])
def test_a_lone_collective_takes_its_price(
    algorithm: str, device: str, ranks: int, stride: int
) -> None:
    target = target_of(device)
    for message in (1e3, 1e6, 1e9):
        op = Collective(name="x", algorithm=algorithm, ranks=ranks, stride=stride, message=message)
        way, fitted = collective(op, target)
        sizes = {tier: leg.bytes for tier, leg in way.legs.items()}
        caps = {tier: leg.rate for tier, leg in way.legs.items()}
        (end,), _ = play((0.0, sizes, way.latency, caps), rates=rates_of(target))
        assert end == pytest.approx(way.seconds, rel=1e-9)
        if fitted is not None:
            assert end == pytest.approx(fitted.seconds, rel=1e-9)


def test_two_at_once_on_one_tier_take_the_sum_of_their_bytes() -> None:
    ends, links = play((0, {"scale_up": 4e9}, 0, {}), (0, {"scale_up": 4e9}, 0, {}))
    assert ends == pytest.approx([8e9 / 400e9] * 2)
    assert links.pipes["scale_up"].busy == pytest.approx(8e9 / 400e9)


def test_two_of_unlike_size_share_until_the_smaller_is_done() -> None:
    ends, _ = play((0, {"scale_out": 1e9}, 0, {}), (0, {"scale_out": 3e9}, 0, {}))
    assert ends == pytest.approx([2e9 / 50e9, 4e9 / 50e9])


def test_different_tiers_overlap_fully() -> None:
    ends, _ = play((0, {"scale_up": 4e9}, 1e-6, {}), (0, {"scale_out": 1e9}, 1e-6, {}))
    assert ends == pytest.approx([1e-6 + 4 / 400, 1e-6 + 1 / 50])


def test_both_tiers_of_one_collective_work_side_by_side() -> None:
    (end,), _ = play((0, {"scale_up": 4e9, "scale_out": 1e9}, 5e-6, {}))
    assert end == pytest.approx(5e-6 + max(4 / 400, 1 / 50))


def test_an_overlapped_collective_shows_only_what_sticks_out() -> None:
    """A gradient reduction of 20 ms behind 15 ms of computing is waited for 5 ms."""
    env = Environment()
    links = LinkSet(env, RATES)
    waited: list[float] = []

    def rank() -> Generator[Event]:
        reduced = links.start({"scale_out": 1e9})
        yield Timeout(env, 15e-3)
        computed = env.now
        yield reduced
        waited.append(env.now - computed)

    env.process(rank())
    env.run()
    assert waited == pytest.approx([5e-3])


def test_capped_collectives_contend_only_where_they_fill_the_tier() -> None:
    """Two pairs of a mesh use a link each; six flows at a fifth fill what five would."""
    fifth = {"scale_up": 80e9}
    alone = 1e9 / 80e9
    ends, _ = play(*[(0, {"scale_up": 1e9}, 0, fifth)] * 5)
    assert ends == pytest.approx([alone] * 5)
    ends, _ = play(*[(0, {"scale_up": 1e9}, 0, fifth)] * 6)
    assert ends == pytest.approx([alone * 6 / 5] * 6)


def test_a_collective_without_bytes_is_its_latency() -> None:
    ends, _ = play((1e-3, {}, 7e-6, {}), (1e-3, {"scale_up": 0.0}, 7e-6, {}))
    assert ends == pytest.approx([1e-3 + 7e-6] * 2)


@settings(max_examples=60, deadline=None)
@given(
    started=st.lists(
        st.tuples(
            st.floats(0, 1e-2),
            st.dictionaries(st.sampled_from(tuple(RATES)), st.floats(1e3, 1e9)),
            st.floats(0, 1e-4),
            st.dictionaries(st.sampled_from(tuple(RATES)), st.floats(1e9, 1e12)),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_bytes_are_conserved_and_nobody_beats_the_links(started: list[Started]) -> None:
    ends, links = play(*started)
    for tier, rate in RATES.items():
        total = sum(sizes.get(tier, 0.0) for _, sizes, _, _ in started)
        assert links.carried[tier] == pytest.approx(total)
        assert links.started[tier] == pytest.approx(total)
        assert links.pipes[tier].busy * rate >= total * (1 - 1e-9)
    for end, (begin, sizes, latency, caps) in zip(ends, started, strict=True):
        alone = max(
            (size / min(RATES[tier], caps.get(tier, inf)) for tier, size in sizes.items()),
            default=0.0,
        )
        assert end >= (begin + latency + alone) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("sizes", "latency", "caps", "told"),
    [
        ({"scale_in": 1.0}, 0.0, {}, "no tier 'scale_in'; there are scale_up, scale_out"),
        ({"scale_up": -1.0}, 0.0, {}, "-1.0 bytes"),
        ({"scale_up": inf}, 0.0, {}, "inf bytes"),
        ({"scale_up": 1.0}, -1.0, {}, "the latency is -1.0"),
        ({"scale_up": 1.0}, 0.0, {"scale_up": 0.0}, "at 0.0 B/s"),
    ],
)
def test_what_no_link_carries_is_refused(
    sizes: dict[str, float], latency: float, caps: dict[str, float], told: str
) -> None:
    links = LinkSet(Environment(), RATES)
    with pytest.raises(ValueError, match=told):
        links.start(sizes, latency, caps)
    with pytest.raises(ValueError, match="a rate of 0"):
        LinkSet(Environment(), {"scale_up": 0})
