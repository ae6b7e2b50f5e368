"""The functional check: blocks add up to the whole on every mover, and a wrong block is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.check import attention, memory
from simulator.check.functional import OpCheck, backends, check_op, examine, require_ok
from simulator.errors import CheckError, InputError
from simulator.mapping.blocks import Block, TileBlocks
from simulator.mapping.descriptors import Layout, TensorDescriptor
from simulator.mapping.tiling import Tiling
from simulator.ops.attention import Attention
from simulator.ops.conv import Conv2d
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Demand, Op, TensorOp
from simulator.ops.pointwise import COST, Pointwise
from simulator.specs.frozen import FrozenMap
from simulator.specs.hardware import DataMover

TDM = DataMover(
    kind="tdm", rank=5, tile_dim=65535, gather_rows=FrozenMap({16: 16, 32: 8}), iterate=256,
    multicast=16, alignment=4,
)  # fmt: skip
TMA = DataMover(kind="tma", rank=5, tile_dim=256, multicast=16, alignment=16)
MOVERS = {"tdm": TDM, "tma": TMA, "threads": None}

GEMM = Matmul(name="gemm", m=100, n=72, k=80, bias=True)
EXPERTS = GroupedMatmul(name="experts", counts=(5, 0, 70, 1), n=72, k=96, bias=True)
CONV = Conv2d(name="conv", batch=2, height=9, width=7, in_channels=40, out_channels=36, stride=2)
PREFILL = Attention(
    name="prefill", batch=2, q_len=70, kv_len=90, heads=4, kv_heads=2, head_dim=32, v_dim=16
)
DECODE = replace(PREFILL, name="decode", q_len=1, kv_len=201, v_dim=32)
OPS: list[TensorOp] = [
    GEMM,
    replace(GEMM, name="batched", batch=2, a="fp16", b="fp16", out="fp32"),
    replace(GEMM, name="deepseek", m=37, k=160, a="fp8_block", b="fp8_block", bias=False),
    replace(GEMM, name="weight-only", m=3, k=160, b="mxfp4", bias=False),
    replace(GEMM, name="double", k=37, a="fp64", b="fp64", out="fp64"),
    EXPERTS,
    replace(EXPERTS, name="mxfp4 experts", b="mxfp4", bias=False),
    CONV,
    replace(CONV, name="patches", kernel=2, stride=2, in_channels=3, bias=False),
    replace(CONV, name="1x1", kernel=1, stride=1),
    PREFILL,
    replace(PREFILL, name="window and sinks", window=20, sinks=True),
    replace(PREFILL, name="chunks", chunk=24),
    replace(PREFILL, name="cross", causal=False, q_len=50, kv_len=33, cached=False),
    DECODE,
    replace(DECODE, name="fp8 cache", kv_format="fp8", sinks=True),
    replace(DECODE, name="three new tokens", q_len=3, window=64),
    Attention(
        name="absorbed", batch=2, q_len=1, kv_len=100, heads=20, kv_heads=1, head_dim=72, v_dim=64,
        latent=True,
    ),
    Attention(
        name="expanded", batch=1, q_len=40, kv_len=40, heads=2, kv_heads=2, head_dim=48, v_dim=32,
        cached=False,
    ),
]  # fmt: skip


def pointwise(function: str, out: str | None = None) -> Pointwise:
    return Pointwise(
        name=function,
        function=function,  # type: ignore[arg-type]
        rows=100,
        cols=240,
        format="fp32" if function in ("softmax", "top_k") else "bf16",
        out=out,
        weights=240 if "norm" in function else 0,
        written_rows=30 if function == "weighted_sum" else None,
    )


def check(op: Op, mover: DataMover | None = TDM, tiling: Tiling | None = None) -> OpCheck:
    return check_op(op, mover, np.random.default_rng(0), tiling=tiling)


@pytest.mark.parametrize("mover", MOVERS)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_blocks_add_up_to_the_whole_operator(op: TensorOp, mover: str) -> None:
    checks = examine(op, MOVERS[mover], np.random.default_rng(0), libraries=backends())
    require_ok(checks)
    for one in checks:
        assert one.flops_counted == one.flops_stated
        assert one.bytes_counted == pytest.approx(one.bytes_stated, rel=1e-12)
        assert one.bytes_moved >= one.bytes_counted * (1 - 1e-12)
        assert one.blocks > 1
        if mover == "threads":
            assert one.copies > one.descriptors == 0


@pytest.mark.parametrize("function", sorted(COST))
def test_blocks_of_pointwise_functions_add_up(function: str) -> None:
    checks = examine(
        pointwise(function),
        TDM,
        np.random.default_rng(0),
        tiling=Tiling(3000),
        libraries=backends(),
    )
    require_ok(checks)


@pytest.mark.parametrize("out", ["fp8", "int8", "mxfp8", "fp8_block", "nvfp4"])
@pytest.mark.parametrize("function", ["quantise", "cache_write", "gather"])
def test_quantised_rows_are_equal_bit_by_bit(function: str, out: str) -> None:
    result = check(pointwise(function, out), tiling=Tiling(3000))
    assert (result.max_error, result.tolerance) == (0, 0)


SIZES = st.integers(1, 40)
TILES = st.builds(
    Tiling, st.integers(1, 20), st.integers(1, 20), st.integers(1, 12), st.integers(1, 4)
)


@given(m=SIZES, n=SIZES, k=SIZES, batch=st.integers(1, 2), bias=st.booleans(), tiling=TILES)
@settings(deadline=None, max_examples=25)
def test_any_product_in_any_tiles(
    m: int, n: int, k: int, batch: int, bias: bool, tiling: Tiling
) -> None:
    check(Matmul(name="any", m=m, n=n, k=k, batch=batch, bias=bias), tiling=tiling)


@given(counts=st.lists(st.integers(0, 20), min_size=1, max_size=4), n=SIZES, k=SIZES, tiling=TILES)
@settings(deadline=None, max_examples=25)
def test_any_product_of_experts_in_any_tiles(
    counts: list[int], n: int, k: int, tiling: Tiling
) -> None:
    check(GroupedMatmul(name="any", counts=tuple(counts), n=n, k=k), tiling=tiling)


@given(
    sizes=st.tuples(*[st.integers(1, 8)] * 4),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    tiling=TILES,
)
@settings(deadline=None, max_examples=25)
def test_any_convolution_in_any_tiles(
    sizes: tuple[int, int, int, int], kernel: int, stride: int, tiling: Tiling
) -> None:
    high, wide, inputs, outputs = sizes
    op = Conv2d(
        name="any", batch=2, height=high, width=wide, in_channels=inputs, out_channels=outputs,
        kernel=kernel, stride=stride,
    )  # fmt: skip
    check(op, tiling=tiling)


@given(
    q_len=st.integers(1, 12),
    past=st.integers(0, 30),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 5),
    window=st.none() | st.integers(1, 20),
    chunk=st.none() | st.integers(1, 20),
    sinks=st.booleans(),
    latent=st.booleans(),
    tiling=TILES,
)
@settings(deadline=None, max_examples=40)
def test_any_attention_in_any_tiles(
    q_len: int,
    past: int,
    kv_heads: int,
    group: int,
    window: int | None,
    chunk: int | None,
    sinks: bool,
    latent: bool,
    tiling: Tiling,
) -> None:
    op = Attention(
        name="any", batch=2, q_len=q_len, kv_len=q_len + past, heads=kv_heads * group,
        kv_heads=kv_heads, head_dim=8, v_dim=6, window=window, chunk=chunk, sinks=sinks,
        latent=latent,
    )  # fmt: skip
    check(op, tiling=tiling)


@given(
    function=st.sampled_from(sorted(COST)),
    rows=st.integers(0, 12),
    cols=st.integers(1, 12),
    block=st.integers(1, 60),
)
@settings(deadline=None, max_examples=40)
def test_any_pointwise_function_in_any_blocks(
    function: str, rows: int, cols: int, block: int
) -> None:
    rows = max(rows, 1) if function == "group_norm_silu" else rows
    written = -(-rows // 3) if function == "weighted_sum" else None
    op = replace(pointwise(function), rows=rows, cols=cols, weights=0, written_rows=written)
    check(op, tiling=Tiling(block))


def test_traffic_of_a_product_is_each_operand_once_per_tile_that_needs_it() -> None:
    op = Matmul(name="gemm", m=96, n=64, k=128)
    result = check(op, tiling=Tiling(32, 32, 32))
    a, b, out = 2 * 96 * 128, 2 * 128 * 64, 2 * 96 * 64
    assert result.bytes_moved == 2 * a + 3 * b + out
    assert result.blocks == 6
    assert result.descriptors == 6 * (2 * 4 + 1)


def test_experts_with_few_rows_take_a_descriptor_each() -> None:
    op = GroupedMatmul(name="experts", counts=(16, 1, 0, 16, 17), n=32, k=64)
    result = check(op, tiling=Tiling(64, 32, 64))
    # Rows of tokens: 1 + 1 + 0 + 1 + 2; weights and a store for each of four experts.
    assert result.descriptors == 5 + 4 + 4


def test_what_a_mover_cannot_do_threads_copy() -> None:
    narrow = replace(GEMM, k=37, bias=False)  # rows of 74 bytes
    assert check(narrow, TDM).copies > 0
    assert check(EXPERTS, TMA).copies >= EXPERTS.rows


def test_a_tolerance_is_the_theory_and_nothing_else() -> None:
    op = Matmul(name="gemm", m=1, n=1, k=64)
    result = check(op)
    arrays = op.inputs(np.random.default_rng(0))
    size = float(op.reference({name: np.abs(array) for name, array in arrays.items()})[0, 0, 0])
    exact = abs(float(op.reference(arrays)[0, 0, 0]))
    sums = (64 + 1 + 3) * 2.0**-24 * size
    assert result.tolerance == pytest.approx(sums + 2.0**-8 * (exact + sums), rel=1e-12)


# What follows breaks one thing at a time: the check must find each.


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_a_perturbed_tile_is_found(op: TensorOp, monkeypatch: pytest.MonkeyPatch) -> None:
    put, stores = memory.put, []

    def wrong(made: object, buffer: np.ndarray, tile: np.ndarray) -> None:
        stores.append(tile)
        put(made, buffer, tile * 1.05 if len(stores) == 1 else tile)  # type: ignore[arg-type]

    monkeypatch.setattr(memory, "put", wrong)
    with pytest.raises(CheckError, match="is off by"):
        check(op)


@pytest.mark.parametrize("op", [GEMM, EXPERTS, CONV, PREFILL, DECODE, pointwise("silu_mul")])
def test_a_dropped_block_is_found(op: TensorOp, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = TileBlocks.__iter__

    def short(blocks: TileBlocks) -> Iterator[Block]:
        yield from list(walk(blocks))[:-1]

    monkeypatch.setattr(TileBlocks, "__iter__", short)
    with pytest.raises(CheckError, match="no block wrote"):
        check(op)


@pytest.mark.parametrize("op", [GEMM, CONV, PREFILL, DECODE, pointwise("silu_mul")])
def test_a_block_that_runs_twice_is_found(op: TensorOp, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = TileBlocks.__iter__

    def long(blocks: TileBlocks) -> Iterator[Block]:
        every = list(walk(blocks))
        yield from [*every, every[0]]

    monkeypatch.setattr(TileBlocks, "__iter__", long)
    with pytest.raises(CheckError, match="written more than once"):
        check(op)


@pytest.mark.parametrize("op", [GEMM, EXPERTS, CONV, PREFILL, DECODE, pointwise("rms_norm")])
def test_a_wrong_stride_is_found(op: TensorOp, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Layout.of

    def wrong(shape: tuple[int, ...], bits: int = 16, base: int = 0) -> Layout:
        layout = right(shape, bits, base)
        off = [step - 2 if step > 4 else step for step in layout.strides]
        return replace(layout, strides=tuple(off))

    monkeypatch.setattr(Layout, "of", wrong)
    with pytest.raises(CheckError):
        check(op)


@pytest.mark.parametrize("op", [GEMM, EXPERTS, CONV])
def test_a_tile_loaded_from_the_wrong_place_is_found(
    op: TensorOp, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower, calls = memory.lower, []

    def wrong(
        layout: Layout, start: tuple[int, ...], *rest: object, **more: object
    ) -> tuple[TensorDescriptor, ...]:
        calls.append(start)
        if len(calls) == 2:
            start = (*start[:-1], start[-1] + 1)
        return lower(layout, start, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(memory, "lower", wrong)
    with pytest.raises(CheckError, match="is off by"):
        check(op)


def test_a_mask_that_is_off_by_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = PREFILL.mask()
    whole[np.arange(70), np.arange(70) + 20] = False  # no query sees its own token
    monkeypatch.setattr(Attention, "mask", lambda op: whole)
    with pytest.raises(CheckError, match="is off by"):
        check(PREFILL)


def test_a_softmax_that_is_not_rescaled_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(state: attention._State, largest: object, total: object, values: object) -> None:
        state.largest = np.maximum(state.largest, largest)
        state.total = state.total + total
        state.values = state.values + values

    monkeypatch.setattr(attention._State, "add", add)
    with pytest.raises(CheckError, match="is off by"):
        check(PREFILL)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"flops": 1.0}, "blocks did .* FLOP"),
        ({"weights": 2.0}, "weights: .* bytes moved"),
        ({"written": -2.0}, "written: .* bytes moved"),
        ({"kv_read": 2.0}, "kv_read: 0 bytes moved"),
    ],
)
def test_stated_work_that_is_not_done_is_found(
    change: dict[str, float], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right: Demand = GEMM.demand()
    more = {name: getattr(right, name) + value for name, value in change.items()}
    monkeypatch.setattr(Matmul, "demand", lambda op: replace(right, **more))
    with pytest.raises(CheckError, match=what):
        check(GEMM)


def test_numpy_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert backends() == ("numpy",)


def test_every_fault_is_named_with_operator_and_library() -> None:
    good = check(GEMM)
    bad = replace(good, faults=("first", "second"))
    assert good.ok
    assert not bad.ok
    with pytest.raises(CheckError) as caught:
        require_ok([good, bad])
    assert str(caught.value).splitlines() == [
        "matmul 'gemm' against numpy: first",
        "matmul 'gemm' against numpy: second",
    ]


def test_an_operator_that_computes_nothing_is_refused() -> None:
    class Wait(Op):
        kind = "wait"

        def demand(self) -> Demand:
            return Demand()

    with pytest.raises(InputError, match="'idle' of kind wait"):
        check(Wait(name="idle"))


def test_equal_seeds_give_equal_checks() -> None:
    assert check(DECODE) == check(DECODE)
