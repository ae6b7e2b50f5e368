"""Topologies against routed traffic on drawn graphs, and what a system makes of an accelerator."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.check.targets import target_of
from simulator.costs.fabric import Fabric, fabric, tiers
from simulator.costs.target import Target
from simulator.errors import SpecError, UnknownNameError
from simulator.specs.fabric import Domain, Host, System, losses, placed
from simulator.specs.hardware import Link
from simulator.specs.load import default_system, load_hardware, load_system, names

GROUPS = np.array([2.0, 3, 4, 8, 16, 32, 72, 128, 1024])
UNKNOWN = np.full(GROUPS.shape, -1.0)
GENERIC = ("mesh-8", "switch-8", "switch-72", "ring-8", "pcie-8", "rails-8")


def on(device: str, system: System | str) -> Target:
    target = target_of(device)
    place = load_system(system) if isinstance(system, str) else system
    return replace(target, accelerator=placed(target.accelerator, place))


def group(target: Target, n: float, stride: float = 1) -> Fabric:
    return fabric(target, np.array([n]), np.array([-1.0]), np.array([stride]))


def box(devices: int, topology: str, **more: object) -> System:
    return System(name="box", scale_up=Domain(devices=devices, topology=topology), **more)  # type: ignore[arg-type]


def all_to_all_seconds(paths: dict[tuple[int, int], list[list[int]]], rate: float) -> float:
    """Seconds of one byte from each to each, over links of ``rate``, each path its equal share."""
    load: Counter[tuple[int, int]] = Counter()
    for routes in paths.values():
        for route in routes:
            for hop in pairwise(route):
                load[hop] += 1 / len(routes)
    return max(load.values()) / rate


def ring_routes(devices: int, members: list[int]) -> dict[tuple[int, int], list[list[int]]]:
    """Shortest ways around a ring, both where they are equal; a part of it has no way around."""
    found = {}
    whole = len(members) == devices
    for a, b in permutations(members, 2):
        right = [(a + i) % devices for i in range((b - a) % devices + 1)]
        left = [(a - i) % devices for i in range((a - b) % devices + 1)]
        if not whole:
            found[a, b] = [right if b > a else left]
        else:
            short = min(len(right), len(left))
            found[a, b] = [way for way in (right, left) if len(way) == short]
    return found


@pytest.mark.parametrize(("devices", "size"), [(8, 8), (8, 4), (8, 3), (8, 2), (16, 16), (7, 5)])
def test_all_to_all_on_a_ring_waits_for_its_fullest_link(devices: int, size: int) -> None:
    target = on("mi300x", box(devices, "ring"))
    rate = tiers(target)[0] / 2
    routed = all_to_all_seconds(ring_routes(devices, list(range(size))), rate)
    assert (size - 1) / float(group(target, size).inside[0]) == pytest.approx(routed)


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_all_to_all_on_a_mesh_has_one_link_for_each_pair(size: int) -> None:
    target = on("h100", "mesh-8")
    routes = {(a, b): [[a, b]] for a, b in permutations(range(size), 2)}
    routed = all_to_all_seconds(routes, tiers(target)[0] / 7)
    assert (size - 1) / float(group(target, size).inside[0]) == pytest.approx(routed)


@pytest.mark.parametrize("size", [3, 4, 8])
def test_a_mesh_with_a_link_lost_routes_its_pair_over_the_others(size: int) -> None:
    system = replace(load_system("mesh-8"), links_lost=1)
    target = on("h100", system)
    routes = {(a, b): [[a, b]] for a, b in permutations(range(size), 2)}
    for a, b in ((0, 1), (1, 0)):
        routes[a, b] = [[a, over, b] for over in range(2, size)]
    routed = all_to_all_seconds(routes, tiers(target)[0] / 7)
    found = (size - 1) / float(group(target, size).inside[0])
    assert found >= routed * (1 - 1e-9)
    assert found == pytest.approx(routed, rel=0.04)


def test_a_pair_has_what_its_topology_gives_it() -> None:
    """A link of seven, half a ring, all of a switch, and the link to the host."""
    whole = tiers(target_of("mi300x"))[0]
    shares = {
        name: float(group(on("mi300x", name), 2).inside[0]) / whole
        for name in ("mesh-8", "ring-8", "switch-8")
    }
    assert shares == pytest.approx({"mesh-8": 1 / 7, "ring-8": 1 / 2, "switch-8": 1})
    assert float(group(on("mi300x", "pcie-8"), 2).inside[0]) == 64e9


def test_boards_of_a_pcie_tree_share_when_more_than_two_send() -> None:
    target = on("h100", "pcie-8")
    two, eight = (float(group(target, n).inside[0]) for n in (2, 8))
    assert eight == pytest.approx(0.52 * two)


def test_ranks_far_apart_share_the_links_of_a_ring_with_the_groups_between() -> None:
    target = on("mi300x", "ring-8")
    chain = float(group(target, 8).chain[0])
    assert float(group(target, 4).chain[0]) == pytest.approx(chain / 2)
    assert float(group(target, 4, 2).chain[0]) == pytest.approx(chain / 2)
    assert float(group(target, 2, 2).chain[0]) == pytest.approx(chain / 4)


@pytest.mark.parametrize(
    ("ranks", "stride", "islands"), [(8, 1, 1), (8, 8, 8), (16, 4, 8), (16, 2, 4), (4, 2, 1)]
)
def test_the_stride_says_how_many_ranks_share_a_domain(
    ranks: int, stride: int, islands: int
) -> None:
    members = {rank * stride // 8 for rank in range(ranks)}
    links = group(target_of("h100"), ranks, stride)
    assert float(links.islands[0]) == len(members) == islands
    assert float(links.size[0]) == ranks / islands


def test_rails_make_cross_rank_traffic_cross_its_own_domain() -> None:
    flat, rails = on("h100", "switch-8"), on("h100", "rails-8")
    assert float(group(rails, 16, 8).direct[0]) == float(group(flat, 16, 8).direct[0])
    # Seven of the fifteen others are near; of the other eight, seven go through another rank.
    slow = replace(flat.accelerator, scale_up=Link(kind="nvlink", bandwidth=60e9, peers=8))
    on_flat = replace(flat, accelerator=slow)
    out = replace(rails.accelerator.scale_out or Link(kind="ethernet", bandwidth=1.0))
    on_rails = replace(rails, accelerator=replace(slow, scale_out=out))
    assert float(group(on_flat, 16).direct[0]) == pytest.approx(50e9 * 0.97 * 15 / 8)
    assert float(group(on_rails, 16).direct[0]) == pytest.approx(60e9 * 15 / 14)


@pytest.mark.parametrize("device", names("hardware"))
def test_a_device_keeps_its_links_in_the_system_that_it_is_sold_with(device: str) -> None:
    target = target_of(device)
    system = default_system(target.accelerator)
    if system is None:
        assert device in ("epyc-9575f", "mi430x")
        return
    before = fabric(target, GROUPS, UNKNOWN)
    home = replace(target, accelerator=placed(target.accelerator, system))
    after = fabric(home, GROUPS, UNKNOWN)
    out, given = target.accelerator.scale_out, set[str]()
    if system.nic is not None:  # what the device does not state, its system does
        given |= {"outside"} if out is None else set()
        given |= {"far_step"} if out is None or out.latency is None else set()
    for entry in fields(Fabric):
        left, right = getattr(before, entry.name), getattr(after, entry.name)
        assert entry.name in given or np.array_equal(left, right), entry.name


@pytest.mark.parametrize("device", names("hardware"))
@pytest.mark.parametrize("system", names("systems"))
def test_every_accelerator_can_stand_in_every_system(device: str, system: str) -> None:
    links = fabric(on(device, system), GROUPS, UNKNOWN)
    for rate in (links.inside, links.chain, links.outside, links.ring, links.direct):
        assert (rate > 0).all()
    size = load_system(system).scale_up.devices
    assert (links.islands[size >= GROUPS] == 1).all()


def test_nics_of_a_system_replace_the_network_of_a_device() -> None:
    four_of_eight = replace(load_system("hgx-8"), nics_per_accelerator=0.5)
    assert tiers(on("h100", four_of_eight))[1] == pytest.approx(0.5 * tiers(target_of("h100"))[1])
    two = replace(load_system("helios-72"), nics_per_accelerator=2.0)
    assert tiers(on("mi455x", two))[1] == pytest.approx(tiers(target_of("mi455x"))[1] * 2 / 3)
    assert tiers(on("mi455x", "rails-8"))[1] == pytest.approx(tiers(target_of("mi455x"))[1] / 3)


def test_what_a_system_says_of_its_nic_holds() -> None:
    system = load_system("hgx-8")
    assert system.nic is not None
    stated = replace(system, nic=replace(system.nic, latency=1e-6, achieved=0.5))
    silent = replace(system, nic=replace(system.nic, latency=None, achieved=None))
    assert tiers(on("h100", stated))[1] == 25e9
    assert group(on("h100", stated), 16).far_step == 1e-6
    assert tiers(on("h100", silent)) == tiers(target_of("h100"))
    assert group(on("h100", silent), 16).far_step == group(target_of("h100"), 16).far_step


def test_placing_says_where_the_numbers_come_from() -> None:
    system = load_system("nvl72")
    device = placed(load_hardware("mi300x"), system)
    sources = {entry.path: entry.source for entry in device.provenance}
    own = {entry.path: entry.source for entry in system.provenance}
    assert sources["scale_up.peers"] == own["scale_up.devices"]
    assert sources["scale_up.bandwidth"] != own["scale_up.devices"]


@pytest.mark.parametrize(
    ("device", "system", "lost", "left"),
    [
        ("mi455x", "helios-72", {"planes_lost": 1}, 11 / 12),
        ("h100", "hgx-8", {"planes_lost": 2}, 1 / 2),
        ("h100", "hgx-8", {"links_lost": 1}, 17 / 18),
        ("mi300x", "mi300x-8", {"links_lost": 1}, 6 / 7),
        ("mi300x", "ring-8", {"links_lost": 1}, 1 / 4),
    ],
)
def test_what_is_lost_slows_the_domain_and_is_said(
    device: str, system: str, lost: dict[str, int], left: float
) -> None:
    whole = load_system(system)
    broken = replace(whole, **lost)  # type: ignore[arg-type]
    before, after = on(device, whole), on(device, broken)
    size = whole.scale_up.devices
    rates = (float(group(target, size).inside[0]) for target in (before, after))
    good, bad = rates
    assert bad == pytest.approx(good * left)
    assert losses(before.accelerator, whole) == ()
    (told,) = losses(load_hardware(device), broken)
    assert told.startswith(f"{next(iter(lost.values()))} of ")


def test_a_lost_nic_is_shared_out_among_its_node() -> None:
    broken = replace(load_system("hgx-8"), nics_lost=2)
    assert tiers(on("h100", broken))[1] == pytest.approx(0.75 * tiers(target_of("h100"))[1])
    assert losses(load_hardware("h100"), broken) == (
        "2 of 8 NICs of a node lost: the others are shared",
    )


def test_more_than_there_is_cannot_be_lost_and_all_faults_come_at_once() -> None:
    system = System(
        name="box",
        scale_up=Domain(devices=8, topology="mesh"),
        nics_per_accelerator=1.0,
        host=Host(accelerators=8),
        links_lost=7,
        planes_lost=1,
        nics_lost=8,
    )
    with pytest.raises(SpecError) as refusal:
        placed(load_hardware("mi300x"), system)
    assert str(refusal.value).splitlines() == [
        "box: planes_lost: 1 of 1 switch planes; leave it at 0: there is no other way",
        "box: links_lost: 7 of 7 links of a device; lose at most 6",
        "box: nics_lost: 8 of 8 NICs of a node; lose fewer than 8",
    ]


def test_an_unknown_system_is_met_with_the_near_names() -> None:
    with pytest.raises(UnknownNameError, match="did you mean mesh-8"):
        load_system("mesh8")


def test_a_device_that_no_system_lists_has_none() -> None:
    assert default_system(load_hardware("epyc-9575f")) is None
    for name in names("hardware"):
        system = default_system(load_hardware(name))
        assert system is None or name in system.accelerators


def test_a_system_of_a_file_states_topology_network_and_losses(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        "name: own\nsource: a drawing of mine\nbasis: assumed\n"
        "scale_up: {devices: 4, topology: ring}\nnetwork: rails\n"
        "nics_per_accelerator: 0.5\nlinks_lost: 1\n"
    )
    link = placed(load_hardware("h100"), load_system(path)).scale_up
    out = placed(load_hardware("h100"), load_system(path)).scale_out
    assert link is not None
    assert out is not None
    assert (link.topology, link.peers, link.lost) == ("ring", 4, 1)
    assert (out.topology, out.bandwidth) == ("rails", 25e9)


@settings(max_examples=150, deadline=None)
@given(
    device=st.sampled_from(("h100", "mi300x", "gb200", "l40s", "mi455x")),
    system=st.sampled_from(GENERIC),
    n=st.integers(2, 600),
    stride=st.integers(1, 64),
    lost=st.integers(0, 1),
    nics=st.sampled_from((0.25, 0.5, 1.0, 2.0)),
    factor=st.floats(1, 8),
)
def test_more_links_nics_or_bandwidth_never_slow_a_group(
    device: str, system: str, n: int, stride: int, lost: int, nics: float, factor: float
) -> None:
    whole = replace(load_system(system), nics_per_accelerator=nics)
    broken = replace(whole, links_lost=0 if system == "pcie-8" or device == "l40s" else lost)
    more = replace(whole, nics_per_accelerator=2 * nics)
    before, mended, richer = (on(device, place) for place in (broken, whole, more))
    link = mended.accelerator.scale_up
    assert link is not None
    fast = replace(link, bandwidth=link.bandwidth * factor)
    faster = replace(mended, accelerator=replace(mended.accelerator, scale_up=fast))
    old, *new = (group(target, n, stride) for target in (before, mended, richer, faster))
    for links in new:
        for rate in ("inside", "chain", "outside", "ring", "direct"):
            assert getattr(links, rate)[0] >= getattr(old, rate)[0] * (1 - 1e-12), rate
