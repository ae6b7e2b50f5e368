"""Cutting a model over tensor-parallel ranks and pipeline stages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import load_workload
from simulator.errors import InputError
from simulator.mapping.shard import kv_copies, padded_vocab, shard
from simulator.mapping.stages import imbalance, layer_counts, layer_runs, stages
from simulator.models.weights import model_weights
from simulator.specs.plan import Plan
from simulator.specs.workload import (
    Attention,
    DenseFFN,
    LatentAttention,
    Layer,
    LayerGroup,
    MoE,
    Transformer,
)

DEGREES = st.sampled_from([1, 2, 4, 8, 16])


def model(name: str) -> Transformer:
    found = load_workload(name)
    assert isinstance(found, Transformer)
    return found


@st.composite
def attentions(draw: st.DrawFn) -> Attention | LatentAttention:
    heads = draw(st.sampled_from([16, 48, 64]))
    if draw(st.booleans()):
        return LatentAttention(
            heads=heads,
            q_lora_rank=draw(st.sampled_from([None, 24])),
            kv_lora_rank=20,
            qk_nope_head_dim=8,
            qk_rope_head_dim=4,
            v_head_dim=6,
        )
    return Attention(
        heads=heads,
        kv_heads=draw(st.sampled_from([1, 2, 8, 16])),
        head_dim=8,
        qkv_bias=draw(st.booleans()),
        out_bias=draw(st.booleans()),
        sinks=draw(st.booleans()),
        output_gate=draw(st.booleans()),
        qk_norm=draw(st.sampled_from(["none", "head", "full"])),
    )


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    dense = st.builds(
        DenseFFN, width=st.sampled_from([32, 96]), gated=st.booleans(), bias=st.booleans()
    )
    routed = st.builds(
        MoE,
        experts=st.just(16),
        top_k=st.just(2),
        width=st.sampled_from([16, 48]),
        bias=st.booleans(),
        shared_width=st.sampled_from([0, 32]),
        shared_gate=st.booleans(),
    )
    return Layer(
        attention=draw(st.none() | attentions()),
        ffn=draw(dense | routed),
        dense_ffn=draw(st.none() | dense),
        norms=draw(st.integers(1, 4)),
    )


@st.composite
def transformers(draw: st.DrawFn) -> Transformer:
    return Transformer(
        name="any",
        hidden=64,
        vocab=draw(st.integers(1, 100)),
        groups=tuple(
            LayerGroup(
                repeat=draw(st.integers(1, 4)),
                layers=tuple(draw(st.lists(layers(), min_size=1, max_size=3))),
            )
            for _ in range(draw(st.integers(1, 2)))
        ),
        tied_embeddings=draw(st.booleans()),
        head_bias=draw(st.booleans()),
        final_norm=draw(st.booleans()),
    )


WHOLE = {
    "norm", "router", "o bias", "q down", "kv down", "q norm", "kv norm", "shared gate",
}  # fmt: skip
"""Weights of which every tensor-parallel rank has all."""


def test_one_rank_has_the_model_itself() -> None:
    found = model("llama-3.1-8b")
    assert shard(found, 1) is found


def test_llama_70b_on_16_ranks_copies_its_8_kv_heads_twice() -> None:
    layer = next(shard(model("llama-3.1-70b"), 16).layers())
    assert isinstance(layer.attention, Attention)
    assert (layer.attention.heads, layer.attention.kv_heads) == (4, 1)
    assert isinstance(layer.ffn, DenseFFN)
    assert layer.ffn.width == 28_672 // 16
    assert kv_copies(8, 16) == 2


def test_latents_and_routers_are_whole_and_expert_parallel_experts_too() -> None:
    whole = model("deepseek-v3")
    *_, last = shard(whole, 8, split_experts=False).layers()
    *_, cut = shard(whole, 8).layers()
    assert isinstance(last.attention, LatentAttention)
    assert isinstance(last.ffn, MoE)
    assert isinstance(cut.ffn, MoE)
    assert (last.attention.heads, last.attention.kv_lora_rank) == (16, 512)
    assert last.attention.q_lora_rank == 1536
    assert (last.ffn.width, last.ffn.shared_width, last.ffn.experts) == (2048, 256, 256)
    assert (cut.ffn.width, cut.ffn.shared_width) == (256, 256)


def test_sizes_that_do_not_divide_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="attention heads of 64 do not divide by tp 3"):
        shard(model("llama-3.1-70b"), 3)


@settings(max_examples=100, deadline=None)
@given(transformers(), DEGREES)
def test_weights_of_all_ranks_less_copies_and_padding_are_those_of_the_model(
    whole: Transformer, tp: int
) -> None:
    """Tensor by tensor: each is whole on every rank, copied by KV head, or cut into equal parts."""
    pad = padded_vocab(whole.vocab, tp) - whole.vocab
    for before, after in zip(model_weights(whole), model_weights(shard(whole, tp)), strict=True):
        assert before.name == after.name
        total = tp * after.elements
        if before.name in ("embedding", "head"):
            total -= pad * whole.hidden
        elif before.name == "head bias":
            total -= pad
        elif before.name in WHOLE or (before.name == "qk norm" and before.rows == 8):
            total //= tp
        elif before.name in ("kv", "qkv bias", "qk norm"):
            assert total >= before.elements
            continue  # KV heads may be copied: held below
        elif before.name in ("ffn bias", "experts bias"):
            total -= (tp - 1) * whole.hidden * before.count  # that of the output is whole
        assert total == before.elements


@settings(max_examples=100, deadline=None)
@given(attentions(), DEGREES)
def test_kv_heads_of_all_ranks_are_those_of_the_model_times_their_copies(
    core: Attention | LatentAttention, tp: int
) -> None:
    whole = Transformer(
        name="one",
        hidden=64,
        vocab=8,
        groups=(LayerGroup(layers=(Layer(attention=core, ffn=None),)),),
    )
    cut = next(shard(whole, tp).layers()).attention
    assert cut is not None
    assert cut.heads * tp == core.heads
    if isinstance(core, Attention):
        assert isinstance(cut, Attention)
        assert cut.kv_heads * tp == core.kv_heads * max(1, tp // core.kv_heads)


@settings(max_examples=50, deadline=None)
@given(transformers(), DEGREES, st.integers(1, 4), st.integers(1, 3))
def test_stages_of_a_shard_are_the_shards_of_its_stages(
    whole: Transformer, tp: int, pp: int, virtual: int
) -> None:
    plan = Plan(tp=tp, pp=pp, virtual_stages=virtual)
    cut_first = [stage.of(whole) for stage in stages(shard(whole, tp), plan)]
    cut_last = [shard(stage.of(whole), tp) for stage in stages(whole, plan)]
    for first, last in zip(cut_first, cut_last, strict=True):
        assert list(first.layers()) == list(last.layers())


@settings(max_examples=50, deadline=None)
@given(transformers(), st.integers(1, 6), st.integers(1, 3))
def test_stages_hold_every_layer_once_and_in_order(
    whole: Transformer, pp: int, virtual: int
) -> None:
    pieces = stages(whole, Plan(pp=pp, virtual_stages=virtual))
    assert [layer for piece in pieces for layer, n in piece.layers for _ in range(n)] == list(
        whole.layers()
    )
    assert [(piece.piece, piece.rank) for piece in pieces] == [
        (v, rank) for v in range(virtual) for rank in range(pp)
    ]
    assert [piece.first for piece in pieces] == [True] + [False] * (pp * virtual - 1)
    assert [piece.last for piece in pieces] == [False] * (pp * virtual - 1) + [True]
    counts = [piece.count for piece in pieces]
    assert max(counts) - min(counts) <= 1


def test_llama_405b_on_16_stages_has_a_layer_less_on_the_first_and_the_last() -> None:
    found = stages(model("llama-3.1-405b"), Plan(pp=16))
    assert [stage.count for stage in found] == [7, *[8] * 14, 7]
    assert imbalance(found) == pytest.approx(8 * 16 / 126 - 1)
    assert imbalance(stages(model("llama-3.1-8b"), Plan(pp=16))) == 0


def test_counts_of_layers_can_be_given_and_must_add_up() -> None:
    whole = model("deepseek-v3")  # 3 dense layers, then 58 with experts
    found = stages(whole, Plan(pp=4), counts=(13, 16, 16, 16))
    assert [[count for _, count in stage.layers] for stage in found] == [[3, 10], [16], [16], [16]]
    with pytest.raises(InputError, match="4 counts of 0 or more that sum to 61"):
        stages(whole, Plan(pp=4), counts=(16, 16, 16, 16))


def test_layers_left_over_go_to_inner_pieces_first() -> None:
    assert layer_counts(7, 4) == (2, 2, 2, 1)
    assert layer_counts(5, 4) == (1, 2, 1, 1)
    assert layer_counts(3, 2) == (2, 1)
    assert layer_counts(2, 1) == (2,)


def test_equal_neighbours_are_one_run_across_groups() -> None:
    whole = model("llama-3.1-8b")
    ((layer, count),) = layer_runs(whole)
    split = replace(
        whole,
        groups=(LayerGroup(repeat=3, layers=(layer, layer)), LayerGroup(repeat=2, layers=(layer,))),
    )
    assert (count, layer_runs(split)) == (32, ((layer, 8),))
