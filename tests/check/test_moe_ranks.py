"""Expert layers over ranks give what one rank gives, and what is sent is what arrives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.check import moe_ranks
from simulator.check.functional import require_ok
from simulator.check.moe import run_layer
from simulator.check.moe_layer import MoELayer, expert_layers
from simulator.check.moe_ranks import Parcel, RankedRun, check_moe_ranks, run_ranks
from simulator.check.moe_stages import Ints, Stages
from simulator.errors import CheckError
from simulator.mapping.exchange import traffic
from simulator.mapping.experts import ExpertPlacement, place
from simulator.mapping.routers import Assignment
from simulator.models.load import load_workload
from simulator.specs.frozen import FrozenMap
from simulator.specs.workload import MoE

MODELS = ["mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-120b", "llama-4-scout"]


def catalogue(name: str) -> MoELayer:
    (layer,) = expert_layers(load_workload(name))
    return layer


def diagonal(experts: int, tokens: int, rng: np.random.Generator) -> tuple[MoELayer, Stages]:
    """A layer whose products have one term each, so that they are exact in any order of sums."""
    net = MoE(experts=experts, top_k=1, width=16, gated=False, activation="relu2")
    plain = FrozenMap({"default": "fp32"})
    layer = MoELayer(net=net, tokens=tokens, hidden=16, format="fp32", formats=plain)
    arrays = layer.inputs(rng)
    for name in ("up", "down"):
        factor = rng.uniform(0.5, 2, experts).astype(np.float32)
        arrays[name] = factor[:, None, None] * np.eye(16, dtype=np.float32)
    return layer, Stages(layer, arrays)


def drawn(rng: np.random.Generator, tokens: int, experts: int, density: float) -> Assignment:
    token, expert = np.nonzero(rng.random((tokens, experts)) < density)
    return Assignment(
        experts=experts, tokens=tokens, token=token, expert=expert, weight=rng.random(len(token))
    )


def partial_sums(stages: Stages, some: Assignment, placement: ExpertPlacement) -> np.ndarray:
    """Each token's experts summed rank by rank in ascending order, then over the ranks."""
    x, up, down = (stages.arrays[name] for name in ("x", "up", "down"))
    host = placement.rank_of_slot[placement.serve(some.token, some.expert)]
    result = np.zeros_like(x)
    for token in range(some.tokens):
        for rank in range(placement.ranks):
            mine = np.flatnonzero((some.token == token) & (host == rank))
            part = np.zeros_like(x[token])
            for pair in mine:
                expert, weight = some.expert[pair], np.float32(some.weight[pair])
                acted = np.square(np.maximum(x[token] * up[expert][0, 0], 0))
                part += acted * down[expert][0, 0] * weight
            result[token] += part
    return result


