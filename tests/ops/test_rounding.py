"""Rounding: the values of other libraries, and errors no larger than the format's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from simulator.ops.rounding import grid, quantise, round_to
from simulator.specs.precision import FORMATS

FLOATS = npst.arrays(
    np.float32,
    st.integers(1, 50),
    elements=st.floats(-(2.0**127), 2.0**127, width=32),
)


@settings(deadline=None)
@given(FLOATS)
def test_bf16_is_the_upper_half_of_fp32_rounded_to_even(values: np.ndarray) -> None:
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    expected = rounded.astype(np.uint32).view(np.float32)
    inside = np.isfinite(expected)
    np.testing.assert_array_equal(round_to(values, "bf16")[inside], expected[inside])


@settings(deadline=None)
@given(FLOATS)
def test_fp16_is_that_of_numpy_below_overflow(values: np.ndarray) -> None:
    small = np.clip(values, -65504, 65504)
    expected = small.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(round_to(small, "fp16"), expected)


def test_fp8_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(size=4000) * scale for scale in (1e-3, 0.1, 1, 30)]).astype(
        np.float32
    )
    values = np.concatenate([values, np.arange(0, 448, 0.5, dtype=np.float32)])
    expected = torch.from_numpy(values).to(torch.float8_e4m3fn).to(torch.float32).numpy()
    np.testing.assert_array_equal(round_to(values, "fp8"), expected)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("fp4", [0, 0.5, 1, 1.5, 2, 3, 4, 6]),
        ("fp6", [0, 0.125, 0.875, 1, 1.125, 1.875, 2, 2.25, 3.75, 4, 4.5, 7.5]),
        ("fp8", [2**-9, 2**-6, 448]),
    ],
)
def test_the_values_of_a_small_format_round_to_themselves(name: str, values: list[float]) -> None:
    array = np.array(values)
    np.testing.assert_array_equal(round_to(array, name), array)
    np.testing.assert_array_equal(round_to(-array, name), -array)


def test_ties_go_to_even_and_overflow_to_the_largest() -> None:
    assert round_to(np.array([2.5, 3.5, 5.0, 7.0, 99.0]), "fp4").tolist() == [2, 4, 4, 6, 6]


@settings(deadline=None)
@given(
    FLOATS.map(lambda values: np.clip(values, -100, 100).astype(float)),
    st.sampled_from(sorted(FORMATS)),
)
def test_one_rounding_errs_by_the_roundoff_at_most(values: np.ndarray, name: str) -> None:
    entry = grid(name)
    inside = np.abs(values) <= entry.largest
    error = np.abs(round_to(values, name) - values)[inside]
    limit = np.maximum(entry.roundoff * np.abs(values), entry.smallest)[inside]
    assert (error <= limit).all()


def test_nf4_rounds_to_the_quantiles_of_a_normal_distribution() -> None:
    # The outermost and innermost levels of QLoRA (arXiv 2305.14314, appendix E).
    values = np.array([-1.0, -0.7, -0.04, 0.04, 0.07, 0.9, 1.0] + [0.0] * 57)
    kept = quantise(values, "nf4")[:7]
    levels = [-1.0, -0.6961928, 0.0, 0.0795803, 0.0795803, 1.0, 1.0]
    assert kept == pytest.approx(levels, abs=1e-6)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_quantised_values_are_a_fixed_point(name: str) -> None:
    values = np.random.default_rng(1).normal(size=(3, 300)).astype(np.float32)
    once = quantise(values, name)
    assert once.shape == values.shape
    # A scale that is no power of two is itself rounded; its values come back to one fp32 rounding.
    np.testing.assert_allclose(quantise(once, name), once, rtol=2e-7, atol=0)


def test_mxfp4_scales_32_elements_by_a_power_of_two() -> None:
    values = np.array([[6.0] + [0.6] * 31 + [0.75] + [0.1] * 31])
    kept = quantise(values, "mxfp4")
    assert kept[0, :2].tolist() == [6.0, 0.5]
    assert kept[0, 32:34].tolist() == [0.75, 0.125]  # scale 1/8: 0.1 is 0.8 steps of it


def test_scales_run_along_the_axis_that_is_asked() -> None:
    values = np.random.default_rng(2).normal(size=(40, 3))
    np.testing.assert_array_equal(
        quantise(values, "mxfp8", axis=0), quantise(values.T.copy(), "mxfp8").T
    )


def test_square_blocks_share_one_scale() -> None:
    values = np.random.default_rng(3).normal(size=(130, 130))
    values[0, 0] = 448.0
    kept = quantise(values, "fp8_block", square=True)
    np.testing.assert_array_equal(kept[:128, :128], round_to(values[:128, :128], "fp8"))
    assert np.abs(kept[128:, 128:] - values[128:, 128:]).max() < 2**-4 * 4
