"""Fitted times and events are one truth: what a table says of an operator, a run says too."""

from __future__ import annotations

import numpy as np
import pytest

from simulator import predict
from simulator.api import make_scenario, simulate
from simulator.costs.families.of_op import query_of
from simulator.costs.target import Target
from simulator.ops.attention import Attention
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Op
from simulator.ops.pointwise import Pointwise
from simulator.runs.fitted import within_gap
from simulator.specs.load import default_stack, load_hardware
from simulator.tables.alone import alone

LINES = (
    ("llama-3.1-8b", "h200", {"phase": "decode", "batch": 32, "context": 4096}),
    ("llama-3.1-8b", "mi455x", {"phase": "prefill", "input": 2048}),
    ("gpt-oss-20b", "b200", {"phase": "decode", "batch": 16, "context": 1024}),
    ("mixtral-8x7b", "mi355x", {"phase": "prefill", "input": 512}),
)
OPS: tuple[Op, ...] = (
    Matmul(name="product", m=64, n=4096, k=8192),
    Matmul(name="narrow", m=4096, n=4096, k=4096, a="fp8", b="fp8"),
    Matmul(name="batched", batch=16, m=32, n=512, k=128),
    Attention(
        name="prompt", batch=2, q_len=2048, kv_len=2048, heads=32, kv_heads=8, head_dim=128,
        v_dim=128,
    ),
    Attention(
        name="token", batch=16, q_len=1, kv_len=8192, heads=32, kv_heads=8, head_dim=128,
        v_dim=128,
    ),
    Pointwise(name="norm", function="rms_norm", rows=4096, cols=4096, weights=4096),
)  # fmt: skip


def target_of(device: str) -> Target:
    hardware = load_hardware(device)
    return Target(accelerator=hardware, stack=default_stack(hardware))


@pytest.mark.parametrize(("model", "device", "options"), LINES)
def test_an_operator_alone_takes_its_fitted_time_in_every_fidelity(
    model: str, device: str, options: dict[str, object]
) -> None:
    runs = [
        simulate(make_scenario(model, device, fidelity=fidelity, **options))
        for fidelity in ("roofline", "cohort", "tile")
    ]
    first = {op.name: op.time_each for op in runs[0].ops}
    for other in runs[1:]:
        assert other.latency == pytest.approx(runs[0].latency, rel=1e-9)
        for op in other.ops:
            assert op.time_each == pytest.approx(first[op.name], rel=1e-9)


@pytest.mark.parametrize("device", ["h200", "b200", "mi355x", "mi455x"])
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_a_run_and_a_table_give_one_time(op: Op, device: str) -> None:
    known = alone(op, target_of(device))
    query = query_of(op)
    assert known is not None
    assert query is not None
    table = dict(query.sizes.items()) | {
        "op": np.array([query.op]), "dtype": np.array([query.dtype]),
    }  # fmt: skip
    if query.kv_dtype and query.op != "rmsnorm":
        table["kv_dtype"] = np.array([query.kv_dtype])
    answer = predict(known.family, table, device)
    assert answer["latency_us"][0] == pytest.approx(known.seconds * 1e6, rel=1e-6)
    assert answer["lower_us"][0] == pytest.approx(known.seconds * known.lower * 1e6, rel=1e-6)
    assert answer["upper_us"][0] == pytest.approx(known.seconds * known.upper * 1e6, rel=1e-6)


def test_two_halves_of_a_layer_of_experts_take_the_time_of_the_layer() -> None:
    counts = (7, 0, 130, 1, 64, 3, 0, 51)
    up = GroupedMatmul(name="up", counts=counts, n=2 * 1408, k=2048, half="gate_up", tokens=128)
    down = GroupedMatmul(name="down", counts=counts, n=2048, k=1408, half="down", tokens=128)
    target = target_of("h200")
    first, second = alone(up, target), alone(down, target)
    assert first is not None
    assert second is not None
    assert first.seconds / second.seconds == pytest.approx(2, rel=1e-9)
    assert first.library == second.library


def test_short_rows_from_anywhere_take_longer_than_long_ones() -> None:
    """64 B rows of HBM4 come at about half the rate of a stream, by the window of activations."""
    target = target_of("mi455x")
    short, long = (
        alone(Pointwise(name="rows", function="gather", rows=rows, cols=cols), target)
        for rows, cols in ((2**25, 32), (2**17, 8192))
    )
    assert short is not None
    assert long is not None
    assert 1.5 < short.seconds / long.seconds < 2.5


def test_the_gap_between_kernels_is_counted_once() -> None:
    stack = default_stack(load_hardware("h200"))
    assert within_gap(10e-6, stack) == pytest.approx(10e-6 - stack.launch.gap)
    assert within_gap(stack.launch.gap, stack) == stack.launch.gap / 2


def test_an_interval_is_about_the_latency_and_wider_where_nothing_was_measured() -> None:
    near = simulate(make_scenario("llama-3.1-8b", "h200", batch=8, context=1024))
    far = simulate(make_scenario("llama-3.1-8b", "mi455x", batch=8, context=1024))
    widths = []
    for result in (near, far):
        assert result.interval is not None
        assert result.interval.lower < result.latency < result.interval.upper
        widths.append(result.interval.upper / result.interval.lower)
    assert widths[1] > widths[0]


def test_an_answer_names_the_fits_behind_it_and_how_far_they_reach() -> None:
    near = simulate(make_scenario("llama-3.1-8b", "h200", batch=8, context=1024))
    far = simulate(make_scenario("llama-3.1-8b", "mi455x", batch=8, context=1024))
    bases = [
        {n.path.split(".")[1]: n.basis for n in r.provenance.numbers if n.path.startswith("fits.")}
        for r in (near, far)
    ]
    assert bases[0]["gemm"] == "measured"
    assert bases[1]["gemm"] == "estimated"
    changed = simulate(
        make_scenario(
            "llama-3.1-8b", "h200", batch=8, context=1024, overrides=["compute.units=140"]
        )
    )
    assert any(
        n.path == "fits.gemm.cublas" and n.basis == "derived" for n in changed.provenance.numbers
    )
