"""Configurations read right, or refused by the field in the way."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import SpecError
from simulator.models.arithmetic import kv_bytes_per_token, parameters, weight_bytes
from simulator.models.config_json import model_from_json, read_config
from simulator.models.config_layers import group_layers
from simulator.models.json_tree import MAX_BYTES, parse_json
from simulator.models.load import check_model, is_config, load_workload
from simulator.specs.overrides import parse_overrides
from simulator.specs.workload import (
    Attention,
    DenseFFN,
    LatentAttention,
    Layer,
    MoE,
    Transformer,
)

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
MLA: dict[str, Any] = {
    **LLAMA,
    "model_type": "deepseek_v3",
    "num_key_value_heads": 32,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 16,
    "n_shared_experts": 2,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 512,
    "first_k_dense_replace": 3,
    "n_group": 4,
    "topk_group": 2,
}
HERE = Path(__file__).parent
FAMILIES = json.loads((HERE / "families.json").read_text())["models"]
PUBLISHED = json.loads((HERE / "published.json").read_text())["models"]


def read(config: dict[str, Any], drop: tuple[str, ...] = (), **changes: Any) -> Transformer:
    merged = {key: value for key, value in {**config, **changes}.items() if key not in drop}
    return model_from_json(parse_json(json.dumps(merged, indent=1), "config.json"), "model")


def faults(config: dict[str, Any], drop: tuple[str, ...] = (), **changes: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read(config, drop, **changes)
    assert all(fault.line is not None for fault in caught.value.faults)
    return [f"{fault.path}: {fault.found}" for fault in caught.value.faults]


def kinds(model: Transformer) -> list[str]:
    """The kind of each layer's attention, as configurations call it."""
    names = []
    for layer in model.layers():
        core = layer.attention
        if isinstance(core, Attention) and core.window is not None:
            names.append("sliding_attention")
        elif isinstance(core, Attention) and core.chunk is not None:
            names.append("chunked_attention")
        else:
            names.append("full_attention")
    return names


@pytest.mark.parametrize(
    "entry", FAMILIES, ids=lambda entry: f"{entry['config']['model_type']}-{entry['parameters']}"
)
def test_parameters_are_those_of_the_reference_modules(entry: dict[str, Any]) -> None:
    model = read(entry["config"])
    assert parameters(model) == entry["parameters"]
    assert kinds(model) == entry.get("layer_types", kinds(model))


@pytest.mark.parametrize("entry", PUBLISHED, ids=lambda entry: entry["name"])
def test_parameters_are_the_published_ones(entry: dict[str, Any]) -> None:
    assert parameters(read(entry["config"])) == entry["parameters"]


def test_llama_3_1_8b_is_read_as_the_catalogue_has_it() -> None:
    model = read(LLAMA)
    catalogue = load_workload("llama-3.1-8b")
    assert isinstance(catalogue, Transformer)
    assert parameters(model) == 8_030_261_248
    assert list(model.layers()) == list(catalogue.layers())
    assert (model.hidden, model.vocab, model.max_context) == (4096, 128_256, 131_072)


def test_a_declared_head_size_wins_over_the_quotient() -> None:
    sizes = {"hidden_size": 3584, "num_attention_heads": 16, "num_hidden_layers": 1}
    declared = read(LLAMA, head_dim=256, **sizes)
    assert kv_bytes_per_token(declared) == 8192
    assert kv_bytes_per_token(read(LLAMA, **sizes)) == 7168


def test_families_with_a_head_size_of_their_own_must_declare_it() -> None:
    qwen = {**LLAMA, "model_type": "qwen3"}
    assert faults(qwen) == ["head_dim: missing"]
    assert kv_bytes_per_token(read(qwen, head_dim=128)) == 131_072


def test_families_that_ignore_a_declared_head_size_are_read_so() -> None:
    cohere = {**LLAMA, "model_type": "cohere2", "sliding_window": 4096}
    assert read(cohere, head_dim=64) == read(cohere)


@pytest.mark.parametrize("nest", ["text_config", "llm_config", "language_config"])
def test_the_language_model_has_priority_over_the_top_level(nest: str) -> None:
    outer = {
        "model_type": "some_vl",
        "num_hidden_layers": 33,
        "hidden_size": 1152,
        "num_attention_heads": 16,
        "vision_config": {"hidden_size": 1152},
        nest: LLAMA,
    }
    model = read(outer)
    assert parameters(model) == 8_030_261_248
    assert "language model alone" in model.description


