"""What a price of an MoE layer must obey on any device, and how far it is from silicon."""

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
from simulator.costs.families.experts import MODEL, layer_seconds
from simulator.costs.families.experts_counts import TILES, Load, load, load_of_counts
from simulator.costs.families.library import REFERENCE, split, values_for
from simulator.costs.families.model import Floats, Query, Values
from simulator.costs.families.residual import residual_of
from simulator.costs.target import Target
from simulator.errors import InputError
from simulator.specs.hardware import Accelerator
from simulator.specs.load import default_stack, load_fit, load_hardware, load_stack, names
from simulator.tables.predict import predict_query

Grow = Callable[[Accelerator, str, float], Accelerator]
DEVICES = ("a100_sxm", "h100_sxm", "b200_sxm", "rtx_pro_6000_server", "l40s", "mi300x", "b60")
DTYPES = (
    "bf16", "fp8", "fp8_block", "nvfp4", "w4a16_int4", "w4a16_mxfp4", "w4a8_mxfp4", "mxfp4", "int8",
)  # fmt: skip
ROUTINGS = ("balanced", "random", "", "power_law_1.01", "power_law_1.2", "power_law_1.2_eplb")
FIT = load_fit("experts")


def query(
    dtype: str = "bf16",
    distribution: str = "balanced",
    framework: str = REFERENCE,
    **sizes: object,
) -> Query:
    sizes = {"ep": 1, "tp": 1, "gated": 1, **sizes}
    columns = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in sizes.values()))
    rows = {name: np.atleast_1d(column) for name, column in zip(sizes, columns, strict=True)}
    return Query(op="moe", dtype=dtype, distribution=distribution, framework=framework, sizes=rows)


def ideal(**changed: float) -> dict[str, float]:
    """Constants of a library that loses nothing, but for what is changed."""
    nothing = dict.fromkeys((*MODEL.shared, *MODEL.own), 1e-12)
    full = {"rate": 1.0, "memory": 1.0, "point": 1e9, "fill": 1e9, "most": 1e12}
    return nothing | full | changed


def loads(tokens: list[int], experts: int, topk: int, ep: int, distribution: str) -> Load:
    rows = np.array(tokens, dtype=np.float64)
    full = np.ones(len(rows))
    return load(rows, experts * full, topk * full, ep * full, distribution)


@st.composite
def shapes(draw: st.DrawFn) -> Query:
    tokens = draw(st.lists(st.integers(1, 30_000), min_size=4, max_size=4))
    experts = draw(st.sampled_from((8, 16, 60, 128, 512)))
    return query(
        draw(st.sampled_from(("bf16", "fp8", "w4a16_int4"))),
        draw(st.sampled_from(ROUTINGS)),
        framework=draw(st.sampled_from((REFERENCE, "vllm"))),
        tokens=tokens, experts=experts, topk=draw(st.sampled_from((1, 2, 8))),
        ep=draw(st.sampled_from((1, 4, 8))), tp=draw(st.sampled_from((1, 8))),
        hidden=draw(st.sampled_from((1024, 2880, 7168))),
        inter=draw(st.sampled_from((512, 2880, 16384))), gated=draw(st.sampled_from((0, 1))),
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
            np.clip(
                prior.value * np.exp(draw(st.floats(-2, 2)) * prior.spread), prior.low, prior.high
            )
        )
        for name, prior in {**MODEL.shared, **MODEL.own}.items()
    }


@settings(max_examples=80)
@given(
    device=st.sampled_from(DEVICES),
    asked=shapes(),
    values=constants(),
    what=st.sampled_from(("units", "clock", "memory", "cache")),
    factor=st.floats(1.0, 8.0),
)
def test_more_of_a_device_never_makes_a_layer_slower(
    grown: Grow, device: str, asked: Query, values: Values, what: str, factor: float
) -> None:
    target = target_of(device)
    larger = replace(target, accelerator=grown(target.accelerator, what, factor))
    before = MODEL.seconds(asked, target, values).seconds
    after = MODEL.seconds(asked, larger, values).seconds
    assert (after <= before * (1 + 1e-9)).all()
    assert np.isfinite(before).all()
    assert (after > 0).all()


@settings(max_examples=30)
@given(asked=shapes(), values=constants())
def test_a_layer_is_priced_alike_alone_and_in_a_table(asked: Query, values: Values) -> None:
    target = target_of("h100_sxm")
    together = MODEL.seconds(asked, target, values).seconds
    for row in range(asked.rows):
        one = MODEL.seconds(asked.take(slice(row, row + 1)), target, values).seconds[0]
        assert one == pytest.approx(together[row], rel=1e-12)


def test_a_library_that_loses_nothing_reaches_both_roofs() -> None:
    target = target_of("h100_sxm")
    compute = target.accelerator.compute
    shape = {"hidden": 4096, "inter": 8448, "experts": 8, "topk": 1}
    many = MODEL.seconds(query(tokens=8 * 16384, **shape), target, ideal()).seconds[0]
    flops = 2 * 3 * 8 * 16384 * 4096 * 8448
    roof = compute.matrix["bf16"] * compute.units * compute.clock
    assert many == pytest.approx(flops / roof, rel=0.03)
    few = MODEL.seconds(query(tokens=8, **shape), target, ideal()).seconds[0]
    assert few == pytest.approx(2 * 3 * 8 * 4096 * 8448 / target.bandwidth, rel=0.02)


