"""What prices of dispatch and combine must obey on any fabric, and their distance from silicon."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.check.measured import data_folder, medians
from simulator.check.refit import judge
from simulator.check.targets import target_of
from simulator.costs.families.model import Query, Values
from simulator.costs.families.moe_comm import MODEL, OPS
from simulator.costs.families.residual import residual_of
from simulator.costs.target import Target
from simulator.errors import InputError
from simulator.specs.load import load_fit, names
from simulator.tables.predict import predict_query

FIT = load_fit("moe_comm")
DEVICES = ("h100", "h800", "b200", "gb200", "rtx-pro-6000", "mi300x", "mi355x", "mi455x")


def query(op: str, dtype: str = "default", framework: str = "operator", **sizes: object) -> Query:
    """DeepSeek-V3's layer, but for what is given."""
    given = {"tokens": 128, "hidden": 7168, "topk": 8, "experts": 256, "n_gpus": 8, "nodes": -1}
    given = {**given, "sms": 0, **sizes}
    columns = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in given.values()))
    rows = {name: np.atleast_1d(column) for name, column in zip(given, columns, strict=True)}
    return Query(op=op, dtype=dtype, framework=framework, sizes=rows)


def microseconds(device: str, op: str, **sizes: object) -> np.ndarray:
    return predict_query(query(op, **sizes), target_of(device)).seconds * 1e6


