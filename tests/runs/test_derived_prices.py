"""Operators of the backward pass, priced after those of the forward pass."""

from __future__ import annotations

import pytest

from simulator import Result, make_scenario, simulate


def step(device: str, *overrides: str) -> Result:
    return simulate(
        make_scenario(
            "llama-3.1-8b", device, phase="train", sequence=8192, global_batch=8, dp=8,
            overrides=("recipe=bf16", "memory.hbm.capacity=1 TB", *overrides),
        )
    )  # fmt: skip


def seconds(result: Result, name: str) -> float:
    return next(op.time for op in result.ops if op.name == name)


@pytest.mark.parametrize(("device", "rate"), [("h100", 0.86), ("b200", 0.68), ("mi300x", 0.86)])
def test_a_backward_core_runs_at_the_rate_of_the_stack(device: str, rate: float) -> None:
    """Five products for two, at the published share of the forward's rate."""
    cold = () if device == "mi300x" else ("compute.sustained=1.0",)
    result = step(device, *cold)
    found = seconds(result, "attn.core.grad") / seconds(result, "attn.core")
    assert found == pytest.approx(2.5 / rate, rel=0.01)


def test_gradients_kept_wider_take_longer_to_add() -> None:
    """Reading and writing 4 bytes for each weight takes longer than 2, and no longer than that
    traffic alone."""
    wide, narrow = step("h100"), step("h100", "plan.gradients=bf16")
    name = "ffn.gate_up.wgrad"
    more = seconds(wide, name) - seconds(narrow, name)
    weights = 2 * 4096 * 14336
    assert 0 < more < 32 * 4 * weights / 2.5e12
