"""Parameters, weight bytes and cache bytes against published and hand-computed figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.models.arithmetic import (
    active_parameters,
    kv_bytes_at,
    kv_bytes_per_token,
    kv_bytes_per_token_per_rank,
    max_context,
    mtp_parameters,
    parameters,
    parameters_by_part,
    summary,
    tokens_that_fit,
    weight_bytes,
    weight_bytes_by_part,
)
from simulator.models.load import load_workload
from simulator.specs.frozen import FrozenMap
from simulator.specs.workload import (
    Attention,
    DenseFFN,
    LatentAttention,
    Layer,
    LayerGroup,
    MoE,
    Transformer,
)

GIB = 2**30


def model(name: str) -> Transformer:
    loaded = load_workload(name)
    assert isinstance(loaded, Transformer)
    return loaded


def attention_only(*runs: tuple[int, Attention | LatentAttention], kv: str = "bf16") -> Transformer:
    """A model of which only the cache matters: runs of (layers, attention)."""
    groups = tuple(
        LayerGroup(repeat=count, layers=(Layer(attention=attention, ffn=DenseFFN(width=8)),))
        for count, attention in runs
    )
    return Transformer(name="cache", hidden=8, vocab=8, groups=groups, kv_format=kv)


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("llama-3.1-8b", 8_030_261_248, 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496, 70_553_706_496),
        ("llama-3.1-405b", 405_853_388_800, 405_853_388_800),
        ("qwen2.5-72b", 72_706_203_648, 72_706_203_648),
        ("qwen3-4b", 4_022_468_096, 4_022_468_096),
        ("qwen3-32b", 32_762_123_264, 32_762_123_264),
        ("mixtral-8x7b", 46_702_792_704, 12_879_925_248),
        ("mixtral-8x22b", 140_620_634_112, 39_152_031_744),
        ("deepseek-v3", 671_026_419_200, 37_552_297_472),
        ("kimi-k2", 1_026_408_232_448, 32_861_500_928),
        ("llama-4-scout", 107_769_861_120, 17_172_894_720),
        ("llama-4-maverick", 400_711_848_960, 17_184_691_200),
        ("gpt-oss-120b", 116_829_156_672, 5_711_982_912),
        ("gpt-oss-20b", 20_914_757_184, 4_187_440_704),
        ("gemma-3-1b", 999_885_952, 999_885_952),
        ("sdxl", 2_567_463_684, 2_567_463_684),
    ],
)
def test_parameters_are_those_that_are_published(name: str, total: int, active: int) -> None:
    loaded = load_workload(name)
    assert (parameters(loaded), active_parameters(loaded)) == (total, active)
    assert loaded.published_parameters in (None, total)
    assert sum(parameters_by_part(loaded).values()) == total


def test_the_assumed_gpt_4_is_labelled_and_has_the_rumoured_sizes() -> None:
    gpt4 = model("gpt-4-1.8t")
    assert gpt4.basis == "assumed"
    assert parameters(gpt4) == pytest.approx(1.8e12, rel=0.01)
    assert active_parameters(gpt4) == pytest.approx(280e9, rel=0.01)
    assert parameters_by_part(gpt4)["attention"] == pytest.approx(55e9, rel=0.05)


def test_a_gated_network_has_three_matrices() -> None:
    assert parameters_by_part(model("llama-3.1-8b"))["ffn"] == 32 * 3 * 4096 * 14336


def test_a_tied_embedding_counts_once() -> None:
    tied = model("qwen3-4b")
    assert parameters(replace(tied, tied_embeddings=False)) == 4_411_424_256
    assert parameters(replace(tied, tied_embeddings=False)) - parameters(tied) == 388_956_160


def test_deepseek_with_experts_in_every_layer_would_be_703_8_billion() -> None:
    deepseek = model("deepseek-v3")
    experts = deepseek.groups[1].layers[0]
    all_sparse = replace(deepseek, groups=(LayerGroup(repeat=61, layers=(experts,)),))
    assert parameters(all_sparse) == pytest.approx(703.8e9, rel=1e-4)
    assert parameters_by_part(deepseek)["experts"] == pytest.approx(653.9e9, rel=1e-4)


def test_prediction_modules_are_counted_apart() -> None:
    deepseek = model("deepseek-v3")
    last = replace(deepseek, groups=(replace(deepseek.groups[1], repeat=1),))
    layer = parameters(last) - 2 * 129_280 * 7168 - 7168
    assert mtp_parameters(deepseek) == layer + 2 * 7168 * 7168 + 3 * 7168
    assert parameters(replace(deepseek, mtp_layers=0)) == parameters(deepseek)
    assert mtp_parameters(replace(deepseek, mtp_layers=0)) == 0


@pytest.mark.parametrize(
    ("name", "size"), [("gpt-oss-120b", 65_248_815_744), ("gpt-oss-20b", 13_761_264_768)]
)
def test_mxfp4_weights_carry_their_scales(name: str, size: int) -> None:
    assert weight_bytes(model(name)) == size


def test_expert_weights_of_gpt_oss_are_4_25_bits_and_their_biases_16() -> None:
    loaded = model("gpt-oss-120b")
    biases = 36 * 128 * (2 * 2880 + 2880)
    matrices = parameters_by_part(loaded)["experts"] - biases
    assert matrices == 114_661_785_600
    assert weight_bytes_by_part(loaded)["experts"] == matrices * 4.25 / 8 + biases * 2


def test_llama_405b_in_fp8_is_405_85_gb_and_203_gb_in_4_bits() -> None:
    llama = model("llama-3.1-405b")
    fp8 = weight_bytes(replace(llama, formats=FrozenMap({"default": "fp8"})))
    assert fp8 == 405_853_388_800
    assert fp8 > 2 * 192e9
    fp4 = weight_bytes(replace(llama, formats=FrozenMap({"default": "fp4"})))
    assert fp4 == pytest.approx(203e9, rel=1e-3)


def test_a_layer_may_have_formats_of_its_own() -> None:
    wide = Layer(attention=None, ffn=DenseFFN(width=64))
    narrow = replace(wide, formats=FrozenMap({"ffn": "fp8"}))
    groups = (LayerGroup(repeat=1, layers=(wide,)), LayerGroup(repeat=3, layers=(narrow,)))
    mixed = Transformer(name="mixed", hidden=32, vocab=1, groups=groups)
    assert weight_bytes_by_part(mixed)["ffn"] == 3 * 64 * 32 * (2 + 3 * 1)
    assert mixed.weight_format("ffn", narrow) == "fp8"
    assert mixed.weight_format("ffn", wide) == "bf16"


@pytest.mark.parametrize(
    ("name", "per_token"),
    [
        ("llama-3.1-8b", 131_072),
        ("llama-3.1-70b", 327_680),
        ("llama-3.1-405b", 516_096),
        ("qwen3-4b", 147_456),
        ("deepseek-v3", 70_272),
        ("gpt-oss-120b", 73_728),
        ("sdxl", 0),
    ],
)
def test_cache_per_token_follows_kv_heads_declared_head_size_and_latent(
    name: str, per_token: int
) -> None:
    assert kv_bytes_per_token(load_workload(name)) == per_token


def test_llama_405b_needs_63_gib_of_cache_at_131072_tokens() -> None:
    assert kv_bytes_at(model("llama-3.1-405b"), 131_072) == 63 * GIB


def test_multi_head_attention_caches_every_head() -> None:
    llama2 = attention_only((32, Attention(heads=32, kv_heads=32, head_dim=128)))
    assert kv_bytes_per_token(llama2) == 524_288


def test_int8_weights_leave_the_cache_in_bf16() -> None:
    qwen = attention_only((28, Attention(heads=28, kv_heads=4, head_dim=128)))
    narrow = replace(qwen, formats=FrozenMap({"default": "int8"}))
    assert kv_bytes_per_token(narrow) == 57_344
    assert kv_bytes_at(narrow, 3072) == 168 * 2**20


def test_the_latent_cache_of_deepseek() -> None:
    deepseek = model("deepseek-v3")
    assert kv_bytes_at(deepseek, 4096) == 287_834_112
    assert kv_bytes_per_token(replace(deepseek, kv_format="fp8")) == 35_136
    uncompressed = 61 * 128 * (192 + 128) * 2
    assert uncompressed / kv_bytes_per_token(deepseek) == pytest.approx(71, abs=0.5)


def test_windowed_layers_count_while_the_context_is_short() -> None:
    assert kv_bytes_per_token(model("gpt-oss-120b")) == 36 * 2 * 8 * 64 * 2
    assert kv_bytes_at(model("gpt-oss-120b"), 128) == 128 * 73_728


def test_windows_bound_the_cache_of_gemma_3_1b() -> None:
    assert kv_bytes_at(model("gemma-3-1b"), 32_768) == 139 * 2**20


def test_full_layers_may_have_heads_of_another_size() -> None:
    sliding = Attention(heads=32, kv_heads=16, head_dim=256, window=1024)
    full = Attention(heads=32, kv_heads=4, head_dim=512, shared_kv=True)
    assert kv_bytes_per_token(attention_only((50, sliding), (10, full))) == 901_120


def test_chunks_bound_the_cache_of_llama_4() -> None:
    scout = model("llama-4-scout")
    per_layer = 2 * 8 * 128 * 2
    assert kv_bytes_at(scout, 100_000) == per_layer * (12 * 100_000 + 36 * 8192)


def test_the_latent_is_replicated_and_heads_are_cut() -> None:
    llama, deepseek = model("llama-3.1-70b"), model("deepseek-v3")
    assert kv_bytes_per_token_per_rank(llama, 8) == 327_680 / 8
    assert kv_bytes_per_token_per_rank(llama, 16) == 40_960
    assert 16 * kv_bytes_per_token_per_rank(llama, 16) == 2 * 8 * 40_960
    for tp in (1, 8, 16):
        assert kv_bytes_per_token_per_rank(deepseek, tp) == 70_272


def test_tokens_that_fit_invert_a_cache_that_is_not_linear() -> None:
    gpt = model("gpt-oss-120b")
    capacity = 5.38 * GIB
    fit = tokens_that_fit(gpt, capacity)
    assert fit is not None
    assert kv_bytes_at(gpt, fit) <= capacity < kv_bytes_at(gpt, fit + 1)
    # Twice what a straight line through the short contexts promises, since half have a window.
    assert fit > 1.9 * capacity / kv_bytes_per_token(gpt)


def test_a_cache_of_windows_alone_never_fills() -> None:
    windows = attention_only((2, Attention(heads=1, kv_heads=1, head_dim=8, window=16)))
    assert tokens_that_fit(windows, kv_bytes_at(windows, 16)) is None
    assert tokens_that_fit(windows, kv_bytes_at(windows, 16) - 1) == 15
    assert tokens_that_fit(windows, 0.0) == 0
    assert tokens_that_fit(load_workload("sdxl"), 0.0) is None
    assert tokens_that_fit(model("llama-3.1-8b"), float("inf")) is None


ATTENTIONS = st.one_of(
    st.builds(
        lambda kv, group, size, window, chunk: Attention(
            heads=kv * group, kv_heads=kv, head_dim=size, window=window, chunk=chunk
        ),
        st.integers(1, 8),
        st.integers(1, 4),
        st.sampled_from([64, 128]),
        st.none() | st.integers(1, 5000),
        st.none() | st.integers(1, 5000),
    ),
    st.builds(
        lambda rank: LatentAttention(
            heads=4,
            q_lora_rank=None,
            kv_lora_rank=rank,
            qk_nope_head_dim=128,
            qk_rope_head_dim=64,
            v_head_dim=128,
        ),
        st.integers(1, 512),
    ),
)
MODELS = st.lists(st.tuples(st.integers(1, 5), ATTENTIONS), min_size=1, max_size=3).map(
    lambda runs: attention_only(*runs)
)


@settings(max_examples=100, deadline=None)
@given(MODELS, st.integers(0, 20_000), st.integers(0, 20_000))
def test_a_longer_sequence_never_needs_less_cache(
    loaded: Transformer, tokens: int, more: int
) -> None:
    assert kv_bytes_at(loaded, tokens) <= kv_bytes_at(loaded, tokens + more)
    assert kv_bytes_at(loaded, tokens) <= tokens * kv_bytes_per_token(loaded)


@settings(max_examples=100, deadline=None)
@given(MODELS, st.floats(0, 1e9))
def test_what_fits_fits_and_one_token_more_does_not(loaded: Transformer, capacity: float) -> None:
    fit = tokens_that_fit(loaded, capacity)
    if fit is None:
        assert kv_bytes_at(loaded, 10**12) <= capacity
    else:
        assert kv_bytes_at(loaded, fit) <= capacity < kv_bytes_at(loaded, fit + 1)


@settings(max_examples=50, deadline=None)
@given(MODELS, st.integers(1, 64))
def test_ranks_together_hold_at_least_the_whole_cache(loaded: Transformer, tp: int) -> None:
    assert tp * kv_bytes_per_token_per_rank(loaded, tp) >= kv_bytes_per_token(loaded)
    assert kv_bytes_per_token_per_rank(loaded, 1) == kv_bytes_per_token(loaded)


def test_the_summary_has_the_agreed_keys() -> None:
    data = summary(model("gemma-3-1b"), (512, 32_768))
    assert data["parameters"] == data["active_parameters"] == 999_885_952
    assert data["weight_bytes"] == 2 * 999_885_952
    assert data["kv_bytes_per_token"] == 26_624
    assert data["kv_bytes_at"] == {"512": 512 * 26_624, "32768": 139 * 2**20}
    assert data["max_context"] == max_context(model("gemma-3-1b")) == 32_768


def test_experts_that_a_token_leaves_out_are_not_active() -> None:
    moe = MoE(experts=8, top_k=2, width=16, shared_experts=1, shared_width=4)
    layer = Layer(attention=None, ffn=moe, norms=0)
    groups = (LayerGroup(layers=(layer,)),)
    one = Transformer(name="one", hidden=8, vocab=1, groups=groups, final_norm=False)
    matrix = 3 * 16 * 8
    assert parameters(one) - active_parameters(one) == 6 * matrix
    assert parameters_by_part(one)["shared_experts"] == 3 * 4 * 8
