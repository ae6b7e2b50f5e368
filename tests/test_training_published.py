"""Training steps beside published ones, under plans that were published with them.

tokens/s/GPU or TFLOP/s/GPU by the rule that the publisher uses; no number of the product was fitted
to a training step. Where a plan leaves something open, the product's default stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pytest

from simulator import Result, make_scenario, simulate


@dataclass(frozen=True)
class Row:
    """One published row; ``tokens`` or ``flops`` per second and device."""

    name: str
    model: str
    device: str
    plan: tuple[tuple[str, Any], ...]
    overrides: tuple[str, ...]
    tokens: float | None = None
    flops: float | None = None
    within: float = 0.15

    def __str__(self) -> str:
        return self.name


def row(name: str, model: str, device: str, overrides: tuple[str, ...] = (), **more: Any) -> Row:
    kept = {key: more.pop(key) for key in ("tokens", "flops", "within") if key in more}
    return Row(name, model, device, tuple(sorted(more.items())), overrides, **kept)


ROWS = [
    # Llama 3 herd of models, arXiv 2407.21783, table 4: bf16, 400 TFLOP/s and more
    row(
        "llama-405b-bf16-8192", "llama-3.1-405b", "h100", ("recipe=bf16",), flops=430e12,
        within=0.10, tp=8, pp=16, dp=64, zero=2, sequence=8192, global_batch=2048,
    ),
    row(
        "llama-405b-bf16-16384", "llama-3.1-405b", "h100", ("recipe=bf16",), flops=380e12,
        tp=8, pp=16, cp=16, dp=8, zero=2, sequence=131072, global_batch=128,
    ),
    # Megatron-Bridge performance tables, 26.04
    row(
        "llama-70b-fp8-64", "llama-3.1-70b", "h100", ("recipe=fp8", "virtual_stages=5"),
        tokens=1619, tp=4, pp=8, dp=2, zero=1, sequence=8192, global_batch=128,
    ),
    row(
        "llama-405b-fp8-128", "llama-3.1-405b", "b200", ("recipe=fp8", "virtual_stages=8"),
        tokens=664, tp=4, pp=8, cp=2, dp=2, zero=1, sequence=8192, global_batch=64,
    ),
    row(
        "deepseek-v3-fp8-1024", "deepseek-v3", "h100", ("recipe=fp8", "virtual_stages=4"),
        tokens=1297, tp=2, pp=8, dp=64, ep=64, zero=1, recompute="selective", sequence=4096,
        global_batch=8192,
    ),
    row(
        "deepseek-v3-mxfp8-256", "deepseek-v3", "b200",
        ("recipe=mxfp8", "virtual_stages=2", "overlap_exchanges=true"),
        tokens=3328, tp=1, pp=8, dp=32, ep=32, zero=1, recompute="selective", sequence=4096,
        global_batch=4096,
    ),
    # Megatron-Bridge performance summary, 25.11 container, docs/performance-summary.md at 00b7660
    row(
        "llama-8b-fp8-8-h100", "llama-3.1-8b", "h100", ("recipe=fp8",),
        tokens=14451, dp=8, zero=3, sequence=8192, global_batch=128,
    ),
    row(
        "llama-8b-fp8-8-b200", "llama-3.1-8b", "b200", ("recipe=fp8",),
        tokens=30624, dp=8, zero=1, sequence=8192, global_batch=128, micro_batch=2,
    ),
    row(
        "llama-8b-mxfp8-8-b200", "llama-3.1-8b", "b200", ("recipe=mxfp8",),
        tokens=29521, dp=8, zero=1, sequence=8192, global_batch=128, micro_batch=2,
    ),
    row(
        "llama-8b-fp8-8-gb200", "llama-3.1-8b", "gb200", ("recipe=fp8",),
        tokens=31508, dp=8, zero=1, sequence=8192, global_batch=128, micro_batch=2,
    ),
    row(
        "llama-8b-fp8-8-gb300", "llama-3.1-8b", "gb300", ("recipe=fp8",),
        tokens=37556, dp=8, zero=1, sequence=8192, global_batch=128, micro_batch=2,
    ),
    row(
        "llama-70b-fp8-64-gb200", "llama-3.1-70b", "gb200", ("recipe=fp8",),
        tokens=4312, dp=64, zero=3, sequence=8192, global_batch=256, micro_batch=2,
    ),
    row(
        "llama-70b-fp8-64-gb300", "llama-3.1-70b", "gb300", ("recipe=fp8",),
        tokens=4520, dp=64, zero=3, sequence=8192, global_batch=256, micro_batch=2,
    ),
    row(
        "llama-405b-fp8-1024", "llama-3.1-405b", "h100", ("recipe=fp8", "virtual_stages=8"),
        tokens=292, tp=8, pp=8, cp=2, dp=8, zero=1, sequence=8192, global_batch=512,
    ),
    row(
        "llama-405b-mxfp8-128", "llama-3.1-405b", "b200", ("recipe=mxfp8", "virtual_stages=8"),
        tokens=624, tp=4, pp=8, cp=2, dp=2, zero=1, sequence=8192, global_batch=64,
    ),
    row(
        "llama-405b-fp8-256-gb200", "llama-3.1-405b", "gb200", ("recipe=fp8", "virtual_stages=4"),
        tokens=813, tp=4, pp=16, dp=4, zero=1, sequence=8192, global_batch=1536,
    ),
    row(
        "llama-405b-fp8-256-gb300", "llama-3.1-405b", "gb300", ("recipe=fp8", "virtual_stages=4"),
        tokens=999, tp=2, pp=8, cp=2, dp=8, zero=1, sequence=8192, global_batch=1536,
    ),
    row(
        "deepseek-v3-bf16-256-gb200", "deepseek-v3", "gb200", ("recipe=bf16", "virtual_stages=4"),
        tokens=3139, pp=4, dp=64, ep=64, zero=1, recompute="selective", sequence=4096,
        global_batch=4096,
    ),
    row(
        "deepseek-v3-bf16-256-gb300", "deepseek-v3", "gb300", ("recipe=bf16", "virtual_stages=4"),
        tokens=3848, pp=2, dp=128, ep=32, zero=1, recompute="selective", sequence=4096,
        global_batch=4096,
    ),
    row(
        "deepseek-v3-mxfp8-256-gb300", "deepseek-v3", "gb300",
        ("recipe=mxfp8", "virtual_stages=4"), tokens=4357, pp=2, dp=128, ep=32, zero=1,
        recompute="selective", sequence=4096, global_batch=4096,
    ),
    row(
        "deepseek-v3-mxfp8-256-gb200", "deepseek-v3", "gb200",
        ("recipe=mxfp8", "virtual_stages=4", "overlap_exchanges=true"), tokens=4018, pp=8, dp=32,
        ep=32, zero=1, recompute="selective", sequence=4096, global_batch=4096,
    ),
    row(
        "qwen3-235b-bf16-256-gb200", "qwen3-235b-a22b", "gb200",
        ("recipe=bf16", "virtual_stages=3"), tokens=4916, pp=8, dp=32, ep=32, zero=1,
        sequence=4096, global_batch=8192,
    ),
    row(
        "qwen3-235b-fp8-256-h100", "qwen3-235b-a22b", "h100", ("recipe=fp8", "virtual_stages=4"),
        tokens=1575, tp=2, pp=8, dp=16, ep=32, zero=1, sequence=4096, global_batch=2048,
    ),
    row(
        "qwen3-30b-mxfp8-8-gb300", "qwen3-30b-a3b", "gb300", ("recipe=mxfp8",), tokens=28934,
        dp=8, ep=8, zero=1, sequence=4096, global_batch=512, micro_batch=4,
    ),
    row(
        "qwen3-30b-mxfp8-8-b200", "qwen3-30b-a3b", "b200", ("recipe=mxfp8",), tokens=9299,
        dp=8, ep=8, zero=1, sequence=4096, global_batch=512,
    ),
    row(
        "gpt-oss-bf16-64-h100", "gpt-oss-120b", "h100", ("recipe=bf16",), tokens=5630,
        pp=4, dp=16, ep=8, zero=1, sequence=4096, global_batch=512, micro_batch=4,
    ),
    row(
        "gpt-oss-bf16-64-gb300", "gpt-oss-120b", "gb300", ("recipe=bf16",), tokens=18347,
        dp=64, ep=64, zero=1, sequence=8192, global_batch=1280, micro_batch=2,
    ),
]  # fmt: skip
HOST = "small micro-batches of experts without graphs wait for the host, which is not modelled"
CASTS = "MXFP8 operands are cast along rows and columns, at a cost that was not measured"
SHARDED = "what FSDP of 64 replicas does not hide there"
FUSED = "biases and clamped activations of experts run as passes of their own there"
OPEN = "its interleaving is not stated: -27 % with 1 piece a stage, -3 % with 2, +14 % with 4"
MISSED: Mapping[str, str] = {
    "llama-405b-bf16-16384": OPEN,
    "llama-70b-fp8-64-gb300": SHARDED,
    "llama-405b-mxfp8-128": CASTS,
    "qwen3-235b-fp8-256-h100": HOST,
    "qwen3-30b-mxfp8-8-b200": HOST,
    "gpt-oss-bf16-64-h100": FUSED,
    "gpt-oss-bf16-64-gb300": FUSED,
}


@lru_cache
def run(asked: Row) -> Result:
    # Recipes of publishers recompute more than a plan says; what fits is not the question here.
    room = "memory.hbm.capacity=1 TB"
    return simulate(
        make_scenario(
            asked.model, asked.device, phase="train", overrides=(*asked.overrides, room),
            **dict(asked.plan),
        )
    )  # fmt: skip


def ratio(asked: Row) -> float:
    result = run(asked)
    if asked.flops is not None:
        return result.model_flops / result.latency / result.devices / asked.flops
    assert result.throughput is not None
    assert asked.tokens is not None
    return result.throughput / result.devices / asked.tokens


def each() -> list[Any]:
    return [
        pytest.param(
            asked,
            id=asked.name,
            marks=[pytest.mark.xfail(reason=MISSED[asked.name], strict=True)]
            if asked.name in MISSED
            else [],
        )
        for asked in ROWS
    ]


@pytest.mark.parametrize("asked", each())
def test_a_published_step_is_met(asked: Row) -> None:
    assert ratio(asked) == pytest.approx(1, abs=asked.within)


def test_published_steps_of_dense_models_are_met_on_average() -> None:
    """Missed ones included."""
    errors = [abs(ratio(asked) - 1) for asked in ROWS if asked.model.startswith("llama")]
    assert sum(errors) / len(errors) < 0.10