def test_time_follows_the_experts_that_are_hit() -> None:
    """One token on each of n experts streams the weights of n."""
    target = target_of("h100_sxm")
    counts = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]])
    time = layer_seconds(counts, 7168, 2048, "fp8", True, target, ideal()).seconds
    assert time[1:] / time[0] == pytest.approx([2, 4], rel=1e-3)


def test_a_pile_on_one_expert_costs_more_blocks_than_the_same_pairs_spread_in_whole_tiles() -> None:
    spread = load_of_counts(np.array([[64, 64, 64, 64], [256, 0, 0, 0], [253, 1, 1, 1]]))
    assert spread.blocks[TILES.index(64)].tolist() == [4, 4, 7]
    assert spread.active.tolist() == [4, 1, 4]


@given(
    tokens=st.integers(1, 128),
    experts=st.sampled_from((8, 16, 60)),
    topk=st.sampled_from((1, 2, 6)),
    gated=st.booleans(),
)
def test_explicit_counts_and_a_table_of_the_same_routing_agree(
    tokens: int, experts: int, topk: int, gated: bool
) -> None:
    target = target_of("b200_sxm")
    values = {name: prior.value for name, prior in {**MODEL.shared, **MODEL.own}.items()}
    asked = query(
        tokens=tokens, experts=experts, topk=topk, hidden=2048, inter=1024, gated=float(gated)
    )
    counts = pattern(tokens, experts, topk)[None]
    explicit = layer_seconds(
        counts, 2048, 1024, "bf16", gated, target, values, tokens=np.array([tokens])
    )
    assert MODEL.seconds(asked, target, values).seconds == pytest.approx(explicit.seconds)


