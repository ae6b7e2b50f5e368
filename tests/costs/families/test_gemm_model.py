"""What a price of a matrix product must obey on any device, and how far it is from silicon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.check.measured import data_folder, medians
from simulator.check.refit import judge, scores
from simulator.check.targets import target_of
from simulator.costs.families.gemm import MODEL, PRODUCTS
from simulator.costs.families.library import REFERENCE, frameworks_of, split
from simulator.costs.families.model import Query, Values
from simulator.costs.families.residual import residual_of
from simulator.costs.target import Target
from simulator.errors import InputError
from simulator.specs.hardware import Accelerator
from simulator.specs.load import default_stack, load_fit, load_hardware, load_stack, names
from simulator.tables.predict import predict_query

Grow = Callable[[Accelerator, str, float], Accelerator]
DEVICES = ("a100_sxm", "h100_sxm", "b200_sxm", "rtx_pro_6000_server", "l40s", "mi300x", "mi355x")
FIT = load_fit("gemm")


def query(op: str = "gemm", dtype: str = "bf16", source: str = "", **sizes: object) -> Query:
    columns = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in sizes.values()))
    rows = {name: np.atleast_1d(column) for name, column in zip(sizes, columns, strict=True)}
    return Query(op=op, dtype=dtype, framework=REFERENCE, source=source, sizes=rows)


def ideal(**changed: float) -> dict[str, float]:
    """Constants of a library that loses nothing, but for what is changed."""
    nothing = dict.fromkeys((*MODEL.shared, *MODEL.own), 1e-12)
    full = {"matrix": 1.0, "memory": 1.0, "fill": 1e9, "persistence": 1e-12}
    return nothing | full | changed


@st.composite
def shapes(draw: st.DrawFn) -> Query:
    edges = st.lists(st.integers(1, 40_000), min_size=5, max_size=5)
    return query(
        draw(st.sampled_from(("gemm", "bmm"))),
        draw(st.sampled_from(("bf16", "fp8", "w4a16_int4"))),
        draw(st.sampled_from(("", "aiconfigurator", "neusight"))),
        m=draw(edges), n=draw(edges), k=draw(edges),
        batch=draw(st.sampled_from((1, 3, 128))),
    )  # fmt: skip


@st.composite
def constants(draw: st.DrawFn) -> Values:
    """Fitted ones, or any that the priors leave room for."""
    if draw(st.booleans()):
        known = FIT.libraries[draw(st.sampled_from(sorted(FIT.libraries)))]
        special = draw(st.sampled_from([{}, *known.by_generation.values()]))
        return {**FIT.shared, **known.values, **special}
    return {
        name: float(
            np.clip(prior.value * np.exp(draw(st.floats(-2, 2)) * prior.spread), 0, prior.high)
        )
        for name, prior in {**MODEL.shared, **MODEL.own}.items()
    }


@settings(max_examples=200)
@given(
    device=st.sampled_from(DEVICES),
    asked=shapes(),
    values=constants(),
    what=st.sampled_from(("units", "clock", "memory", "cache", "cache bandwidth")),
    factor=st.floats(1.0, 8.0),
)
def test_more_of_a_device_never_makes_a_product_slower(
    grown: Grow, device: str, asked: Query, values: Values, what: str, factor: float
) -> None:
    target = target_of(device)
    if asked.dtype == "fp8" and "fp8" not in target.accelerator.compute.matrix:
        asked = replace(asked, dtype="bf16")
    larger = replace(target, accelerator=grown(target.accelerator, what, factor))
    before = MODEL.seconds(asked, target, values).seconds
    after = MODEL.seconds(asked, larger, values).seconds
    assert (after <= before * (1 + 1e-9)).all()
    assert np.isfinite(before).all()
    assert (after > 0).all()


@given(asked=shapes(), values=constants())
def test_a_product_is_priced_alike_alone_and_in_a_table(asked: Query, values: Values) -> None:
    target = target_of("h100_sxm")
    together = MODEL.seconds(asked, target, values).seconds
    for row in range(asked.rows):
        one = MODEL.seconds(asked.take(slice(row, row + 1)), target, values).seconds[0]
        assert one == pytest.approx(together[row], rel=1e-12)


def test_a_library_that_loses_nothing_reaches_both_roofs() -> None:
    target = target_of("h100_sxm")
    compute = target.accelerator.compute
    square = MODEL.seconds(query(m=16896, n=16384, k=16384), target, ideal()).seconds[0]
    flops = 2 * 16896 * 16384 * 16384
    roof = compute.matrix["bf16"] * compute.units * compute.clock
    assert square == pytest.approx(flops / roof, rel=0.02)
    thin = MODEL.seconds(query(m=1, n=16384, k=16384), target, ideal()).seconds[0]
    assert thin == pytest.approx(2 * (16384**2 + 2 * 16384) / target.bandwidth, rel=0.02)


def test_one_tile_more_than_the_units_takes_a_second_wave() -> None:
    """132 units run 132 tiles of 256 x 256 in one wave; another row of tiles needs two."""
    target = target_of("h100_sxm")
    shape = {"n": 256 * 11, "k": 65536}
    full, over = MODEL.seconds(
        query(m=[256 * 12, 256 * 24], **shape), target, ideal(wave=1e-12)
    ).seconds
    assert over / full == pytest.approx(2, rel=0.01)


def test_splitting_k_fills_units_that_few_tiles_leave_idle() -> None:
    target = target_of("h100_sxm")
    asked = query(m=64, n=64, k=65536)
    free = MODEL.seconds(asked, target, ideal(step=1e-7, memory=1e6)).seconds[0]
    dear = MODEL.seconds(asked, target, ideal(step=1e-7, memory=1e6, split=1.0)).seconds[0]
    assert dear / free == pytest.approx(16, rel=0.02)


def test_what_fits_the_cache_is_replayed_from_it() -> None:
    target = target_of("rtx_pro_6000_server")
    values = ideal(warm=1.0, reuse=1.0, copies=1.0)
    shape = {"m": 1, "n": 4096, "k": 4096}
    warm = MODEL.seconds(query(source="aiconfigurator", **shape), target, values).seconds[0]
    cold = MODEL.seconds(query(**shape), target, values).seconds[0]
    assert warm < cold / 10


def test_quantising_is_inside_only_where_the_campaign_had_it() -> None:
    target = target_of("h100_sxm")
    values = ideal(quantise=3e-6, passes=1.0, launch=2e-6)
    shape = {"m": 4096, "n": 4096, "k": 4096}
    alone = MODEL.seconds(query(dtype="fp8", **shape), target, values).seconds[0]
    inside = MODEL.seconds(
        query(dtype="fp8", source="aiconfigurator", **shape), target, values
    ).seconds[0]
    moved = 4096 * 4096 * 3 / target.bandwidth
    assert inside - alone > 3e-6 + 0.5 * moved
    wide = query(dtype="bf16", source="aiconfigurator", **shape)
    assert MODEL.seconds(wide, target, values).seconds[0] == pytest.approx(
        MODEL.seconds(replace(wide, source="aiter"), target, values).seconds[0], rel=0.1
    )


@pytest.mark.parametrize("device", names("hardware"))
def test_every_accelerator_answers_for_the_formats_that_it_has(device: str) -> None:
    hardware = load_hardware(device)
    target = Target(accelerator=hardware, stack=default_stack(hardware))
    if hardware.kind == "cpu":
        return  # No library of the measured tables runs there.
    for dtype in ("bf16", "fp8", "fp8_block", "nvfp4", "int8", "w4a16_int4"):
        answer = predict_query(query(dtype=dtype, m=[1, 4096], n=4096, k=4096), target)
        assert (answer.seconds > 0).all()
        assert (answer.lower <= answer.seconds).all()
        assert (answer.upper >= answer.seconds).all()
    assert frameworks_of(target.stack, "gemm", query(m=1, n=1, k=1))


def test_stacks_name_only_libraries_of_products_that_the_fit_has() -> None:
    for name in names("stacks"):
        stack = load_stack(name)
        for framework in stack.libraries["gemm"]:
            for dtype in PRODUCTS:
                asked = replace(query(dtype=dtype, m=1, n=1, k=1), framework=framework)
                assert {part.library for part in split(stack, "gemm", asked)} <= set(FIT.libraries)


@pytest.mark.data
def test_products_of_held_back_shapes_are_close_to_silicon() -> None:
    try:
        data_folder()
    except InputError:
        pytest.skip("no measured data beside the checkout")
    measured = medians(ops=("gemm",))
    found = [
        score
        for score in scores(judge(FIT, residual_of("gemm"), measured), "same")
        if score.rows >= 100
    ]
    wide = [one.mean for one in found if one.dtype in ("bf16", "fp16")]
    hopper = [one.mean for one in found if one.dtype == "bf16" and one.device[:2] == "h1"]
    narrow = [one.mean for one in found if one.dtype in ("fp8", "fp8_block", "nvfp4", "mxfp4")]
    assert np.mean(hopper) <= 7
    assert np.mean(wide) <= 10
    assert np.mean(narrow) <= 12


@pytest.mark.data
def test_the_products_of_a_published_validation_are_close_though_none_was_fitted() -> None:
    """LLMCompass (ISCA 2024), figure 5: eager fp16 products on A100."""
    try:
        data_folder()
    except InputError:
        pytest.skip("no measured data beside the checkout")
    rows = [one for one in medians(ops=("gemm",)) if one.query.source == "llmcompass"]
    judged = list(judge(FIT, residual_of("gemm"), rows, held=False))
    error = np.concatenate(
        [np.abs(one.predicted / one.measured - 1) for one in judged if one.device == "a100_sxm"]
    )
    assert len(error) >= 5
    assert error.mean() <= 0.08
