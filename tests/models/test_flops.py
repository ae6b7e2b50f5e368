"""FLOPs per token against published training tables and hand arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.models.arithmetic import active_parameters, parameters
from simulator.models.flops import CONVENTIONS, Convention, flops_per_token
from simulator.models.load import load_workload
from simulator.models.unet import blocks, unet_flops
from simulator.specs.workload import (
    Attention,
    DenseFFN,
    Layer,
    LayerGroup,
    Transformer,
    UNet,
)


def model(name: str) -> Transformer:
    loaded = load_workload(name)
    assert isinstance(loaded, Transformer)
    return loaded


def plain(attention: Attention, layers: int = 1, **sizes: int) -> Transformer:
    layer = Layer(attention=attention, ffn=DenseFFN(width=sizes.pop("width", 8)))
    groups = (LayerGroup(repeat=layers, layers=(layer,)),)
    return Transformer(name="plain", groups=groups, **{"hidden": 8, "vocab": 8, **sizes})


@pytest.mark.parametrize(
    ("name", "sequence", "tokens_per_second", "printed"),
    [
        ("llama-3.1-8b", 8192, 14_079, 725),
        ("llama-3.1-70b", 8192, 1_619, 727),
        ("llama-3.1-405b", 8192, 302, 763),
        ("llama-3.1-405b", 8192, 622, 1569),
        ("qwen3-235b-a22b", 4096, 1_204, 178),
        ("deepseek-v3", 4096, 1_297, 338),
    ],
)
def test_the_megatron_rule_gives_the_printed_tflops(
    name: str, sequence: int, tokens_per_second: int, printed: int
) -> None:
    per_token = flops_per_token(model(name), sequence, "megatron")
    assert per_token * tokens_per_second / 1e12 == pytest.approx(printed, rel=4e-3)


def test_the_prediction_module_of_deepseek_counts() -> None:
    deepseek = model("deepseek-v3")
    assert flops_per_token(deepseek, 4096, "megatron") == pytest.approx(260.65e9, rel=1e-5)
    without = replace(deepseek, mtp_layers=0)
    assert flops_per_token(without, 4096, "megatron") == pytest.approx(250.46e9, rel=1e-4)


def test_windowed_layers_of_gpt_oss_count_their_window() -> None:
    per_token = flops_per_token(model("gpt-oss-120b"), 4096, "megatron")
    assert per_token == pytest.approx(32.72e9, rel=1e-3)


def test_llama_2_7b_weights_and_causal_attention_of_a_step() -> None:
    attention = Attention(heads=32, kv_heads=32, head_dim=128)
    llama2 = plain(attention, layers=32, hidden=4096, vocab=32_000, width=11_008)
    assert parameters(llama2) == 6_738_415_616
    tokens = 4 * 8192
    weights = 6 * (6_738_415_616 - 131_072_000) * tokens
    assert weights / 1e12 == pytest.approx(1299.0, rel=1e-4)
    step = flops_per_token(llama2, 8192, "megatron") * tokens
    assert (step - weights) / 1e12 == pytest.approx(211.11, rel=1e-4)
    assert step / 1e12 == pytest.approx(1510.1, rel=1e-4)
    causal = flops_per_token(llama2, 8192, "training")
    full = flops_per_token(llama2, 8192, "training_full")
    assert (full - causal) * tokens / 1e12 == pytest.approx(211.11, rel=1e-4)


def test_expanded_latent_attention_costs_320_per_head_and_key() -> None:
    deepseek = replace(model("deepseek-v3"), mtp_layers=0)
    attention = flops_per_token(deepseek, 4096, "training") - 3 * flops_per_token(
        deepseek, 4096, "forward_weights"
    )
    assert attention == 61 * 3 * (192 + 128) * 128 * 4096


def test_a_token_costs_two_flops_per_active_matrix_weight() -> None:
    llama = model("llama-3.1-8b")
    norms = (2 * 32 + 1) * 4096
    multiplied = parameters(llama) - 128_256 * 4096 - norms
    assert flops_per_token(llama, 1, "forward_weights") == 2 * multiplied
    mixtral = model("mixtral-8x7b")
    per_token = flops_per_token(mixtral, 1, "forward_weights")
    assert per_token == pytest.approx(2 * (active_parameters(mixtral) - 32_000 * 4096), rel=1e-4)


def test_a_tied_head_is_still_multiplied() -> None:
    tied = model("qwen3-4b")
    untied = replace(tied, tied_embeddings=False)
    for convention in CONVENTIONS:
        assert flops_per_token(tied, 512, convention) == flops_per_token(untied, 512, convention)


def test_one_new_token_meets_the_cache() -> None:
    llama = model("llama-3.1-8b")
    attention = flops_per_token(llama, 4096, "decode") - flops_per_token(
        llama, 4096, "forward_weights"
    )
    assert attention == 4 * 32 * 32 * 128 * 4096
    windowed = plain(Attention(heads=2, kv_heads=1, head_dim=4, window=16))
    chunked = plain(Attention(heads=2, kv_heads=1, head_dim=4, chunk=16))
    weights = flops_per_token(windowed, 40, "forward_weights")
    assert flops_per_token(windowed, 40, "decode") - weights == 4 * 2 * 4 * 16
    assert flops_per_token(chunked, 40, "decode") - weights == 4 * 2 * 4 * 8


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 300),
    st.none() | st.integers(1, 300),
    st.none() | st.integers(1, 300),
)
def test_causal_attention_is_within_half_a_key_of_counted_pairs(
    sequence: int, window: int | None, chunk: int | None
) -> None:
    loaded = plain(Attention(heads=1, kv_heads=1, head_dim=1, window=window, chunk=chunk))
    pairs = 0
    for query in range(sequence):
        first = 0 if chunk is None else query - query % chunk
        first = first if window is None else max(first, query - window + 1)
        pairs += query - first + 1
    weights = flops_per_token(loaded, sequence, "forward_weights")
    attention = (flops_per_token(loaded, sequence, "forward") - weights) / 4
    assert attention <= pairs / sequence + 1e-9
    assert attention >= pairs / sequence - 0.5 - 1e-9


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 10_000), st.sampled_from(sorted(CONVENTIONS)))
def test_a_longer_sequence_never_costs_less_per_token(
    sequence: int, convention: Convention
) -> None:
    gpt = model("gpt-oss-20b")
    shorter = flops_per_token(gpt, sequence, convention)
    assert shorter <= flops_per_token(gpt, sequence + 1, convention) * (1 + 1e-12)


def test_an_unknown_convention_or_an_empty_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="known: forward_weights"):
        flops_per_token(model("llama-3.1-8b"), 1, "palm")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one token"):
        flops_per_token(model("llama-3.1-8b"), 0)


def test_the_u_net_of_sdxl_has_the_known_wiring_and_cost() -> None:
    sdxl = load_workload("sdxl")
    assert isinstance(sdxl, UNet)
    names = [type(block).__name__ for block in blocks(sdxl)]
    # 6 down, 2 middle, 9 up; in, out, 2 down and 2 up convolutions.
    assert names.count("Residual") == 17
    assert names.count("Convolution") == 6
    assert sum(getattr(block, "depth", 0) for block in blocks(sdxl)) == 70
    assert {block.size for block in blocks(sdxl)} == {128, 64, 32}
    assert unet_flops(sdxl) == pytest.approx(6.76e12, rel=1e-3)
    half = replace(sdxl, latent=64)
    assert unet_flops(half) < unet_flops(sdxl) / 4
