"""The catalogue and the reader against real configurations, where the data is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simulator.errors import SpecError
from simulator.models.arithmetic import (
    active_parameters,
    kv_bytes_per_token,
    parameters,
    parameters_by_part,
    weight_bytes,
)
from simulator.models.load import check_model, load_workload
from simulator.specs.overrides import parse_overrides
from simulator.specs.workload import Part, Transformer

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = Path(os.environ.get("TILECAST_DATA", ROOT.parent / "shared" / "data")) / "configs"
real = pytest.mark.data
needed = pytest.mark.skipif(not CONFIGS.is_dir(), reason="the calibration data is not here")


def config(name: str) -> Transformer:
    model = load_workload(CONFIGS / f"{name}.json")
    assert isinstance(model, Transformer)
    return model


@real
@needed
@pytest.mark.parametrize(
    ("name", "total", "active", "per_token"),
    [
        ("DeepSeek-R1", 671_026_419_200, 37_552_297_472, 70_272),
        ("DeepSeek-V3", 671_026_419_200, 37_552_297_472, 70_272),
        ("DeepSeek-V3.1-NVFP4", 671_026_419_200, 37_552_297_472, 70_272),
        ("Kimi-K2-Instruct", 1_026_408_232_448, 32_861_500_928, 70_272),
        ("Kimi-K2.5", 1_026_408_232_448, 32_861_500_928, 70_272),
        ("Llama-3.1-70B-Instruct-FP8", 70_553_706_496, 70_553_706_496, 327_680),
        ("Llama-3_3-Nemotron-Super-49B-v1", 49_867_145_216, 49_867_145_216, 200_704),
        ("Llama-4-Maverick-17B-128E-Instruct", 400_711_848_960, 17_184_691_200, 196_608),
        ("Llama-4-Scout-17B-16E-Instruct", 107_769_861_120, 17_172_894_720, 196_608),
        ("Meta-Llama-3.1-405B", 405_853_388_800, 405_853_388_800, 516_096),
        ("Meta-Llama-3.1-70B", 70_553_706_496, 70_553_706_496, 327_680),
        ("Meta-Llama-3.1-8B", 8_030_261_248, 8_030_261_248, 131_072),
        ("Mixtral-8x22B-v0.1", 140_620_634_112, 39_152_031_744, 229_376),
        ("Mixtral-8x7B-v0.1", 46_702_792_704, 12_879_925_248, 131_072),
        ("Qwen3-0.6B", 596_049_920, 596_049_920, 114_688),
        ("Qwen3-235B-A22B", 235_093_634_560, 22_190_763_520, 192_512),
        ("Qwen3-30B-A3B", 30_532_122_624, 3_353_032_704, 98_304),
        ("Qwen3-32B", 32_762_123_264, 32_762_123_264, 262_144),
        ("Qwen3-32B-FP8", 32_762_123_264, 32_762_123_264, 262_144),
        ("Qwen3-VL-30B-A3B-Instruct", 30_532_122_624, 3_353_032_704, 98_304),
        ("gpt-oss-120b", 116_829_156_672, 5_711_982_912, 73_728),
        ("gpt-oss-20b", 20_914_757_184, 4_187_440_704, 49_152),
    ],
)
def test_configurations_have_their_published_sizes(
    name: str, total: int, active: int, per_token: int
) -> None:
    model = config(name)
    assert parameters(model) == total
    assert active_parameters(model) == active
    assert kv_bytes_per_token(model) == per_token


@real
@needed
@pytest.mark.parametrize(
    ("name", "total", "active", "uncounted"),
    [
        ("MiniMax-M2.5", 228.7e9, 9.8e9, ("embedding", "head")),  # printed 10B: without vocabulary
        ("gemma-4-26B-A4B", 25.2e9, 3.8e9, ()),
    ],
)
def test_configurations_have_the_rounded_sizes_of_their_cards(
    name: str, total: float, active: float, uncounted: tuple[Part, ...]
) -> None:
    model = config(name)
    left_out = sum(parameters_by_part(model)[part] for part in uncounted)
    assert parameters(model) == pytest.approx(total, rel=0.005)
    assert active_parameters(model) - left_out == pytest.approx(active, rel=0.01)


@real
@needed
def test_quantised_configurations_have_their_published_bytes() -> None:
    assert weight_bytes(config("gpt-oss-120b")) == 65_248_815_744
    assert weight_bytes(config("gpt-oss-20b")) == 13_761_264_768
    # Four bits in groups of 32 for the experts: the checkpoint is 595 GB.
    assert weight_bytes(config("Kimi-K2.5")) == pytest.approx(595e9, rel=0.005)
    assert config("Qwen3-32B-FP8").formats["ffn"] == "fp8_block"


@real
@needed
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("DeepSeek-V3.2", {"index_topk", "model_type"}),
        ("GLM-5", {"index_topk", "model_type"}),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {"hybrid_override_pattern", "model_type"}),
        ("Qwen3.5-35B-A3B", {"text_config.linear_num_value_heads", "text_config.model_type"}),
        ("Qwen3.5-397B-A17B", {"text_config.linear_num_value_heads", "text_config.model_type"}),
    ],
)
def test_what_is_not_built_yet_is_refused_by_field(name: str, fields: set[str]) -> None:
    with pytest.raises(SpecError) as caught:
        config(name)
    assert {fault.path for fault in caught.value.faults} == fields
    assert all(fault.line for fault in caught.value.faults)


@real
@needed
def test_every_configuration_is_read_or_refused() -> None:
    paths = sorted(CONFIGS.glob("*.json"))
    assert len(paths) >= 29
    for path in paths:
        try:
            assert parameters(load_workload(path)) > 0
        except SpecError:
            assert check_model(path)


@real
@needed
@pytest.mark.parametrize(
    ("workload", "name"),
    [
        ("llama-3.1-8b", "Meta-Llama-3.1-8B"),
        ("llama-3.1-70b", "Meta-Llama-3.1-70B"),
        ("llama-3.1-405b", "Meta-Llama-3.1-405B"),
        ("mixtral-8x7b", "Mixtral-8x7B-v0.1"),
        ("mixtral-8x22b", "Mixtral-8x22B-v0.1"),
        ("qwen3-32b", "Qwen3-32B"),
        ("qwen3-30b-a3b", "Qwen3-30B-A3B"),
        ("qwen3-235b-a22b", "Qwen3-235B-A22B"),
        ("deepseek-v3", "DeepSeek-V3"),
        ("kimi-k2", "Kimi-K2-Instruct"),
        ("gpt-oss-20b", "gpt-oss-20b"),
        ("gpt-oss-120b", "gpt-oss-120b"),
        ("llama-4-scout", "Llama-4-Scout-17B-16E-Instruct"),
        ("llama-4-maverick", "Llama-4-Maverick-17B-128E-Instruct"),
    ],
)
def test_the_catalogue_says_what_the_configuration_says(workload: str, name: str) -> None:
    ours, theirs = load_workload(workload), config(name)
    assert isinstance(ours, Transformer)
    assert list(ours.layers()) == list(theirs.layers())
    for field in (
        "hidden", "vocab", "tied_embeddings", "head_bias", "norm_bias", "final_norm", "mtp_layers",
        "max_context", "formats", "kv_format", "activation_format",
    ):  # fmt: skip
        assert getattr(ours, field) == getattr(theirs, field), field


def test_shared_experts_and_their_width_belong_together() -> None:
    path = "groups.1.layers.0.ffn.shared_width=0"
    with pytest.raises(SpecError, match="0 for 1 shared experts"):
        load_workload("deepseek-v3", parse_overrides([path]))
