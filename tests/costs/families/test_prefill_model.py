"""What a price of prefill attention must obey on any device, and how far it is from silicon."""

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
from simulator.costs.families.library import frameworks_of, split, values_for
from simulator.costs.families.model import Query, Values
from simulator.costs.families.prefill import CHUNK, MODEL, PRIORS, STAND_INS
from simulator.costs.families.residual import residual_of
from simulator.costs.target import Target
from simulator.errors import InputError
from simulator.specs.hardware import Accelerator
from simulator.specs.load import default_stack, load_fit, load_hardware, load_stack, names
from simulator.tables.predict import predict_query

Grow = Callable[[Accelerator, str, float], Accelerator]
DEVICES = ("a100_sxm", "h100_sxm", "b200_sxm", "rtx_pro_6000_server", "b60", "l40s", "mi300x")
FIT = load_fit("prefill")
LIBRARIES = tuple(sorted(FIT.libraries))


def query(op: str = "attention_context", dtype: str = "bf16", **sizes: object) -> Query:
    """Rows of shapes; what is not given is one causal sequence of 128-wide heads."""
    filled: dict[str, object] = {
        "batch": 1, "seq_q": 1024, "heads": 8, "kv_heads": 8, "head_dim": 128, "window": 0,
    }  # fmt: skip
    filled |= sizes
    filled.setdefault("seq_kv", filled["seq_q"])
    columns = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in filled.values()))
    rows = {name: np.atleast_1d(column) for name, column in zip(filled, columns, strict=True)}
    return Query(op=op, dtype=dtype, kv_dtype=dtype, framework="operator", sizes=rows)


def seconds(asked: Query, target: Target, values: Values) -> np.ndarray:
    return MODEL.seconds(asked, target, values).seconds


def ideal(**changed: float) -> dict[str, float]:
    """Constants of a kernel that loses nothing, but for what is changed."""
    best = {name: prior.value for name, prior in MODEL.own.items()}
    best |= dict.fromkeys(("launch", "cast", "pad", "setup", "query_passes", "key_passes"), 1e-9)
    best |= dict.fromkeys(("serial", "tail", "vector", "slack"), 1e-9)
    best |= dict.fromkeys(("matrix", "narrow", "middle", "wide", "widest", "odd", "skip"), 1.0)
    return best | {"exponent": 1e6, "cache": 1e6} | changed


@st.composite
def shapes(draw: st.DrawFn) -> Query:
    op = draw(st.sampled_from(tuple(MODEL.columns)))
    rows = 6

    def column(*values: int) -> list[int]:
        return draw(st.lists(st.sampled_from(values), min_size=rows, max_size=rows))

    key_heads, group = np.array(column(1, 2, 8, 40)), np.array(column(1, 3, 8))
    heads = key_heads * group
    width = [192] * rows if op == "mla_context" else column(64, 72, 80, 128, 192, 256, 512)
    length = np.array(column(1, 17, 128, 700, 4096, 30000))
    prefix = np.array(column(0, 0, 0, 64, 5000)) if op == "attention_context" else 0
    return query(
        op,
        draw(st.sampled_from(("bf16", "fp8"))),
        batch=column(1, 2, 16, 256), seq_q=length, seq_kv=length + prefix, heads=heads,
        kv_heads=key_heads, head_dim=width, window=column(0, 0, 128, 8192),
    )  # fmt: skip


@st.composite
def constants(draw: st.DrawFn) -> Values:
    """Fitted ones, or any that the priors leave room for."""
    library = draw(st.sampled_from(LIBRARIES))
    known = FIT.libraries[library]
    if draw(st.booleans()):
        special = draw(st.sampled_from([{}, *known.by_generation.values()]))
        return {**known.values, **special}
    found = {}
    for name, prior in MODEL.own.items():
        if prior.spread < 1e-3:
            found[name] = PRIORS.get(library, {}).get(name, prior.value)
        else:
            off = draw(st.floats(-2, 2)) * prior.spread
            found[name] = float(np.clip(prior.value * np.exp(off), prior.low, prior.high))
    return found


@settings(max_examples=150)
@given(
    device=st.sampled_from(DEVICES),
    asked=shapes(),
    values=constants(),
    what=st.sampled_from(
        ("units", "clock", "exponentials", "memory", "cache", "cache bandwidth")
    ),
    factor=st.floats(1.0, 8.0),
)  # fmt: skip
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


def test_chunks_join_without_a_seam() -> None:
    target, values = target_of("h100_sxm"), values_for(FIT, "fa3-vllm", target_of("h100_sxm").stack)
    asked = query(seq_q=np.arange(1, CHUNK + 10))
    whole = seconds(asked, target, values)
    assert len(whole) == asked.rows
    last = asked.take(slice(CHUNK - 3, CHUNK + 3))
    np.testing.assert_array_equal(seconds(last, target, values), whole[CHUNK - 3 : CHUNK + 3])


