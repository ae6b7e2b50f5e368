"""What prices of collectives must obey on any fabric, and how far they are from silicon."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.check.measured import data_folder, medians
from simulator.check.refit import judge
from simulator.check.targets import target_of
from simulator.costs.fabric import fabric
from simulator.costs.families.collective import MODEL, OPS
from simulator.costs.families.library import values_for
from simulator.costs.families.model import Query, Values
from simulator.costs.families.residual import residual_of
from simulator.costs.target import Target
from simulator.errors import InputError
from simulator.specs.hardware import Link
from simulator.specs.load import load_fit, load_system, names
from simulator.tables.predict import predict_query

FIT = load_fit("collective")
DEVICES = (
    "a100", "h100", "b200", "gb200", "rtx-pro-6000", "l40s", "h100-pair", "mi300x", "mi455x", "b60",
)  # fmt: skip
MIB = 2.0**20


def query(op: str, size: object, n: object = 8.0, **more: object) -> Query:
    names = {"dtype": "fp16", "source": "", "framework": "operator"}
    names |= {key: str(more.pop(key)) for key in tuple(more) if key in names}
    given = {"message_bytes": size, "n_gpus": n, **more}
    columns = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in given.values()))
    sizes = {name: np.atleast_1d(column) for name, column in zip(given, columns, strict=True)}
    return Query(op=op, **names, sizes=sizes)


def microseconds(device: str, asked: Query) -> np.ndarray:
    return predict_query(asked, target_of(device)).seconds * 1e6


def reached(device: str, n: float, nodes: float = -1) -> tuple[float, float]:
    links = fabric(target_of(device), np.array([n]), np.array([nodes]))
    return float(links.ring[0]), float(links.direct[0])


def test_a_mesh_gives_two_devices_one_link_of_seven() -> None:
    assert reached("mi300x", 2)[0] == pytest.approx(reached("mi300x", 8)[0] / 7)


def test_a_switch_gives_every_group_the_whole_link() -> None:
    assert reached("b200", 2) == pytest.approx(reached("b200", 8))
    assert reached("mi455x", 2) == pytest.approx(reached("mi455x", 72))


def test_two_bridged_pairs_are_as_fast_as_the_host_link_between_them() -> None:
    host = target_of("h100-pair").accelerator.host
    assert host is not None
    assert reached("h100-pair", 4)[0] == pytest.approx(host.bandwidth * (host.achieved or 1))


def test_boards_leave_their_node_and_a_rack_does_not() -> None:
    nic = target_of("h100").accelerator.scale_out
    assert nic is not None
    rate = nic.bandwidth * (nic.achieved or 1)
    assert reached("h100", 16, 2)[0] == pytest.approx(min(8 * rate, reached("h100", 8)[0]))
    # 8 of 15 peers are remote.
    assert reached("h100", 16, 2)[1] == pytest.approx(rate * 15 / 8)
    assert reached("gb200", 16, 4) == pytest.approx(reached("gb200", 4))


@pytest.mark.parametrize("name", names("systems"))
def test_a_link_says_what_the_system_around_it_says(name: str) -> None:
    system = load_system(name)
    for entry in system.accelerators:
        link = target_of(entry).accelerator.scale_up
        assert link is not None
        assert link.peers == system.scale_up.devices, entry
        assert link.reduces == system.scale_up.in_network_reduction, entry


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op", OPS)
def test_no_collective_beats_the_wire(device: str, op: str) -> None:
    """Bytes that must leave one device, at the data-sheet rate of its link."""
    n = 2.0 if op == "send_recv" or device == "h100-pair" else 8.0
    size = 2.0 ** np.arange(8, 31)
    # A switch that adds takes each message once.
    share = 1.0 if op.startswith(("all_reduce", "send")) else (n - 1) / n
    link = target_of(device).accelerator.scale_up
    assert link is not None
    rate = link.bandwidth * ((n - 1) / link.links if link.kind == "xgmi" and n < 8 else 1)
    assert (microseconds(device, query(op, size, n)) * 1e-6 >= 0.99 * size * share / rate).all()


@pytest.mark.parametrize("device", names("hardware"))
def test_every_device_answers_every_collective(device: str) -> None:
    for op in OPS:
        found = microseconds(device, query(op, [1024.0, MIB, 256 * MIB], 4.0))
        assert np.isfinite(found).all()
        assert (found > 0.5).all()
        assert (np.diff(found) > 0).all()


@st.composite
def shapes(draw: st.DrawFn) -> Query:
    def column(*values: float) -> list[float]:
        return draw(st.lists(st.sampled_from(values), min_size=8, max_size=8))

    return query(
        draw(st.sampled_from(OPS)),
        column(256.0, 3000.0, 2.0**16, MIB, 10 * MIB, 600 * MIB),
        column(2, 3, 4, 8, 16, 64),
        nodes=column(-1, 1, 2),
        dtype=draw(st.sampled_from(("fp16", "int8"))),
        source=draw(st.sampled_from(("", "aiconfigurator", "vidur"))),
    )


@st.composite
def constants(draw: st.DrawFn) -> Values:
    """Fitted ones, or any that the priors leave room for."""
    known = FIT.libraries[draw(st.sampled_from(tuple(FIT.libraries)))]
    special = draw(st.sampled_from([{}, *known.by_generation.values()]))
    found = {**FIT.shared, **known.values, **special}
    if draw(st.booleans()):
        for name, prior in (*MODEL.own.items(), *MODEL.shared.items()):
            off = draw(st.floats(-2, 2)) * prior.spread
            found[name] = float(np.clip(prior.value * np.exp(off), prior.low, prior.high))
    return found


def faster(target: Target, what: str, factor: float) -> Target:
    device = target.accelerator

    def link(one: Link | None) -> Link | None:
        return None if one is None else replace(one, bandwidth=one.bandwidth * factor)

    if what in ("units", "clock"):
        value = getattr(device.compute, what) * factor
        compute = replace(device.compute, **{what: int(value) if what == "units" else value})
        return replace(target, accelerator=replace(device, compute=compute))
    changed = {what: link(getattr(device, what))}
    return replace(target, accelerator=replace(device, **changed))


@settings(max_examples=150, deadline=None)
@given(
    asked=shapes(),
    values=constants(),
    device=st.sampled_from(DEVICES),
    what=st.sampled_from(("scale_up", "scale_out", "host", "units", "clock")),
    factor=st.floats(1.0, 8.0),
)
def test_faster_links_units_and_clocks_never_take_longer(
    asked: Query, values: Values, device: str, what: str, factor: float
) -> None:
    target = target_of(device)
    before = MODEL.seconds(asked, target, values).seconds
    after = MODEL.seconds(asked, faster(target, what, factor), values).seconds
    assert (after <= before * (1 + 1e-12)).all()
    assert np.isfinite(before).all()


def test_a_ring_of_a_large_message_is_bandwidth_alone() -> None:
    """All-gather moves (n - 1)/n of the buffer, reduce-scatter too, all-reduce both."""
    target = target_of("a100")
    values = dict(values_for(FIT, "nccl", target.stack))
    values |= {"copy": 1e-9, "add": 1e-9, "add_copy": 1e-9, "simple": 1.0}
    size, n = 2.0**40, 8.0
    link = target.accelerator.scale_up
    assert link is not None
    once = size * (n - 1) / n / (link.bandwidth * (link.achieved or 1))
    for op, passes in (("all_gather", 1), ("reduce_scatter", 1), ("all_reduce", 2)):
        terms = MODEL.seconds(query(op, size, n), target, values)
        assert terms.seconds[0] == pytest.approx(passes * once, rel=1e-3)


def test_a_switch_adds_floating_point_and_not_bytes() -> None:
    size = 512 * MIB
    half, whole = (
        microseconds("h100", query("all_reduce", size, dtype=dtype, framework="nccl"))[0]
        for dtype in ("fp16", "int8")
    )
    assert half < 0.9 * whole


def test_a_row_of_two_campaigns_lies_between_them() -> None:
    size = 2.0 ** np.arange(10, 28)
    one, other, both = (
        MODEL.seconds(
            query("all_reduce", size, source=source), target_of("a100"),
            values_for(FIT, "nccl", target_of("a100").stack),
        ).seconds
        for source in ("aiconfigurator", "vidur", "aiconfigurator+vidur")
    )  # fmt: skip
    assert ((np.minimum(one, other) <= both) & (both <= np.maximum(one, other))).all()


def test_a_small_all_reduce_on_eight_mi300x_takes_what_was_published() -> None:
    """13 us on a stream and 6 to 7.5 us in a graph."""
    stream = query("all_reduce", 1024.0, source="aiconfigurator", framework="rccl")
    assert microseconds("mi300x", stream)[0] == pytest.approx(13, rel=0.25)
    assert 4.5 < microseconds("mi300x", query("all_reduce", 1024.0, framework="rccl"))[0] < 9


def test_a_large_all_reduce_on_eight_mi300x_reaches_the_published_bus_rate() -> None:
    """310 to 330 GB/s over seven links."""
    size = 2.0**30
    time = microseconds("mi300x", query("all_reduce", size, framework="rccl"))[0]
    assert size * 2 * 7 / 8 / time / 1e3 == pytest.approx(320, rel=0.1)


def test_a_rack_of_72_grows_with_its_depth_not_its_length() -> None:
    """Small messages go through a tree; large ones keep most of the link that was measured."""
    small = microseconds("mi455x", query("all_reduce", 1024.0, [8.0, 72.0]))
    assert small[1] < 3 * small[0]
    size = 2.0**32
    time = microseconds("mi455x", query("all_reduce", size, 72.0))[0]
    assert 0.75 * 1645 < size * 2 * 71 / 72 / time / 1e3 < 1645


def data() -> bool:
    try:
        data_folder()
    except InputError:
        return False
    return True


@pytest.mark.data
@pytest.mark.skipif(not data(), reason="needs the calibration data")
@pytest.mark.parametrize(
    ("ops", "limit"),
    [
        (("all_gather",), 8),
        (("reduce_scatter",), 8),
        (("alltoall",), 11),
        (("all_reduce",), 12),
        (("send_recv",), 12),
        (("all_reduce_custom",), 7),
    ],
)
def test_held_back_shapes_are_met(ops: tuple[str, ...], limit: float) -> None:
    """Mean over devices of the mean error, percent."""
    found = judge(FIT, residual_of("collective"), medians(ops=ops))
    pools: dict[str, list[np.ndarray]] = {}
    for one in found:
        pools.setdefault(one.device, []).append(np.abs(one.predicted / one.measured - 1))
    errors = [np.concatenate(pool).mean() for pool in pools.values()]
    assert 100 * np.mean(errors) < limit
