"""Ways to do a collective: their bytes against counted messages, their times against bounds."""

from __future__ import annotations

from dataclasses import replace
from math import inf, log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.check.targets import target_of
from simulator.costs.collective import START, Way, fastest, rates_of, ways
from simulator.costs.target import Target
from simulator.ops.collective import Collective
from simulator.specs.fabric import placed
from simulator.specs.frozen import FrozenMap
from simulator.specs.load import load_system
from simulator.tables.alone import alone, collective, untouched

ALGORITHMS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "send_recv")
DEVICES = ("h100", "mi300x", "mi455x", "gb200", "l40s", "h100-pair", "b300", "v100")
SYSTEMS = ("mesh-8", "switch-8", "switch-72", "ring-8", "pcie-8", "rails-8", "hgx-8")


def on(device: str, system: str = "", **changed: object) -> Target:
    target = target_of(device)
    if not system:
        return target
    place = replace(load_system(system), **changed)  # type: ignore[arg-type]
    return replace(target, accelerator=placed(target.accelerator, place))


def op(algorithm: str, ranks: int, message: float, stride: int = 1) -> Collective:
    return Collective(
        name="x",
        algorithm=algorithm,  # type: ignore[arg-type]
        ranks=ranks,
        message=message,
        stride=stride,
    )


def named(asked: Collective, target: Target) -> dict[str, Way]:
    """The fastest of each name."""
    found: dict[str, Way] = {}
    for way in ways(asked, target):
        if way.algorithm not in found or way.seconds < found[way.algorithm].seconds:
            found[way.algorithm] = way
    return found


