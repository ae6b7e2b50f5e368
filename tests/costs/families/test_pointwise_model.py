"""What a price of a norm, an activation or a cast must obey, and how far it is from silicon."""

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
from simulator.costs.families.library import REFERENCE, frameworks_of, split
from simulator.costs.families.model import Query, Values
from simulator.costs.families.of_op import query_of
from simulator.costs.families.pointwise import KINDS, MODEL, NEVER_FITTED, PRIORS
from simulator.costs.families.residual import residual_of
from simulator.costs.target import Target
from simulator.errors import InputError
from simulator.ops.pointwise import COST, Pointwise
from simulator.specs.hardware import Accelerator
from simulator.specs.load import default_stack, load_fit, load_hardware, load_stack, names
from simulator.tables.predict import predict_query

Grow = Callable[[Accelerator, str, float], Accelerator]
DEVICES = ("a100_sxm", "h100_sxm", "b200_sxm", "rtx_pro_6000_server", "l40s", "mi300x", "t4")
FIT = load_fit("pointwise")
SOURCES = ("", "aiconfigurator", "vidur", "neusight", "llmcompass")


def query(op: str, dtype: str = "bf16", source: str = "", **sizes: object) -> Query:
    columns = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in sizes.values()))
    rows = {name: np.atleast_1d(column) for name, column in zip(sizes, columns, strict=True)}
    return Query(op=op, dtype=dtype, framework=REFERENCE, source=source, sizes=rows)


def seconds(asked: Query, target: Target, values: Values) -> np.ndarray:
    return MODEL.seconds(asked, target, values).seconds


def ideal(**changed: float) -> dict[str, float]:
    """Constants of a kernel that loses nothing, but for what is changed."""
    nothing = dict.fromkeys(MODEL.own, 1e-12)
    full = {"memory": 1.0, "near": 1e9, "threads": 512.0, "vector": 8.0, "passes": 1.0}
    return nothing | full | changed


@st.composite
def shapes(draw: st.DrawFn) -> Query:
    edges = st.lists(st.integers(1, 300_000), min_size=6, max_size=6)
    return query(
        draw(st.sampled_from(tuple(KINDS))),
        draw(st.sampled_from(("fp32", "bf16", "fp8"))),
        draw(st.sampled_from(SOURCES)),
        m=draw(edges), k=draw(edges),
    )  # fmt: skip


@st.composite
def constants(draw: st.DrawFn) -> Values:
    """Fitted ones, or any that the priors leave room for."""
    library = draw(st.sampled_from(sorted(FIT.libraries)))
    known = FIT.libraries[library]
    if draw(st.booleans()):
        special = draw(st.sampled_from([{}, *known.by_generation.values()]))
        return {**known.values, **special}
    found = {}
    for name, prior in MODEL.own.items():
        center = PRIORS.get(library, {}).get(name, prior.value)
        off = draw(st.floats(-2, 2)) * prior.spread
        found[name] = float(np.clip(center * np.exp(off), prior.low, prior.high))
    return found


@settings(max_examples=300, deadline=None)
@given(
    device=st.sampled_from(DEVICES),
    asked=shapes(),
    values=constants(),
    what=st.sampled_from(("units", "clock", "memory", "cache", "cache bandwidth", "local")),
    factor=st.floats(1.0, 8.0),
)
def test_more_of_a_device_never_takes_longer(
    grown: Grow, device: str, asked: Query, values: Values, what: str, factor: float
) -> None:
    target = target_of(device)
    larger = replace(target, accelerator=grown(target.accelerator, what, factor))
    before, after = seconds(asked, target, values), seconds(asked, larger, values)
    assert np.isfinite(before).all()
    assert (after > 0).all()
    assert (after <= before * (1 + 1e-9)).all()


@settings(max_examples=50, deadline=None)
@given(asked=shapes(), values=constants())
def test_more_rows_never_take_less_time(asked: Query, values: Values) -> None:
    more = replace(asked, sizes={**asked.sizes, "m": asked["m"] * 2})
    target = target_of("h100_sxm")
    assert (seconds(asked, target, values) <= seconds(more, target, values) * (1 + 1e-9)).all()


@settings(max_examples=50, deadline=None)
@given(asked=shapes(), values=constants())
def test_a_row_does_not_depend_on_its_neighbours(asked: Query, values: Values) -> None:
    target = target_of("a100_sxm")
    together = seconds(asked, target, values)
    alone = [seconds(asked.take(slice(i, i + 1)), target, values)[0] for i in range(asked.rows)]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_chunks_join_without_a_seam() -> None:
    target, values = target_of("h100_sxm"), FIT.libraries["vllm-cast"].values
    asked = query("quant_cast", "fp8", m=np.arange(1, 10_000), k=4096)
    assert (np.diff(seconds(asked, target, values)) >= 0).all()