@given(
    ranks=st.integers(1, 5),
    each=st.integers(1, 3),
    copies=st.integers(0, 2),
    tokens=st.integers(1, 12),
    density=st.floats(0, 1),
    seed=st.integers(0, 999),
)
@settings(deadline=None, max_examples=15)
def test_any_spread_over_ranks_gives_the_bits_of_one_rank(
    ranks: int, each: int, copies: int, tokens: int, density: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    experts = ranks * each
    _, stages = diagonal(experts, tokens, rng)
    some = drawn(rng, tokens, experts, density)
    redundant = ranks * min(copies, (ranks - 1) * each)
    placement = place(experts, ranks, redundant=redundant)
    home = np.sort(rng.integers(0, ranks, tokens))  # Some ranks have no tokens.
    one = run_layer(stages, some).result
    apart = run_ranks(stages, placement, home, merged=False, assignment=some)
    assert apart.ran.result.tobytes() == one.tobytes()
    merged = run_ranks(stages, placement, home, assignment=some)
    assert merged.ran.result.tobytes() == partial_sums(stages, some, placement).tobytes()
    assert stages.faults() == ()
    # What is timed is what was sent, and it comes back the same way.
    timed = traffic([some], placement, np.bincount(home, minlength=ranks)[:, None].tolist())
    for run in (apart, merged):
        assert run.faults(merged=run is merged) == ()
        assert np.array_equal(run.sent, timed.rows)
    assert np.array_equal(merged.returned, timed.rows.T)
    assert np.array_equal(apart.returned, timed.pairs.T)


@pytest.mark.parametrize("merged", [True, False], ids=["sums", "rows"])
@pytest.mark.parametrize("name", MODELS)
def test_each_models_layer_over_ranks_is_the_dense_one(name: str, merged: bool) -> None:
    layer = catalogue(name)
    placement = place(layer.net.experts, 4, redundant=4)
    checks = check_moe_ranks(layer, None, np.random.default_rng(1), placement, merged=merged)
    require_ok(checks)
    assert {check.name for check in checks} == {"experts on 4 ranks"}


@pytest.mark.parametrize("home", [[2] * 5, [0, 7, 7, 7, 3], [7, 6, 5, 4, 3]])
def test_ranks_without_tokens_and_without_rows_change_nothing(home: list[int]) -> None:
    # At most ten rows for 16 experts on eight ranks.
    net = replace(catalogue("qwen3-30b-a3b").net, top_k=2)
    layer = MoELayer(net=net, tokens=5, hidden=64)
    for merged in (True, False):
        require_ok(
            check_moe_ranks(
                layer, None, np.random.default_rng(0), place(16, 8), home=home, merged=merged
            )
        )


def test_tokens_without_experts_are_zero_on_every_rank() -> None:
    net = MoE(experts=8, top_k=1, width=32, capacity_factor=0.5)
    layer = MoELayer(net=net, tokens=32, hidden=64)
    stages = Stages(layer, layer.inputs(np.random.default_rng(0)))
    run = run_ranks(stages, place(8, 4), np.arange(32) // 8)
    kept = run.ran.choice.kept
    dropped = np.setdiff1d(np.arange(32), kept.token)
    assert len(dropped) == kept.dropped > 0
    assert not run.ran.result[dropped].any()
    assert run.ran.result[kept.token].any(axis=1).all()
    assert run.sent.sum() == len(kept.token)


def test_a_token_travels_once_to_a_rank_that_has_several_of_its_experts() -> None:
    layer, stages = diagonal(8, 6, np.random.default_rng(0))
    every = drawn(np.random.default_rng(0), 6, 8, 1.0)
    run = run_ranks(stages, place(8, 2), np.array([0, 0, 0, 0, 1, 1]), assignment=every)
    assert run.sent.tolist() == [[4, 4], [2, 2]]
    assert run.returned.tolist() == [[4, 2], [4, 2]]
    assert layer.tokens == 6


def faulty(name: str = "deepseek-v3", *, merged: bool = True) -> str:
    layer = catalogue(name)
    placement = place(layer.net.experts, 4, redundant=4)
    with pytest.raises(CheckError) as error:
        require_ok(check_moe_ranks(layer, None, np.random.default_rng(0), placement, merged=merged))
    return str(error.value)


@pytest.mark.parametrize("name", MODELS)
def test_a_rank_that_holds_its_experts_in_another_order_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experts = Stages.experts

    def wrong(
        stages: Stages, x: Ints, rows: Ints, counts: tuple[int, ...], held: Ints, share: Ints
    ) -> np.ndarray:
        return experts(stages, x, rows, counts, held[::-1], share)

    monkeypatch.setattr(Stages, "experts", wrong)
    assert "is off by" in faulty(name)


@pytest.mark.parametrize("merged", [True, False], ids=["sums", "rows"])
def test_rows_that_return_to_another_token_are_found(
    merged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = moe_ranks._experts

    def wrong(*args: object, **named: object) -> list[moe_ranks._Returned]:
        return [
            replace(part, token=np.roll(part.token, 1))
            for part in found(*args, **named)  # type: ignore[arg-type]
        ]

    monkeypatch.setattr(moe_ranks, "_experts", wrong)
    assert "is off by" in faulty(merged=merged)


def test_a_row_that_is_sent_and_not_used_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    parcels = moe_ranks._parcels

    def wrong(*args: object) -> list[Parcel]:
        return [
            replace(parcel, row=np.zeros_like(parcel.row))
            for parcel in parcels(*args)  # type: ignore[arg-type]
        ]

    monkeypatch.setattr(moe_ranks, "_parcels", wrong)
    text = faulty()
    assert "worked on 1 rows of rank" in text
    assert "is off by" in text


def test_sums_of_a_rank_that_are_left_out_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = moe_ranks._experts

    def wrong(*args: object, **named: object) -> list[moe_ranks._Returned]:
        first, *rest = found(*args, **named)  # type: ignore[arg-type]
        return [replace(first, rows=first.rows[:-1], token=first.token[:-1],
                        order=first.order[:-1], share=first.share[:-1]), *rest]  # fmt: skip

    monkeypatch.setattr(moe_ranks, "_experts", wrong)
    assert "what came back is not the mirror of what was sent" in faulty()


def test_what_came_back_otherwise_than_it_went_is_a_fault() -> None:
    sent = np.array([[3, 1], [0, 2]])
    run = run_ranks(*_tiny())
    moved = RankedRun(run.ran, sent, sent, sent)
    assert moved.faults(merged=True) == ("what came back is not the mirror of what was sent",)
    assert moved.faults(merged=False) == ()


def _tiny() -> tuple[Stages, ExpertPlacement, np.ndarray]:
    layer = MoELayer(net=MoE(experts=2, top_k=1, width=8), tokens=2, hidden=8)
    return Stages(layer, layer.inputs(np.random.default_rng(0))), place(2, 2), np.arange(2)
