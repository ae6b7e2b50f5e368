"""Expert layers of published models against plain torch, written as the models' own code is.

Each reference routes for itself from the same weights and shares no code with the layer under
test. Only the error that is allowed comes from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simulator.check.functional import compare
from simulator.check.moe import run_layer, weighed
from simulator.check.moe_choice import mask
from simulator.check.moe_layer import MoELayer
from simulator.check.moe_reference import exact_layer
from simulator.check.moe_stages import Stages
from simulator.specs.frozen import FrozenMap
from simulator.specs.workload import MoE, Router

torch = pytest.importorskip("torch")
functional = pytest.importorskip("torch.nn.functional")

Tensors = dict[str, Any]
Model = Callable[[Tensors], tuple[Any, Any]]
"""From operands to the result and to which experts each token has, (tokens, experts)."""


def layer_of(net: MoE, tokens: int = 23, hidden: int = 64, experts: str = "bf16") -> MoELayer:
    formats = FrozenMap({"default": "bf16", "experts": experts, "shared_experts": experts})
    return MoELayer(net=net, tokens=tokens, hidden=hidden, formats=formats)


def agree(layer: MoELayer, model: Model, seed: int = 0) -> Stages:
    """The layer makes of its operands what the model makes of them."""
    stages = Stages(layer, layer.inputs(np.random.default_rng(seed)))
    ran = run_layer(stages)
    tensors = {name: torch.from_numpy(a).double() for name, a in stages.arrays.items()}
    whole, has = model(tensors)
    assert np.array_equal(mask(ran.choice.kept), has.bool().numpy())
    gates = weighed(layer, stages.arrays, ran.choice)
    limit = exact_layer(layer, stages.arrays, gates).error
    assert compare(ran.result, whole.numpy(), limit)[2] == ()
    # The bound tells something: results are well above what may be off.
    assert np.abs(whole.numpy()).max() > 4 * limit.max()
    assert stages.faults() == ()
    return stages


def swiglu(x: Any, up: Any, down: Any) -> Any:
    gate, value = (x @ up).chunk(2, dim=-1)
    return (functional.silu(gate) * value) @ down


def has(selected: Any, experts: int) -> Any:
    return functional.one_hot(selected, experts).sum(dim=1)


@pytest.mark.parametrize("experts", [8, 16])
def test_mixtral(experts: int) -> None:
    """Softmax over all experts, best two, divided by their sum; experts in turn, index_add."""

    def mixtral(a: Tensors) -> tuple[Any, Any]:
        weights = functional.softmax(a["x"] @ a["router"], dim=1)
        weights, selected = torch.topk(weights, 2, dim=-1)
        weights /= weights.sum(dim=-1, keepdim=True)
        final = torch.zeros_like(a["x"])
        expert_mask = functional.one_hot(selected, num_classes=experts).permute(2, 1, 0)
        for expert in range(experts):
            place, token = torch.where(expert_mask[expert])
            current = swiglu(a["x"][token], a["up"][expert], a["down"][expert])
            final.index_add_(0, token, current * weights[token, place, None])
        return final, has(selected, experts)

    agree(layer_of(MoE(experts=experts, top_k=2, width=48)), mixtral)


@pytest.mark.parametrize("normalise", [True, False], ids=["norm_topk_prob", "plain"])
def test_qwen3(normalise: bool) -> None:
    """Softmax, best eight, with norm_topk_prob or without; token by token."""

    def qwen3(a: Tensors) -> tuple[Any, Any]:
        scores = functional.softmax(a["x"] @ a["router"], dim=-1)
        weights, selected = torch.topk(scores, 8, dim=-1)
        if normalise:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        rows = []
        for row, own, experts in zip(a["x"], weights, selected.tolist(), strict=True):
            parts = [swiglu(row, a["up"][e], a["down"][e]) for e in experts]
            rows.append((own[:, None] * torch.stack(parts)).sum(dim=0))
        return torch.stack(rows), has(selected, 32)

    net = MoE(experts=32, top_k=8, width=24, router=Router(normalise=normalise))
    agree(layer_of(net), qwen3)


def fp8(x: Any, experts: str) -> Any:
    """Activations in E4M3 with a scale for each 128 of a row, where the weights are in blocks."""
    if experts != "fp8_block":
        return x
    scale = x.abs().amax(dim=-1, keepdim=True).float() / 448.0
    return (x / scale).to(torch.float8_e4m3fn).double() * scale


@pytest.mark.parametrize("experts", ["bf16", "fp8_block"])
def test_deepseek_v3(experts: str) -> None:
    """Sigmoid scores; bias and four of eight groups for the choice; weights x 2.5; one shared."""

    def gate(a: Tensors) -> tuple[Any, Any]:
        scores = (a["x"] @ a["router"]).sigmoid()
        choice = scores + a["choice_bias"]
        groups = choice.view(-1, 8, 4).topk(2, dim=-1)[0].sum(dim=-1)
        kept = torch.zeros_like(groups).scatter_(1, groups.topk(4, dim=-1)[1], 1)
        open_ = kept.unsqueeze(-1).expand(-1, 8, 4).reshape(-1, 32)
        masked = choice.masked_fill(~open_.bool(), float("-inf"))
        selected = masked.topk(8, dim=-1)[1]
        weights = scores.gather(1, selected)
        return selected, weights / (weights.sum(dim=-1, keepdim=True) + 1e-20) * 2.5

    def expert(x: Any, up: Any, down: Any) -> Any:
        first, value = (fp8(x, experts) @ up).chunk(2, dim=-1)
        return fp8(functional.silu(first) * value, experts) @ down

    def deepseek(a: Tensors) -> tuple[Any, Any]:
        selected, weights = gate(a)
        routed = torch.zeros_like(a["x"])
        for number in range(32):
            token, place = torch.where(selected == number)
            out = expert(a["x"][token], a["up"][number], a["down"][number])
            routed[token] += out * weights[token, place, None]
        result = routed + expert(a["x"], a["shared_up"], a["shared_down"])
        return result, has(selected, 32)

    router = Router(scoring="sigmoid", bias=True, groups=8, top_groups=4, scale=2.5)
    net = MoE(
        experts=32, top_k=8, width=32, shared_experts=1, shared_width=32, router=router
    )  # fmt: skip
    layer = layer_of(net, experts=experts)
    stages = agree(layer, deepseek)
    # The limit on groups binds here, and so does the bias.
    logits = (stages.arrays["x"] @ stages.arrays["router"]).astype(np.float64)
    scores = 1 / (1 + np.exp(-logits))
    kept = mask(run_layer(stages).choice.kept)
    for other in (scores, scores + stages.arrays["choice_bias"]):
        free = np.argsort(-other, axis=1)[:, :8]
        assert not np.take_along_axis(kept, free, axis=1).all()


@pytest.mark.parametrize("experts", ["bf16", "mxfp4"])
def test_gpt_oss(experts: str) -> None:
    """Biased logits, best four, then the softmax over them; every expert on every token."""

    def gpt_oss(a: Tensors) -> tuple[Any, Any]:
        logits = functional.linear(a["x"], a["router"].T, a["router_bias"])
        values, selected = torch.topk(logits, 4, dim=-1)
        scores = functional.softmax(values, dim=1)
        routing = torch.zeros_like(logits).scatter_(1, selected, scores)
        many = a["x"].repeat(16, 1).view(16, -1, 64)
        gate_up = torch.bmm(many, a["up"]) + a["up_bias"][..., None, :]
        gate, up = gate_up.chunk(2, dim=-1)
        gate, up = gate.clamp(min=None, max=7.0), up.clamp(min=-7.0, max=7.0)
        assert (gate == 7).any()
        assert (up.abs() == 7).any()
        glu = gate * torch.sigmoid(gate * 1.702)
        out = torch.bmm((up + 1) * glu, a["down"]) + a["down_bias"][..., None, :]
        return (out * routing.T[..., None]).sum(dim=0), has(selected, 16)

    net = MoE(
        experts=16, top_k=4, width=32, bias=True, activation="clamped_silu",
        router=Router(linear_bias=True),
    )  # fmt: skip
    agree(layer_of(net, experts=experts), gpt_oss)


def test_llama_4() -> None:
    """The sigmoid of the best logit multiplies what enters the expert; one shared expert."""

    def llama4(a: Tensors) -> tuple[Any, Any]:
        values, selected = torch.topk(a["x"] @ a["router"], 1, dim=1)
        scores = torch.full((23, 16), float("-inf")).double().scatter_(1, selected, values)
        scores = torch.sigmoid(scores).T
        routed = a["x"].repeat(16, 1) * scores.reshape(-1, 1)
        out = torch.bmm(routed.view(16, -1, 64), a["up"])
        gate, value = out.chunk(2, dim=-1)
        out = torch.bmm(functional.silu(gate) * value, a["down"])
        shared = swiglu(a["x"], a["shared_up"], a["shared_down"])
        return shared + out.sum(dim=0), has(selected, 16)

    router = Router(scoring="sigmoid", normalise=False, on_input=True)
    net = MoE(experts=16, top_k=1, width=32, shared_experts=1, shared_width=32, router=router)
    agree(layer_of(net), llama4)


@pytest.mark.parametrize(("factor", "most"), [(1.0, 3), (1.25, 4), (0.5, 2)])
def test_switch(factor: float, most: int) -> None:
    """Top one by dispatch and combine tensors; the first tokens of an expert up to its capacity."""

    def switch(a: Tensors) -> tuple[Any, Any]:
        probabilities = functional.softmax(a["x"] @ a["router"], dim=-1)
        gate, index = probabilities.max(dim=-1)
        expert_mask = functional.one_hot(index, 8).double()
        position = torch.cumsum(expert_mask, dim=0) * expert_mask
        expert_mask = expert_mask * (position <= most)
        slot = functional.one_hot((position * expert_mask).sum(-1).long(), most + 1)[:, 1:].double()
        dispatch = torch.einsum("te,tc->tec", expert_mask, slot)
        inputs = torch.einsum("tec,td->ecd", dispatch, a["x"])
        outputs = functional.relu(inputs @ a["up"]) ** 2 @ a["down"]
        combine = gate[:, None, None] * dispatch
        return torch.einsum("tec,ecd->td", combine, outputs), expert_mask

    net = MoE(
        experts=8, top_k=1, width=48, gated=False, activation="relu2", capacity_factor=factor,
        router=Router(normalise=False),
    )  # fmt: skip
    stages = agree(layer_of(net), switch)
    ran = run_layer(stages)
    left = ~mask(ran.choice.kept).any(axis=1)
    assert left.sum() == ran.choice.kept.dropped > 0
    # The residual alone is left of a dropped token: its row is zero, and no other is.
    assert not ran.result[left].any()
    assert ran.result[~left].any(axis=1).all()


def test_expert_choice() -> None:
    """Each expert takes its best tokens by the scores over experts (arXiv 2202.09368)."""

    def choice(a: Tensors) -> tuple[Any, Any]:
        scores = functional.softmax(a["x"] @ a["router"], dim=-1)
        gates, index = torch.topk(scores.T, 3, dim=-1)
        picked = functional.one_hot(index, 24).double()
        inputs = torch.einsum("ijn,nd->ijd", picked, a["x"])
        outputs = swiglu(inputs, a["up"], a["down"])
        return torch.einsum("ijn,ij,ijd->nd", picked, gates, outputs), picked.sum(dim=1).T

    router = Router(choice="expert_choice")
    net = MoE(experts=8, top_k=2, width=32, router=router, capacity_factor=0.5)
    layer = layer_of(net, tokens=24)
    stages = agree(layer, choice)
    many = mask(run_layer(stages).choice.kept).sum(axis=1)
    assert many.min() == 0
    assert many.max() > 1


ARTICLE = MoE(experts=6, top_k=6, width=48, gated=False, activation="gelu")
"""The layer of introductory texts: every expert on every token, weighted by a softmax gate."""


def parts(a: Tensors) -> tuple[Any, Any]:
    """Gates (batch, experts), and results stacked by expert (experts, batch, d)."""
    gates = functional.softmax(a["x"] @ a["router"], dim=-1)
    outputs = [
        functional.gelu(a["x"] @ up, approximate="tanh") @ down
        for up, down in zip(a["up"], a["down"], strict=True)
    ]
    return gates, torch.stack(outputs)


def dense(a: Tensors) -> tuple[Any, Any]:
    gates, outputs = parts(a)
    return torch.einsum("be,ebd->bd", gates, outputs), torch.ones_like(gates)


@pytest.mark.parametrize("tokens", [6, 23])
def test_a_dense_gated_layer_contracts_experts_with_experts(tokens: int) -> None:
    agree(layer_of(ARTICLE, tokens=tokens), dense)


def test_contracting_the_wrong_axes_fails_by_shape() -> None:
    stages = agree(layer_of(ARTICLE, tokens=23), dense)
    gates, outputs = parts({n: torch.from_numpy(a).double() for n, a in stages.arrays.items()})
    with pytest.raises(RuntimeError, match="size"):
        torch.einsum("be,bed->bd", gates, outputs)


def test_contracting_the_wrong_axes_is_found_where_the_sizes_coincide() -> None:
    layer = layer_of(ARTICLE, tokens=6)
    stages = agree(layer, dense)
    tensors = {n: torch.from_numpy(a).double() for n, a in stages.arrays.items()}
    wrong = torch.einsum("be,bed->bd", *parts(tensors)).numpy()
    ran = run_layer(stages)
    limit = exact_layer(layer, stages.arrays, weighed(layer, stages.arrays, ran.choice)).error
    (fault,) = compare(ran.result, wrong, limit)[2]
    assert "is off by" in fault
    # Token b got the sum over what expert b made of all tokens.
    gates, outputs = parts(tensors)
    assert np.allclose(wrong[2], (gates[2, :, None] * outputs[2]).sum(dim=0).numpy())


def test_a_model_that_is_not_the_layers_is_found() -> None:
    """What the other tests compare would fail for a model that normalises where this does not."""
    layer = layer_of(MoE(experts=8, top_k=2, width=48))
    stages = Stages(layer, layer.inputs(np.random.default_rng(0)))
    ran = run_layer(stages)
    plain = replace(layer, net=replace(layer.net, router=Router(normalise=False)))
    gates = weighed(plain, stages.arrays, ran.choice)
    whole = exact_layer(plain, stages.arrays, gates)
    assert compare(ran.result, whole.value, whole.error)[2] != ()
