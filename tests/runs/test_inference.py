"""Whole runs: bounds, agreement of fidelities, monotony, what is counted, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.api import make_scenario, simulate
from simulator.errors import BoundsError, CapacityError, SpecError
from simulator.models.arithmetic import kv_bytes_at, weight_bytes
from simulator.models.load import load_workload
from simulator.result import Result
from simulator.runs.inference import decode_samples
from simulator.specs.scenario import Scenario

DEVICES = ("mi455x", "mi300x", "h200", "b200")
CASES = [
    ("llama-3.1-8b", {"phase": "decode", "batch": 32, "context": 4096}),
    ("llama-3.1-8b", {"phase": "prefill", "batch": 1, "input": 1000}),
    ("gpt-oss-20b", {"phase": "decode", "batch": 7, "context": 333}),
    ("qwen3-30b-a3b", {"phase": "prefill", "batch": 2, "input": 300}),
    ("gemma-3-1b", {"phase": "generate", "batch": 3, "input": 700, "output": 30}),
    ("sdxl", {"phase": "denoise", "batch": 1}),
]


def roomy(scenario: Scenario) -> Scenario:
    """The same device with memory for anything, so that only time is at stake."""
    device = scenario.hardware
    dram = replace(device.dram, capacity=1e16)
    return replace(scenario, hardware=replace(device, memory=(dram, *device.memory[1:])))


@pytest.mark.parametrize("device", ["mi455x", "h200"])
@pytest.mark.parametrize(("model", "options"), CASES)
def test_tile_and_cohort_give_the_same_bits_and_all_fidelities_stay_in_bounds(
    model: str, options: dict[str, Any], device: str
) -> None:
    results = {
        fidelity: simulate(make_scenario(model, device, fidelity=fidelity, **options))
        for fidelity in ("roofline", "cohort", "tile")
        if fidelity != "tile" or model in ("gpt-oss-20b", "qwen3-30b-a3b", "gemma-3-1b")
    }
    cohort = results["cohort"]
    if "tile" in results:
        assert results["tile"].latency == cohort.latency
        assert results["tile"].events > cohort.events
    for result in results.values():
        assert result.bounds == cohort.bounds or result.provenance.fidelity == "roofline"
        assert result.bounds.lower <= result.latency <= result.bounds.upper


def test_a_result_outside_its_bounds_is_refused() -> None:
    result = simulate(make_scenario("llama-3.1-8b", "h200"))
    with pytest.raises(BoundsError, match="outside its bounds"):
        replace(result, latency=2 * result.bounds.upper)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "deepseek-v3"]),
    st.sampled_from(DEVICES),
    st.sampled_from(["prefill", "decode"]),
    st.integers(1, 64),
    st.integers(1, 4096),
    st.sampled_from([1.1, 2.0, 4.0]),
)
def test_more_bandwidth_units_or_clock_is_never_slower(
    model: str, device: str, phase: str, batch: int, length: int, factor: float
) -> None:
    lengths = {"context": length} if phase == "decode" else {"input": -(-length // batch)}
    base = roomy(make_scenario(model, device, phase=phase, batch=batch, **lengths))
    chip = base.hardware
    compute, (dram, *caches) = chip.compute, chip.memory
    held = compute.held_clock
    better = (
        replace(chip, memory=(replace(dram, bandwidth=dram.bandwidth * factor), *caches)),
        replace(chip, compute=replace(compute, units=int(compute.units * factor))),
        replace(
            chip,
            compute=replace(
                compute, clock=compute.clock * factor, held_clock=held and held * factor
            ),
        ),
    )
    latency = simulate(base).latency
    for faster in better:
        assert simulate(replace(base, hardware=faster)).latency <= latency * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "gpt-oss-20b"]),
    st.sampled_from(DEVICES),
    st.integers(2, 64),
    st.integers(2, 4096),
    st.data(),
)
def test_fewer_tokens_are_never_slower(
    model: str, device: str, batch: int, length: int, data: st.DataObject
) -> None:
    # A context counts the new token: of one token alone there is no cache to decode from.
    decode = roomy(make_scenario(model, device, batch=batch, context=length + 1))
    prefill = roomy(make_scenario(model, device, input=length))
    fewer = data.draw(st.integers(1, length - 1))
    smaller = data.draw(st.integers(1, batch - 1))
    for less, more in (
        (replace(decode, context=fewer + 1), decode),
        (replace(decode, batch=smaller), decode),
        (replace(prefill, input=fewer), prefill),
    ):
        assert simulate(less).latency <= simulate(more).latency * (1 + 1e-9)


def test_prefill_time_grows_strictly_with_its_tokens() -> None:
    times = [simulate(make_scenario("llama-3.1-8b", "h200", input=n)).latency for n in (1, 2048)]
    assert times[1] > 2 * times[0]


@pytest.mark.parametrize(("model", "options"), CASES)
def test_the_same_scenario_gives_the_same_bytes_of_json(
    model: str, options: dict[str, Any]
) -> None:
    first, second = (simulate(make_scenario(model, "mi455x", **options)) for _ in range(2))
    assert first.to_json() == second.to_json()
    assert first.to_json() != simulate(make_scenario(model, "mi300x", **options)).to_json()


@pytest.mark.parametrize(("model", "options"), CASES)
def test_json_has_no_nan_and_round_trips(
    model: str, options: dict[str, Any], tmp_path: Path
) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    result = simulate(make_scenario(model, "b200", **options))
    json.loads(result.to_json(), parse_constant=refuse)
    result.save(tmp_path / "result.json")
    assert Result.load(tmp_path / "result.json") == result


@pytest.mark.parametrize(("model", "options"), CASES)
def test_the_breakdowns_add_up_to_the_latency(model: str, options: dict[str, Any]) -> None:
    result = simulate(make_scenario(model, "mi455x", **options))
    assert math.fsum(op.time for op in result.ops) == pytest.approx(result.latency, rel=1e-9)
    assert math.fsum(result.breakdown.values()) == pytest.approx(result.latency, rel=1e-9)
    assert math.fsum(op.flops for op in result.ops if op.kind != "pointwise") == pytest.approx(
        result.model_flops, rel=1e-9
    )


def test_decode_reads_every_weight_but_the_embedding_and_the_whole_cache_once() -> None:
    model = load_workload("llama-3.1-70b")
    result = simulate(make_scenario(model, "mi455x", batch=32, context=4096))
    rows = 32 * 8192 * 2  # the embedding rows that are gathered count as activations
    embedding = 128256 * 8192 * 2
    expected = weight_bytes(model) - embedding + 32 * kv_bytes_at(model, 4096)
    assert result.model_bytes == pytest.approx(expected, rel=1e-4)
    assert rows < 1e-4 * expected


def test_memory_is_weights_cache_and_what_runs_beside_them() -> None:
    use = simulate(make_scenario("llama-3.1-70b", "mi455x", batch=32, context=4096)).memory
    sizes = {part.name: part.bytes for part in use.parts}
    assert sizes["weights"] == 2 * 70_553_706_496
    assert sizes["KV cache"] == 32 * 4096 * 327_680
    assert use.total == pytest.approx(sum(sizes.values()))
    assert use.capacity == 432e9


def test_mfu_and_mbu_never_exceed_one() -> None:
    for device in DEVICES:
        for options in ({"batch": 64, "context": 2048}, {"input": 8192}):
            result = simulate(make_scenario("llama-3.1-8b", device, **options))
            assert 0 < result.mfu < 1
            assert 0 < result.mbu < 1


def test_405b_in_bf16_on_one_h100_is_refused_with_what_would_hold_it() -> None:
    with pytest.raises(CapacityError) as error:
        simulate(make_scenario("llama-3.1-405b", "h100", batch=128, context=2048))
    text = str(error.value)
    assert "weights 811.7 GB" in text
    assert f"KV cache {128 * 2048 * 516_096 / 1e9:.1f} GB" in text
    assert "865.8 GB short" in text
    assert "by capacity 12 x h100 hold it, 16 with tensor parallelism" in text
    assert error.value.exit_code == 3


def test_405b_in_fp8_takes_three_mi300x_by_capacity_and_four_for_tensor_parallelism() -> None:
    with pytest.raises(CapacityError, match=r"by capacity 3 x mi300x hold it, 4 with tensor"):
        simulate(make_scenario("llama-3.1-405b", "mi300x", dtype="fp8", context=128))


def test_a_batch_that_does_not_fit_names_the_largest_that_does() -> None:
    with pytest.raises(CapacityError) as error:
        simulate(make_scenario("llama-3.1-8b", "h100", batch=256, context=8192))
    batch = int(str(error.value).rsplit(" ", 1)[1].replace(",", ""))
    simulate(make_scenario("llama-3.1-8b", "h100", batch=batch, context=8192))
    with pytest.raises(CapacityError):
        simulate(make_scenario("llama-3.1-8b", "h100", batch=batch + 1, context=8192))


def test_every_fault_of_a_scenario_is_named_at_once() -> None:
    with pytest.raises(SpecError) as error:
        make_scenario("llama-3.1-8b", "h100", batch=0, context=10**9)
    assert len(error.value.faults) == 3
    assert {fault.path for fault in error.value.faults} == {"batch", "context"}


@given(st.integers(1, 5000), st.integers(0, 5000), st.floats(0, 10), st.floats(0, 1e-2))
def test_sampled_contexts_sum_a_linear_step_time_exactly(
    prompt: int, steps: int, base: float, slope: float
) -> None:
    sampled = sum(w * (base + slope * context) for context, w in decode_samples(prompt, steps))
    exact = float(np.sum(base + slope * (prompt + np.arange(1, steps + 1))))
    assert sampled == pytest.approx(exact, rel=1e-9, abs=1e-9)
    assert len(decode_samples(prompt, steps)) <= 9


def test_more_steps_take_no_more_samples() -> None:
    steps = 1 << 27
    samples = decode_samples(5, steps)
    assert len(samples) == 9
    assert sum(weight for _, weight in samples) == steps
    assert sum(weight * at for at, weight in samples) == steps * 5 + steps * (steps + 1) // 2


def test_generate_is_one_prefill_and_its_decode_steps() -> None:
    whole = simulate(make_scenario("llama-3.1-8b", "h200", batch=4, input=512, output=3))
    prefill = simulate(make_scenario("llama-3.1-8b", "h200", batch=4, input=512))
    steps = [
        simulate(make_scenario("llama-3.1-8b", "h200", batch=4, context=context)).latency
        for context in (513, 514)
    ]
    assert whole.latency == pytest.approx(prefill.latency + sum(steps), rel=1e-12)
    assert whole.work == 4 * 3
    assert [phase.name for phase in whole.phases] == ["prefill", "decode"]


def test_a_latency_floor_keeps_batch_one_decode_far_from_the_bandwidth_roofline() -> None:
    result = simulate(make_scenario("llama-3.1-8b", "mi300x", batch=1, context=128))
    roofline = result.model_bytes / result.roof.bandwidth
    assert result.latency > 1.3 * roofline
    assert result.breakdown["latency"] > 0.1 * result.latency


def test_windowed_layers_read_their_window_only() -> None:
    short, long = (
        simulate(make_scenario("gpt-oss-20b", "mi455x", batch=16, context=context))
        for context in (2048, 8192)
    )
    window = {
        result: next(op for op in result.ops if op.name == "attn w128.core")
        for result in (short, long)
    }
    full = {
        result: next(op for op in result.ops if op.name == "attn full.core")
        for result in (short, long)
    }
    assert window[short].bytes == window[long].bytes
    assert full[long].bytes > 3.5 * full[short].bytes


def test_experts_that_no_token_chose_are_not_read() -> None:
    one = simulate(make_scenario("qwen3-30b-a3b", "mi455x", batch=1, context=64))
    up = next(op for op in one.ops if op.name == "moe.gate_up")
    experts = 8 * 2 * 768 * 2048 * 2  # top-8 of 128, gate and up, bf16
    assert up.bytes / up.count == pytest.approx(experts, rel=0.02)


def test_a_projection_says_that_it_is_none_of_the_vendors_and_an_article_too() -> None:
    for device, word in (("mi500x-mid", "projection"), ("mi455x-article", "article")):
        result = simulate(make_scenario("llama-3.1-8b", device))
        assert any(word in warning for warning in result.warnings)


def test_the_weakest_basis_is_named_and_an_override_weakens_it() -> None:
    plain = simulate(make_scenario("llama-3.1-8b", "h200"))
    assert plain.provenance.weakest.basis in ("estimated", "assumed", "derived", "measured")
    faster = simulate(
        make_scenario("llama-3.1-8b", "h200", overrides=["memory.hbm.bandwidth=6 TB/s"])
    )
    changed = [n for n in faster.provenance.numbers if n.path.endswith("hbm3e.bandwidth")]
    assert [(n.source, n.basis) for n in changed] == [("--set", "assumed")]
    assert faster.latency < plain.latency


def test_the_format_of_a_run_is_that_of_its_products_with_weights_at_any_context() -> None:
    for context in (1024, 16384):
        given = {"batch": 128, "context": context, "ep": 8}
        short = ["groups.1.repeat=2", "groups.0.repeat=1"]
        result = simulate(make_scenario("deepseek-v3", "h200", overrides=short, **given))
        flops = {"attention": 0.0, "weights": 0.0}
        for op in result.ops:
            if op.kind == "attention" or op.format == "fp8":
                flops["attention" if op.kind == "attention" else "weights"] += op.flops
        assert (flops["attention"] > flops["weights"]) == (context == 16384)
        assert result.dtype == "fp8"
