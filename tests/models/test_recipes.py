"""Precision recipes: which product of which layer runs in which format."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import InputError, UnknownNameError
from simulator.models.load import load_workload
from simulator.models.recipes import RECIPES, Place, in_recipe, narrow_weights
from simulator.models.training import TrainingStep, head_pass, training_layer
from simulator.ops.attention import Attention
from simulator.ops.backward import AttentionBackward, Cast
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.specs.plan import Plan
from simulator.specs.workload import Layer, Transformer

STEP = {"sequence": 256, "micro_batch": 1}


def model(name: str) -> Transformer:
    loaded = load_workload(name)
    assert isinstance(loaded, Transformer)
    return loaded


def last(of: Transformer) -> Layer:
    return of.groups[-1].layers[-1]


def test_every_recipe_of_a_plan_is_registered() -> None:
    assert set(get_args(get_type_hints(Plan)["recipe"])) <= set(RECIPES)


def test_an_unknown_recipe_is_refused_with_the_near_names() -> None:
    llama = model("llama-3.1-8b")
    with pytest.raises(UnknownNameError, match="mxfp8"):
        in_recipe(llama, last(llama), "mxfp9")


def test_a_layer_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="count from 0"):
        Place(5, 4)


@pytest.mark.parametrize("recipe", ["fp8", "fp8_block", "mxfp8"])
def test_products_and_both_gradients_run_in_the_recipes_format(recipe: str) -> None:
    llama = model("llama-3.1-8b")
    done = training_layer(llama, last(llama), TrainingStep(**STEP, recipe=recipe))
    products = [op for op in (*done.forward, *done.backward) if isinstance(op, Matmul)]
    assert len(products) == 3 * 4
    assert {(op.a, op.b) for op in products} == {(recipe, recipe)}
    assert {op.out for op in products} == {"bf16", "fp32"}
    cores = [op for op in done.forward if isinstance(op, Attention)]
    cores += [op.forward for op in done.backward if isinstance(op, AttentionBackward)]
    assert {(op.format, op.kv_format) for op in cores} == {("bf16", "bf16")}


def test_each_narrow_product_has_its_input_and_its_gradient_cast_once() -> None:
    llama = model("llama-3.1-8b")
    done = training_layer(llama, last(llama), TrainingStep(**STEP, recipe="fp8"))
    products = [op for op in done.forward if isinstance(op, Matmul)]
    inputs = [op for op in done.forward if isinstance(op, Cast)]
    gradients = [op for op in done.backward if isinstance(op, Cast)]
    assert [(op.rows, op.cols) for op in inputs] == [(op.m, op.k) for op in products]
    assert [(op.rows, op.cols) for op in gradients] == [(op.m, op.n) for op in products[::-1]]


def test_the_router_and_the_head_stay_wide() -> None:
    qwen, step = model("qwen3-235b-a22b"), TrainingStep(**STEP, recipe="fp8")
    done = training_layer(qwen, last(qwen), step)
    wide = [op.name for op in done.forward if isinstance(op, Matmul) and op.b == "bf16"]
    assert wide == ["moe.router"]
    grouped = [op for op in done.forward if isinstance(op, GroupedMatmul)]
    assert {op.b for op in grouped} == {"fp8"}
    head = head_pass(qwen, step)
    assert {op.b for op in (*head.forward, *head.backward) if isinstance(op, Matmul)} == {"bf16"}


@given(layers=st.integers(1, 200), data=st.data())
def test_dynamic_keeps_the_first_and_the_last_layer_wide(layers: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, layers - 1))
    edge = index in (0, layers - 1)
    assert RECIPES["dynamic"](Place(index, layers)) == ("bf16" if edge else "fp8")


def test_the_models_own_recipe_is_the_format_of_its_weights() -> None:
    deepseek = model("deepseek-v3")
    formats = in_recipe(deepseek, last(deepseek), "model")
    assert formats.weight_format("experts") == deepseek.weight_format("experts") == "fp8_block"
    llama = model("llama-3.1-8b")
    assert in_recipe(llama, last(llama), "model").weight_format("ffn") == "bf16"


def test_weights_without_gradients_train_in_the_format_of_the_activations() -> None:
    oss = model("gpt-oss-120b")
    assert oss.weight_format("experts", last(oss)) == "mxfp4"
    assert in_recipe(oss, last(oss), "model").weight_format("experts") == "bf16"


def test_narrow_weights_are_those_of_the_layers_products() -> None:
    llama = model("llama-3.1-8b")
    per_layer = 4096 * (4096 + 2 * 1024 + 4096 + 3 * 14336)
    assert narrow_weights(llama, "fp8") == {"fp8": 32 * per_layer}
    assert narrow_weights(llama, "dynamic") == {"fp8": 30 * per_layer}
    assert narrow_weights(llama, "bf16") == {}


def test_expert_parallel_ranks_share_the_narrow_weights_of_experts() -> None:
    qwen = model("qwen3-235b-a22b")
    (whole,), (part,) = (narrow_weights(qwen, "fp8", ep=ep).values() for ep in (1, 8))
    experts = 94 * 128 * 3 * 4096 * 1536
    assert whole - part == experts - experts // 8
