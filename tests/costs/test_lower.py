"""Operators as kernels: what is conserved, what never gets slower, which formats multiply."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.costs.lower import alternatives, lower
from simulator.costs.target import Target
from simulator.engine.execute import run_kernel
from simulator.errors import SpecError
from simulator.mapping.blocks import decompose
from simulator.ops.attention import Attention
from simulator.ops.conv import Conv2d
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Op
from simulator.ops.pointwise import Pointwise
from simulator.policies.order import longest_first
from simulator.specs.load import default_stack, load_hardware

NAMES = ("mi455x", "mi300x", "h100", "b200", "a100")
TARGETS = {
    name: Target(accelerator=load_hardware(name), stack=default_stack(load_hardware(name)))
    for name in NAMES
}
names = st.sampled_from(NAMES)
size = st.integers(1, 5000)


def matmuls() -> st.SearchStrategy[Op]:
    return st.builds(
        lambda m, n, k, batch: Matmul(name="x", m=m, n=n, k=k, batch=batch),
        size, size, size, st.sampled_from([1, 1, 8]),
    )  # fmt: skip


def grouped() -> st.SearchStrategy[Op]:
    return st.builds(
        lambda counts, n, k: GroupedMatmul(name="x", counts=tuple(counts), n=n, k=k),
        st.lists(st.integers(0, 300), min_size=1, max_size=32), size, size,
    )  # fmt: skip


def attentions() -> st.SearchStrategy[Op]:
    def build(
        batch: int, q: int, past: int, kv: int, group: int, dim: int, window: int | None
    ) -> Op:
        return Attention(
            name="x", batch=batch, q_len=q, kv_len=q + past, heads=kv * group, kv_heads=kv,
            head_dim=dim, v_dim=dim, window=window,
        )  # fmt: skip

    return st.builds(
        build,
        st.integers(1, 64), st.integers(1, 2000), st.integers(0, 3000), st.sampled_from([1, 2, 8]),
        st.sampled_from([1, 4, 8]), st.sampled_from([64, 128, 256]),
        st.sampled_from([None, None, 128, 1000]),
    )  # fmt: skip


def others() -> st.SearchStrategy[Op]:
    points = st.builds(lambda r, c: Pointwise(name="x", function="add", rows=r, cols=c), size, size)
    images = st.builds(
        lambda b, s, i, o: Conv2d(
            name="x", batch=b, height=s, width=s, in_channels=i, out_channels=o
        ),
        st.integers(1, 8), st.sampled_from([7, 16, 64]), st.integers(1, 640), st.integers(1, 640),
    )  # fmt: skip
    return points | images


def seconds(op: Op, target: Target) -> float:
    return min(run_kernel(plan.kernel).makespan for plan in alternatives(op, target))


@settings(max_examples=150, deadline=None)
@given(matmuls() | grouped() | attentions() | others(), names)
def test_a_kernel_does_the_work_of_its_operator_and_moves_no_less_than_its_operands(
    op: Op, name: str
) -> None:
    target, demand = TARGETS[name], op.demand()
    for plan in alternatives(op, target):
        kernel = plan.kernel
        work = demand.vector_flops if isinstance(op, Pointwise) else demand.flops
        assert kernel.flops == pytest.approx(work, rel=1e-9)
        assert kernel.pipe_bytes >= demand.bytes * (1 - 1e-9)
        assert 1 <= kernel.units <= target.units
        written = sum(n * kernel.classes[c].store for n, c in kernel.runs)
        assert written == pytest.approx(demand.written + demand.kv_written, rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(size, size, size, st.sampled_from([1, 3, 8]), names)
def test_the_tiles_that_are_timed_are_the_blocks_that_are_computed(
    m: int, n: int, k: int, batch: int, name: str
) -> None:
    plan = lower(Matmul(name="x", m=m, n=n, k=k, batch=batch), TARGETS[name])
    tiling = plan.tiling
    blocks = decompose((m, n), (tiling.rows, tiling.columns)).count
    slabs, rest = divmod(plan.kernel.tiles, batch * blocks * tiling.split)
    assert rest == 0
    assert 1 <= slabs <= -(-k // tiling.depth)


@settings(max_examples=150, deadline=None)
@given(matmuls() | attentions() | others(), names, st.sampled_from([1.01, 1.2, 2.0, 5.0]))
def test_more_bandwidth_units_or_clock_is_never_slower(op: Op, name: str, factor: float) -> None:
    target = TARGETS[name]
    device = target.accelerator
    compute, (dram, *caches) = device.compute, device.memory
    held = compute.held_clock
    faster = (
        replace(device, memory=(replace(dram, bandwidth=dram.bandwidth * factor), *caches)),
        replace(device, compute=replace(compute, units=int(compute.units * factor) + 1)),
        replace(
            device,
            compute=replace(
                compute, clock=compute.clock * factor, held_clock=held and held * factor
            ),
        ),
    )
    base = seconds(op, target)
    for better in faster:
        changed = Target(accelerator=better, stack=target.stack)
        assert seconds(op, changed) <= base * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(size, size, size, st.integers(1, 200), names)
def test_fewer_rows_are_never_slower(m: int, n: int, k: int, fewer: int, name: str) -> None:
    less, target = max(1, m - fewer), TARGETS[name]
    assert seconds(Matmul(name="x", m=less, n=n, k=k), target) <= seconds(
        Matmul(name="x", m=m, n=n, k=k), target
    ) * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6000), st.integers(1, 1000), st.integers(1, 64), names)
def test_a_shorter_cache_is_never_slower(tokens: int, fewer: int, batch: int, name: str) -> None:
    def decode(length: int) -> Attention:
        return Attention(
            name="x", batch=batch, q_len=1, kv_len=length, heads=64, kv_heads=8, head_dim=128,
            v_dim=128,
        )  # fmt: skip

    short, long, target = decode(max(1, tokens - fewer)), decode(tokens), TARGETS[name]
    assert seconds(short, target) <= seconds(long, target) * (1 + 1e-9)


def test_an_expert_without_rows_costs_nothing() -> None:
    with_idle = GroupedMatmul(name="x", counts=(5, 0, 7, 0), n=512, k=512)
    without = GroupedMatmul(name="x", counts=(5, 7), n=512, k=512)
    target = TARGETS["mi455x"]
    assert lower(with_idle, target).kernel == lower(without, target).kernel


def test_a_batch_without_any_routed_row_still_lowers() -> None:
    plan = lower(GroupedMatmul(name="x", counts=(0, 0), n=512, k=512), TARGETS["h100"])
    assert plan.kernel.tiles == 0
    assert run_kernel(plan.kernel).makespan == plan.kernel.fixed


def test_the_widest_operand_decides_and_a_missing_format_widens() -> None:
    a100, h100 = TARGETS["a100"], TARGETS["h100"]
    assert h100.matrix_format("bf16", "mxfp4") == "bf16"
    assert h100.matrix_format("fp8_block", "fp8_block") == "fp8"
    assert a100.matrix_format("fp8", "fp8") == "bf16"
    assert h100.matrix_format("nvfp4", "nvfp4") == "fp8"


def test_a_device_without_any_wide_enough_format_is_named() -> None:
    device = TARGETS["h100"].accelerator
    only = replace(
        device, compute=replace(device.compute, matrix=type(device.compute.matrix)({"fp8": 8192.0}))
    )
    target = Target(accelerator=only, stack=TARGETS["h100"].stack)
    with pytest.raises(SpecError, match=r"no matrix rate for bf16.*formats with a rate: fp8"):
        lower(Matmul(name="x", m=8, n=8, k=8), target)


def test_a_format_of_its_own_in_the_library_goes_before_the_rate_that_multiplies_it() -> None:
    target = TARGETS["mi300x"]
    library = target.stack.matmul.efficiency
    assert library["fp8_block"] < library["fp8"]
    blocked = target.matrix_rate("fp8", library, "fp8_block")
    assert blocked / target.matrix_rate("fp8", library) == pytest.approx(
        library["fp8_block"] / library["fp8"]
    )


def test_one_large_product_runs_near_the_rate_that_the_library_reaches() -> None:
    op = Matmul(name="x", m=8192, n=8192, k=8192)
    for target in TARGETS.values():
        reached = op.demand().flops / seconds(op, target)
        rate = target.matrix_rate("bf16", target.stack.matmul.efficiency) * target.units
        assert 0.8 * rate <= reached <= rate


def test_a_weight_stream_runs_near_the_bandwidth_that_was_measured() -> None:
    op = Matmul(name="x", m=8, n=28672, k=8192)
    for target in TARGETS.values():
        assert 0.85 <= op.demand().bytes / seconds(op, target) / target.bandwidth <= 1


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 50)), min_size=1), st.integers(1, 40))
def test_longest_first_is_the_list_schedule_of_single_units(
    jobs: list[tuple[int, int]], units: int
) -> None:
    free = [0] * units
    for count, length in sorted(jobs, key=lambda job: -job[1]):
        for _ in range(count):
            free.sort()
            free[0] += length
    assert longest_first(jobs, units) == max(free)