@pytest.mark.parametrize(
    ("op", "dtype", "moved"),
    [
        ("add", "fp32", 12),
        ("rmsnorm", "bf16", 4),
        ("silu_mul", "bf16", 6),
        ("quant_cast", "fp8", 3),
    ],
)
def test_a_kernel_that_loses_nothing_streams_its_operands_once(
    op: str, dtype: str, moved: int
) -> None:
    target = target_of("h200")
    asked = query(op, dtype, m=1_000_000, k=8192)
    fixed = target.stack.launch.gap + target.stack.fill
    expected = 1_000_000 * 8192 * moved / target.bandwidth + fixed
    assert seconds(asked, target, ideal())[0] == pytest.approx(expected, rel=1e-3)


def test_what_fits_the_cache_is_read_out_of_it() -> None:
    target = target_of("rtx_pro_6000_server")
    asked = query("add", source="aiconfigurator", m=[256, 1_000_000], k=4096)
    values = ideal(cache=0.3)
    warm, cold = (seconds(asked, target, {**values, "warm": share}) for share in (1.0, 1e-9))
    assert cold[0] / warm[0] > 2
    assert warm[1] == pytest.approx(cold[1], rel=1e-3)


def test_rows_that_a_unit_cannot_hold_are_read_once_more_per_pass() -> None:
    """Two more reads of a softmax beside one read and one write: twice the time."""
    target = target_of("a100_sxm")
    asked = query("softmax", "fp32", m=16384, k=[512, 65536])
    held, lost = (
        seconds(asked, target, ideal(near=near, far=1e6, launch=1e-12)) for near in (1e9, 1e-3)
    )
    assert lost[0] == pytest.approx(held[0], rel=1e-6)
    assert lost[1] / held[1] == pytest.approx(2, rel=0.01)


def test_a_lone_row_waits_for_its_own_latency() -> None:
    target = target_of("h100_sxm")
    asked = query("rmsnorm", m=[1, 100], k=65536)
    one, many = seconds(asked, target, ideal(lone=1.0))
    assert one == pytest.approx(many, rel=1e-4)
    assert one >= 65536 / target.accelerator.compute.clock


def test_transcendental_functions_cost_more_than_a_sum_of_the_same_bytes() -> None:
    target = target_of("a100_sxm")
    plain, exponential = (
        seconds(query(op, m=1, k=1e9), target, ideal(work=1.0))[0] for op in ("relu2", "gelu")
    )
    assert exponential > plain


def test_a_call_timed_on_the_host_carries_the_published_overhead() -> None:
    target = target_of("a100_sxm")
    asked = query("gelu", "fp16", "llmcompass", m=1, k=1)
    assert seconds(asked, target, ideal())[0] == pytest.approx(45e-6, rel=0.01)


def test_every_function_of_the_catalogue_has_a_price() -> None:
    for function in COST:
        asked = query_of(
            Pointwise(name="x", function=function, rows=64, cols=512, written_rows=8)  # type: ignore[arg-type]
        )
        assert asked is not None
        assert asked.op in MODEL.columns


@pytest.mark.parametrize("device", names("hardware"))
def test_every_device_answers_for_every_operator(device: str) -> None:
    hardware = load_hardware(device)
    target = Target(accelerator=hardware, stack=default_stack(hardware))
    for op in MODEL.columns:
        asked = query(op, m=[1, 4096], k=[1, 8192])
        answer = predict_query(asked, target)
        assert (answer.seconds > 0).all()
        assert (answer.lower <= answer.seconds).all()
        assert (answer.upper >= answer.seconds).all()
        assert frameworks_of(target.stack, MODEL.name, asked)


def test_stacks_name_only_libraries_that_the_fit_has() -> None:
    for name in names("stacks"):
        stack = load_stack(name)
        for framework in stack.libraries[MODEL.name]:
            for op in MODEL.columns:
                asked = replace(query(op, m=[1, 64], k=[2560, 4096]), framework=framework)
                used = list(split(stack, MODEL.name, asked))
                assert sum(len(part.rows) for part in used) == asked.rows
                assert {part.library for part in used} <= set(FIT.libraries)


@pytest.mark.data
def test_held_back_shapes_lie_within_twelve_percent() -> None:
    try:
        measured = medians(data_folder(), ops=tuple(MODEL.columns))
    except InputError:
        pytest.skip("no measured data")
    fitted = [one for one in measured if one.query.source not in NEVER_FITTED]
    found = list(scores(judge(FIT, residual_of(MODEL.name), fitted), "same"))
    assert found
    for score in found:
        assert score.mean <= 12, score


@pytest.mark.data
def test_the_published_a100_campaign_is_met_although_never_fitted_to() -> None:
    try:
        measured = medians(data_folder(), ops=("softmax", "layernorm", "gelu"))
    except InputError:
        pytest.skip("no measured data")
    never = [
        one for one in measured if one.query.source in NEVER_FITTED and one.device == "a100_sxm"
    ]
    learned = residual_of(MODEL.name)
    found = {
        score.op: score.mean for score in scores(judge(FIT, learned, never, held=False), "same")
    }
    assert found["softmax"] <= 8
    assert found["layernorm"] <= 8
    assert found["gelu"] <= 5
