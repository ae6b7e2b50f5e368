"""Gradients of operators against autograd, torch's FLOP counts and hand arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.ops.attention import Attention
from simulator.ops.backward import (
    BACKWARD,
    AttentionBackward,
    Cast,
    PointwiseBackward,
    grouped_input_gradient,
    grouped_weight_gradient,
    input_gradient,
    model_flops,
    weight_gradient,
)
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Op
from simulator.ops.optimizer import AdamUpdate, GradientNorm
from simulator.ops.pointwise import COST, Pointwise

SIZES = st.integers(1, 64)


def core(head_dim: int = 128, v_dim: int = 128, length: int = 64) -> Attention:
    return Attention(
        name="core", batch=2, q_len=length, kv_len=length, heads=8, kv_heads=2,
        head_dim=head_dim, v_dim=v_dim, cached=False,
    )  # fmt: skip


def test_gradient_products_are_those_of_finite_differences() -> None:
    rng = np.random.default_rng(0)
    op = Matmul(name="p", m=5, n=3, k=4)
    x, w, dy = rng.standard_normal((5, 4)), rng.standard_normal((4, 3)), rng.standard_normal((5, 3))
    backward, weights = input_gradient(op, "bf16"), weight_gradient(op, "fp32")
    for product, a, b in ((backward, dy, w.T), (weights, x.T, dy)):
        assert (product.m, product.k) == a.shape
        assert (product.k, product.n) == b.shape
    dx = backward.reference({"a": dy[None], "b": w.T[None]})[0]
    dw = weights.reference({"a": x.T[None], "b": dy[None]})[0]

    def loss() -> float:
        return float((op.reference({"a": x[None], "b": w[None]})[0] * dy).sum())

    for tensor, gradient in ((x, dx), (w, dw)):
        for place in np.ndindex(*tensor.shape):
            kept = tensor[place]
            tensor[place] = kept + 1e-4
            above = loss()
            tensor[place] = kept - 1e-4
            below = loss()
            tensor[place] = kept
            assert (above - below) / 2e-4 == pytest.approx(gradient[place], abs=1e-7)


@given(m=SIZES, n=SIZES, k=SIZES)
def test_each_gradient_of_a_product_costs_the_product(m: int, n: int, k: int) -> None:
    op = Matmul(name="p", m=m, n=n, k=k, bias=True)
    for gradient in (input_gradient(op, "bf16"), weight_gradient(op, "fp32")):
        assert gradient.demand().flops == op.demand().flops == model_flops(gradient)


@given(m=SIZES, n=SIZES, k=SIZES)
def test_gradients_of_weights_are_read_and_written_where_they_accumulate(
    m: int, n: int, k: int
) -> None:
    op = Matmul(name="p", m=m, n=n, k=k)
    for kept, size in (("fp32", 4), ("bf16", 2)):
        demand = weight_gradient(op, kept).demand()
        assert demand.bytes == 2 * (m * k + m * n) + 2 * size * k * n


@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=6), n=SIZES, k=SIZES)
def test_gradients_of_experts_cost_the_product_and_keep_idle_experts_alone(
    counts: list[int], n: int, k: int
) -> None:
    op = GroupedMatmul(name="e", counts=tuple(counts), n=n, k=k)
    weights = grouped_weight_gradient(op, "fp32")
    assert grouped_input_gradient(op).demand().flops == op.demand().flops
    assert weights.demand().flops == weights.priced_as.demand().flops
    assert weights.demand().written == 4 * sum(count > 0 for count in counts) * n * k


@pytest.mark.parametrize(("half", "n", "k"), [("gate_up", 32, 8), ("down", 8, 16)])
def test_the_input_gradient_of_an_expert_swaps_its_sizes(half: str, n: int, k: int) -> None:
    op = GroupedMatmul(name="e", counts=(3, 2), n=n, k=k, half=half)  # type: ignore[arg-type]
    gradient = grouped_input_gradient(op)
    assert (gradient.n, gradient.k) == (k, n)
    # The layer of plain experts that it is half of has as many weights.
    assert gradient.half == ("plain_down" if half == "gate_up" else "up")


def test_attention_backward_has_the_flops_that_torch_counts() -> None:
    counter = pytest.importorskip("torch.utils.flop_counter")
    for sizes in ((128, 128), (192, 128)):
        forward = core(*sizes)
        q, k, v = (2, 8, 64, sizes[0]), (2, 8, 64, sizes[0]), (2, 8, 64, sizes[1])
        whole = counter.sdpa_backward_flop_count((2, 8, 64, sizes[1]), q, k, v)
        share = forward.pairs() / (64 * 64)  # torch counts no mask
        backward = AttentionBackward(name="b", forward=forward)
        assert backward.demand().flops == pytest.approx(share * whole)


def test_attention_backward_is_five_products_of_which_the_model_asks_four() -> None:
    backward = AttentionBackward(name="b", forward=core())
    forward = core().demand().flops
    assert backward.demand().flops == 2.5 * forward
    assert model_flops(backward) == backward.model_flops == 2 * forward
    latent = AttentionBackward(name="b", forward=core(192, 128))
    assert latent.demand().flops == pytest.approx(2.6 * core(192, 128).demand().flops)


def test_attention_backward_writes_as_many_gradients_as_there_are_inputs() -> None:
    demand = AttentionBackward(name="b", forward=core()).demand()
    queries, keys = 2 * 64 * 8 * 128 * 2, 2 * 64 * 2 * 256 * 2
    assert demand.written == queries + keys
    assert demand.read == queries + keys + 2 * queries


@pytest.mark.parametrize("function", sorted(BACKWARD))
def test_a_pointwise_gradient_is_priced_by_its_bytes(function: str) -> None:
    forward = Pointwise(
        name="p", function=function, rows=4, cols=8,  # type: ignore[arg-type]
        written_rows=2 if function == "weighted_sum" else None,
    )  # fmt: skip
    backward = PointwiseBackward(name="g", forward=forward)
    inputs, outputs, _ = BACKWARD[function]
    assert backward.demand().bytes == 2 * 32 * (inputs + outputs)
    alike = backward.factor * backward.priced_as.demand().bytes
    assert alike == pytest.approx(backward.demand().bytes)


def test_a_gated_activation_reads_three_tensors_and_writes_two_on_the_way_back() -> None:
    forward = Pointwise(name="act", function="silu_mul", rows=4, cols=8)
    assert PointwiseBackward(name="g", forward=forward).factor == pytest.approx(5 / 3)


def test_an_embedding_gradient_adds_to_fp32_rows() -> None:
    look = Pointwise(name="embedding", function="gather", rows=4, cols=8)
    demand = PointwiseBackward(name="g", forward=look, kept="fp32").demand()
    assert (demand.read, demand.written) == (32 * 2 + 32 * 4, 32 * 4)


def test_functions_without_a_gradient_are_refused() -> None:
    assert set(COST) - set(BACKWARD) == {"add", "quantise", "cache_write"}
    moved = Pointwise(name="cache", function="cache_write", rows=1, cols=1)
    with pytest.raises(InputError, match="no gradient"):
        PointwiseBackward(name="g", forward=moved)


def test_a_cast_writes_both_layouts() -> None:
    cast = Cast(name="c", rows=4, cols=8, format="bf16", out="fp8")
    assert cast.demand().bytes == 32 * (2 + 1 + 1)
    assert cast.factor == pytest.approx(4 / 3)


@pytest.mark.parametrize(("gradients", "size"), [("fp32", 30), ("bf16", 28)])
def test_adam_moves_thirty_bytes_per_weight(gradients: str, size: int) -> None:
    update = AdamUpdate(name="adam", elements=8192, gradients=gradients)
    assert update.demand().bytes == size * 8192
    assert update.factor == pytest.approx(size / 12)


@given(elements=st.integers(0, 10**9))
def test_flat_buffers_are_priced_by_their_bytes(elements: int) -> None:
    ops: list[AdamUpdate | GradientNorm] = [
        AdamUpdate(name="adam", elements=elements),
        GradientNorm(name="norm", elements=elements),
    ]
    for op in ops:
        priced: Op = op.priced_as
        assert op.factor * priced.demand().bytes == pytest.approx(op.demand().bytes)
