"""Verification of a model: one check per family, on the tiles that a target runs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.check import verify
from simulator.check.functional import backends, require_ok
from simulator.check.moe_layer import expert_layers
from simulator.check.reduced import default_tiling, family, fewer_splits, reduce
from simulator.check.verify import verify_model, verify_ops
from simulator.costs.lower import lower
from simulator.costs.plan import KernelPlan
from simulator.costs.target import Target
from simulator.errors import CheckError
from simulator.mapping.tiling import Tiling
from simulator.models.graph import Step, build_graph
from simulator.models.load import load_workload
from simulator.ops.attention import Attention
from simulator.ops.conv import Conv2d
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import GraphSegment, Op, OpGraph
from simulator.ops.pointwise import Pointwise
from simulator.specs.load import default_stack, load_hardware
from simulator.specs.workload import Transformer

TILE = Tiling(128, 64, 64, 8)
CORE = Attention(
    name="core", batch=64, q_len=1, kv_len=8192, heads=64, kv_heads=8, head_dim=128, v_dim=128
)
SUM = Pointwise(name="combine", function="weighted_sum", rows=64, cols=2048, written_rows=32)
EXPERTS = OpGraph(
    segments=(
        GraphSegment(
            name="layer",
            repeat=2,
            ops=(
                Matmul(name="first", m=300, n=640, k=512),
                Matmul(name="second", m=600, n=128, k=256),
                GroupedMatmul(name="up", counts=(40, 0, 24), n=512, k=2048),
                GroupedMatmul(name="down", counts=(40, 0, 24), n=2048, k=256),
                SUM,
            ),
        ),
    )
)


def target(name: str) -> Target:
    accelerator = load_hardware(name)
    return Target(accelerator=accelerator, stack=default_stack(accelerator))


@given(m=st.integers(1, 99999), n=st.integers(1, 99999), k=st.integers(1, 99999))
@settings(deadline=None)
def test_a_reduced_product_keeps_the_rest_of_each_axis(m: int, n: int, k: int) -> None:
    small = reduce(Matmul(name="mm", m=m, n=n, k=k), TILE)
    assert isinstance(small, Matmul)
    assert small.n % 64 == n % 64
    assert small.k % 64 == k % 64
    assert small.m % 128 == m % 128 or (m % 128 == 0 and small.m % 2 == 1)
    assert max(small.m / 128, small.n / 64, small.k / (64 * 3)) < 3
    assert small.m <= m
    assert small.n <= n
    assert small.k <= k


def test_a_reduced_attention_keeps_its_groups_and_a_window_that_binds() -> None:
    small = reduce(replace(CORE, window=1024, sinks=True), Tiling(16, 128, split=4))
    assert isinstance(small, Attention)
    assert (small.heads // small.kv_heads, small.kv_heads, small.head_dim) == (8, 2, 128)
    assert small.window is not None
    assert 1 < small.window < small.kv_len < 2000
    assert (small.q_len, small.sinks) == (1, True)
    free = reduce(replace(CORE, window=9000), Tiling(16, 128))
    assert isinstance(free, Attention)
    assert free.window == 9000


def test_reduced_experts_keep_the_idle_one_and_the_busiest() -> None:
    counts = (0, *range(1, 61), 333)
    small = reduce(GroupedMatmul(name="experts", counts=counts, n=4096, k=4096), TILE)
    assert isinstance(small, GroupedMatmul)
    assert len(small.counts) == 8
    assert small.counts[0] == 0
    assert small.counts[-1] == 333


@pytest.mark.parametrize(
    "op",
    [
        Conv2d(
            name="c", batch=8, height=128, width=96, in_channels=960, out_channels=640, stride=2
        ),
        replace(SUM, rows=90001, written_rows=30001),
        Pointwise(name="norm", function="rms_norm", rows=4096, cols=7168, weights=7168),
        Pointwise(name="act", function="silu_mul", rows=4096, cols=53248),
    ],
    ids=lambda op: op.name,
)
def test_reduced_operators_are_small_and_still_of_their_family(op: Op) -> None:
    small = reduce(op, default_tiling(op))
    assert family(small) == family(op)
    assert small.demand().bytes < 4e6
    require_ok(verify_ops([op], None, np.random.default_rng(0), backend="numpy"))


def test_a_small_operator_stays_as_it_is() -> None:
    op = Matmul(name="mm", m=5, n=72, k=80)
    assert reduce(op, TILE) == op
    assert fewer_splits(TILE).split == 3


def test_one_check_stands_for_operators_that_differ_in_size() -> None:
    checks = verify_model(EXPERTS, None, np.random.default_rng(0))
    require_ok(checks)
    names = {check.name for check in checks}
    assert names == {"first", "up", "combine"}
    assert len(checks) == len(names) * len(backends())


@pytest.mark.parametrize("device", ["mi455x", "h100"])
@pytest.mark.parametrize("workload", ["llama-3.1-8b", "gpt-oss-20b"])
@pytest.mark.parametrize(
    "step",
    [Step(batch=1, new=150, context=150), Step(batch=3, new=1, context=900)],
    ids=["prefill", "decode"],
)
def test_a_model_passes_on_the_tiles_of_a_device(workload: str, device: str, step: Step) -> None:
    model = load_workload(workload)
    assert isinstance(model, Transformer)
    checks = verify_model(
        build_graph(model, step),
        target(device),
        np.random.default_rng(0),
        layers=expert_layers(model),
        backend="numpy",
    )
    require_ok(checks)
    kinds = {check.kind for check in checks}
    assert {"matmul", "attention", "pointwise"} <= kinds
    assert ("moe_layer" in kinds) == ("gpt-oss" in workload)
    assert all(math.isfinite(check.max_error + check.tolerance) for check in checks)


def test_a_kernel_timed_for_other_work_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(op: Op, on: Target) -> KernelPlan:
        plan = lower(op, on)
        (tiles, index), *rest = plan.kernel.runs
        return replace(plan, kernel=replace(plan.kernel, runs=((tiles + 1, index), *rest)))

    monkeypatch.setattr(verify, "lower", wrong)
    checks = verify_model(EXPERTS, target("h100"), np.random.default_rng(0), backend="numpy")
    with pytest.raises(CheckError, match="the kernel timed for 'first' does"):
        require_ok(checks)
