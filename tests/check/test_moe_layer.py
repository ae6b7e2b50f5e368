"""Expert layers end to end: routed, dispatched, multiplied, combined, against a dense layer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.check import moe
from simulator.check.functional import backends, require_ok
from simulator.check.moe import MoELayer, check_moe_layer
from simulator.errors import CheckError
from simulator.mapping.tiling import Tiling
from simulator.ops.op import Arrays
from simulator.specs.frozen import FrozenMap
from simulator.specs.hardware import DataMover

TDM = DataMover(
    kind="tdm", rank=5, tile_dim=65535, gather_rows=FrozenMap({16: 16, 32: 8}), alignment=4
)
LAYER = MoELayer(tokens=37, hidden=96, width=40, experts=8, top_k=2)


@pytest.mark.parametrize(
    "layer",
    [
        LAYER,
        MoELayer(tokens=21, hidden=64, width=96, experts=12, top_k=4, weights="mxfp4"),
        MoELayer(tokens=9, hidden=160, width=32, experts=16, top_k=8, weights="fp8_block"),
        MoELayer(tokens=5, hidden=64, width=33, experts=16, top_k=1, format="fp16"),
    ],
    ids=lambda layer: f"{layer.top_k} of {layer.experts} {layer.weights}",
)
@pytest.mark.parametrize("mover", [TDM, None], ids=["tdm", "threads"])
def test_a_routed_layer_is_the_dense_one_weighted(layer: MoELayer, mover: DataMover | None) -> None:
    checks = check_moe_layer(layer, mover, np.random.default_rng(0), libraries=backends())
    require_ok(checks)
    routed = layer.tokens * layer.top_k
    flops = (
        2 * layer.tokens * layer.hidden * layer.experts + 6 * routed * layer.hidden * layer.width
    )
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
    layer = MoELayer(tokens=tokens, hidden=16, width=8, experts=experts, top_k=min(top_k, experts))
    require_ok(check_moe_layer(layer, TDM, np.random.default_rng(seed)))


def broken(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[Arrays], Arrays]) -> None:
    stage = moe._Run.stage

    def wrong(run: moe._Run, op: object, arrays: Arrays) -> np.ndarray:
        changed = change(arrays) if getattr(op, "name", "") == name else arrays
        return stage(run, op, changed)  # type: ignore[arg-type]

    monkeypatch.setattr(moe._Run, "stage", wrong)
    with pytest.raises(CheckError, match="is off by"):
        require_ok(check_moe_layer(LAYER, TDM, np.random.default_rng(0)))


def test_tokens_dispatched_to_the_wrong_expert_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, "gate_up", lambda a: {**a, "rows": np.roll(a["rows"], 1)})


def test_results_returned_to_the_wrong_token_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, "combine", lambda a: {**a, "rows": np.roll(a["rows"], 1, axis=0)})


def test_swapped_shares_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, "combine", lambda a: {**a, "shares": a["shares"][:, ::-1].copy()})


def test_a_router_that_picks_another_expert_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = moe._Run.stage

    def wrong(run: moe._Run, op: object, arrays: Arrays) -> np.ndarray:
        result = stage(run, op, arrays)  # type: ignore[arg-type]
        return -result if getattr(op, "name", "") == "router" else result

    monkeypatch.setattr(moe._Run, "stage", wrong)
    with pytest.raises(CheckError, match="37 tokens went to experts that are not their best"):
        require_ok(check_moe_layer(LAYER, TDM, np.random.default_rng(0)))


def test_a_layer_dispatches_ceil_of_rows_over_16_descriptors_per_expert() -> None:
    layer = MoELayer(tokens=40, hidden=64, width=32, experts=4, top_k=2)
    tiling = Tiling(128, 64, 64)
    (check,) = check_moe_layer(layer, TDM, np.random.default_rng(3), tiling=tiling)
    arrays = layer.router.inputs(np.random.default_rng(3))
    logits = (arrays["a"] @ arrays["b"])[0]
    counts = np.bincount(np.argsort(-logits, axis=1)[:, :2].ravel(), minlength=4)
    assert counts.sum() == 80
    gathers = int((-(-counts // 16)).sum())
    router = 2 + 1  # operands and result in one step
    up = gathers + 2 * 4  # weights and a store for each expert
    act = 2 * (2 + 1)  # two blocks of both halves
    down = gathers + 2 * 4
    combine = 2 * -(-40 // 16) + 1
    assert check.descriptors == router + up + act + down + combine