def counted_ring(ranks: int, per_domain: int, passes: int) -> tuple[int, int]:
    """Parts of a message that one rank sends in its domain and out, over all turns of the ring."""
    near = far = 0
    for turn in range(per_domain):  # each ring enters a domain at another rank
        order = [
            domain * per_domain + (turn + i) % per_domain
            for domain in range(ranks // per_domain)
            for i in range(per_domain)
        ]
        at = order.index(0)
        to = order[(at + 1) % ranks]
        leaves = to // per_domain != 0
        sends = passes * (ranks - 1)
        near, far = near + (not leaves) * sends, far + leaves * sends
    return near, far


@pytest.mark.parametrize(("algorithm", "passes"), [("all_reduce", 2), ("all_gather", 1)])
def test_a_ring_sends_what_walking_it_counts(algorithm: str, passes: int) -> None:
    ranks, size = 32, 8
    ring = named(op(algorithm, ranks, 32e6), on("h100"))["ring"]
    near, far = counted_ring(ranks, size, passes)
    part = 32e6 / ranks / size
    assert ring.legs["scale_out"].bytes == pytest.approx(far * part)
    # All that passes a rank is charged to its links inside, as each ring passes all ranks.
    assert ring.legs["scale_up"].bytes == pytest.approx((near + far) * part)


def test_a_hierarchy_sends_what_its_three_stages_send() -> None:
    m, s, i = 64e6, 8, 16
    way = named(op("all_reduce", s * i, m), on("h100"))["hierarchical"]
    inside = m * (s - 1) / s  # reduce-scatter, and all-gather again
    assert way.legs["scale_up"].bytes == pytest.approx(2 * inside)
    across = m / s
    assert across <= way.legs["scale_out"].bytes <= 2 * across


def test_names_follow_the_size_of_a_message() -> None:
    """One step first, then bandwidth: each rank reads all, then its part, then the switch adds."""
    target = replace(on("h100"), stack=replace(on("h100").stack, libraries=FrozenMap()))
    chosen = [
        collective(op("all_reduce", 8, size), target)[0].algorithm for size in (1e3, 1e6, 1e9)
    ]
    assert chosen == ["one-shot", "two-shot", "in-switch"]
    assert fastest(op("all_reduce", 8, 1e9), on("h100", "ring-8")).algorithm == "ring"
    assert fastest(op("all_reduce", 128, 1e9), on("h100")).algorithm == "hierarchical"
    assert fastest(op("all_reduce", 512, 1e4, 8), on("h100")).algorithm == "tree"
    assert fastest(op("alltoall", 8, 1e6), on("h100")).algorithm == "pairwise"
    assert fastest(op("alltoall", 16, 1e6), on("h100", "rails-8")).algorithm == (
        "hierarchical pairwise"
    )
    assert fastest(op("send_recv", 2, 1e6), on("h100")).algorithm == "direct"


def test_a_fit_names_its_ways_too() -> None:
    target = on("h100")
    found = [collective(op("all_reduce", 8, size), target) for size in (1e4, 1e6, 1e9)]
    assert [way.algorithm for way, _ in found] == ["one-shot", "two-shot", "in-switch"]
    assert [known.library for _, known in found if known] == [
        "sglang-allreduce",
        "sglang-allreduce",
        "nccl",
    ]
    assert collective(op("all_reduce", 8, 1e9), on("h100", "switch-8"))[0].algorithm == "ring"


def test_a_stack_without_a_library_is_priced_over_the_links() -> None:
    target = on("v100")
    bare = replace(target, stack=replace(target.stack, libraries=FrozenMap()))
    asked = op("all_gather", 4, 8e9)
    way, fitted = collective(asked, bare)
    assert fitted is None
    assert way == fastest(asked, bare)
    link = target.accelerator.scale_up
    assert link is not None
    rate = link.bandwidth * (link.achieved or 1) * (link.shared or 1)
    assert way.transfer == pytest.approx(6e9 / rate)


def test_latency_is_counted_in_steps() -> None:
    target = on("h100", "switch-8")
    link, nic = target.accelerator.scale_up, target.accelerator.scale_out
    assert link is not None
    assert nic is not None
    step, far = link.latency or inf, nic.latency or inf
    inside = named(op("all_reduce", 8, 0), target)
    assert inside["one-shot"].latency == pytest.approx(START + step)
    assert inside["two-shot"].latency == pytest.approx(START + 2 * step)
    assert inside["ring"].latency == pytest.approx(START + 14 * step)
    across = named(op("all_reduce", 512, 0, 8), target)
    assert across["ring"].latency == pytest.approx(START + 2 * 511 * far)
    assert across["tree"].latency == pytest.approx(START + 2 * log2(512) * far)
    wide = named(op("all_reduce", 32, 0), target)["hierarchical"]
    assert wide.latency == pytest.approx(START + 2 * step + 2 * log2(4) * far)


@pytest.mark.parametrize("device", ["h100", "mi300x", "gb200"])
@pytest.mark.parametrize("algorithm", ["all_reduce", "all_gather", "reduce_scatter"])
@settings(max_examples=40, deadline=None)
@given(
    islands=st.integers(2, 64),
    size=st.sampled_from((2, 4, 8)),
    message=st.floats(1, 1e10),
    system=st.sampled_from(("switch-8", "mesh-8", "ring-8", "rails-8")),
)
def test_a_hierarchy_is_not_slower_than_a_flat_ring(
    device: str, algorithm: str, islands: int, size: int, message: float, system: str
) -> None:
    target = on(device, system)
    found = named(op(algorithm, islands * size, message, 8 // size), target)
    assert found["hierarchical"].seconds <= found["ring"].seconds * (1 + 1e-12)


@settings(max_examples=200, deadline=None)
@given(
    algorithm=st.sampled_from(ALGORITHMS),
    device=st.sampled_from(DEVICES),
    system=st.sampled_from(SYSTEMS),
    ranks=st.integers(2, 1024),
    stride=st.sampled_from((1, 2, 8, 64)),
    message=st.floats(0, 1e10),
    tier=st.sampled_from(("scale_up", "scale_out", "host")),
    factor=st.floats(1, 10),
)
def test_faster_links_never_slow_a_collective_and_nothing_beats_the_wire(
    algorithm: str, device: str, system: str, ranks: int, stride: int, message: float,
    tier: str, factor: float,
) -> None:  # fmt: skip
    target = on(device, system)
    link = getattr(target.accelerator, tier)
    asked = op(algorithm, ranks, message, stride)
    way, fitted = collective(asked, target)
    if link is not None:
        fast = replace(link, bandwidth=link.bandwidth * factor)
        faster = replace(target, accelerator=replace(target.accelerator, **{tier: fast}))
        assert fastest(asked, faster).seconds <= fastest(asked, target).seconds * (1 + 1e-12)
        assert collective(asked, faster)[0].seconds <= way.seconds * (1 + 1e-9)
    assert 0 < way.latency < inf
    if fitted is not None:
        assert way.seconds == pytest.approx(fitted.seconds)
    rates = rates_of(target)
    for name, leg in way.legs.items():
        assert leg.rate <= rates[name] * (1 + 1e-9)
    # Of an all-reduce each rank sends its message once at least, where a switch adds.
    least = message * (1 - 1 / ranks) if algorithm != "send_recv" else message
    both = fastest(asked, target)
    assert both.transfer >= least / (sum(rates.values())) * (1 - 1e-9)


@settings(max_examples=100, deadline=None)
@given(
    algorithm=st.sampled_from(ALGORITHMS),
    device=st.sampled_from(DEVICES),
    ranks=st.sampled_from((2, 8, 16, 256)),
    stride=st.sampled_from((1, 8)),
    message=st.floats(1, 1e9),
    more=st.floats(1, 100),
)
def test_a_larger_message_never_takes_less(
    algorithm: str, device: str, ranks: int, stride: int, message: float, more: float
) -> None:
    small, large = (op(algorithm, ranks, size, stride) for size in (message, message * more))
    target = on(device)
    assert fastest(small, target).seconds <= fastest(large, target).seconds
    found = [named(small, target), named(large, target)]
    assert all(found[0][name].seconds <= found[1][name].seconds for name in found[0])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_fit_answers_every_collective_as_its_kernels_are_measured(algorithm: str) -> None:
    """At the ranks of a node a fitted time is that of the model alone, with no way on top."""
    for device in ("a100", "h100", "b200", "mi300x"):
        small, large = (
            alone(op(algorithm, 2 if algorithm == "send_recv" else 8, size), on(device))
            for size in (1e3, 1e9)
        )
        assert small is not None
        assert large is not None
        assert 2e-6 < small.seconds < 40e-6
        assert large.parts["link"] > 0.9 * large.seconds
        assert small.way
        assert large.way


def test_a_group_of_many_domains_is_not_walked_rank_by_rank() -> None:
    """A ring of 1,024 devices takes milliseconds of steps alone; two levels take a fraction."""
    target = on("h100")
    small = alone(op("all_reduce", 1024, 1e6), target)
    large = alone(op("all_reduce", 1024, 4e9), target)
    assert small is not None
    assert large is not None
    assert small.seconds < 0.5e-3
    assert small.distance == large.distance == "new"  # nobody measured it
    nics = 8 * 50e9 * 0.97
    assert large.seconds == pytest.approx(2 * 4e9 / nics, rel=0.15)


def test_the_last_rank_of_a_domain_decides_a_chain_of_stages() -> None:
    target = on("h100")
    inside, leaving = (collective(op("send_recv", ranks, 1e9, 4), target)[0] for ranks in (2, 4))
    assert set(inside.legs) == {"scale_up"}
    assert set(leaving.legs) == {"scale_out"}
    assert leaving.transfer == pytest.approx(1e9 / (50e9 * 0.97), rel=0.15)


def test_rails_send_to_another_rank_over_a_peer() -> None:
    equal = fastest(op("send_recv", 2, 1e6, 8), on("h100", "rails-8"))
    other = fastest(op("send_recv", 2, 1e6, 12), on("h100", "rails-8"))
    assert (equal.algorithm, other.algorithm) == ("direct", "direct over a peer")
    assert other.latency > equal.latency
    assert set(other.legs) == {"scale_up", "scale_out"}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("device", "system", "lost"),
    [
        ("mi300x", "mesh-8", {"links_lost": 1}),
        ("h100", "ring-8", {"links_lost": 1}),
        ("h100", "hgx-8", {"planes_lost": 1}),
        ("mi455x", "helios-72", {"planes_lost": 1}),
    ],
)
def test_a_lost_link_or_plane_slows_every_collective(
    algorithm: str, device: str, system: str, lost: dict[str, int]
) -> None:
    asked = op(algorithm, 8, 1e9)
    good, bad = on(device, system), on(device, system, **lost)
    assert collective(asked, bad)[0].seconds > 1.05 * collective(asked, good)[0].seconds
    assert fastest(asked, bad).seconds > 1.05 * fastest(asked, good).seconds


def test_a_lost_nic_slows_what_leaves_the_node() -> None:
    good, bad = on("h100", "hgx-8"), on("h100", "hgx-8", nics_lost=1)
    asked = op("alltoall", 16, 1e9)
    slower = collective(asked, bad)[0].transfer / collective(asked, good)[0].transfer
    assert slower == pytest.approx(8 / 7, rel=1e-3)
    assert untouched([op("all_reduce", 8, 1e6)], good, bad) == (
        "all_reduce among 8 ranks, 1 apart",
    )


def test_holding_a_way_keeps_its_bytes_and_takes_the_time() -> None:
    way = fastest(op("all_reduce", 32, 1e9), on("h100"))
    slow = way.held("ring", 2 * way.seconds, way.latency)
    assert slow.seconds == pytest.approx(2 * way.seconds)
    assert {k: leg.bytes for k, leg in slow.legs.items()} == {
        k: leg.bytes for k, leg in way.legs.items()
    }
    for seconds, latency in ((way.transfer / 2, 1e-6), (way.seconds, way.seconds), (1e-6, 5e-6)):
        held = way.held("tree", seconds, latency)
        assert held.seconds == pytest.approx(seconds)
        assert held.latency >= 0
        assert all(leg.rate <= way.legs[tier].rate for tier, leg in held.legs.items())


@pytest.mark.parametrize("device", ["mi430x", "epyc-9575f"])
def test_a_device_that_no_system_lists_uses_its_own_links(device: str) -> None:
    asked, target = op("all_gather", 8, 8e9), target_of(device)
    assert fastest(asked, target).transfer == pytest.approx(7e9 / rates_of(target)["scale_up"])
