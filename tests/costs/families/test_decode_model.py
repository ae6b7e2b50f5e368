"""What a price of decode attention must obey on any device, and how far it is from silicon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.check.measured import data_folder, medians
from simulator.check.refit import judge, scores
from simulator.check.targets import target_of
from simulator.costs.families.decode import CHUNK, MODEL, PRIORS, STAND_INS
from simulator.costs.families.library import frameworks_of, split, values_for
from simulator.costs.families.model import Query, Values
from simulator.costs.families.residual import residual_of
from simulator.costs.target import Target
from simulator.errors import InputError
from simulator.specs.hardware import Accelerator
from simulator.specs.load import default_stack, load_fit, load_hardware, load_stack, names
from simulator.tables.predict import predict_query

Grow = Callable[[Accelerator, str, float], Accelerator]
DEVICES = ("a100_sxm", "h100_sxm", "b200_sxm", "rtx_pro_6000_server", "b60", "l40s", "mi300x")
FIT = load_fit("decode")
LIBRARIES = tuple(sorted(FIT.libraries))
REPLAYED = "aiconfigurator"


def query(
    op: str = "attention_generation", cache: str = "bf16", source: str = "", **sizes: object
) -> Query:
    """Rows of shapes; what is not given is one sequence of 4096 tokens and eight 128-wide heads."""
    filled: dict[str, object] = {
        "batch": 1, "seq_kv": 4096, "heads": 8, "kv_heads": 8, "head_dim": 128, "window": 0,
    }  # fmt: skip
    filled |= sizes
    columns = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in filled.values()))
    rows = {name: np.atleast_1d(column) for name, column in zip(filled, columns, strict=True)}
    return Query(
        op=op, dtype="bf16", kv_dtype=cache, source=source, framework="operator", sizes=rows
    )


def seconds(asked: Query, target: Target, values: Values) -> np.ndarray:
    return MODEL.seconds(asked, target, values).seconds


def ideal(**changed: float) -> dict[str, float]:
    """Constants of a kernel that loses nothing, but for what is changed."""
    best = {name: prior.value for name, prior in {**MODEL.own, **MODEL.shared}.items()}
    best |= dict.fromkeys(("launch", "combine", "part", "setup", "block", "passes"), 1e-9)
    best |= dict.fromkeys(("serial", "vector", "widen", "cast", "beyond", "chunk"), 1e-9)
    best |= dict.fromkeys(("matrix", "memory", "persistence", "narrow"), 1.0)
    return best | {"rate": 1e6, "padded": 1.0} | changed


@st.composite
def shapes(draw: st.DrawFn) -> Query:
    rows = 6

    def column(*values: int) -> list[int]:
        return draw(st.lists(st.sampled_from(values), min_size=rows, max_size=rows))

    op = draw(st.sampled_from(tuple(MODEL.columns)))
    key_heads, group = np.array(column(1, 2, 8, 40)), np.array(column(1, 3, 8, 64))
    return query(
        op,
        draw(st.sampled_from(("bf16", "fp8"))),
        draw(st.sampled_from(("", REPLAYED))),
        batch=column(1, 2, 16, 300, 2048), seq_kv=column(1, 17, 128, 700, 4096, 131072),
        heads=key_heads * group, kv_heads=key_heads, window=column(0, 0, 128, 8192),
        head_dim=576 if op == "mla_generation" else column(64, 80, 128, 192, 256, 512),
    )  # fmt: skip


@st.composite
def constants(draw: st.DrawFn) -> Values:
    """Fitted ones, or any that the priors leave room for."""
    library = draw(st.sampled_from(LIBRARIES))
    known = FIT.libraries[library]
    if draw(st.booleans()):
        special = draw(st.sampled_from([{}, *known.by_generation.values()]))
        return {**FIT.shared, **known.values, **special}
    found = {}
    for name, prior in {**MODEL.own, **MODEL.shared}.items():
        if prior.spread < 1e-3:
            found[name] = PRIORS.get(library, {}).get(name, prior.value)
        else:
            off = draw(st.floats(-2, 2)) * prior.spread
            found[name] = float(np.clip(prior.value * np.exp(off), prior.low, prior.high))
    return found


@settings(max_examples=200)
@given(
    device=st.sampled_from(DEVICES),
    asked=shapes(),
    values=constants(),
    what=st.sampled_from(("units", "clock", "memory", "cache", "cache bandwidth")),
    factor=st.floats(1.0, 8.0),
)
def test_more_of_a_device_never_takes_longer(
    grown: Grow, device: str, asked: Query, values: Values, what: str, factor: float
) -> None:
    target = target_of(device)
    larger = replace(target, accelerator=grown(target.accelerator, what, factor))
    before, after = seconds(asked, target, values), seconds(asked, larger, values)
    assert (after <= before * (1 + 1e-9)).all()
    assert np.isfinite(before).all()
    assert (after > 0).all()


@settings(max_examples=60)
@given(asked=shapes(), values=constants())
def test_a_row_does_not_depend_on_its_neighbours(asked: Query, values: Values) -> None:
    target = target_of("h100_sxm")
    together = seconds(asked, target, values)
    alone = [seconds(asked.take(slice(i, i + 1)), target, values)[0] for i in range(asked.rows)]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


@settings(max_examples=60)
@given(asked=shapes(), values=constants())
def test_a_replay_never_takes_longer_than_a_cold_cache(asked: Query, values: Values) -> None:
    target = target_of("rtx_pro_6000_server")
    cold, warm = (replace(asked, source=source) for source in ("", REPLAYED))
    assert (
        seconds(warm, target, values) <= seconds(cold, target, values) * (1 + 1e-9)
    ).all()  # fmt: skip


@settings(max_examples=60)
@given(asked=shapes(), values=constants())
def test_leave_to_split_further_never_takes_longer(asked: Query, values: Values) -> None:
    target = target_of("h100_sxm")
    times = [seconds(asked, target, {**values, "parts": parts}) for parts in (1, 8, 128)]
    assert (np.diff(times, axis=0) <= 1e-12).all()


def test_chunks_join_without_a_seam() -> None:
    target = target_of("h100_sxm")
    values = values_for(FIT, "fa3-vllm", target.stack)
    asked = query(seq_kv=np.arange(1, CHUNK + 10))
    whole = seconds(asked, target, values)
    assert len(whole) == asked.rows
    last = asked.take(slice(CHUNK - 3, CHUNK + 3))
    np.testing.assert_array_equal(seconds(last, target, values), whole[CHUNK - 3 : CHUNK + 3])


@pytest.mark.parametrize("op", MODEL.columns)
def test_a_kernel_that_loses_nothing_streams_the_cache(op: str) -> None:
    """Keys and values of each key head, or one latent for all heads, once out of the memory."""
    target = target_of("h200")
    mla = op == "mla_generation"
    asked = query(op, batch=128, seq_kv=65536, heads=16, head_dim=576 if mla else 128)
    token = 576 * 2 if mla else 2 * 8 * 128 * 2
    expected = 128 * 65536 * token / target.bandwidth
    assert seconds(asked, target, ideal())[0] == pytest.approx(expected, rel=1e-3)


def test_an_eight_bit_cache_halves_a_long_stream() -> None:
    target = target_of("h200")
    wide, narrow = (
        seconds(query(cache=cache, batch=64, seq_kv=65536), target, ideal())[0]
        for cache in ("bf16", "fp8")
    )
    assert wide / narrow == pytest.approx(2, rel=1e-3)


def test_a_window_costs_its_width_and_no_more() -> None:
    target = target_of("h200")
    shape: dict[str, Any] = {
        "batch": 64,
        "seq_kv": [4096, 65536, 65536],
        "window": [0, 4096, 100_000],
    }
    short, windowed, wide = seconds(query(**shape), target, ideal())
    assert windowed == pytest.approx(short, rel=1e-6)
    assert wide == seconds(query(batch=64, seq_kv=65536), target, ideal())[0]


def test_a_replayed_cache_that_fits_is_read_out_of_it() -> None:
    target = target_of("rtx_pro_6000_server")
    values = ideal(cache=0.5, rate=64.0)
    sizes = np.array([2.0**20, 2.0**33]) / (2 * 128 * 2 * 8)
    warm, cold = (
        seconds(query(source=source, seq_kv=sizes), target, values) for source in (REPLAYED, "")
    )
    assert cold[0] / warm[0] > 2
    assert warm[1] == pytest.approx(cold[1], rel=0.01)


def test_splitting_one_long_sequence_uses_the_whole_device() -> None:
    target = target_of("h100_sxm")
    asked = query(seq_kv=131072, heads=1, kv_heads=1)
    values = ideal(rate=10.0)
    whole, parts = (seconds(asked, target, {**values, "parts": n})[0] for n in (1, 128))
    assert whole / parts == pytest.approx(128, rel=0.05)


def test_heads_that_share_a_key_head_cost_little_unless_each_reads_it_alone() -> None:
    target = target_of("h100_sxm")
    asked = query(batch=64, seq_kv=8192, heads=[8, 64], kv_heads=8)
    shared, alone = (seconds(asked, target, ideal(rows=rows)) for rows in (64, 1))
    assert shared[1] / shared[0] < 1.05
    assert alone[1] / alone[0] > 1.5


@pytest.mark.parametrize("device", names("hardware"))
def test_every_device_answers_for_every_operator(device: str) -> None:
    hardware = load_hardware(device)
    target = Target(accelerator=hardware, stack=default_stack(hardware))
    for op in MODEL.columns:
        for cache in ("bf16", "fp8"):
            width = 576 if op == "mla_generation" else 128
            asked = query(op, cache, seq_kv=[1, 2048], head_dim=width, window=[0, 128])
            asked = replace(asked, framework="")
            answer = predict_query(asked, target)
            assert (answer.seconds > 0).all()
            assert (answer.lower <= answer.seconds).all()
            assert (answer.upper >= answer.seconds).all()
            assert target.stack.name == "cpu" or frameworks_of(target.stack, MODEL.name, asked)


@pytest.mark.parametrize("device", ["mi300x", "mi355x", "mi455x"])
def test_absorbed_attention_of_cdna_is_that_of_assembly_and_not_of_triton(device: str) -> None:
    # tilelang, examples/deepseek_mla/amd: as AITER's assembly, and up to 6.5 times Triton's.
    target = target_of(device)
    asked = query("mla_generation", batch=128, seq_kv=[4096, 16384], heads=128, head_dim=576)
    best = predict_query(asked, target).seconds
    triton = seconds(asked, target, values_for(FIT, "triton-mla", target.stack))
    assert (triton > 2 * best).all()
    assert (triton < 6.5 * best).all()


def test_stacks_name_only_libraries_that_the_fit_has() -> None:
    shape: dict[str, Any] = {
        "heads": [1, 48, 128],
        "kv_heads": 1,
        "head_dim": [64, 192, 512],
        "window": [0, 9, 0],
    }
    for name in names("stacks"):
        stack = load_stack(name)
        for framework in stack.libraries[MODEL.name]:
            for op in MODEL.columns:
                for cache in ("bf16", "fp8"):
                    asked = replace(query(op, cache, **shape), framework=framework)
                    used = list(split(stack, MODEL.name, asked))
                    assert sum(len(part.rows) for part in used) == asked.rows
                    assert {part.library for part in used} <= set(FIT.libraries)


def test_rules_tell_kernels_apart_by_group_window_and_cache() -> None:
    def used(stack: str, framework: str, op: str = "attention_generation", **given: Any) -> str:
        asked = replace(query(op, **given), framework=framework)
        return next(split(load_stack(stack), MODEL.name, asked)).library

    assert used("cuda-sm90", "trtllm", heads=32, kv_heads=1) == "trtllm-xqa"
    assert used("cuda-sm90", "trtllm", heads=33, kv_heads=1) == "trtllm-mmha"
    assert used("cuda-sm120", "vllm", heads=32) == "fa2-vllm"
    assert used("cuda-sm120", "vllm", heads=32, window=128) == "fa2-vllm-unpacked"
    mla: dict[str, Any] = {"op": "mla_generation", "heads": 128, "head_dim": 576}
    assert used("cuda-sm120", "trtllm", **mla) == "trtllm-mma-mla"
    assert used("cuda-sm120", "trtllm", cache="fp8", **mla) == "trtllm-xqa-mla"


def test_libraries_are_told_apart_and_stood_in_for() -> None:
    assert set(PRIORS) == set(STAND_INS) == set(FIT.libraries) - {"default"}
    for others in STAND_INS.values():
        assert set(others) <= set(PRIORS)


@pytest.mark.data
def test_held_back_shapes_lie_within_nine_percent_of_the_frameworks() -> None:
    try:
        measured = medians(data_folder(), ops=tuple(MODEL.columns))
    except InputError:
        pytest.skip("no measured data")
    found = list(scores(judge(FIT, residual_of(MODEL.name), measured), "same"))
    for op in MODEL.columns:
        bands = [score.band for score in found if score.op == op and score.band is not None]
        assert np.mean(bands) <= 9


@pytest.mark.data
@pytest.mark.parametrize("device", ["a100_sxm", "h100_sxm", "b200_sxm", "rtx_pro_6000_server"])
def test_the_operator_alone_reads_large_caches_as_the_fastest_framework_does(device: str) -> None:
    try:
        data_folder()
    except InputError:
        pytest.skip("no measured data beside the checkout")
    target, ratios = target_of(device), []
    for one in medians(ops=("attention_generation",)):
        asked, sizes = one.query, one.query.sizes
        if one.device != device or asked.kv_dtype != "bf16" or "trtllm" not in asked.framework:
            continue
        cached = 4 * sizes["batch"] * sizes["seq_kv"] * sizes["kv_heads"] * sizes["head_dim"]
        large = np.flatnonzero((cached > 4 * target.cache) & (sizes["window"] == 0))
        alone = replace(asked.take(large), framework="operator", source="")
        ratios.append(predict_query(alone, target).seconds * 1e6 / one.lower[large])
    assert 0.85 < np.median(np.concatenate(ratios)) < 1.2