def test_a_thinker_holds_the_language_model() -> None:
    model = read({"model_type": "omni", "thinker_config": {"text_config": LLAMA}})
    assert parameters(model) == 8_030_261_248


def test_a_size_that_the_language_model_lacks_is_not_taken_from_elsewhere() -> None:
    inner = {key: value for key, value in LLAMA.items() if key != "num_hidden_layers"}
    outer = {"num_hidden_layers": 33, "text_config": inner}
    assert faults(outer) == ["text_config.num_hidden_layers: missing"]
    assert faults({"text_config": LLAMA, "llm_config": LLAMA}) == [
        "llm_config: a second language model beside text_config"
    ]


def test_tied_embeddings_follow_the_file_then_the_family() -> None:
    bare = {key: value for key, value in LLAMA.items() if key != "tie_word_embeddings"}
    assert not read(bare).tied_embeddings
    assert read(bare, model_type="gemma", head_dim=128).tied_embeddings
    assert read({"tie_word_embeddings": True, "text_config": bare}).tied_embeddings
    assert faults(bare, model_type="qwen3_vl_text", head_dim=128) == [
        "tie_word_embeddings: missing, and this family has models of both kinds"
    ]
    assert faults({"tie_word_embeddings": True, "text_config": LLAMA}) == [
        "text_config.tie_word_embeddings: False, but True at the top level"
    ]


def test_kv_heads_are_one_per_head_only_where_the_family_says_so() -> None:
    bare = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert kv_bytes_per_token(read(bare)) == 524_288
    assert faults(bare, model_type="qwen2") == ["num_key_value_heads: missing"]
    assert kv_bytes_per_token(read(LLAMA, model_type="qwen2", num_key_value_heads=None)) == 524_288


def test_qwen2_has_biases_that_no_key_announces() -> None:
    biases = 32 * (4096 + 2 * 1024)
    assert parameters(read(LLAMA, model_type="qwen2")) == 8_030_261_248 + biases


def test_latent_attention_is_known_by_its_rank() -> None:
    model = read(MLA)
    assert all(isinstance(layer.attention, LatentAttention) for layer in model.layers())
    assert kv_bytes_per_token(model) == 32 * (512 + 64) * 2
    ffns = [layer.ffn for layer in model.layers()]
    assert [isinstance(ffn, MoE) for ffn in ffns] == [False] * 3 + [True] * 29
    moe = ffns[-1]
    assert isinstance(moe, MoE)
    assert (moe.width, moe.shared_width, moe.router.groups) == (512, 1024, 4)
    assert moe.router.bias
    no_query_rank = read(MLA, q_lora_rank=None).groups[0].layers[0].attention
    assert isinstance(no_query_rank, LatentAttention)
    assert no_query_rank.q_lora_rank is None


def test_a_latent_family_without_its_rank_is_refused() -> None:
    assert faults(MLA, drop=("kv_lora_rank",)) == [
        "q_lora_rank: given without kv_lora_rank: this kind of attention is not supported yet"
    ]
    assert faults(MLA, drop=("q_lora_rank",)) == ["q_lora_rank: missing"]


def test_expert_width_is_not_the_dense_width() -> None:
    with_dense, all_sparse = read(MLA), read(MLA, first_k_dense_replace=0)
    moe = all_sparse.groups[0].layers[0].ffn
    assert isinstance(moe, MoE)
    assert moe.width == 512
    assert parameters(with_dense) != parameters(all_sparse)
    assert "moe_intermediate_size: missing" in faults(MLA, drop=("moe_intermediate_size",))


def test_a_dense_width_is_needed_only_where_a_layer_is_dense() -> None:
    qwen = {
        **LLAMA,
        "model_type": "qwen3_moe",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 512,
    }
    assert parameters(read(qwen, drop=("intermediate_size",))) == parameters(read(qwen))
    assert faults(qwen, drop=("intermediate_size",), mlp_only_layers=[3]) == [
        "intermediate_size: missing"
    ]


