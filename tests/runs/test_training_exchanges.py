"""Exchanges of experts hidden behind another micro-batch of a training step."""

from __future__ import annotations

from typing import Any

import pytest

from simulator import Result, load_workload, make_scenario, simulate
from simulator.mapping.legality import plan_faults, plan_notes
from simulator.mapping.stages import in_flight
from simulator.policies.pipeline import PIPELINE_ORDERS
from simulator.specs.plan import Plan


def step(overlap: bool, model: str = "deepseek-v3", **more: Any) -> Result:
    room = "memory.hbm.capacity=10 TB"
    degrees: dict[str, Any] = {"pp": 4, "dp": 16, "ep": 16, "global_batch": 128, **more}
    overrides = (room, "virtual_stages=2", f"overlap_exchanges={str(overlap).lower()}")
    return simulate(
        make_scenario(
            model, "b200", phase="train", dtype="bf16", sequence=4096, overrides=overrides, zero=1,
            **degrees,
        )
    )  # fmt: skip


def exchanges(result: Result) -> float:
    assert result.training is not None
    return sum(part.time for part in result.training.parts if part.name == "expert exchanges")


def test_a_step_loses_what_its_exchanges_hide_and_its_parts_add_up_to_it() -> None:
    plain, hidden = step(False), step(True)
    assert hidden.latency < plain.latency
    assert 0 < exchanges(hidden) < exchanges(plain)
    for result in (plain, hidden):
        assert result.training is not None
        parts = [part.time for part in result.training.parts]
        assert min(parts) >= 0
        assert sum(parts) == pytest.approx(result.latency, rel=1e-9)
        assert result.bounds.lower <= result.latency * (1 + 1e-9)
        assert result.latency <= result.bounds.upper * (1 + 1e-9)


def test_without_exchanges_nothing_is_hidden_and_nothing_changes() -> None:
    plain, hidden = (
        step(overlap, "llama-3.1-8b", ep=1, dp=2, global_batch=16) for overlap in (False, True)
    )
    assert hidden.latency == plain.latency


@pytest.mark.parametrize(("pp", "pieces"), [(1, 1), (2, 2), (4, 3)])
def test_one_more_micro_batch_is_in_flight_as_in_the_order(pp: int, pieces: int) -> None:
    plan = Plan(pp=pp, virtual_stages=pieces, ep=2, overlap_exchanges=True)
    for rank in range(pp):
        kept = most = 0
        for kind, _, _ in PIPELINE_ORDERS["merged"](pp, rank, 4 * pp, pieces):
            kept += 1 if kind == "forward" else -1
            most = max(most, kept)
        assert sum(in_flight(plan, rank, 4 * pp)) == most


def test_what_it_needs_is_told_at_once() -> None:
    model, plan = load_workload("deepseek-v3"), Plan(pp=4, dp=8, ep=8, overlap_exchanges=True)
    faults = plan_faults(model, plan, phase="train", batch=8, sequence=4096)
    assert [fault.path for fault in faults] == ["overlap_exchanges"] * 2
    assert "a global batch of 16 or more" in str(faults[0])
    assert "virtual_stages 2 or more, or pp 1" in str(faults[1])


def test_without_experts_on_other_ranks_it_is_said_to_have_no_effect() -> None:
    model, plan = load_workload("deepseek-v3"), Plan(dp=8, overlap_exchanges=True)
    assert any(
        "overlap_exchanges has no effect" in note for note in plan_notes(model, plan, phase="train")
    )
    assert "overlap_exchanges has no effect in decode" in plan_notes(model, plan, phase="decode")
