"""Rules of plans: every broken one at once, each with values that hold."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import load_workload
from simulator.mapping.legality import plan_faults, plan_notes
from simulator.mapping.shard import shard
from simulator.specs.plan import Plan
from simulator.specs.workload import Transformer


def told(name: str, plan: Plan, batch: int = 64, phase: str = "train", **more: int) -> str:
    faults = plan_faults(load_workload(name), plan, phase=phase, batch=batch, **more)
    assert all(fault.file == "plan" and fault.found and fault.fix for fault in faults)
    return "\n".join(map(str, faults))


def test_the_published_plan_of_llama_405b_is_legal() -> None:
    plan = Plan(tp=8, pp=16, dp=64)
    assert told("llama-3.1-405b", plan, 2048, sequence=8192, devices=8192) == ""
    assert plan_notes(load_workload("llama-3.1-405b"), plan, phase="train") == (
        "the fullest pipeline stage has 2% more layers than a mean one",
    )


def test_every_broken_rule_is_told_at_once() -> None:
    plan = Plan(tp=3, pp=100, cp=2, dp=5, ep=7, virtual_stages=2, pipeline="zero_bubble")
    text = told("deepseek-v3", plan, 9, sequence=1001, devices=16)
    for claim in (
        "tp: attention heads of 128 do not divide by tp 3; tp is one of 1, 2, 4, 8,",
        "tp: width of the shared experts of 2,048 do not divide by tp 3",
        "ep: 256 experts do not divide by ep 7; 3 redundant experts make 259 = 7 x 37",
        "ep: the 30 ranks of a stage (tp x cp x dp) do not divide by ep 7; ep is one of 1, 2, 3,",
        "virtual_stages: 100 x 2 pieces of 61 layers",
        "virtual_stages: zero_bubble has one piece on each stage",
        "dp: tp 3 x cp 2 x pp 100 x dp 5 are 3,000 ranks on 16 devices",
        "cp: 1,001 tokens are not 4 equal parts",
        "sequence_parallel: 1,001 tokens do not divide by tp x cp = 6",
        "micro_batch: a global batch of 9 does not divide by dp 5 x micro_batch 1",
    ):
        assert claim in text
    assert "FFN width" not in text  # 18,432 divides by 3


@pytest.mark.parametrize(("tp", "legal"), [(1, True), (4, True), (16, True), (3, False)])
def test_kv_heads_divide_or_repeat(tp: int, legal: bool) -> None:
    text = told("llama-3.1-70b", Plan(tp=tp), sequence=3072)
    assert ("KV heads" not in text) is legal
    if not legal:
        assert "8 KV heads neither divide by tp 3 nor repeat over it; tp is one of 1, 2, 4," in text


def test_a_batch_is_whole_micro_batches_on_each_replica_and_whole_rounds_of_stages() -> None:
    plan = Plan(tp=8, pp=4, dp=4, micro_batch=2, virtual_stages=2)
    assert told("llama-3.1-70b", plan, 32) == ""
    assert "3 micro-batches do not divide by pp 4" in told("llama-3.1-70b", plan, 24)
    assert "a global batch of 32 or 64, or virtual_stages 1" in told("llama-3.1-70b", plan, 40)
    assert "a global batch of 8\n" in told("llama-3.1-70b", plan, 3) + "\n"
    assert "a global batch of 16 or 24" in told("llama-3.1-70b", plan, 20)
    assert told("llama-3.1-70b", Plan(tp=8, dp=4), 3, phase="decode") == ""


def test_interleaving_needs_a_pipeline() -> None:
    assert "interleave nothing" in told("llama-3.1-8b", Plan(virtual_stages=4))


def test_tensor_and_expert_parallel_ranks_nest() -> None:
    assert told("gpt-oss-120b", Plan(tp=8, ep=4, dp=1), phase="decode") == ""
    text = told("gpt-oss-120b", Plan(tp=4, ep=6, dp=3, redundant_experts=4), phase="decode")
    assert "ep 6 neither divides tp 4 nor is a multiple of it; ep is one of 1, 2, 4, 8, 12" in text
    text = told("deepseek-v3", Plan(tp=96, ep=32, dp=1), phase="decode")
    assert "expert width of 2,048 do not divide by tp / ep 3; tp / ep is one of 1, 2, 4," in text


def test_a_model_without_experts_has_none_to_spread() -> None:
    assert "llama-3.1-8b has no experts to spread" in told("llama-3.1-8b", Plan(ep=8))


def test_a_u_net_is_cut_by_replicas_alone() -> None:
    text = told("sdxl", Plan(tp=2, pp=2, dp=8))
    assert re.findall(r"plan: (\w+)", text) == ["tp", "pp"]
    assert told("sdxl", Plan(dp=8)) == ""


def test_what_has_no_effect_is_said() -> None:
    model = load_workload("llama-3.1-8b")
    assert plan_notes(model, Plan(zero=1), phase="train") == (
        "zero 1 has no effect: one replica has nobody to share with",
    )
    assert plan_notes(model, Plan(zero=1, dp=2), phase="train") == ()
    assert plan_notes(model, Plan(zero=1, recompute="full"), phase="decode") == (
        "zero has no effect in decode",
        "recompute has no effect in decode",
    )


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["llama-3.1-70b", "deepseek-v3", "gpt-oss-120b", "qwen3-235b-a22b"]),
    st.integers(1, 130),
    st.integers(1, 70),
)
def test_a_plan_without_faults_can_be_applied_and_valid_values_are_valid(
    name: str, tp: int, ep: int
) -> None:
    model = load_workload(name)
    assert isinstance(model, Transformer)
    plan = Plan(tp=tp, ep=ep)
    faults = plan_faults(model, plan, phase="decode", batch=1)
    if not any(fault.path == "tp" for fault in faults):
        shard(model, tp, split_experts=ep == 1)
    for fault in faults:
        if fault.path == "tp" and fault.fix.startswith("tp is"):
            values = fault.fix.partition(" is one of ")[2].replace(",", "")
            for value in map(int, values.split()):
                again = plan_faults(model, Plan(tp=value, ep=ep), phase="decode", batch=1)
                rule = re.sub(r"tp \d+.*", "", fault.found)
                assert not any(re.sub(r"tp \d+.*", "", other.found) == rule for other in again)