@pytest.mark.parametrize(
    ("step", "sparse"),
    [(1, [True] * 8), (2, [False, True] * 4), (4, [False, False, False, True] * 2)],
)
def test_interleaved_experts_stand_in_the_last_of_every_step(step: int, sparse: list[bool]) -> None:
    llama4 = read(
        LLAMA,
        model_type="llama4_text",
        num_hidden_layers=8,
        num_local_experts=4,
        num_experts_per_tok=1,
        intermediate_size_mlp=1024,
        interleave_moe_layer_step=step,
        attention_chunk_size=8192,
    )
    assert [isinstance(layer.ffn, MoE) for layer in llama4.layers()] == sparse
    assert kinds(llama4) == (["chunked_attention"] * 3 + ["full_attention"]) * 2


def test_windows_by_list_pattern_switch_and_layer_number() -> None:
    full, sliding = "full_attention", "sliding_attention"
    eight = {**LLAMA, "num_hidden_layers": 8, "sliding_window": 512, "head_dim": 128}
    assert kinds(read(eight, model_type="mistral")) == [sliding] * 8
    assert kinds(read(eight, model_type="mistral", sliding_window=None)) == [full] * 8
    assert kinds(read(eight, model_type="gemma2")) == [sliding, full] * 4
    gemma3 = {**eight, "model_type": "gemma3_text"}
    assert kinds(read(gemma3)) == [sliding] * 5 + [full] + [sliding] * 2
    assert kinds(read(gemma3, sliding_window_pattern=3)) == [sliding, sliding, full] * 2 + [
        sliding,
        sliding,
    ]
    listed = [full, sliding] * 4
    assert kinds(read(gemma3, layer_types=listed)) == listed
    qwen = {**eight, "model_type": "qwen2", "max_window_layers": 6}
    assert kinds(read(qwen, use_sliding_window=False)) == [full] * 8
    assert kinds(read(qwen, use_sliding_window=True)) == [full] * 6 + [sliding] * 2
    assert (
        kinds(read(eight, model_type="exaone4", sliding_window_pattern="LLLG"))
        == ([sliding] * 3 + [full]) * 2
    )


def test_a_window_whose_absence_means_a_size_must_be_given() -> None:
    for family in ("mistral", "gemma2", "cohere2"):
        found = faults(LLAMA, model_type=family, head_dim=128)
        assert found == ["sliding_window: missing"]


def test_layer_lists_are_checked() -> None:
    assert faults(LLAMA, layer_types=["full_attention"] * 3) == [
        "layer_types: 3 entries for 32 layers"
    ]
    listed = ["full_attention"] * 31 + ["linear_attention"]
    assert faults(LLAMA, layer_types=listed) == [
        "layer_types[31]: 'linear_attention' layers are not supported yet"
    ]


@pytest.mark.parametrize(
    ("rope", "declared", "context"),
    [
        ({"type": "yarn", "factor": 32.0, "original_max_position_embeddings": 32_768},
         1_048_576, 1_048_576),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192},
         32_768, 32_768),
        ({"rope_type": "deepseek_yarn", "factor": 40, "original_max_position_embeddings": 4096},
         163_840, 163_840),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768},
         40_960, 131_072),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
         131_072, 131_072),
        ({"type": "linear", "factor": 4.0}, 16_384, 16_384),
        (None, 8192, 8192),
    ],
)  # fmt: skip
def test_the_context_is_never_the_declared_one_times_the_factor(
    rope: dict[str, Any] | None, declared: int, context: int
) -> None:
    model = read(LLAMA, rope_scaling=rope, max_position_embeddings=declared)
    assert model.max_context == context
    if rope is not None:
        moved = read(LLAMA, rope_parameters=rope, max_position_embeddings=declared)
        assert moved.max_context == context


