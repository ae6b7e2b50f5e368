"""Expert layers end to end: routed, dispatched, multiplied, combined, against a dense layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.check import moe
from simulator.check.functional import backends, require_ok
from simulator.check.moe import check_moe_layer, run_layer
from simulator.check.moe_choice import Choice, choice_faults, route
from simulator.check.moe_layer import MoELayer, expert_layers
from simulator.check.moe_stages import Stages
from simulator.errors import CheckError
from simulator.mapping.routers import Assignment
from simulator.mapping.tiling import Tiling
from simulator.models.load import load_workload
from simulator.ops.op import Arrays
from simulator.specs.frozen import FrozenMap
from simulator.specs.hardware import DataMover
from simulator.specs.workload import MoE, Router

TDM = DataMover(
    kind="tdm", rank=5, tile_dim=65535, gather_rows=FrozenMap({16: 16, 32: 8}), alignment=4
)


def layer_of(net: MoE, tokens: int, hidden: int, weights: str = "bf16") -> MoELayer:
    formats = FrozenMap({"default": "bf16", "experts": weights})
    return MoELayer(net=net, tokens=tokens, hidden=hidden, formats=formats)


LAYER = layer_of(MoE(experts=8, top_k=2, width=40), 37, 96)


def catalogue(name: str) -> MoELayer:
    (layer,) = expert_layers(load_workload(name))
    return layer


@pytest.mark.parametrize(
    "layer",
    [
        LAYER,
        layer_of(MoE(experts=12, top_k=4, width=96), 21, 64, "mxfp4"),
        layer_of(MoE(experts=16, top_k=8, width=32), 9, 160, "fp8_block"),
        layer_of(MoE(experts=16, top_k=2, width=32), 9, 64, "nvfp4"),
        layer_of(MoE(experts=6, top_k=3, width=32, activation="gelu"), 9, 64, "mxfp8"),
        replace(layer_of(MoE(experts=16, top_k=1, width=33), 5, 64), format="fp16"),
        layer_of(MoE(experts=4, top_k=2, width=33, gated=False, activation="relu2"), 9, 48),
        layer_of(
            MoE(
                experts=4, top_k=2, width=24, shared_experts=2, shared_width=40, shared_gate=True,
                router=Router(expert_scale=True),
            ),
            9,
            48,
            "int8",
        ),
    ],
    ids=lambda layer: f"{layer.net.top_k} of {layer.net.experts} {layer.formats['experts']}",
)  # fmt: skip
@pytest.mark.parametrize("mover", [TDM, None], ids=["tdm", "threads"])
def test_a_routed_layer_is_the_dense_one_weighted(layer: MoELayer, mover: DataMover | None) -> None:
    checks = check_moe_layer(layer, mover, np.random.default_rng(0), libraries=backends())
    require_ok(checks)
    net = layer.net
    products = 3 if net.gated else 2
    per_row = 2 * products * layer.hidden
    flops = 2 * layer.tokens * layer.hidden * (net.experts + net.shared_gate)
    flops += layer.tokens * per_row * (net.top_k * net.width + net.shared_width)
    assert {check.flops_counted for check in checks} == {flops}


@given(
    tokens=st.integers(1, 12),
    experts=st.integers(1, 6),
    top_k=st.integers(1, 6),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=20)
def test_any_routing_restores_the_order_of_tokens(
    tokens: int, experts: int, top_k: int, seed: int
) -> None:
    layer = layer_of(MoE(experts=experts, top_k=min(top_k, experts), width=8), tokens, 16)
    require_ok(check_moe_layer(layer, TDM, np.random.default_rng(seed)))


def diagonal(layer: MoELayer, rng: np.random.Generator) -> Arrays:
    """Operands whose products are of one term each: exact in any order of sums."""
    assert layer.hidden == layer.net.width
    arrays = layer.inputs(rng)
    unit = np.eye(layer.hidden, dtype=np.float32)
    for name in ("up", "down"):
        factor = rng.uniform(0.5, 2, layer.net.experts).astype(np.float32)
        arrays[name] = factor[:, None, None] * unit
    return arrays


def by_token(arrays: Arrays, assignment: Assignment) -> np.ndarray:
    """Each token through its experts in ascending order, one operation at a time."""
    x = arrays["x"]
    result = np.zeros_like(x)
    pairs = sorted(zip(assignment.token, assignment.expert, assignment.weight, strict=True))
    for token, expert, weight in pairs:
        acted = np.square(np.maximum(x[token] * arrays["up"][expert][0, 0], 0))
        result[token] += acted * arrays["down"][expert][0, 0] * np.float32(weight)
    return result


@given(
    tokens=st.integers(1, 12),
    experts=st.integers(1, 7),
    density=st.floats(0, 1),
    seed=st.integers(0, 999),
)
@settings(deadline=None, max_examples=40)
def test_rows_return_to_their_tokens_bit_for_bit(
    tokens: int, experts: int, density: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    net = MoE(experts=experts, top_k=1, width=24, gated=False, activation="relu2")
    plain = FrozenMap({"default": "fp32"})
    layer = MoELayer(net=net, tokens=tokens, hidden=24, format="fp32", formats=plain)
    token, expert = np.nonzero(rng.random((tokens, experts)) < density)
    assignment = Assignment(
        experts=experts, tokens=tokens, token=token, expert=expert, weight=rng.random(len(token))
    )
    stages = Stages(layer, diagonal(layer, rng), TDM)
    ran = run_layer(stages, assignment)
    assert stages.faults() == ()
    assert ran.result.tobytes() == by_token(stages.arrays, assignment).tobytes()
    without = np.setdiff1d(np.arange(tokens), token)
    assert not ran.result[without].any()


def test_a_token_with_every_expert_is_weighted_once_by_each() -> None:
    rng = np.random.default_rng(0)
    net = MoE(experts=8, top_k=8, width=16, gated=False, activation="relu2")
    layer = MoELayer(net=net, tokens=5, hidden=16)
    arrays = layer.inputs(rng)
    arrays["x"] = rng.integers(-4, 5, (5, 16)).astype(np.float32)
    for name in ("up", "down"):
        arrays[name] = np.broadcast_to(np.eye(16, dtype=np.float32), (8, 16, 16)).copy()
    token = np.arange(5).repeat(8)
    eighth = Assignment(
        experts=8, tokens=5, token=token, expert=np.tile(np.arange(8), 5), weight=np.full(40, 1 / 8)
    )
    ran = run_layer(Stages(layer, arrays, TDM), eighth)
    assert np.array_equal(ran.result, np.maximum(arrays["x"], 0) ** 2)


def test_a_given_assignment_is_weighed_as_it_says() -> None:
    token, expert = np.array([0, 0, 0, 2]), np.array([1, 3, 0, 3])
    some = Assignment(
        experts=8, tokens=37, token=token, expert=expert, weight=np.array([0.5, 2.0, -1.0, 0.1])
    )
    require_ok(
        check_moe_layer(LAYER, TDM, np.random.default_rng(0), assignment=some, libraries=backends())
    )


Change = Callable[[Arrays], Arrays]


def broken(
    monkeypatch: pytest.MonkeyPatch, name: str, change: Change, layer: MoELayer = LAYER
) -> None:
    stage = Stages.stage

    def wrong(run: Stages, op: object, arrays: Arrays) -> np.ndarray:
        changed = change(arrays) if getattr(op, "name", "") == name else arrays
        return stage(run, op, changed)  # type: ignore[arg-type]

    monkeypatch.setattr(Stages, "stage", wrong)
    with pytest.raises(CheckError, match="is off by"):
        require_ok(check_moe_layer(layer, TDM, np.random.default_rng(0)))


def test_tokens_dispatched_to_the_wrong_expert_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, "experts.gate_up", lambda a: {**a, "rows": np.roll(a["rows"], 1)})


@pytest.mark.parametrize("model", ["mixtral-8x7b", "deepseek-v3", "gpt-oss-120b", "llama-4-scout"])
class TestFaultsAreFoundInEveryKindOfLayer:
    def test_of_swapped_expert_weights(self, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
        layer = catalogue(model)
        broken(monkeypatch, "experts.gate_up", lambda a: {**a, "b": a["b"][::-1].copy()}, layer)

    def test_of_rows_returned_to_the_wrong_token(
        self, model: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def turned(a: Arrays) -> Arrays:
            return {**a, "rows": np.roll(a["rows"], 1, axis=0)}

        broken(monkeypatch, "combine", turned, catalogue(model))

    def test_of_a_result_without_its_last_expert(
        self, model: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def without(a: Arrays) -> Arrays:
            shares = a["shares"].copy()
            shares[:, -1] = 0
            return {**a, "shares": shares}

        broken(monkeypatch, "combine", without, catalogue(model))


def test_swapped_shares_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, "combine", lambda a: {**a, "shares": a["shares"][:, ::-1].copy()})


def test_a_missing_shared_expert_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = catalogue("deepseek-v3")
    broken(monkeypatch, "join", lambda a: {**a, "y": np.zeros_like(a["y"])}, layer)


def test_a_forgotten_bias_of_the_experts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = catalogue("gpt-oss-120b")
    broken(monkeypatch, "experts.down", lambda a: {**a, "bias": np.zeros_like(a["bias"])}, layer)


def test_weights_on_the_wrong_side_of_the_experts_are_found() -> None:
    layer = catalogue("llama-4-scout")
    other = replace(layer, net=replace(layer.net, router=replace(layer.net.router, on_input=False)))
    stages = Stages(other, other.inputs(np.random.default_rng(0)))
    ran = run_layer(stages)
    stages.layer = layer
    with pytest.raises(CheckError, match="is off by"):
        require_ok(moe.report("layer", stages, ran, ["numpy"]))


def misrouted(
    monkeypatch: pytest.MonkeyPatch, layer: MoELayer, change: Change | None, **wrong: object
) -> None:
    """The layer with a router that differs, or with operands of the router that do."""
    other = replace(layer, net=replace(layer.net, router=replace(layer.net.router, **wrong)))

    def reroute(_: MoELayer, logits: np.ndarray, arrays: Arrays) -> Choice:
        return route(other, logits, change(arrays) if change else arrays)

    monkeypatch.setattr(moe, "route", reroute)


def test_a_forgotten_group_limit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = catalogue("deepseek-v3")
    misrouted(monkeypatch, layer, None, groups=1, top_groups=1)
    with pytest.raises(CheckError, match="tokens went to experts that are not their best"):
        require_ok(check_moe_layer(layer, TDM, np.random.default_rng(0)))


def test_a_forgotten_bias_of_the_choice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = catalogue("kimi-k2")
    nothing = {"choice_bias": np.zeros(16, dtype=np.float32)}
    misrouted(monkeypatch, layer, lambda arrays: {**arrays, **nothing})
    with pytest.raises(CheckError, match="tokens went to experts that are not their best"):
        require_ok(check_moe_layer(layer, TDM, np.random.default_rng(0)))


@pytest.mark.parametrize("wrong", [{"normalise": False}, {"scale": 1.0}], ids=["sum", "scale"])
def test_weights_that_are_not_the_models_are_found(
    wrong: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = catalogue("deepseek-v3")
    misrouted(monkeypatch, layer, None, **wrong)
    with pytest.raises(CheckError, match="is off by"):
        require_ok(check_moe_layer(layer, TDM, np.random.default_rng(0)))


def test_a_router_that_picks_another_expert_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stages.stage

    def wrong(run: Stages, op: object, arrays: Arrays) -> np.ndarray:
        result = stage(run, op, arrays)  # type: ignore[arg-type]
        return -result if getattr(op, "name", "") == "router" else result

    monkeypatch.setattr(Stages, "stage", wrong)
    with pytest.raises(CheckError, match="37 tokens went to experts that are not their best"):
        require_ok(check_moe_layer(LAYER, TDM, np.random.default_rng(0)))


def picked(*experts: int) -> Choice:
    made = Assignment(
        experts=8,
        tokens=1,
        token=np.zeros(len(experts), dtype=np.int64),
        expert=np.array(experts),
        weight=np.ones(len(experts)),
    )
    return Choice(made, made)


GROUPED = layer_of(
    MoE(
        experts=8, top_k=2, width=8,
        router=Router(scoring="sigmoid", bias=True, groups=4, top_groups=1),
    ),
    1,
    8,
)  # fmt: skip


@pytest.mark.parametrize(
    ("chosen", "right"),
    [((0, 1), True), ((2, 3), True), ((4, 5), False), ((0, 2), False), ((6, 7), False)],
)
def test_a_near_tie_of_groups_may_go_either_way_and_nothing_else(
    chosen: tuple[int, ...], right: bool
) -> None:
    # Groups of two: the first two are worth the same but for less than the logits are sure of,
    # the third has the best single expert, and the last is far behind.
    logits = np.array([[1.0, 1.0, 1.0, 1.0 + 1e-6, 1.4, -3.0, -2.0, -2.0]])
    doubt = np.full_like(logits, 1e-5)
    arrays = {"choice_bias": np.zeros(8)}
    found = choice_faults(GROUPED, logits, doubt, arrays, picked(*chosen))
    assert (found == ()) == right
    surer = choice_faults(GROUPED, logits, doubt * 1e-4, arrays, picked(0, 1))
    assert surer == ("1 tokens went to experts that are not their best",)


def test_pairs_dropped_out_of_turn_are_found() -> None:
    net = MoE(experts=4, top_k=1, width=8, capacity_factor=1.0, router=Router(normalise=False))
    layer = layer_of(net, 16, 32)
    stages = Stages(layer, layer.inputs(np.random.default_rng(0)))
    ran = run_layer(stages)
    kept = ran.choice.kept
    assert kept.dropped > 0
    assert moe.report("layer", stages, ran, ["numpy"])[0].ok
    busy = int(np.argmax(ran.choice.made.counts))
    last = np.flatnonzero(ran.choice.made.expert == busy)[-1]
    first = np.flatnonzero(kept.expert == busy)[0]
    token = kept.token.copy()
    token[first] = ran.choice.made.token[last]
    order = np.argsort(token)
    swapped = replace(
        kept, token=token[order], expert=kept.expert[order], weight=kept.weight[order]
    )
    late = replace(ran, choice=Choice(ran.choice.made, swapped))
    (check,) = moe.report("layer", stages, late, ["numpy"])
    assert "kept pairs are not the first 4 of each expert" in check.faults


def test_a_layer_dispatches_ceil_of_rows_over_16_descriptors_per_expert() -> None:
    layer = layer_of(MoE(experts=4, top_k=2, width=32), 40, 64)
    tiling = Tiling(128, 64, 64)
    (check,) = check_moe_layer(layer, TDM, np.random.default_rng(3), tiling=tiling)
    arrays = layer.inputs(np.random.default_rng(3))
    logits = arrays["x"] @ arrays["router"]
    counts = np.bincount(np.argsort(-logits, axis=1)[:, :2].ravel(), minlength=4)
    assert counts.sum() == 80
    gathers = int((-(-counts // 16)).sum())
    router = 2 + 1  # operands and result in one step
    up = gathers + 2 * 4  # weights and a store for each expert
    act = 2 * (2 + 1)  # two blocks of both halves
    down = gathers + 2 * 4
    combine = 2 * -(-40 // 16) + 1
    assert check.descriptors == router + up + act + down + combine
