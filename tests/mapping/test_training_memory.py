"""What training holds, counted tensor by tensor, against torch and the constants of papers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import load_workload
from simulator.mapping.activations import layer_saved
from simulator.mapping.held import (
    by_rank,
    cut,
    inference_weights,
    is_routed,
    kv_bytes_per_rank,
    rank_weights,
)
from simulator.mapping.stages import in_flight
from simulator.mapping.training_memory import training_memory
from simulator.memory_use import MemoryUse
from simulator.models.arithmetic import kv_bytes_at, mtp_parameters, parameters, weight_bytes
from simulator.models.weights import model_weights
from simulator.policies.pipeline import PIPELINE_ORDERS
from simulator.specs.plan import Plan
from simulator.specs.workload import (
    Attention,
    DenseFFN,
    Layer,
    LayerGroup,
    MoE,
    Transformer,
)

GPT = Layer(
    attention=Attention(heads=4, kv_heads=4, head_dim=32), ffn=DenseFFN(width=512, gated=False)
)
MODEL = Transformer(
    name="gpt",
    hidden=128,
    vocab=1000,
    groups=(LayerGroup(repeat=8, layers=(GPT,)),),
    tied_embeddings=True,
)
MOE = replace(
    MODEL,
    vocab=1024,
    groups=(
        LayerGroup(
            repeat=8,
            layers=(replace(GPT, ffn=MoE(experts=16, top_k=2, width=64, shared_width=64)),),
        ),
    ),
    tied_embeddings=False,
)


def use(model: Transformer, plan: Plan, sequence: int = 256, **more: Any) -> MemoryUse:
    return training_memory(model, plan, sequence=sequence, capacity=1e9, framework=0.0, **more)


def sizes(model: Transformer, plan: Plan, sequence: int = 256, **more: Any) -> dict[str, float]:
    return {part.name: part.bytes for part in use(model, plan, sequence, **more).parts}


def per_token(plan: Plan, layer: Layer = GPT, keys: int | None = None) -> float:
    part = cut(replace(MODEL, groups=(LayerGroup(layers=(layer,)),)), plan)
    return sum(tensor.bytes for tensor in layer_saved(part, next(part.layers()), plan, keys=keys))


def test_a_gpt_layer_keeps_the_34_of_the_paper_less_its_dropout_masks() -> None:
    """34 sbh are 32 of tensors and 2 of masks; 5as/h are 2 of scores, 1 of mask, 2 of its output.
    Statistics of a fused softmax, 4 bytes for each head, are not in the paper."""
    hidden, heads, keys = 128, 4, 256
    assert per_token(Plan(), keys=keys) == (34 - 2) * hidden + (5 - 1 - 2) * heads * keys
    assert per_token(Plan()) == (34 - 2) * hidden + 4 * heads
    assert per_token(Plan(recompute="selective"), keys=keys) == (34 - 2) * hidden


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_tensor_parallel_ranks_share_24_of_the_34_and_all_with_sequence_parallelism(
    tp: int,
) -> None:
    hidden, heads, keys = 128, 4, 256
    scores = 2 * heads * keys / tp
    plain = Plan(tp=tp, sequence_parallel=False)
    assert per_token(plain, keys=keys) == (10 - 2 + 24 / tp) * hidden + scores
    assert per_token(Plan(tp=tp), keys=keys) == (34 - 2) * hidden / tp + scores


def test_a_gpt_layer_keeps_what_torch_keeps() -> None:
    torch = pytest.importorskip("torch")
    from torch.nn import functional

    tokens, hidden, heads, width = 64, 128, 4, 512
    kind = {"dtype": torch.bfloat16}
    weights = [
        torch.randn(*shape, **kind, requires_grad=True)
        for shape in [(3 * hidden, hidden), (hidden, hidden), (width, hidden), (hidden, width)]
    ]
    scales = [torch.ones(hidden, **kind, requires_grad=True) for _ in range(2)]
    own = {tensor.untyped_storage().data_ptr() for tensor in [*weights, *scales]}
    kept: dict[int, int] = {}
    alive = []  # so that no storage is freed and its address used again

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and tensor.numel() > 4 * heads:
            alive.append(tensor)
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.randn(1, tokens, hidden, **kind, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        normed = functional.layer_norm(x, (hidden,), scales[0])
        parts = functional.linear(normed, weights[0]).view(1, tokens, 3, heads, hidden // heads)
        query, key, value = (part.transpose(1, 2) for part in parts.unbind(2))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        y = x + functional.linear(mixed.transpose(1, 2).reshape(1, tokens, hidden), weights[1])
        normed = functional.layer_norm(y, (hidden,), scales[1])
        inner = functional.gelu(functional.linear(normed, weights[2]))
        out = y + functional.linear(inner, weights[3])
    out.sum().backward()
    large = [size for size in kept.values() if size >= 2 * tokens * hidden]
    assert sum(large) == (34 - 2) * hidden * tokens
    small = sum(kept.values()) - sum(large)  # statistics of softmax and norms, in fp32
    assert small <= (4 * heads + 2 * 2 * 4) * tokens
    assert sum(kept.values()) >= per_token(Plan()) * tokens


def test_a_dense_layer_of_llama_keeps_its_shapes() -> None:
    """Two norms and their outputs, queries, keys, values, attention's output, three of SwiGLU."""
    model = load_workload("llama-3.1-8b")
    assert isinstance(model, Transformer)
    layer = next(model.layers())
    found = sum(tensor.bytes for tensor in layer_saved(model, layer, Plan()))
    assert found == 2 * (4 * 4096 + (4096 + 2 * 1024) + 4096 + 3 * 14_336) + 4 * 32