def test_blocks_of_unlike_sizes_are_read_one_by_one() -> None:
    block = {
        "attention": {"n_heads_in_group": 8, "no_op": False, "window_length": None},
        "ffn": {"ffn_mult": 2.625, "no_op": False},
    }
    config = {
        **LLAMA,
        "model_type": "nemotron-nas",
        "hidden_size": 8192,
        "num_attention_heads": 64,
        "num_key_value_heads": None,
        "intermediate_size": None,
        "num_hidden_layers": 3,
        "block_configs": [
            block,
            {"attention": {"no_op": True}, "ffn": {"ffn_mult": 5.25}},
            {"attention": {"n_heads_in_group": 16}, "ffn": {"no_op": True}},
        ],
    }
    first, second, third = read(config).layers()
    assert isinstance(first.attention, Attention)
    assert isinstance(first.ffn, DenseFFN)
    assert (first.attention.kv_heads, first.ffn.width, first.norms) == (8, 14_336, 2)
    assert second.attention is None
    assert isinstance(second.ffn, DenseFFN)
    assert (second.ffn.width, second.norms) == (28_672, 1)
    assert isinstance(third.attention, Attention)
    assert (third.attention.kv_heads, third.ffn, third.norms) == (4, None, 1)
    linear = {"attention": {"replace_with_linear": True, "no_op": False}, "ffn": {"ffn_mult": 1}}
    config["block_configs"] = [linear, {"attention": {"no_op": True}}, block]
    found = faults(config)
    assert any(
        entry.startswith("block_configs[0].attention.replace_with_linear") for entry in found
    )
    assert "block_configs[1].ffn: missing" in found


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hybrid_override_pattern", "M*M"),
        ("mamba_d_state", 16),
        ("linear_num_value_heads", 32),
        ("full_attention_interval", 4),
        ("index_topk", 2048),
        ("compress_ratios", [4, 128]),
        ("is_encoder_decoder", True),
        ("cross_attention_layers", [3, 8]),
        ("hidden_size_per_layer_input", 256),
        ("num_kv_shared_layers", 4),
        ("alibi", True),
        ("moe_latent_size", 1024),
        ("kv_lora_rank", 512),
        ("n_shared_experts", 1),
        ("q_lora_rank", 1536),
        ("sliding_window", 4096),
        ("a_new_attention_size", 3),
    ],
)
def test_what_would_be_misread_is_refused_by_its_field(key: str, value: Any) -> None:
    found = faults(LLAMA, **{key: value})
    assert len(found) == 1
    assert found[0].startswith(f"{key}: ")
    # Absent by another name: null, false, zero and empty change nothing.
    for nothing in (None, False, 0, []):
        assert read(LLAMA, **{key: nothing}) == read(LLAMA)


def test_an_unknown_family_is_refused_by_name() -> None:
    assert faults(LLAMA, model_type="mamba3") == [
        "model_type: model_type 'mamba3' is not supported yet"
    ]
    assert faults(LLAMA, drop=("model_type",)) == ["model_type: missing"]
    by_class = read(LLAMA, drop=("model_type",), architectures=["LlamaForCausalLM"])
    assert parameters(by_class) == 8_030_261_248


def test_an_older_key_beside_the_one_that_counts_is_no_fault() -> None:
    gemma = {**LLAMA, "model_type": "gemma", "head_dim": 256}
    both = read(gemma, hidden_act="silu", hidden_activation="gelu_pytorch_tanh")
    ffn = both.groups[0].layers[0].ffn
    assert isinstance(ffn, DenseFFN)
    assert ffn.activation == "gelu"
    assert read(LLAMA, model_max_length=7).max_context == 131_072
    assert faults(LLAMA, hidden_act="xielu") == [
        "hidden_act: activation 'xielu' is not supported yet"
    ]


def test_two_names_of_one_size_must_agree() -> None:
    assert faults({**MLA, "num_experts": 8}) == ["num_experts: 8, but n_routed_experts is 16"]


def test_keys_without_effect_on_shapes_change_nothing() -> None:
    keys = {
        "attention_dropout": 0.1, "bos_token_id": 1, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
        "initializer_range": 0.02, "auto_map": {"AutoConfig": "x.Y"}, "pretraining_tp": 2,
        "output_hidden_states": True, "attn_implementation": "sdpa", "num_beams": 4,
        "router_aux_loss_coef": 0.1, "image_token_index": 7, "time_step_limit": [0.0, 1.0],
    }  # fmt: skip
    assert read(LLAMA, **keys) == read(LLAMA)


@pytest.mark.parametrize(
    "value", [0, -1, 1.5, "4096", True, [4096], {"a": 1}, 10**18, float("inf")]
)
def test_a_size_is_a_positive_whole_number(value: Any) -> None:
    found = faults(LLAMA, hidden_size=value)
    assert found[0].startswith("hidden_size: ")


