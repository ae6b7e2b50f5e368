"""Operators of a training step against published FLOP rules, autograd and conservation."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import InputError
from simulator.mapping.dispatch import Dispatch
from simulator.mapping.shard import shard
from simulator.models.flops import flops_per_token
from simulator.models.load import load_workload
from simulator.models.recipes import Place
from simulator.models.training import (
    TrainingStep,
    embedding_pass,
    head_pass,
    joined,
    optimizer_step,
    prediction_pass,
    training_layer,
)
from simulator.models.training_flops import hardware_flops_per_token
from simulator.models.training_recompute import MODULES
from simulator.models.training_tape import LayerPass
from simulator.ops.attention import Attention as Core
from simulator.ops.backward import AttentionBackward, GroupedWeightGradient, model_flops
from simulator.ops.collective import Collective
from simulator.ops.exchange import Exchange
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Op
from simulator.ops.optimizer import AdamUpdate
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


def model(name: str) -> Transformer:
    loaded = load_workload(name)
    assert isinstance(loaded, Transformer)
    return loaded


def plain(
    heads: int = 8, kv_heads: int = 4, head_dim: int = 16, hidden: int = 64, width: int = 96,
    layers: int = 1, vocab: int = 256,
) -> Transformer:  # fmt: skip
    layer = Layer(
        attention=Attention(heads=heads, kv_heads=kv_heads, head_dim=head_dim),
        ffn=DenseFFN(width=width),
    )
    groups = (LayerGroup(repeat=layers, layers=(layer,)),)
    return Transformer(name="plain", hidden=hidden, vocab=vocab, groups=groups)


def routed(experts: int = 16, top_k: int = 2, shared: int = 0) -> Transformer:
    layer = Layer(
        attention=Attention(heads=8, kv_heads=4, head_dim=16),
        ffn=MoE(
            experts=experts, top_k=top_k, width=32, shared_experts=bool(shared),
            shared_width=shared,
        ),
    )  # fmt: skip
    return Transformer(name="moe", hidden=64, vocab=256, groups=(LayerGroup(layers=(layer,)),))


def only(of: Transformer) -> Layer:
    return of.groups[0].layers[0]


def layer_pass(of: Transformer, **step: Any) -> LayerPass:
    return training_layer(of, only(of), TrainingStep(**{"sequence": 128, **step}))


def whole(of: Transformer, step: TrainingStep) -> LayerPass:
    """Every operator of the model on one rank."""
    layers = list(of.layers())
    made = {layer: training_layer(of, layer, step) for layer in dict.fromkeys(layers)}
    parts = [embedding_pass(of, step), *(made[layer] for layer in layers), head_pass(of, step)]
    parts += [prediction_pass(of, step, layers=len(layers)) for _ in range(of.mtp_layers)]
    return joined(parts)


def collectives(ops: tuple[Op, ...]) -> Counter[str]:
    return Counter(op.algorithm for op in ops if isinstance(op, Collective))


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
def test_operators_have_the_flops_of_published_training_tables(
    name: str, sequence: int, tokens_per_second: int, printed: int
) -> None:
    done = whole(model(name), TrainingStep(sequence=sequence))
    per_token = done.model_flops / sequence
    assert per_token == pytest.approx(flops_per_token(model(name), sequence, "megatron"), rel=1e-4)
    assert per_token * tokens_per_second / 1e12 == pytest.approx(printed, rel=5e-3)


def test_attention_of_llama_2_7b_counts_half_of_the_square() -> None:
    llama = plain(
        heads=32, kv_heads=32, head_dim=128, hidden=4096, width=11008, layers=32, vocab=32_000
    )
    done = whole(llama, TrainingStep(sequence=8192, micro_batch=4))
    ops = (*done.forward, *done.backward)
    attention = sum(model_flops(op) for op in ops if isinstance(op, Core | AttentionBackward))
    assert attention / 1e12 == pytest.approx(211.11, rel=2e-4)
    assert (done.model_flops - attention) / 1e12 == pytest.approx(1299.0, rel=2e-4)


def test_latent_attention_costs_its_key_and_value_sizes() -> None:
    deepseek = model("deepseek-v3")
    done = training_layer(deepseek, only(deepseek), TrainingStep(sequence=4096))
    ops = (*done.forward, *done.backward)
    attention = sum(model_flops(op) for op in ops if isinstance(op, Core | AttentionBackward))
    per_head = attention / 4096 / 128 / 4096
    assert per_head == pytest.approx(3 * (192 + 128), rel=1e-3)
    assert 12 * 192 / per_head == pytest.approx(2.4, rel=1e-3)


@pytest.mark.parametrize(("recompute", "term"), [("none", 1 / 6), ("selective", 2 / 9)])
def test_recomputing_attention_raises_its_term_from_a_sixth_to_two_ninths(
    recompute: Any, term: float
) -> None:
    hidden, layers, sequence, vocab = 12288, 96, 2048, 51200
    layer = Layer(
        attention=Attention(heads=96, kv_heads=96, head_dim=128),
        ffn=DenseFFN(width=4 * hidden, gated=False),
    )
    groups = (LayerGroup(repeat=layers, layers=(layer,)),)
    gpt = Transformer(name="gpt", hidden=hidden, vocab=vocab, groups=groups)
    formula = (
        72 * layers * hidden**2
        * (1 + term * sequence / hidden + vocab / (12 * hidden * layers))
    )  # fmt: skip
    counted = hardware_flops_per_token(gpt, sequence, recompute, "training_full")
    assert counted == pytest.approx(formula, rel=1e-12)


def test_full_recomputation_runs_layers_four_times_and_the_head_three() -> None:
    llama = plain(layers=2)
    none, full = (
        TrainingStep(sequence=128, recompute=how) for how in ("none", "full")
    )  # fmt: skip
    layer, again = (training_layer(llama, only(llama), step) for step in (none, full))
    forward = sum(map(model_flops, layer.forward))
    assert again.model_flops == layer.model_flops == layer.hardware_flops == 3 * forward
    assert again.hardware_flops == 4 * forward
    assert again.recomputed == again.forward
    head = head_pass(llama, full)
    assert head.hardware_flops == head.model_flops == 3 * sum(map(model_flops, head.forward))
    rule = hardware_flops_per_token(llama, 128, "full", "training")
    counted = 2 * again.hardware_flops + head.hardware_flops
    assert counted / 128 == pytest.approx(rule, rel=2e-3)  # pairs on the diagonal


def test_a_fused_core_adds_nothing_to_run_again() -> None:
    assert layer_pass(plain(), recompute="selective").recomputed == ()


def test_selective_recomputation_runs_the_modules_that_it_is_told() -> None:
    def again(*modules: str, **step: Any) -> list[str]:
        done = layer_pass(routed(shared=16), recompute="selective", modules=modules, **step)
        return [op.name for op in done.recomputed]

    assert again("layernorm") == ["attn.norm", "ffn.norm"]
    assert again("moe_act", "layernorm") == ["attn.norm", "ffn.norm", "moe.act"]
    assert again("shared_experts") == ["moe.shared.gate_up", "moe.shared.act", "moe.shared.down"]
    assert again("mlp") == []
    dense = layer_pass(plain(), recompute="selective", modules=("mlp",))
    assert [op.name for op in dense.recomputed] == ["ffn.gate_up", "ffn.act", "ffn.down"]
    deepseek = model("deepseek-v3")
    step = TrainingStep(
        sequence=128, recompute="selective", modules=("mla_up_proj",), recipe="bf16"
    )
    latent = training_layer(deepseek, only(deepseek), step)
    assert [op.name for op in latent.recomputed] == ["attn.q_b", "attn.rope", "attn.kv_b"]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"sequence": 0}, "1 or more"),
        ({"sequence": 10, "cp": 3}, "does not divide over cp 3"),
        ({"tp": 2, "ep": 2, "sequence_parallel": False}, "sequence_parallel"),
        ({"modules": ("attention",)}, "core_attn"),
    ],
)
def test_steps_that_cannot_be_are_refused(step: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TrainingStep(**{"sequence": 128, **step})


def test_experts_on_many_ranks_need_their_share() -> None:
    with pytest.raises(InputError, match="share"):
        layer_pass(routed(), ep=4)


LATENT = LatentAttention(
    heads=8, q_lora_rank=32, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16
)


def test_products_of_forward_and_backward_are_three_times_the_forward() -> None:
    latent = replace(only(plain()), attention=LATENT)
    for layer in (only(plain()), latent, only(routed(shared=48))):
        done = training_layer(plain(), layer, TrainingStep(sequence=64))
        assert done.model_flops == 3 * sum(map(model_flops, done.forward))


def test_every_weight_has_one_gradient_and_both_parts_make_the_backward_pass() -> None:
    for made in (plain(), routed(shared=48)):
        done = layer_pass(made)
        products = [op for op in done.forward if isinstance(op, Matmul | GroupedMatmul)]
        gradients = [
            op
            for op in done.wgrad
            if isinstance(op, GroupedWeightGradient) or (isinstance(op, Matmul) and op.accumulate)
        ]
        names = [f"{op.name}.wgrad" for op in reversed(products)]
        assert [op.name for op in gradients] == names
        assert Counter(done.backward) == Counter(done.dgrad) + Counter(done.wgrad)


def test_nothing_writes_a_cache_in_training() -> None:
    for made in (plain(), replace(plain(), groups=(LayerGroup(layers=(
        replace(only(plain()), attention=LATENT),)),))):  # fmt: skip
        done = layer_pass(made)
        assert all(op.demand().kv_written == op.demand().kv_read == 0 for op in done.forward)


def test_tensor_parallel_ranks_reduce_twice_each_way() -> None:
    made = shard(plain(), 4)
    done = layer_pass(made, tp=4, sequence_parallel=False)
    size = 128 * 64 * 2
    assert collectives(done.forward) == collectives(done.backward) == {"all_reduce": 2}
    ops = (*done.forward, *done.backward)
    assert {op.message for op in ops if isinstance(op, Collective)} == {size}
    assert not any(isinstance(op, Collective) for op in done.wgrad)


def test_sequence_parallel_ranks_move_as_much_and_gather_inputs_again() -> None:
    made = shard(plain(), 4)
    done = layer_pass(made, tp=4)
    assert collectives(done.forward) == {"all_gather": 2, "reduce_scatter": 2}
    assert collectives(done.dgrad) == {"all_gather": 2, "reduce_scatter": 2}
    assert collectives(done.wgrad) == {"all_gather": 2}

    def sent(ops: tuple[Op, ...]) -> float:
        return sum(op.sent for op in ops if isinstance(op, Collective))

    other = layer_pass(made, tp=4, sequence_parallel=False)
    assert sent(done.forward) == sent(done.dgrad) == sent(other.forward) == sent(other.backward)


def test_the_sum_over_ranks_comes_before_the_gradient_of_weights_that_hides_it() -> None:
    names = [op.name for op in layer_pass(shard(plain(), 2), tp=2).backward]
    first = names.index("ffn.gate_up.dgrad")
    assert names[first - 1] == "ffn.again.all_gather"
    assert names[first + 1 : first + 3] == ["ffn.grad.reduce_scatter", "ffn.gate_up.wgrad"]


@settings(max_examples=40, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4]),
    heads=st.sampled_from([8, 16]),
    width=st.sampled_from([32, 96]),
    sequence=st.sampled_from([64, 256]),
    parallel=st.booleans(),
    made=st.sampled_from(["dense", "latent", "experts"]),
)
def test_flops_and_weights_over_all_ranks_are_those_of_the_whole(
    tp: int, heads: int, width: int, sequence: int, parallel: bool, made: str
) -> None:
    whole_model = plain(heads=heads, width=width)
    if made == "latent":
        layer = replace(only(whole_model), attention=replace(LATENT, heads=heads))
        whole_model = replace(whole_model, groups=(LayerGroup(layers=(layer,)),))
    if made == "experts":
        whole_model = routed(shared=64)
    alone = layer_pass(whole_model, sequence=sequence)
    parts = layer_pass(shard(whole_model, tp), sequence=sequence, tp=tp, sequence_parallel=parallel)
    # Latents are computed by each rank, for its own tokens or for all; so is the router.
    each = 1 if parallel else tp
    copied = {"attn.q_kv_a": (each, tp), "moe.router": (tp, tp)}
    for mine, theirs in zip(products_of(alone), products_of(parts), strict=True):
        assert mine.name == theirs.name
        flops, held = copied.get(mine.name.removesuffix(".dgrad").removesuffix(".wgrad"), (1, 1))
        assert flops * mine.demand().flops == tp * theirs.demand().flops
        if isinstance(mine, Matmul | GroupedMatmul) and not mine.name.endswith("wgrad"):
            assert held * mine.demand().weights == tp * theirs.demand().weights


def products_of(done: LayerPass) -> list[Op]:
    return [op for op in (*done.forward, *done.backward) if op.demand().flops]


@settings(max_examples=30, deadline=None)
@given(cp=st.sampled_from([2, 4, 8]), heads=st.sampled_from([4, 8]), chunks=st.integers(1, 6))
def test_context_parallel_ranks_have_even_parts_of_all_pairs(
    cp: int, heads: int, chunks: int
) -> None:
    made, sequence = plain(heads=heads), 16 * chunks
    alone, part = (layer_pass(made, sequence=sequence, cp=ranks) for ranks in (1, cp))
    assert cp * part.model_flops == pytest.approx(alone.model_flops, rel=1e-12)

    def core(done: LayerPass) -> float:
        return sum(op.demand().flops for op in done.forward if isinstance(op, Core))

    assert cp * core(part) == core(alone)


def test_context_parallel_ranks_gather_keys_and_values_and_scatter_their_gradients() -> None:
    done = layer_pass(plain(), cp=4, tp=2, micro_batch=3)
    size = 3 * 128 * 2 * 4 * 16 * 2
    ring = [op for op in (*done.forward, *done.backward)
            if isinstance(op, Collective) and op.ranks == 4]  # fmt: skip
    assert [op.algorithm for op in ring] == ["all_gather", "all_gather", "reduce_scatter"]
    assert {(op.message, op.stride) for op in ring} == {(size, 2)}
    names = [op.name for op in done.backward]
    assert names.index("attn.core.kv.again") < names.index("attn.core.grad")
    assert names.index("attn.core.grad") < names.index("attn.core.dkv")


@pytest.mark.parametrize("tp", [1, 2])
def test_expert_parallel_ranks_exchange_both_ways_whatever_the_tensor_parallelism(tp: int) -> None:
    made = shard(routed(shared=64), tp, split_experts=False)
    step = TrainingStep(sequence=128, tp=tp, ep=4)
    net = only(made).ffn
    assert isinstance(net, MoE)
    dispatch = Dispatch(Plan(tp=tp, ep=4), ((step.routed,),) * 4, 0)
    parts = [
        training_layer(made, only(made), step, share=dispatch.share(net, 0, rank))
        for rank in range(4)
    ]
    for part in parts:
        for ops, ways in (
            (part.forward, ["dispatch", "combine"]),
            (part.dgrad, ["dispatch", "combine"]),
        ):
            assert [op.way for op in ops if isinstance(op, Exchange)] == ways
        assert not any(isinstance(op, Exchange) for op in part.wgrad)
    rows = sum(op.rows for part in parts for op in part.forward if isinstance(op, GroupedMatmul))
    assert rows == 2 * 4 * step.routed * net.top_k  # two products
    alone = layer_pass(routed(shared=64), sequence=128)

    def of_experts(done: LayerPass) -> float:
        ops = (*done.forward, *done.backward)
        grouped = (op for op in ops if isinstance(op, GroupedMatmul | GroupedWeightGradient))
        return sum(op.demand().flops for op in grouped)

    # Four ranks with a part of 128 tokens each, against 128 tokens on one.
    assert sum(map(of_experts, parts)) == 4 / tp * of_experts(alone)


def test_a_row_of_experts_gets_its_gradient_as_its_token_got_its_result() -> None:
    made = routed()
    step = TrainingStep(sequence=128, ep=4, dispatch="fp8", combine="bf16")
    net = only(made).ffn
    assert isinstance(net, MoE)
    share = Dispatch(Plan(ep=4), ((128,),) * 4, 0).share(net, 0, 0)
    done = training_layer(made, only(made), step, share=share)
    exchanges = [op for op in done.backward if isinstance(op, Exchange)]
    assert [(op.name, op.format) for op in exchanges] == [
        ("moe.combine.grad", "fp8"),
        ("moe.dispatch.grad", "bf16"),
    ]


def test_the_head_of_one_rank_agrees_on_three_numbers_per_token() -> None:
    made = shard(plain(vocab=255), 2)
    done = head_pass(made, TrainingStep(sequence=128, tp=2))
    loss = [op for op in done.forward if isinstance(op, Collective) and op.format == "fp32"]
    assert [op.message for op in loss] == [4 * 128] * 3
    (logits,) = (op for op in done.forward if isinstance(op, Matmul))
    assert (logits.m, logits.n, logits.k) == (128, 128, 64)
    assert collectives(embedding_pass(made, TrainingStep(sequence=128, tp=2)).forward) == {
        "reduce_scatter": 1
    }


def test_a_prediction_module_is_a_projection_a_layer_and_a_head_more() -> None:
    deepseek = model("deepseek-v3")
    step = TrainingStep(sequence=4096)
    module = prediction_pass(deepseek, step, layers=61)
    layer = training_layer(deepseek, deepseek.groups[-1].layers[-1], step, place=Place(61, 61))
    head = head_pass(deepseek, step)
    projection = 6 * 4096 * 2 * 7168 * 7168
    assert module.model_flops == layer.model_flops + head.model_flops + projection
    # 260.65 GFLOP with the module and 250.46 without.
    assert module.model_flops / 4096 == pytest.approx(260.65e9 - 250.46e9, rel=1e-3)


@pytest.mark.parametrize(("zero", "elements"), [(0, 1100), (1, 1000 // 8 + 100 // 4)])
def test_replicas_share_the_update_from_the_first_stage_on(zero: int, elements: int) -> None:
    plan = Plan(tp=2, dp=4, cp=2, ep=4, zero=zero)
    ops = optimizer_step(1000, plan, expert_parameters=100, narrow={"fp8": 4096})
    (update,) = (op for op in ops if isinstance(op, AdamUpdate))
    assert update.elements == elements
    assert [op.kind for op in ops] == ["gradient_norm", "collective", "adam_update", "cast"]
    assert optimizer_step(1000, Plan())[-1].kind == "adam_update"


def test_modules_name_operators_that_exist() -> None:
    deepseek = model("deepseek-v3")
    step = TrainingStep(sequence=64, recompute="selective", modules=tuple(MODULES))
    dense, moe = deepseek.groups[0].layers[0], deepseek.groups[-1].layers[-1]
    for module in set(MODULES) - {"core_attn"}:
        one = replace(step, modules=(module,))
        assert any(training_layer(deepseek, layer, one).recomputed for layer in (dense, moe))


def test_products_of_a_dense_layer_give_the_gradients_of_autograd() -> None:
    torch = pytest.importorskip("torch")
    made = plain(heads=4, kv_heads=2, head_dim=8, hidden=16, width=24)
    rows = 12
    done = training_layer(made, only(made), TrainingStep(sequence=rows))
    ops = {op.name: op for op in (*done.forward, *done.backward) if isinstance(op, Matmul)}
    torch.manual_seed(0)
    names = ["attn.qkv", "attn.out", "ffn.gate_up", "ffn.down"]
    weights = {
        name: torch.randn(ops[name].k, ops[name].n, dtype=torch.float64, requires_grad=True)
        for name in names
    }
    kept: dict[str, Any] = {}

    def product(name: str, x: Any) -> Any:
        y = x @ weights[name]
        for tensor in (x, y):
            tensor.retain_grad()
        kept[name] = (x, y)
        return y

    def norm(x: Any) -> Any:
        return x / (x * x).mean(-1, keepdim=True).sqrt()

    x = torch.randn(rows, 16, dtype=torch.float64, requires_grad=True)
    qkv = product("attn.qkv", norm(x))
    q, k, v = (part.reshape(rows, -1, 8).transpose(0, 1) for part in qkv.split([32, 16, 16], -1))
    k, v = (part.repeat_interleave(2, 0) for part in (k, v))
    attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    residual = x + product("attn.out", attended.transpose(0, 1).reshape(rows, 32))
    gate, up = product("ffn.gate_up", norm(residual)).chunk(2, -1)
    hidden = torch.nn.functional.silu(gate) * up
    (residual + product("ffn.down", hidden)).square().sum().backward()
    for name in names:
        entered, left = kept[name]
        dy = left.grad.numpy()[None]
        own = weights[name].detach().numpy()
        dgrad = ops[f"{name}.dgrad"].reference({"a": dy, "b": own.T[None]})
        wgrad = ops[f"{name}.wgrad"].reference({"a": entered.detach().numpy().T[None], "b": dy})
        for product_, found in ((ops[f"{name}.dgrad"], dgrad), (ops[f"{name}.wgrad"], wgrad)):
            assert found.shape[1:] == (product_.m, product_.n)
        np.testing.assert_allclose(wgrad[0], weights[name].grad.numpy(), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(dgrad[0], entered.grad.numpy(), rtol=1e-9, atol=1e-9)