def test_narrow_products_keep_narrow_inputs() -> None:
    wide, narrow = (sizes(MODEL, Plan(recipe=recipe)) for recipe in ("bf16", "fp8"))
    # Of 16 hidden elements the inputs of four products (1, 1, 1 and 4) take one byte; attention's
    # output stays for its own gradient.
    assert wide["activations"] - narrow["activations"] == 256 * 8 * 128 * (7 - 1 - 1)
    products = 8 * 12 * 128 * 128
    assert narrow["narrow weights"] == 2 * products
    assert "narrow weights" not in wide


def test_full_recompute_keeps_inputs_and_one_layer_at_work() -> None:
    none, full = (sizes(MODEL, Plan(recompute=kind)) for kind in ("none", "full"))
    assert full["activations"] == 256 * 8 * 2 * 128
    assert full["recomputed layer"] == none["activations"] / 8


def test_context_parallel_ranks_and_smaller_micro_batches_keep_less() -> None:
    whole = sizes(MODEL, Plan(micro_batch=4))["activations"]
    assert sizes(MODEL, Plan(cp=4, micro_batch=4))["activations"] == whole / 4
    assert sizes(MODEL, Plan())["activations"] == whole / 4


def test_logits_are_fp32_on_the_last_stage() -> None:
    assert sizes(MODEL, Plan())["logits"] == 256 * (4 * 1000 + 2 * 2 * 128)
    assert sizes(MODEL, Plan(tp=4))["logits"] == 256 * (4 * 1000 + 2 * 2 * 128) / 4


def test_micro_batches_in_flight_are_those_of_the_papers() -> None:
    assert [in_flight(Plan(pp=4), rank) for rank in range(4)] == [(4,), (3,), (2,), (1,)]
    assert [in_flight(Plan(pp=4), rank, 2) for rank in range(4)] == [(2,), (2,), (2,), (1,)]
    zero_bubble = Plan(pp=4, pipeline="zero_bubble")
    assert [in_flight(zero_bubble, rank) for rank in range(4)] == [(4,)] * 4
    assert in_flight(Plan(pp=4, virtual_stages=3), 0) == (7, 4, 4)
    assert in_flight(Plan(pp=4, virtual_stages=3), 3) == (4, 4, 1)


@settings(deadline=None)
@given(
    st.integers(2, 12),
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from(["1f1b", "zero_bubble", "interleaved"]),
)
def test_micro_batches_in_flight_are_those_of_the_order_in_which_stages_work(
    pp: int, pieces: int, rounds: int, order: str
) -> None:
    if order == "interleaved":
        plan, micro = Plan(pp=pp, virtual_stages=1 + pieces), pp * rounds
    else:
        plan, micro = Plan(pp=pp, pipeline=cast("Any", order)), rounds * pieces
    for rank in range(pp):
        kept = most = 0
        for kind, _, _ in PIPELINE_ORDERS[order](pp, rank, micro, plan.virtual_stages):
            kept += {"forward": 1, "backward": -1, "weight": -1, "input": 0}[kind]
            most = max(most, kept)
        found = in_flight(plan, rank, micro)
        assert sum(found) == most
        assert max(found) <= micro