def test_a_kernel_that_loses_nothing_reaches_the_matrix_peak() -> None:
    target = target_of("h100_sxm")
    asked = query("attention_encoder", batch=8, seq_q=8192, heads=32, kv_heads=32)
    flops = 4 * 8 * 32 * 8192**2 * 128
    compute = target.accelerator.compute
    peak = compute.matrix["bf16"] * compute.units * (compute.held_clock or compute.clock)
    assert seconds(asked, target, ideal())[0] == pytest.approx(flops / peak, rel=1e-3)


def test_causality_halves_the_work_of_a_long_sequence() -> None:
    target = target_of("h100_sxm")
    shape = {"batch": 8, "seq_q": 65536, "heads": 32, "kv_heads": 32}
    causal = seconds(query(**shape), target, ideal())[0]
    full = seconds(query("attention_encoder", **shape), target, ideal())[0]
    assert full / causal == pytest.approx(2, rel=0.01)


def test_a_window_costs_its_width_and_no_more() -> None:
    target = target_of("h100_sxm")
    shape = {"batch": 8, "seq_q": 65536, "heads": 32, "kv_heads": 32}
    whole, wide, narrow = seconds(query(**shape, window=[0, 100_000, 4096]), target, ideal())
    assert wide == whole
    assert narrow / whole == pytest.approx(2 * 4096 / 65536, rel=0.1)


def test_the_softmax_binds_narrow_heads_where_exponentials_are_scarce(
    grown: Grow,
) -> None:
    """A tile of d-wide heads asks 4 d FLOP and one exponential per score: 8192 FLOP and 16
    exponentials per clock meet at d = 128, so 64-wide heads wait for exponentials alone."""
    target = target_of("b200_sxm")
    doubled = replace(target, accelerator=grown(target.accelerator, "exponentials", 2))
    asked = query("attention_encoder", batch=8, seq_q=16384, heads=64, head_dim=[64, 256])
    before = seconds(asked, target, ideal(exponent=1.0))
    after = seconds(asked, doubled, ideal(exponent=1.0))
    np.testing.assert_allclose(before / after, [2.0, 1.0], rtol=1e-6)


def test_groups_that_share_a_tile_fill_it_with_short_sequences() -> None:
    """Eight heads of 16 tokens fill one tile of 128 rows where they share it, else eight."""
    target = target_of("h100_sxm")
    asked = query(batch=512, seq_q=16, heads=64, kv_heads=8)
    apart, shared = (
        MODEL.seconds(asked, target, ideal(packs=packs)).parts["compute"][0] for packs in (1, 3)
    )
    assert apart / shared == pytest.approx(8)


def test_a_prefix_adds_to_the_keys_of_every_token() -> None:
    target = target_of("h100_sxm")
    times = seconds(
        query(batch=8, seq_q=4096, seq_kv=[4096, 8192, 12288], heads=32, kv_heads=32),
        target,
        ideal(),
    )
    np.testing.assert_allclose(times / times[0], [1, 3, 5], rtol=0.05)


def test_absorbed_latents_are_shared_by_all_heads() -> None:
    """On latents MLA multiplies 576 + 512 wide, on keys and values 192 + 128."""
    target = target_of("h100_sxm")
    asked = query("mla_context", batch=4, seq_q=16384, heads=64, head_dim=192)
    plain = seconds(asked, target, ideal())[0]
    absorbed = seconds(asked, target, ideal(absorbed=2, packs=3))[0]
    assert absorbed / plain == pytest.approx((576 + 512) / (192 + 128), rel=0.02)


@pytest.mark.parametrize("device", names("hardware"))
def test_every_device_answers_for_every_operator(device: str) -> None:
    hardware = load_hardware(device)
    target = Target(accelerator=hardware, stack=default_stack(hardware))
    for op in MODEL.columns:
        width = 192 if op == "mla_context" else 128
        asked = query(op, seq_q=[1, 2048], head_dim=width, window=[0, 128])
        answer = predict_query(asked, target)
        assert (answer.seconds > 0).all()
        assert (answer.lower <= answer.seconds).all()
        assert (answer.upper >= answer.seconds).all()
        assert frameworks_of(target.stack, MODEL.name, asked)


def test_stacks_name_only_libraries_that_the_fit_has() -> None:
    shape = {"seq_q": [1, 2048, 2048], "head_dim": [64, 192, 512], "window": [0, 128, 4096]}
    for name in names("stacks"):
        stack = load_stack(name)
        for framework in stack.libraries[MODEL.name]:
            for op in MODEL.columns:
                for dtype in ("bf16", "fp8"):
                    asked = replace(query(op, dtype, **shape), framework=framework)
                    used = list(split(stack, MODEL.name, asked))
                    assert sum(len(part.rows) for part in used) == asked.rows
                    assert {part.library for part in used} <= set(FIT.libraries)


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
