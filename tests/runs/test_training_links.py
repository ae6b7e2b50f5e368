"""Which links the communication of a training step takes, and what sharing them costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pytest

from simulator import Result, make_scenario, simulate
from simulator.engine.pipeline import Shares
from simulator.report.training_facts import losses
from simulator.runs import training
from simulator.runs.training import TrainingRun

STEP = {"sequence": 8192, "global_batch": 64, "zero": 1}


@lru_cache
def step(device: str, model: str = "llama-3.1-70b", **plan: Any) -> tuple[Shares, Result]:
    """What a step takes of a rank's links, and the step."""
    found: list[Shares] = []

    def kept(run: TrainingRun) -> Shares:
        found.append(shares(run))
        return found[-1]

    shares = training.shares_of
    room = ("memory.hbm.capacity=1 TB",)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "shares_of", kept)
        scenario = make_scenario(model, device, phase="train", overrides=room, **{**STEP, **plan})
        result = simulate(scenario)
    return found[0], result


def far(share: Mapping[str, float]) -> float:
    return share.get("scale_out", 0.0)


def contention(result: Result) -> float:
    assert result.training is not None
    parts = result.training.parts
    assert math.fsum(part.time for part in parts) == pytest.approx(result.latency, rel=1e-9)
    return sum(part.time for part in parts if part.name == "contention for links")


@pytest.mark.parametrize(
    ("device", "plan"), [("h100", {"pp": 8}), ("gb200", {"tp": 2, "pp": 4, "dp": 8})]
)
def test_ranks_of_one_domain_send_nothing_out_of_it(device: str, plan: dict[str, int]) -> None:
    """All 8 of 8 devices, and 64 of 72."""
    shares, _ = step(device, **plan)
    assert far(shares.sends) == far(shares.collectives) == 0
    assert 0.5 < shares.sends["scale_up"] <= 1


def test_stages_on_other_hosts_and_replicas_on_one_do_not_contend() -> None:
    shares, result = step("h100", tp=4, pp=4, dp=2)
    assert far(shares.sends) > 0.9
    assert far(shares.collectives) == 0
    assert shares.collectives["scale_up"] > 0.5
    assert contention(result) == 0


def test_stages_and_replicas_on_other_hosts_contend_for_the_network() -> None:
    shares, result = step("h100", tp=8, pp=2, dp=4)
    assert min(far(shares.sends), far(shares.collectives)) > 0.9
    assert 0 < contention(result) < 0.01 * result.latency
    assert result.bounds is not None
    assert result.bounds.lower <= result.latency
    named = [text for _, _, texts in losses(result) for text in texts]
    assert any("contention for links" in text for text in named)


def test_a_pair_on_a_mesh_has_one_link_of_seven() -> None:
    shares, result = step("mi300x", tp=2, pp=2, dp=2)
    assert max(shares.sends["scale_up"], shares.collectives["scale_up"]) < 1 / 7
    assert contention(result) == 0