@given(st.integers(2, 16), st.integers(2, 8))
def test_interleaving_keeps_more_layers_by_the_share_of_the_paper(pp: int, pieces: int) -> None:
    """The first rank keeps L (1 + (p - 1) / (p v)) layers, L those of the model."""
    first = sum(in_flight(Plan(pp=pp, virtual_stages=pieces), 0))
    assert first / (pp * pieces) == pytest.approx(1 + (pp - 1) / (pp * pieces))


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3", "gpt-oss-120b", "gemma-3-1b"])
def test_one_device_has_every_weight_once(name: str) -> None:
    model = load_workload(name)
    assert isinstance(model, Transformer)
    assert inference_weights(model, Plan()) == weight_bytes(model)
    assert kv_bytes_per_rank(model, Plan(), 5000) == kv_bytes_at(model, 5000)
    states = sizes(model, Plan())
    assert states["weights"] == 2 * (parameters(model) + mtp_parameters(model))


PLANS = st.builds(
    Plan,
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 4, 8]),
    ep=st.sampled_from([1, 2, 4, 8, 16]),
    virtual_stages=st.just(1),
    dp=st.just(16),
)


@settings(max_examples=60, deadline=None)
@given(PLANS)
def test_weights_of_all_ranks_are_those_of_the_model_and_their_copies(plan: Plan) -> None:
    part = cut(MOE, plan)
    held = [
        weight
        for pieces in by_rank(part, plan)
        for weight in rank_weights(part, plan, pieces, mtp=True)
    ]
    for whole in {weight.name: weight for weight in model_weights(MOE)}.values():
        total = sum(weight.elements for weight in model_weights(MOE) if weight.name == whole.name)
        ranks = sum(weight.elements for weight in held if weight.name == whole.name)
        copied = whole.name in ("norm", "router")
        if is_routed(whole):
            ranks *= max(plan.ep, plan.tp)
        elif not copied:
            ranks *= plan.tp
        assert ranks == total


STATES = ("weights", "gradients", "optimizer", "activations", "logits")


@settings(max_examples=60, deadline=None)
@given(
    PLANS,
    st.integers(0, 2),
    st.sampled_from(["tp", "pp", "ep", "zero", "cp"]),
    st.sampled_from(["none", "selective", "full"]),
    st.sampled_from([MODEL, MOE]),
)
def test_a_higher_degree_never_needs_more(
    plan: Plan, zero: int, what: str, recompute: Any, model: Transformer
) -> None:
    plan = replace(plan, zero=zero, recompute=recompute)
    if model is MODEL:
        plan = replace(plan, ep=1)
        if what == "ep":
            return
    steps = {
        "tp": replace(plan, tp=2 * plan.tp if plan.tp < 4 else plan.tp),
        "pp": replace(plan, pp=min(8, 2 * plan.pp)),
        "ep": replace(plan, ep=min(16, 2 * plan.ep)),
        "cp": replace(plan, cp=2),
        "zero": replace(plan, zero=zero + 1),
    }
    before, after = sizes(model, plan), sizes(model, steps[what])
    assert sum(after.get(name, 0) for name in STATES) <= sum(
        before.get(name, 0) for name in STATES
    ) * (1 + 1e-12)


def test_prediction_modules_stand_on_the_last_stage_with_a_copy_of_the_embedding() -> None:
    model = load_workload("deepseek-v3")
    assert isinstance(model, Transformer)
    plan = Plan(pp=4)
    ranks = [
        sum(weight.elements for weight in rank_weights(model, plan, pieces, mtp=True))
        for pieces in by_rank(model, plan)
    ]
    copy = model.vocab * model.hidden
    assert sum(ranks) == parameters(model) + mtp_parameters(model) + copy


def test_parts_say_how_they_came_about() -> None:
    found = use(MOE, Plan(tp=2, pp=2, cp=2, dp=4, ep=8, zero=3), 512)
    assert all(part.formula and part.bytes >= 0 for part in found.parts)
    text = {part.name: part.formula for part in found.parts}
    assert text["optimizer"].endswith(" of experts / 2) x 12 B on stage 0 of 2")
    assert " weights / 8 + " in text["optimizer"]
    assert "gathered over tp" in text["communication buffers"]