def pattern(tokens: int, experts: int, topk: int) -> Floats:
    """The balanced pattern of aiconfigurator's collectors, token by token."""
    stride = -(-experts // topk)
    counts = np.zeros(experts)
    for token in range(tokens):
        for slot in range(topk):
            first = token if tokens >= stride else token * stride // tokens
            counts[(first + slot * stride) % experts] += 1
    return counts


@pytest.mark.parametrize(("experts", "topk"), [(8, 2), (16, 1), (60, 4), (128, 8), (160, 6)])
@pytest.mark.parametrize("ep", [1, 4])
def test_balanced_counts_are_those_of_the_pattern(experts: int, topk: int, ep: int) -> None:
    tokens = [1, 2, 3, 7, 16, 33, 100, 128]
    found = loads(tokens, experts, topk, ep, "balanced")
    for row, number in enumerate(tokens):
        counts = pattern(number, experts, topk)[: experts // ep]
        assert found.pairs[row] == counts.sum()
        assert found.active[row] == (counts > 0).sum()
        assert found.largest[row] == counts.max()


def test_random_routing_hits_as_many_experts_as_probability_says() -> None:
    tokens = [1, 4, 16, 64, 128]
    found = loads(tokens, 256, 8, 1, "random")
    expected = [256 * (1 - (1 - 8 / 256) ** number) for number in tokens]
    assert found.active == pytest.approx(expected, rel=0.12)


@pytest.mark.parametrize("distribution", ["power_law_1.01", "power_law_1.2", "power_law_1.2_eplb"])
@pytest.mark.parametrize(("experts", "topk"), [(8, 2), (128, 8), (512, 22)])
def test_skewed_routing_gives_out_every_pair(distribution: str, experts: int, topk: int) -> None:
    tokens = [1, 5, 32, 127, 1024, 16384]
    whole = loads(tokens, experts, topk, 1, distribution)
    assert whole.pairs == pytest.approx(np.array(tokens) * topk, rel=0.02)
    if not distribution.endswith("eplb"):  # Replicas may take a token twice.
        assert (whole.largest <= np.array(tokens) + 1e-9).all()
    fullest = loads(tokens, experts, topk, 8, distribution)
    assert (fullest.pairs >= np.array(tokens) * topk / 8 * 0.98).all()


def test_evening_out_takes_load_off_the_fullest_rank() -> None:
    tokens = [512, 4096, 16384]
    skewed = loads(tokens, 256, 8, 16, "power_law_1.2")
    evened = loads(tokens, 256, 8, 16, "power_law_1.2_eplb")
    assert (evened.pairs < skewed.pairs).all()
    assert evened.pairs == pytest.approx(np.array(tokens) * 8 / 16)


def test_a_routing_is_the_same_each_time() -> None:
    first = loads([100, 1000], 128, 8, 4, "power_law_1.2")
    load.__globals__["_table"].cache_clear()
    load.__globals__["_remembered"].cache_clear()
    again = loads([100, 1000], 128, 8, 4, "power_law_1.2")
    assert (first.blocks == again.blocks).all()


def test_an_unknown_routing_is_refused() -> None:
    with pytest.raises(ValueError, match="zipf"):
        loads([1], 8, 2, 1, "zipf")


def test_the_operator_alone_leaves_the_choosing_of_experts_out() -> None:
    target = target_of("h100_sxm")
    values = {name: prior.value for name, prior in {**MODEL.shared, **MODEL.own}.items()}
    shape = {"tokens": 64, "experts": 128, "topk": 8, "hidden": 4096, "inter": 1536}
    alone = MODEL.seconds(query(**shape), target, values).seconds
    inside = MODEL.seconds(query(framework="vllm", **shape), target, values).seconds
    assert 1e-6 < inside[0] - alone[0] < 5e-6


@pytest.mark.parametrize("device", names("hardware"))
def test_every_accelerator_answers_for_the_formats_that_it_has(device: str) -> None:
    hardware = load_hardware(device)
    target = Target(accelerator=hardware, stack=default_stack(hardware))
    if hardware.kind == "cpu":
        return  # No library of the measured tables runs there.
    for dtype in DTYPES:
        asked = query(dtype, tokens=[1, 4096], experts=128, topk=8, hidden=4096, inter=1536)
        answer = predict_query(asked, target)
        assert (answer.seconds > 0).all()
        assert (answer.lower <= answer.seconds).all()
        assert (answer.upper >= answer.seconds).all()


def test_stacks_name_only_libraries_that_the_fit_has_and_leave_no_shape_out() -> None:
    for name in names("stacks"):
        stack = load_stack(name)
        for framework in stack.libraries["experts"]:
            for dtype in DTYPES:
                asked = query(
                    dtype,
                    framework=framework,
                    tokens=1,
                    experts=[8, 128, 384, 896],
                    topk=[1, 2, 6, 8],
                    hidden=[2048, 2816, 4096, 7168],
                    inter=[704, 1536, 2688, 3072],
                    gated=[0, 1, 0, 1],
                )
                parts = list(split(stack, "experts", asked))
                assert {part.library for part in parts} <= set(FIT.libraries)
                assert sum(len(part.rows) for part in parts) == asked.rows


@pytest.mark.parametrize("device", ["a100_sxm", "a40", "v100", "p100"])
@pytest.mark.parametrize(
    "dtype", ["fp8", "fp8_block", "mxfp8", "nvfp4", "mxfp4", "w4a8_mxfp4", "w4a16_mxfp4"]
)
def test_narrow_weights_on_units_that_lack_their_format_save_bytes_and_no_products(
    device: str, dtype: str
) -> None:
    target = target_of(device)
    shape = {"tokens": [8, 16384], "experts": 8, "topk": 2, "hidden": 4096, "inter": 14336}
    few, many = predict_query(query(dtype, **shape), target).seconds
    wide_few, wide_many = predict_query(query("bf16", **shape), target).seconds
    flops = 16384 * 2 * 2 * 3 * 4096 * 14336
    peak = target.matrix_peak(target.matrix_format("bf16")) * target.units
    assert 0.2 * wide_few < few < 0.7 * wide_few
    assert flops / peak < many < 1.3 * wide_many


def test_untuned_libraries_are_told_apart() -> None:
    slow = FIT.libraries["vllm-flashinfer-cutlass-untuned-fp8"]
    assert not slow.tuned
    stack = target_of("h100_sxm").stack
    assert values_for(FIT, "vllm-flashinfer-cutlass-untuned-fp8", stack)["memory"] < 0.4
    assert FIT.libraries["trtllm-cutlass-fp8"].tuned


@pytest.mark.data
def test_layers_of_held_back_shapes_are_close_to_silicon() -> None:
    try:
        data_folder()
    except InputError:
        pytest.skip("no measured data beside the checkout")
    measured = medians(ops=tuple(MODEL.columns))
    found = list(scores(judge(FIT, residual_of("experts"), measured), "same"))
    assert np.mean([one.mean for one in found if one.rows >= 30]) <= 14


@pytest.mark.data
@pytest.mark.parametrize(
    ("device", "dtype"),
    [
        ("h100_sxm", "w4a16_mxfp4"), ("h200_sxm", "w4a16_mxfp4"), ("h200_sxm", "fp8_block"),
        ("rtx_pro_6000_server", "w4a16_mxfp4"), ("rtx_pro_6000_server", "fp8_block"),
    ],
)  # fmt: skip
def test_the_operator_alone_is_near_the_fastest_framework(device: str, dtype: str) -> None:
    try:
        data_folder()
    except InputError:
        pytest.skip("no measured data beside the checkout")
    ratios = []
    for one in medians(ops=("moe",)):
        asked = one.query
        several = "+" in asked.framework
        if (one.device, asked.dtype, several) == (device, dtype, True):
            alone = replace(asked, framework=REFERENCE, source="")
            ratios.append(predict_query(alone, target_of(device)).seconds * 1e6 / one.lower)
    assert 0.8 < np.median(np.concatenate(ratios)) < 1.25
