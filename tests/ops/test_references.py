"""Operators on real numbers: references against loops over elements and against torch."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.check.torch_reference import torch_reference
from simulator.errors import InputError
from simulator.ops.attention import Attention
from simulator.ops.conv import Conv2d
from simulator.ops.functions import FUNCTIONS
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import TensorOp
from simulator.ops.pointwise import COST, GATED, Pointwise
from simulator.ops.rounding import quantise

SMALL = st.integers(1, 6)


@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    kv_heads, kv_len = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    causal, latent = draw(st.booleans()), draw(st.booleans())
    head_dim = draw(SMALL)
    return Attention(
        name="core",
        batch=draw(st.integers(1, 2)),
        q_len=draw(st.integers(1, kv_len if causal else 9)),
        kv_len=kv_len,
        heads=kv_heads * draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_dim=draw(st.integers(1, head_dim)) if latent else draw(SMALL),
        causal=causal,
        window=draw(st.none() | st.integers(1, 5)),
        chunk=draw(st.none() | st.integers(1, 5)),
        sinks=draw(st.booleans()),
        latent=latent,
    )


@st.composite
def convolutions(draw: st.DrawFn) -> Conv2d:
    return Conv2d(
        name="conv",
        batch=draw(st.integers(1, 2)),
        height=draw(st.integers(1, 7)),
        width=draw(st.integers(1, 7)),
        in_channels=draw(SMALL),
        out_channels=draw(SMALL),
        kernel=draw(st.integers(1, 5)),
        stride=draw(st.integers(1, 4)),
        bias=draw(st.booleans()),
    )


def pointwise(function: str, rows: int = 12, cols: int = 64) -> Pointwise:
    return Pointwise(
        name=function,
        function=function,  # type: ignore[arg-type]
        rows=rows,
        cols=cols,
        format="fp32",
        weights=2 * cols if "layer" in function or "group" in function else cols,
        written_rows=5 if function == "weighted_sum" else None,
    )


def agree(op: TensorOp) -> None:
    arrays = op.inputs(np.random.default_rng(0))
    np.testing.assert_allclose(
        op.reference(arrays), torch_reference(op, arrays), rtol=1e-9, atol=1e-11
    )


@given(attentions())
@settings(deadline=None, max_examples=50)
def test_attention_is_that_of_torch(op: Attention) -> None:
    pytest.importorskip("torch")
    agree(op)


@given(convolutions())
@settings(deadline=None, max_examples=50)
def test_convolution_is_that_of_torch(op: Conv2d) -> None:
    pytest.importorskip("torch")
    agree(op)


def test_an_odd_kernel_pads_as_torch_does_by_half_of_it() -> None:
    torch = pytest.importorskip("torch")
    op = Conv2d(
        name="down", batch=1, height=8, width=7, in_channels=3, out_channels=4, stride=2, bias=False
    )
    arrays = op.inputs(np.random.default_rng(0))
    x, b = (torch.from_numpy(arrays[name]).double() for name in ("x", "b"))
    expected = torch.nn.functional.conv2d(
        x.permute(0, 3, 1, 2), b.permute(3, 2, 0, 1), stride=2, padding=1
    )
    np.testing.assert_allclose(op.reference(arrays), expected.permute(0, 2, 3, 1), rtol=1e-12)


@pytest.mark.parametrize("function", sorted(COST))
def test_pointwise_functions_are_those_of_torch(function: str) -> None:
    pytest.importorskip("torch")
    agree(pointwise(function))


@pytest.mark.parametrize("bias", [False, True])
def test_products_are_those_of_torch(bias: bool) -> None:
    pytest.importorskip("torch")
    agree(Matmul(name="mm", m=5, n=7, k=9, batch=3, bias=bias))
    agree(GroupedMatmul(name="experts", counts=(3, 0, 1, 5), n=7, k=9, bias=bias))


@given(attentions())
@settings(deadline=None, max_examples=50)
def test_attention_is_a_softmax_over_what_each_query_may_see(op: Attention) -> None:
    arrays = op.inputs(np.random.default_rng(0))
    result, pairs = op.reference(arrays), 0
    for batch, query, head in np.ndindex(op.batch, op.q_len, op.heads):
        mine = head // (op.heads // op.kv_heads)
        position = op.kv_len - op.q_len + query
        logits, values = [], []
        for token in range(op.kv_len):
            if op.causal and (
                token > position
                or (op.window is not None and token <= position - op.window)
                or (op.chunk is not None and token // op.chunk != position // op.chunk)
            ):
                continue
            key = arrays["k"][batch, token, mine].astype(float)
            logits.append(key @ arrays["q"][batch, query, head] / math.sqrt(op.head_dim))
            values.append(key[: op.v_dim] if op.latent else arrays["v"][batch, token, mine])
        pairs += len(logits)
        powers = np.exp(logits)
        total = powers.sum() + (np.exp(float(arrays["sinks"][head])) if op.sinks else 0.0)
        np.testing.assert_allclose(
            result[batch, query, head], powers @ np.array(values) / total, rtol=1e-9, atol=1e-12
        )
    assert op.demand().flops == 2.0 * pairs * (op.head_dim + op.v_dim)


@given(convolutions())
@settings(deadline=None, max_examples=50)
def test_a_convolution_reads_the_pixels_that_some_filter_covers(op: Conv2d) -> None:
    high, wide = op.pixels
    seen = {
        (y, x)
        for row, column in itertools.product(range(high), range(wide))
        for tap in itertools.product(range(op.kernel), repeat=2)
        for y in [row * op.stride + tap[0] - op.padding]
        for x in [column * op.stride + tap[1] - op.padding]
        if 0 <= y < op.height and 0 <= x < op.width
    }
    assert op.demand().read == 2 * op.batch * op.in_channels * len(seen)


def test_a_product_of_experts_is_one_product_each() -> None:
    op = GroupedMatmul(name="experts", counts=(2, 0, 3), n=4, k=6, bias=True)
    arrays = op.inputs(np.random.default_rng(0))
    experts = [0, 0, 2, 2, 2]
    for row, expert in enumerate(experts):
        token = arrays["tokens"][arrays["rows"][row]].astype(float)
        expected = token @ arrays["b"][expert] + arrays["bias"][expert]
        np.testing.assert_allclose(op.reference(arrays)[row], expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["bf16", "fp16", "fp8", "fp8_block", "mxfp4", "nvfp4", "int4"])
def test_operands_are_what_their_format_can_hold(name: str) -> None:
    op = Matmul(name="mm", m=40, n=24, k=96, a="bf16", b=name, out="bf16")
    arrays = op.inputs(np.random.default_rng(0))
    again = quantise(arrays["b"], name, axis=-2, square=True)
    np.testing.assert_allclose(again, arrays["b"], rtol=2e-7, atol=0)
    assert len(np.unique(arrays["b"])) > 10


def test_equal_seeds_give_equal_operands() -> None:
    for function in COST:
        first, second = (pointwise(function).inputs(np.random.default_rng(7)) for _ in range(2))
        assert all((first[name] == second[name]).all() for name in first)


def test_a_gate_comes_before_its_value() -> None:
    for function in GATED:
        x = np.array([[0.0, 3.0]])
        assert FUNCTIONS[function]({"x": x}) == pytest.approx(1.5 if "sigmoid" in function else 0)


def test_sinks_are_read() -> None:
    op = Attention(
        name="core", batch=1, q_len=1, kv_len=8, heads=4, kv_heads=1, head_dim=8, v_dim=8
    )
    assert replace(op, sinks=True).demand().bytes - op.demand().bytes == 2 * 4


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"kv_heads": 3}, "do not share 3"),
        ({"q_len": 9}, "9 new tokens"),
        ({"latent": True, "v_dim": 9}, "latent values of 9"),
        ({"window": 0}, "window of 0"),
        ({"head_dim": 0}, "every size"),
    ],
)
def test_an_attention_that_cannot_be_is_refused_by_name(change: dict[str, int], what: str) -> None:
    op = Attention(
        name="core", batch=1, q_len=1, kv_len=8, heads=4, kv_heads=1, head_dim=8, v_dim=8
    )
    with pytest.raises(InputError, match=f"attention 'core': .*{what}"):
        replace(op, **change)  # type: ignore[arg-type]


def test_shapes_without_elements_are_refused_where_nothing_can_have_them() -> None:
    with pytest.raises(InputError, match="matmul 'mm'"):
        Matmul(name="mm", m=4, n=0, k=4)
    with pytest.raises(InputError, match="counts"):
        GroupedMatmul(name="mm", counts=(1, -1), n=4, k=4)
    with pytest.raises(InputError, match="conv2d"):
        Conv2d(name="c", batch=1, height=0, width=1, in_channels=1, out_channels=1)
    with pytest.raises(InputError, match="pointwise"):
        Pointwise(name="p", function="silu", rows=-1, cols=4)
    assert Matmul(name="mm", m=0, n=4, k=4).demand().flops == 0
