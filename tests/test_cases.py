"""Wrong answers that people met with estimators, each as the claim that is right.

Every expected figure is arithmetic, a published table or a measurement. Shapes that the catalogue
does not ship are written out as the files that users have.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from simulator import Result, load_hardware, load_scenario, load_workload, make_scenario, simulate
from simulator.cli import main
from simulator.errors import SpecError
from simulator.mapping.routing import expected_distinct_experts
from simulator.models import arithmetic
from simulator.models.arithmetic import kv_bytes_at, kv_bytes_per_token, weight_bytes
from simulator.models.config_json import read_config
from simulator.models.flops import flops_per_token
from simulator.result import Bounds
from simulator.specs.workload import Transformer


def shape(family: str, layers: int, hidden: int, heads: int, kv: int, ffn: int, vocab: int,
          **more: Any) -> dict[str, Any]:  # fmt: skip
    return {
        "model_type": family, "num_hidden_layers": layers, "hidden_size": hidden,
        "num_attention_heads": heads, "num_key_value_heads": kv, "intermediate_size": ffn,
        "vocab_size": vocab, "torch_dtype": "bfloat16", "tie_word_embeddings": False, **more,
    }  # fmt: skip


QWEN_2_5 = shape("qwen2", 28, 3584, 28, 4, 18_944, 152_064)
INT8 = {"quantization_config": {"quant_method": "gptq", "bits": 8, "group_size": -1}}
GEMMA_4 = shape(
    "gemma4_text", 60, 5376, 32, 16, 21_504, 262_144, head_dim=256, global_head_dim=512,
    num_global_key_value_heads=4, attention_k_eq_v=True, sliding_window=1024,
    layer_types=(["sliding_attention"] * 5 + ["full_attention"]) * 10, enable_moe_block=False,
    hidden_size_per_layer_input=0, num_kv_shared_layers=0,
)  # fmt: skip
DEEPSEEK_V4 = shape(
    "deepseek_v4", 43, 4096, 64, 1, 2048, 129_280, head_dim=512, q_lora_rank=1024
)  # fmt: skip


def read(folder: Path, config: dict[str, Any]) -> Transformer:
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    return read_config(folder / "config.json")


def run(line: str) -> Result:
    return simulate(load_scenario(line))


@pytest.mark.parametrize(
    ("config", "per_token"),
    [
        (shape("llama", 1, 3584, 16, 8, 9216, 256_000, head_dim=256), 8192),
        (shape("qwen3", 36, 2560, 32, 8, 9728, 151_936, head_dim=128), 147_456),
        (shape("llama", 32, 4096, 32, 32, 11_008, 32_000, torch_dtype="float16"), 524_288),
        (QWEN_2_5, 57_344),
        (QWEN_2_5 | INT8, 57_344),
        (GEMMA_4, 901_120),
    ],
)
def test_cache_per_token_is_two_tensors_of_kv_heads(
    tmp_path: Path, config: dict[str, Any], per_token: int
) -> None:
    assert kv_bytes_per_token(read(tmp_path, config)) == per_token


def test_int8_weights_halve_the_weights_and_leave_the_cache(tmp_path: Path) -> None:
    wide, narrow = read(tmp_path, QWEN_2_5), read(tmp_path, QWEN_2_5 | INT8)
    assert arithmetic.parameters(narrow) == 7_615_616_512
    # Embedding and head, 1.09e9 parameters, stay in bf16.
    assert weight_bytes(narrow) / weight_bytes(wide) == pytest.approx(0.572, abs=2e-3)
    assert kv_bytes_at(narrow, 3072) == 168 * 2**20


def test_windows_of_gemma_4_stop_growing_and_its_full_layers_do_not(tmp_path: Path) -> None:
    gemma = read(tmp_path, GEMMA_4)
    size = kv_bytes_at(gemma, 32_768)
    assert size == 50 * 1024 * 16_384 + 10 * 32_768 * 8192
    assert arithmetic.tokens_that_fit(gemma, size) == 32_768
    assert size / kv_bytes_per_token(gemma) < 4000  # what a division would promise


@pytest.mark.parametrize("family", ["deepseek_v4", "deepseek_v3", "llama"])
def test_an_unknown_kind_of_attention_is_refused_and_never_guessed(
    tmp_path: Path, family: str
) -> None:
    for ratios in ([0, 4, 128], None):
        config = {**DEEPSEEK_V4, "model_type": family, "compress_ratios": ratios}
        with pytest.raises(SpecError, match=r"config.json:\d+: q_lora_rank: given without kv_lora"):
            read(tmp_path, config)


def test_decode_reads_the_cache_once_per_kv_head_and_not_per_head() -> None:
    result = run("llama-3.1-70b batch=32 context=4096 on mi455x")
    core = next(op for op in result.ops if op.name == "attn.core")
    assert core.bytes == pytest.approx(32 * 4096 * 327_680, rel=0.01)


def test_mfu_is_over_the_dense_peak() -> None:
    for device, reached, mfu in (("h200", 420e12, 0.424), ("h100", 9600 * 0.05e12, 0.485)):
        result = run(f"llama-3.1-8b decode on {device}")
        at_that_rate = replace(result, model_flops=reached * result.latency)
        assert at_that_rate.mfu == pytest.approx(mfu, abs=1e-3)


@pytest.mark.parametrize(("device", "dense", "sparse"), [("a100", 312, 624), ("h200", 989, 1979)])
def test_a_sparse_peak_is_a_labelled_factor(device: str, dense: float, sparse: float) -> None:
    chip = load_hardware(device)
    assert chip.peak("bf16") == pytest.approx(dense * 1e12, rel=2e-3)
    assert dense * chip.compute.sparsity["bf16"] == pytest.approx(sparse, rel=2e-3)


def test_deepseek_trained_at_402_tflops_per_gpu_with_its_prediction_module() -> None:
    per_gpu = 1e12 / (180e3 * 3600)  # 180 thousand hours per trillion tokens
    deepseek = load_workload("deepseek-v3")
    assert isinstance(deepseek, Transformer)
    for model, tflops in ((deepseek, 402), (replace(deepseek, mtp_layers=0), 386)):
        reached = per_gpu * flops_per_token(model, 4096, "megatron") / 1e12
        assert reached == pytest.approx(tflops, abs=0.7)


def test_one_sequence_through_experts_runs_between_all_and_active_bytes() -> None:
    model = load_workload("qwen3-30b-a3b")
    result = run("qwen3-30b-a3b batch=1 context=64 on h200")
    read = result.roof.bandwidth * result.latency
    assert 2 * arithmetic.active_parameters(model) < read < weight_bytes(model)


@pytest.mark.parametrize("batch", [1, 4, 16, 64])
def test_a_batch_reads_the_distinct_experts_that_chance_gives(batch: int) -> None:
    result = run(f"qwen3-30b-a3b batch={batch} context=64 on mi455x")
    up = next(op for op in result.ops if op.name == "moe.gate_up")
    read = up.bytes / up.count / (2 * 768 * 2048 * 2)
    # One draw of the routing: its deviation is 1.2 of 29.1 experts for 4 tokens.
    assert read == pytest.approx(expected_distinct_experts(128, 8, batch), rel=0.1)


@pytest.mark.parametrize("on", ["llama-3.1-8b h200", "gemma-3-1b mi455x", "qwen3-4b l40s"])
def test_prefill_time_grows_strictly_with_its_tokens(on: str) -> None:
    model, device = on.split()
    tokens = (1, 2, 3, 5, 16, 17, 64, 65, 128, 129, 512, 513, 2048)
    times = {count: run(f"{model} input={count} on {device}").latency for count in tokens}
    assert [(a, b) for a, b in pairwise(tokens) if times[b] <= times[a]] == []


def test_no_time_gives_no_rate_and_no_infinity() -> None:
    result = run("llama-3.1-8b decode on h200")
    empty = replace(result, latency=0.0, bounds=Bounds(lower=0.0, upper=0.0), ops=())
    data = json.loads(empty.to_json(), parse_constant=pytest.fail)
    assert data["throughput"] is data["mfu"] is data["mbu"] is None


@pytest.mark.parametrize(
    ("line", "path", "value"),
    [
        ("scale_up: {bandwidth: 400 Gbps}", "scale_up.bandwidth", 50e9),
        ("scale_up: {bandwidth: 400 GB/s}", "scale_up.bandwidth", 400e9),
        ("memory: [{kind: hbm3, capacity: 80 GB}]", "dram.capacity", 80e9),
        ("memory: [{kind: hbm3, capacity: 80 GiB}]", "dram.capacity", 85_899_345_920),
        ("memory: [{kind: hbm3, capacity: 81559 MiB}]", "dram.capacity", 85_520_809_984),
        *((f"transistors: {text}", "transistors", 80e9) for text in ("80e9", "8.0e10", "8.0e+10")),
    ],
)
def test_a_number_in_a_file_is_what_it_says(
    tmp_path: Path, line: str, path: str, value: float
) -> None:
    lines = "name: mine", "base: h100", "source: what I was told", "basis: assumed", line
    (tmp_path / "mine.yaml").write_text("\n".join(lines))
    assert attrgetter(path)(load_hardware(tmp_path / "mine.yaml")) == value


def test_matrix_units_that_are_switched_off_are_missed() -> None:
    off = ["compute.matrix={fp32: 256 FLOP/clk}"]
    slow = simulate(make_scenario("llama-3.1-8b", "h200", input=2048, overrides=off))
    assert slow.latency > 5 * run("llama-3.1-8b input=2048 on h200").latency


@pytest.mark.parametrize(
    "unused",
    ["prefill context=64", "prefill output=8", "decode context=64 input=8",
     "generate output=8 context=64"],
)  # fmt: skip
def test_a_length_that_the_phase_does_not_use_is_named(unused: str) -> None:
    result = run(f"llama-3.1-8b {unused} on h200")
    assert any("was given, but has no say" in warning for warning in result.warnings)


@pytest.mark.parametrize("setting", ["scale_up.bandwidth=1TB/s", "compute.sparsity.bf16=4"])
def test_a_setting_without_effect_says_so(setting: str) -> None:
    plain, changed = (run(f"llama-3.1-8b decode {more} on h200") for more in ("", setting))
    assert changed.latency == plain.latency
    assert any(setting.partition("=")[0] in warning for warning in changed.warnings)


@pytest.mark.parametrize("question", ["llama-3.1-8b input=4096", "gpt-oss-20b batch=64", "sdxl"])
def test_less_cache_on_chip_is_never_less_traffic(question: str) -> None:
    sizes = ("400MiB", "50MiB", "10MiB", "1MiB", "64KiB", "1B")
    runs = [run(f"{question} memory.l2.capacity={size} on h200") for size in sizes]
    traffic = [math.fsum(op.bytes for op in one.ops) for one in runs]
    assert traffic == sorted(traffic)
    assert traffic[-1] > traffic[0]
    assert [one.latency for one in runs] == sorted(one.latency for one in runs)


@pytest.mark.parametrize("question", ["gemma-3-1b context=1", "gpt-oss-20b input=1", "sdxl"])
def test_no_count_is_negative(question: str) -> None:
    text = run(f"{question} on mi455x").to_json()
    numbers = [float(number) for number in re.findall(r'": (-?[0-9][0-9.e+-]*)', text)]
    assert min(numbers) >= 0
    assert max(numbers) < 1e18  # a count that ran below zero and wrapped is 1.8e19


def test_another_process_gives_the_same_bits() -> None:
    line = "gpt-oss-20b decode batch=7 context=333 on mi455x"
    code = f"import simulator as s; print(s.simulate(s.load_scenario({line!r})).to_json(), end='')"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONHASHSEED": "4711"},
    )  # fmt: skip
    assert ran.stdout == run(line).to_json()


def test_the_phase_and_the_context_that_were_used_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    used = {"": "decode on h200, bf16, batch 1, context 4,096",
            "--output 3": "generate on h200, bf16, batch 1, input 2,048, output 3"}  # fmt: skip
    for options, said in used.items():
        command = f"tilecast run llama-3.1-8b --on h200 {options}"
        monkeypatch.setattr(sys, "argv", command.split())
        with pytest.raises(SystemExit):
            main()
        assert said in capsys.readouterr().out
