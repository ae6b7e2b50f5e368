"""Quantised checkpoints: which format each part is stored in, and how many bytes that is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simulator.errors import SpecError
from simulator.models.arithmetic import kv_bytes_per_token, weight_bytes, weight_bytes_by_part
from simulator.models.config_json import model_from_json
from simulator.models.json_tree import parse_json
from simulator.models.load import load_workload
from simulator.specs.precision import number_format
from simulator.specs.workload import Transformer

DENSE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 1000,
}
SPARSE: dict[str, Any] = {
    **DENSE,
    "model_type": "deepseek_v3",
    "num_key_value_heads": 8,
    "q_lora_rank": 256,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64,
    "v_head_dim": 64,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 512,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
}
COMPRESSED_INT4: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32},
        }
    },
    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
               r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"],
}  # fmt: skip


def read(config: dict[str, Any], quantization: dict[str, Any] | None = None) -> Transformer:
    merged = dict(config)
    if quantization is not None:
        merged["quantization_config"] = quantization
    return model_from_json(parse_json(json.dumps(merged, indent=1), "config.json"), "model")


def formats(model: Transformer) -> dict[str, str]:
    return dict(model.formats)


@pytest.mark.parametrize(
    ("config", "short"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "int4_g64"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
         "nf4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, "nvfp4"),
        ({"quant_algo": "FP8", "exclude_modules": ["lm_head"]}, "fp8"),
        ({"quant_method": "quark", "exclude": ["lm_head"],
          "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}}},
         "fp8"),
        ({"quant_method": "quark", "exclude": ["lm_head"], "global_quant_config":
          {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32}}}, "mxfp4"),
    ],
)  # fmt: skip
def test_linear_layers_are_quantised_and_the_rest_is_not(
    config: dict[str, Any], short: str
) -> None:
    model = read(DENSE, config)
    assert formats(model) == {"default": "bf16", "attention": short, "ffn": short}
    assert model.kv_format == "bf16"
    assert model.activation_format == "bf16"


@pytest.mark.parametrize(
    ("short", "bits"),
    [("fp8", 8), ("fp8_block", 8 + 32 / 16384), ("nvfp4", 4.5), ("mxfp4", 4.25), ("int4", 4.125),
     ("int4_g64", 4.25), ("int4_g32", 4.5), ("nf4", 4.5), ("nf4_double", 4.125), ("mxfp8", 8.25)],
)  # fmt: skip
def test_bits_per_weight_include_the_scales(short: str, bits: float) -> None:
    assert number_format(short).bits_per_element == bits


def test_a_head_that_is_not_left_out_is_quantised_too() -> None:
    config = {**COMPRESSED_INT4, "ignore": []}
    assert formats(read(DENSE, config))["head"] == "int4_g32"
    assert "head" not in formats(read(DENSE, {**config, "ignore": ["re:.*lm_head"]}))


def test_patterns_leave_parts_out() -> None:
    model = read(SPARSE, COMPRESSED_INT4)
    assert formats(model) == {"default": "bf16", "experts": "int4_g32", "mtp": "int4_g32"}
    experts = 3 * 8 * 3 * 1024 * 512
    assert weight_bytes_by_part(model)["experts"] == experts * 4.5 / 8
    globs = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "exclude_modules": ["lm_head", "model.layers.*.self_attn*", "model.layers.4*"],
    }
    assert formats(read(SPARSE, globs)) == {
        "default": "bf16",
        "ffn": "nvfp4",
        "experts": "nvfp4",
        "shared_experts": "nvfp4",
    }


def test_a_bare_component_is_a_whole_component() -> None:
    block = {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["gate", "lm_head", "e_score_correction_bias"],
    }
    assert formats(read(SPARSE, block))["ffn"] == "fp8_block"
    block["modules_to_not_convert"] = ["self_attn"]
    assert "attention" not in formats(read(SPARSE, block))


def test_layers_that_are_left_out_carry_the_wide_format() -> None:
    left = [f"model.layers.{layer}.mlp.{name}_proj" for layer in (0, 3)
            for name in ("gate", "up", "down")]  # fmt: skip
    left += [f"model.layers.{layer}.self_attn.{name}_proj" for layer in range(4) for name in "qkvo"]
    model = read(DENSE, {"quant_method": "fbgemm_fp8", "modules_to_not_convert": left})
    assert formats(model) == {"default": "bf16", "ffn": "fp8"}
    assert [layer.formats.get("ffn") for layer in model.layers()] == ["bf16", None, None, "bf16"]
    matrix = 3 * 1024 * 4096
    assert weight_bytes_by_part(model)["ffn"] == matrix * (2 + 1 + 1 + 2)


def test_a_part_of_mixed_formats_is_refused() -> None:
    config = {"quant_method": "fp8", "modules_to_not_convert": ["o_proj"]}
    with pytest.raises(SpecError, match="the attention of layer 0 has bf16 and fp8 matrices"):
        read(DENSE, config)


def test_the_cache_has_a_format_of_its_own() -> None:
    scheme = {**COMPRESSED_INT4, "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    plain = read(DENSE)
    assert read(DENSE, scheme).kv_format == "fp8"
    assert kv_bytes_per_token(read(DENSE, scheme)) == kv_bytes_per_token(plain) / 2
    modelopt = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    assert read(DENSE, modelopt).kv_format == "fp8"
    tensor = {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}
    quark = {
        "quant_method": "quark",
        "exclude": ["lm_head"],
        "global_quant_config": {"weight": tensor},
        "layer_quant_config": {"*k_proj": {"weight": tensor, "output_tensors": tensor},
                               "*v_proj": {"weight": tensor, "output_tensors": tensor}},
    }  # fmt: skip
    assert read(DENSE, quark).kv_format == "fp8"


def test_experts_alone_are_mxfp4_in_gpt_oss() -> None:
    gpt_oss = {
        **DENSE,
        "model_type": "gpt_oss",
        "head_dim": 64,
        "sliding_window": 128,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    }
    left = [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ]
    model = read(gpt_oss, {"quant_method": "mxfp4", "modules_to_not_convert": left})
    assert formats(model) == {"default": "bf16", "experts": "mxfp4"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quant_method": "aqlm"}, "quantization_config.quant_method: 'aqlm' is not supported yet"),
        ({"bits": 4}, "quantization_config.quant_method: missing"),
        ({"quant_method": "fp8", "weight_block_size": [1, 32]}, "weight_block_size"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "group_size"),
        ({"quant_method": "gptq", "bits": 4}, "group_size"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:.*": {}}},
         "dynamic"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "quant_algo"),
        ({"quant_method": "compressed-tensors"}, "config_groups: missing"),
        ({**COMPRESSED_INT4, "ignore": ["re:("]}, "no regular expression"),
        ({**COMPRESSED_INT4, "ignore": [7]}, "no pattern"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "fp4"},
         "bnb_4bit_quant_type"),
    ],
)  # fmt: skip
def test_a_recipe_that_is_not_known_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(DENSE, config)
    assert message in str(caught.value)


def test_a_recipe_at_the_top_level_holds_for_the_language_model() -> None:
    nested = {
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
        "text_config": DENSE,
    }
    assert formats(read(nested))["ffn"] == "fp8_block"


def test_a_recipe_may_lie_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DENSE))
    wide = weight_bytes(load_workload(tmp_path))
    recipe = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8",
                               "exclude_modules": ["lm_head"]}}  # fmt: skip
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(recipe))
    model = load_workload(tmp_path)
    assert isinstance(model, Transformer)
    assert (model.formats["ffn"], model.kv_format) == ("fp8", "fp8")
    assert weight_bytes(model) < wide


def test_half_precision_checkpoints_stay_what_they_are() -> None:
    half = read({**DENSE, "torch_dtype": "float16"})
    assert (half.formats["default"], half.kv_format, half.activation_format) == ("fp16",) * 3
    full = read({**DENSE, "torch_dtype": "float32"})
    assert weight_bytes(full) == 2 * weight_bytes(half)
    silent = read({key: value for key, value in DENSE.items() if key != "torch_dtype"})
    assert silent.formats["default"] == "bf16"
    assert "not given, bf16 taken" in silent.description