def gigabytes(device: str, way: str, ranks: int, tokens: int, sms: int) -> float:
    """GB/s as the libraries state it: a copy for each rank that holds one of the experts."""
    time = microseconds(
        device, f"moe_{way}_ht", tokens=tokens, n_gpus=ranks, nodes=max(1, ranks // 8), sms=sms
    )[0]
    width = {"dispatch": 33 / 32, "combine": 2.0}[way]
    return tokens * 7168 * width * ranks * (1 - (1 - 1 / ranks) ** 8) / time / 1e3


@pytest.mark.parametrize("device", names("hardware"))
def test_every_device_answers_every_form(device: str) -> None:
    for op in OPS:
        found = microseconds(device, op, tokens=[1, 128, 4096], n_gpus=4)
        assert np.isfinite(found).all()
        assert (found > 1).all()
        assert (np.diff(found) > 0).all()


@st.composite
def shapes(draw: st.DrawFn) -> Query:
    def column(*values: float) -> list[float]:
        return draw(st.lists(st.sampled_from(values), min_size=8, max_size=8))

    return query(
        draw(st.sampled_from(OPS)),
        draw(st.sampled_from(("default", "bf16", "nvfp4"))),
        tokens=column(1, 17, 256, 5000, 100000), hidden=column(512, 4096, 7168),
        topk=column(1, 4, 8), experts=column(8, 60, 256), n_gpus=column(2, 4, 8, 16, 64),
        nodes=column(-1, 1, 2), sms=column(0, 4, 20, 500),
    )  # fmt: skip


@st.composite
def constants(draw: st.DrawFn) -> Values:
    """Fitted ones, or any that the priors leave room for."""
    known = FIT.libraries[draw(st.sampled_from(tuple(FIT.libraries)))]
    special = draw(st.sampled_from([{}, *known.by_generation.values()]))
    found = {**known.values, **special}
    if draw(st.booleans()):
        for name, prior in MODEL.own.items():
            off = draw(st.floats(-2, 2)) * prior.spread
            found[name] = float(np.clip(prior.value * np.exp(off), prior.low, prior.high))
        found["merge"] = draw(st.floats(0.001, 1))
    return found


def faster(target: Target, what: str, factor: float) -> Target:
    device = target.accelerator
    if what == "units":
        compute = replace(device.compute, units=int(device.compute.units * factor))
        return replace(target, accelerator=replace(device, compute=compute))
    if what == "clock":
        compute = replace(device.compute, clock=device.compute.clock * factor)
        return replace(target, accelerator=replace(device, compute=compute))
    if what == "memory":
        memory = tuple(
            one if one.bandwidth is None else replace(one, bandwidth=one.bandwidth * factor)
            for one in device.memory
        )
        return replace(target, accelerator=replace(device, memory=memory))
    link = getattr(device, what)
    changed = {what: None if link is None else replace(link, bandwidth=link.bandwidth * factor)}
    return replace(target, accelerator=replace(device, **changed))


@settings(max_examples=150, deadline=None)
@given(
    asked=shapes(),
    values=constants(),
    device=st.sampled_from(DEVICES),
    what=st.sampled_from(("scale_up", "scale_out", "host", "memory", "units", "clock")),
    factor=st.floats(1.0, 8.0),
)
def test_faster_links_memory_units_and_clocks_never_take_longer(
    asked: Query, values: Values, device: str, what: str, factor: float
) -> None:
    target = target_of(device)
    before = MODEL.seconds(asked, target, values).seconds
    after = MODEL.seconds(asked, faster(target, what, factor), values).seconds
    assert (after <= before * (1 + 1e-12)).all()
    assert np.isfinite(before).all()


def test_a_larger_budget_of_units_never_takes_longer() -> None:
    for op in ("moe_dispatch_ht", "moe_combine_ht"):
        found = microseconds("h100", op, tokens=8192, sms=[4, 8, 16, 24, 64])
        assert (np.diff(found) <= 0).all()
        assert found[0] > 2 * found[3]


def test_few_experts_leave_the_low_latency_dispatch_slow() -> None:
    few, many = microseconds("h100", "moe_dispatch_ll", tokens=1024, topk=2, experts=[8, 256])
    assert few > 2 * many


@pytest.mark.parametrize(
    ("ranks", "dispatch", "combine"),
    [(8, 77, 114), (16, 118, 195), (32, 155, 273), (64, 173, 314)],
)
def test_low_latency_kernels_take_what_deepep_published_on_h800(
    ranks: int, dispatch: float, combine: float
) -> None:
    """README of DeepEP, 128 tokens of 7168 for 8 of 256 experts, 400G network, microseconds."""
    for way, published in (("dispatch", dispatch), ("combine", combine)):
        found = microseconds("h800", f"moe_{way}_ll", n_gpus=ranks, nodes=ranks // 8)[0]
        assert found == pytest.approx(published, rel=0.3), way


def test_normal_kernels_reach_what_deepep_published_on_h800() -> None:
    """153 and 158 GB/s over NVLink, 4096 tokens, 20 SMs."""
    assert gigabytes("h800", "dispatch", 8, 4096, 20) == pytest.approx(153, rel=0.25)
    assert gigabytes("h800", "combine", 8, 4096, 20) == pytest.approx(158, rel=0.25)


@pytest.mark.parametrize(
    ("device", "ranks", "dispatch", "combine", "band"),
    [
        ("mi300x", 8, 307, 330, 0.15),
        ("mi300x", 16, 171, 219, 0.3),
        ("mi355x", 8, 345, 420, 0.15),
        ("mi355x", 16, 179, 234, 0.3),
        ("mi355x", 32, 85, 110, 0.3),
    ],
)
def test_throughput_on_a_mesh_is_what_mori_published(
    device: str, ranks: int, dispatch: float, combine: float, band: float
) -> None:
    """README of MORI, 4096 tokens, GB/s."""
    assert gigabytes(device, "dispatch", ranks, 4096, 80) == pytest.approx(dispatch, rel=band)
    assert gigabytes(device, "combine", ranks, 4096, 80) == pytest.approx(combine, rel=band)


@pytest.mark.parametrize(
    ("device", "ranks", "dispatch", "combine", "band"),
    [
        ("mi300x", 8, 35, 47, 0.25),
        ("mi355x", 8, 31, 36, 0.25),
        ("mi300x", 16, 76, 122, 0.45),
        ("mi355x", 16, 84, 108, 0.45),
        ("mi355x", 32, 152, 187, 0.45),
    ],
)
def test_latency_on_a_mesh_is_what_mori_published(
    device: str, ranks: int, dispatch: float, combine: float, band: float
) -> None:
    """README of MORI, 128 tokens, microseconds."""
    for way, published in (("dispatch", dispatch), ("combine", combine)):
        found = microseconds(device, f"moe_{way}_ll", n_gpus=ranks, nodes=max(1, ranks // 8))[0]
        assert found == pytest.approx(published, rel=band), way


def data() -> bool:
    try:
        data_folder()
    except InputError:
        return False
    return True


@pytest.mark.data
@pytest.mark.skipif(not data(), reason="needs the calibration data")
@pytest.mark.parametrize("op", [op for op in OPS if not op.endswith("step")])
def test_held_back_shapes_are_met(op: str) -> None:
    """Mean over devices of the mean error, percent."""
    pools: dict[str, list[np.ndarray]] = {}
    for one in judge(FIT, residual_of("moe_comm"), medians(ops=(op,))):
        pools.setdefault(one.device, []).append(np.abs(one.predicted / one.measured - 1))
    assert 100 * np.mean([np.concatenate(pool).mean() for pool in pools.values()]) < 10