def test_independent_faults_come_all_at_once() -> None:
    found = faults(
        LLAMA,
        drop=("vocab_size", "intermediate_size"),
        num_attention_heads="32",
        attention_bias="no",
        torch_dtype="float64",
        a_new_hidden_rank=5,
    )
    paths = {entry.split(":")[0] for entry in found}
    assert paths >= {
        "vocab_size",
        "intermediate_size",
        "num_attention_heads",
        "attention_bias",
        "torch_dtype",
        "a_new_hidden_rank",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "empty file"),
        (b"   \n ", "empty file"),
        (b"[1, 2]", "a JSON list; give a JSON object"),
        (b'{"hidden_size": 4096,\n', "the file looks cut off"),
        (b'{"hidden_size": 4096,\n "vocab_s', ":2: not JSON: Unterminated string"),
        (b'{"a": 1\n "b": 2}', ":2: not JSON: Expecting ',' delimiter"),
        (b'{"a": 1,\n\n "a": 2}', ":3: a: written twice"),
        (b'{"a": {"b": [0,\n {"c": 1, "c": 2}]}}', ":2: a.b[1].c: written twice"),
        (b'{"a": NaN}', ":1: a: NaN is no number"),
        (b"{\n\x89PNG\xff}", ":2: not text"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON: Exceeds the limit"),
        (b'{"a": "' + b"x" * MAX_BYTES + b'"}', "more than 4 MiB"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_bad_json_is_one_clear_message(tmp_path: Path, text: bytes, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text)
    with pytest.raises(SpecError) as caught:
        load_workload(path)
    assert len(caught.value.faults) == 1
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert check_model(path) == list(caught.value.faults)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read: No such file"):
        load_workload(tmp_path / "none.json")
    folder = tmp_path / "folder.json"
    folder.mkdir()
    with pytest.raises(SpecError, match="a directory"):
        load_workload(folder)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200) | st.text(alphabet='{}[]",:0123456789aeNn\\ \n.-', max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(SpecError):
        model_from_json(parse_json(text, "config.json"), "any")


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10**6), st.floats(allow_nan=False),
    st.text(max_size=5), st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([entry["config"] for entry in FAMILIES] + [LLAMA, MLA]),
    st.data(),
)
def test_any_value_under_any_known_key_is_read_or_refused(
    config: dict[str, Any], data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(sorted(config)))
    with contextlib.suppress(SpecError):
        model = read(config, **{key: data.draw(VALUES)})
        assert parameters(model) > 0
        assert weight_bytes(model) > 0


LAYERS = st.lists(
    st.sampled_from([Layer(attention=None, ffn=DenseFFN(width=size)) for size in (1, 2, 3)]),
    min_size=1,
    max_size=60,
)


@given(LAYERS)
def test_runs_of_layers_keep_every_layer_in_order(layers: list[Layer]) -> None:
    groups = group_layers(layers)
    assert [layer for group in groups for _ in range(group.repeat) for layer in group.layers] == (
        layers
    )


def test_a_model_is_named_by_its_file_or_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "My-Model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "other.json").write_text(json.dumps(LLAMA))
    (tmp_path / "no-suffix").write_text("\n  " + json.dumps(LLAMA))
    assert load_workload(folder).name == "My-Model"
    assert load_workload(folder / "config.json").name == "My-Model"
    assert load_workload(tmp_path / "other.json").name == "other"
    assert load_workload(tmp_path / "no-suffix").name == "no-suffix"
    assert is_config(folder)
    assert not is_config("llama-3.1-8b")
    assert check_model(folder) == []


def test_overrides_are_set_in_a_configuration_too(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(LLAMA))
    model = load_workload(path, parse_overrides(["groups.0.repeat=3", "kv_format=fp8"]))
    assert isinstance(model, Transformer)
    assert len(list(model.layers())) == 3
    assert kv_bytes_per_token(model) == 3 * 2 * 8 * 128
    with pytest.raises(SpecError, match="kv_heads"):
        load_workload(path, parse_overrides(["groups.0.layers.0.attention.kv_heads=5"]))


def test_reading_twice_gives_equal_models(tmp_path: Path) -> None:
    path = tmp_path / "same.json"
    path.write_text(json.dumps(MLA))
    first, second = read_config(path), read_config(path)
    assert first == second
    assert hash(first) == hash(second)
    assert replace(first, name="other") != second
