"""Wrong answers that people met when they cut models over devices, each as the claim that is right.

Every expected figure is arithmetic or a measurement that was published.
"""

from __future__ import annotations

from dataclasses import replace

from simulator import load_workload
from simulator.mapping.legality import plan_faults, plan_notes
from simulator.mapping.shard import padded_vocab, shard
from simulator.specs.plan import Plan
from simulator.specs.workload import (
    Attention,
    DenseFFN,
    Layer,
    LayerGroup,
    MoE,
    Transformer,
)

GLM_4_7 = Transformer(
    name="glm-4.7",
    hidden=5120,
    vocab=151_552,
    groups=(
        LayerGroup(
            repeat=3,
            layers=(
                Layer(
                    attention=Attention(heads=96, kv_heads=6, head_dim=128),
                    ffn=DenseFFN(width=12_288),
                ),
            ),
        ),
    ),
)
"""96 heads and a vocabulary of 151,552; KV heads so that tensor-parallel 6 is otherwise legal."""
EXPERTS_256 = Transformer(
    name="experts-256",
    hidden=4096,
    vocab=30_000,
    groups=(
        LayerGroup(
            repeat=4,
            layers=(
                Layer(
                    attention=Attention(heads=64, kv_heads=64, head_dim=64),
                    ffn=MoE(experts=256, top_k=8, width=1536),
                ),
            ),
        ),
    ),
)


def model(name: str) -> Transformer:
    found = load_workload(name)
    assert isinstance(found, Transformer)
    return found


def test_a_vocabulary_that_does_not_divide_is_padded_and_said_to_be() -> None:
    plan = Plan(tp=6)
    assert plan_faults(GLM_4_7, plan, phase="decode", batch=1) == []
    assert plan_notes(GLM_4_7, plan, phase="decode") == (
        "the vocabulary of 151,552 is padded to 151,554, a multiple of tp 6",
    )
    assert shard(GLM_4_7, 6).vocab == padded_vocab(151_552, 6) // 6 == 25_259


def test_heads_and_experts_are_both_told_where_both_block() -> None:
    plan = Plan(tp=3, ep=3, dp=1)
    faults = plan_faults(EXPERTS_256, plan, phase="decode", batch=1)
    heads, kv_heads, experts = map(str, faults)
    assert "attention heads of 64 do not divide by tp 3" in heads
    assert "KV heads" in kv_heads
    assert "256 experts do not divide by ep 3; 2 redundant experts make 258 = 3 x 86" in experts
    mended = replace(plan, redundant_experts=2)
    left = plan_faults(EXPERTS_256, mended, phase="decode", batch=1)
    assert [str(fault) for fault in left] == [heads, kv_heads]
