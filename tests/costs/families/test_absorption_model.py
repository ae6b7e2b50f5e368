"""What a price of an absorbed projection must obey, and how far it is from silicon."""

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
from simulator.costs.families.absorption import MODEL, PRIORS
from simulator.costs.families.library import REFERENCE, split
from simulator.costs.families.model import Query, Values
from simulator.costs.families.residual import residual_of
from simulator.costs.target import Target
from simulator.errors import InputError
from simulator.specs.hardware import Accelerator
from simulator.specs.load import default_stack, load_fit, load_hardware, load_stack, names
from simulator.tables.predict import predict_query

Grow = Callable[[Accelerator, str, float], Accelerator]
DEVICES = ("a100_sxm", "h100_sxm", "b200_sxm", "rtx_pro_6000_server", "l40s", "mi300x")
FIT = load_fit("absorption")
SHAPES = {"mla_bmm_pre": (512, 128), "mla_bmm_post": (128, 512)}


def query(op: str, dtype: str = "bf16", **sizes: object) -> Query:
    n, k = SHAPES[op]
    filled = {"batch": 16, "m": 128, "n": n, "k": k, **sizes}
    columns = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in filled.values()))
    rows = {name: np.atleast_1d(column) for name, column in zip(filled, columns, strict=True)}
    return Query(op=op, dtype=dtype, framework=REFERENCE, sizes=rows)


def seconds(asked: Query, target: Target, values: Values) -> np.ndarray:
    return MODEL.seconds(asked, target, values).seconds


def ideal(**changed: float) -> dict[str, float]:
    """Constants of a kernel that loses nothing, but for what is changed."""
    nothing = dict.fromkeys(MODEL.own, 1e-12)
    return nothing | {"matrix": 1.0, "memory": 1.0, "write": 1.0} | changed


@st.composite
def shapes(draw: st.DrawFn) -> Query:
    edges = st.lists(st.integers(1, 40_000), min_size=5, max_size=5)
    return query(
        draw(st.sampled_from(tuple(SHAPES))), draw(st.sampled_from(("bf16", "fp8"))),
        m=draw(edges), batch=draw(st.sampled_from((1, 3, 16, 128))),
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


@settings(max_examples=200, deadline=None)
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
    assert np.isfinite(before).all()
    assert (after > 0).all()
    assert (after <= before * (1 + 1e-9)).all()


@settings(max_examples=50, deadline=None)
@given(asked=shapes(), values=constants())
def test_a_row_does_not_depend_on_its_neighbours(asked: Query, values: Values) -> None:
    target = target_of("a100_sxm")
    together = seconds(asked, target, values)
    alone = [seconds(asked.take(slice(i, i + 1)), target, values)[0] for i in range(asked.rows)]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


@pytest.mark.parametrize("op", SHAPES)
def test_a_kernel_that_loses_nothing_takes_what_its_longer_resource_does(op: str) -> None:
    target = target_of("h200")
    n, k = SHAPES[op]
    moved = 128 * 2 * (16384 * (n + k) + n * k)
    at_least = moved / target.bandwidth
    answer = seconds(query(op, batch=128, m=16384), target, ideal())[0]
    assert at_least < answer < 1.5 * at_least


def test_heads_that_fill_the_units_cost_in_proportion() -> None:
    target = target_of("b200_sxm")
    few, many = seconds(query("mla_bmm_post", batch=[64, 128], m=16384), target, ideal())
    assert many / few == pytest.approx(2, rel=0.05)


def test_a_library_that_widens_the_weights_runs_fp8_as_bf16() -> None:
    target = target_of("b200_sxm")
    wide, narrow = (query("mla_bmm_pre", dtype, m=[1, 4096]) for dtype in ("bf16", "fp8"))
    values = FIT.libraries["torch-bmm"].values
    np.testing.assert_array_equal(seconds(wide, target, values), seconds(narrow, target, values))
    asked = replace(narrow, framework="trtllm")
    assert {part.library for part in split(target.stack, MODEL.name, asked)} == {"torch-bmm"}


def test_quantising_first_costs_a_launch_and_its_passes() -> None:
    target = target_of("h100_sxm")
    asked = query("mla_bmm_post", "fp8", m=[1, 8192], batch=128)
    without, once, twice = (
        seconds(asked, target, ideal(quantise=1e-6, passes=passes)) for passes in (1e-9, 1, 2)
    )
    np.testing.assert_allclose(twice - once, once - without, rtol=1e-6)
    assert once[1] - without[1] == pytest.approx(128 * 8192 * 512 * 3 / target.bandwidth, rel=0.01)


@pytest.mark.parametrize("device", names("hardware"))
def test_every_device_answers(device: str) -> None:
    hardware = load_hardware(device)
    target = Target(accelerator=hardware, stack=default_stack(hardware))
    for op in SHAPES:
        for dtype in ("bf16", "fp8"):
            answer = predict_query(query(op, dtype, m=[1, 4096]), target)
            assert (answer.seconds > 0).all()
            assert (answer.lower <= answer.seconds).all()
            assert (answer.upper >= answer.seconds).all()


def test_stacks_name_only_libraries_that_the_fit_has() -> None:
    for name in names("stacks"):
        stack = load_stack(name)
        for framework in stack.libraries[MODEL.name]:
            for dtype in ("bf16", "fp8"):
                asked = replace(query("mla_bmm_pre", dtype), framework=framework)
                used = list(split(stack, MODEL.name, asked))
                assert sum(len(part.rows) for part in used) == asked.rows
                assert {part.library for part in used} <= set(FIT.libraries)


@pytest.mark.data
def test_held_back_shapes_lie_within_twelve_percent() -> None:
    try:
        measured = medians(data_folder(), ops=tuple(MODEL.columns))
    except InputError:
        pytest.skip("no measured data")
    found = list(scores(judge(FIT, residual_of(MODEL.name), measured), "same"))
    assert found
    for score in found:
        assert score.mean <= 12, score
