"""However a model is cut, the work, the weights and what is exchanged stay the same in sum."""

from __future__ import annotations

import math
from functools import cache
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import Result, load_workload, make_scenario, simulate
from simulator.models.arithmetic import parameters
from simulator.specs.scenario import Scenario

MODEL, BATCH, SEQUENCE = "llama-3.1-8b", 32, 2048
PRODUCTS = ("matmul", "attention", "attention_backward")
PHASES: dict[str, dict[str, Any]] = {
    "prefill": {"batch": BATCH, "input": SEQUENCE},
    "decode": {"batch": BATCH, "context": SEQUENCE},
    "train": {"global_batch": BATCH, "sequence": SEQUENCE},
}
DEGREE = st.sampled_from([1, 2, 4])


def scenario(phase: str, **plan: Any) -> Scenario:
    return make_scenario(MODEL, "mi355x", phase=phase, fidelity="roofline", **PHASES[phase], **plan)


@cache
def run(phase: str, plan: tuple[tuple[str, Any], ...] = ()) -> Result:
    return simulate(scenario(phase, **dict(plan)))


def products(result: Result) -> float:
    return math.fsum(op.flops for op in result.ops if op.kind in PRODUCTS)


def held(result: Result, name: str) -> float:
    return sum(part.bytes for part in result.memory.parts if part.name == name)


@settings(deadline=None, max_examples=25)
@given(phase=st.sampled_from(list(PHASES)), tp=DEGREE, dp=DEGREE, cp=DEGREE)
def test_devices_multiply_as_much_together_as_one_alone(
    phase: str, tp: int, dp: int, cp: int
) -> None:
    plan = {"tp": tp, "dp": dp} | ({"cp": cp} if phase == "train" else {})
    devices = math.prod(plan.values())
    found = run(phase, tuple(plan.items()))
    # Vocabulary and heads divide, so nothing of the products is done twice.
    assert products(found) * devices == pytest.approx(products(run(phase)), rel=1e-12)


@settings(deadline=None, max_examples=15)
@given(phase=st.sampled_from(list(PHASES)), tp=DEGREE, pp=DEGREE)
def test_a_cut_model_weighs_as_much_as_a_whole_one_but_for_norms(
    phase: str, tp: int, pp: int
) -> None:
    model = load_workload(MODEL)
    found = run(phase, (("tp", tp), ("pp", pp)))
    whole = held(run(phase), "weights")
    norms = 2 * 4096 * (2 * 32 + 1)  # Two norms a layer and the last one, each on every tp rank.
    ends = 2 * 128256 * 4096 / tp  # The embedding or the head, on one stage alone.
    stage = (whole - 2 * ends * tp - norms) / (tp * pp) + norms / pp
    assert stage <= held(found, "weights") <= stage + (2 * ends if pp == 1 else ends) + 2 * 4096
    assert held(run(phase), "weights") == 2 * parameters(model)


@pytest.mark.parametrize("phase", PHASES)
def test_the_order_in_which_degrees_are_given_is_nothing(phase: str) -> None:
    degrees = {"tp": 2, "pp": 2, "dp": 2}
    asked = {
        scenario(phase, **{name: degrees[name] for name in order})
        for order in permutations(degrees)
    }
    by_override = make_scenario(
        MODEL, "mi355x", phase=phase, fidelity="roofline", **PHASES[phase],
        overrides=["plan.dp=2", "plan.pp=2", "plan.tp=2"],
    )  # fmt: skip
    assert len({simulate(one).latency for one in (*asked, by_override)}) == 1
    assert len(asked) == 1


def sent(name: str, **plan: int) -> float:
    training = run("train", tuple(plan.items())).training
    assert training is not None
    return sum(entry.near + entry.far for entry in training.traffic if entry.name == name)


@settings(deadline=None, max_examples=15)
@given(tp=st.sampled_from([2, 4, 8]), dp=st.sampled_from([1, 2, 4]))
def test_tensor_parallel_ranks_send_each_token_past_every_cut(tp: int, dp: int) -> None:
    # Ring exchanges: (tp - 1) / tp of each activation, of a replica's share of the tokens.
    alone = sent("tp", tp=2) / (1 / 2)
    assert sent("tp", tp=tp, dp=dp) * dp / ((tp - 1) / tp) == pytest.approx(alone, rel=1e-3)


@settings(deadline=None, max_examples=15)
@given(tp=st.sampled_from([1, 2, 4]), dp=st.sampled_from([2, 4, 8]))
def test_replicas_reduce_each_gradient_once(tp: int, dp: int) -> None:
    # An all-reduce sends 2 (dp - 1) / dp of the fp32 gradients that a rank holds.
    gradients = held(run("train", (("tp", tp),)), "gradients")
    assert sent("dp", tp=tp, dp=dp) == pytest.approx(2 * (dp - 1) / dp * gradients, rel=1e-4)


@pytest.mark.parametrize("dp", [1, 2, 4])
@pytest.mark.parametrize("tp", [1, 2])
def test_a_stage_hands_on_each_token_once(dp: int, tp: int) -> None:
    # 4,096 bf16 values a token; sequence parallel ranks hand on their share.
    assert sent("pp", pp=2, dp=dp, tp=tp) == BATCH * SEQUENCE * 4096 * 2 / (dp * tp)


@pytest.mark.parametrize(
    ("model", "phase"),
    [
        *((model, phase) for model in (MODEL, "mixtral-8x7b") for phase in ("prefill", "decode")),
        (MODEL, "train"),
        ("sdxl", "denoise"),
    ],
)
def test_degrees_of_one_are_the_single_device_bit_for_bit(model: str, phase: str) -> None:
    lengths: dict[str, Any] = {
        "prefill": {"batch": 2, "input": 128}, "decode": {"batch": 2, "context": 128},
        "train": {"global_batch": 2, "sequence": 128}, "denoise": {"batch": 2},
    }[phase]  # fmt: skip
    ones = dict.fromkeys(("tp", "pp", "dp", "cp", "ep"), 1)
    asked = [make_scenario(model, "mi455x", phase=phase, **lengths, **plan) for plan in ({}, ones)]
    alone, cut = (simulate(one).to_dict() for one in asked)
    for data in (alone, cut):
        data["provenance"].pop("command")
    assert cut == alone


@pytest.mark.parametrize("phase", PHASES)
def test_a_slower_fabric_takes_longer(phase: str) -> None:
    def on(system: str) -> float:
        return simulate(
            make_scenario(MODEL, "h200", phase=phase, tp=8, system=system, **PHASES[phase])
        ).latency

    assert on("pcie-8") > on("hgx-8")


def test_a_fabric_without_a_say_is_said_to_have_none() -> None:
    alone = simulate(make_scenario(MODEL, "h200", batch=4, context=512, system="hgx-8"))
    assert any("system" in text and "no say" in text for text in alone.warnings)
