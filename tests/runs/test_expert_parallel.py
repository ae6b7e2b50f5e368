"""Whole runs on expert-parallel ranks: bounds, bits, what is counted, what never changes."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

from simulator.api import make_scenario, simulate
from simulator.errors import InputError, SpecError
from simulator.expert_use import ExpertUse
from simulator.mapping.exchange import shares
from simulator.mapping.routing import draw, expected_distinct_experts
from simulator.models.load import load_workload
from simulator.result import Result
from simulator.specs.load import load_hardware
from simulator.specs.workload import MoE, Transformer

SCHEDULES = ("bulk", "pipelined", "two_batch")
PHASES = {"decode": {"batch": 8, "context": 64}, "prefill": {"batch": 4, "input": 48}}
QWEN, MIXTRAL, DEEPSEEK = "qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3"
LAYERS = {QWEN: "groups.0.repeat=3", MIXTRAL: "groups.0.repeat=3", DEEPSEEK: "groups.1.repeat=2"}


@cache
def run(
    model: str = QWEN,
    ep: int | None = 2,
    phase: str = "decode",
    *overrides: str,
    device: str = "h200",
    whole: bool = False,
    **options: Any,
) -> Result:
    """A small run: three layers, unless the ``whole`` model is wanted."""
    return simulate(
        make_scenario(
            model,
            device,
            ep=ep,
            phase=phase,
            overrides=[*overrides, *([] if whole else [LAYERS[model]])],
            **{**PHASES[phase], **options},
        )
    )


def use(result: Result) -> ExpertUse:
    (found,) = result.experts
    return found


def scheduled(schedule: str) -> str:
    return f"plan.schedule={schedule}"


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("model", [QWEN, MIXTRAL, DEEPSEEK])
def test_one_rank_is_the_run_without_ranks(model: str, phase: str) -> None:
    plain, one = (json.loads(run(model, ep, phase).to_json()) for ep in (None, 1))
    commands = [data["provenance"].pop("command") for data in (plain, one)]
    assert plain == one
    assert commands[0] != commands[1]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("stack", ["stack.mode=graph", "stack.mode=eager"])
@pytest.mark.parametrize("device", ["h200", "mi455x"])
def test_fidelities_agree_and_stay_in_bounds(
    device: str, stack: str, schedule: str, phase: str
) -> None:
    """Tile by tile the same bits as by cohorts, and the operators add up to the latency."""
    results = {
        fidelity: run(QWEN, 2, phase, scheduled(schedule), stack, device=device, fidelity=fidelity)
        for fidelity in ("roofline", "cohort", "tile")
    }
    assert results["tile"].latency.hex() == results["cohort"].latency.hex()
    assert results["tile"].events > results["cohort"].events > results["roofline"].events
    assert results["tile"].experts == results["cohort"].experts
    for result in results.values():
        assert result.bounds.lower <= result.latency <= result.bounds.upper
        assert sum(op.time for op in result.ops) == pytest.approx(result.latency, rel=1e-9)
        assert all(op.time >= 0 for op in result.ops)
        lost = use(result).lost
        assert lost[0].name == "even loads"
        assert sum(step.time for step in lost) == pytest.approx(result.latency, rel=1e-9)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_slow_hosts_and_links_stay_in_bounds(schedule: str) -> None:
    for overrides in (
        ("stack.mode=eager", "stack.launch.host=40 us"),
        ("scale_up.bandwidth=1 GB/s",),
        ("stack.mode=eager", "stack.launch.host=40 us", "scale_up.bandwidth=1 GB/s"),
    ):
        result = run(QWEN, 4, "decode", scheduled(schedule), *overrides, batch=8)
        assert result.bounds.lower <= result.latency <= result.bounds.upper
        assert sum(op.time for op in result.ops) == pytest.approx(result.latency, rel=1e-9)


@pytest.mark.parametrize("phase", PHASES)
def test_experts_get_the_same_rows_whatever_the_plan(phase: str) -> None:
    routing = "moe.routing=zipf 0.8"
    alone = use(run(QWEN, 1, phase, routing))
    pairs = alone.tokens * alone.layers * alone.top_k
    for ep, plan in (
        (2, ()),
        (4, ("plan.schedule=pipelined",)),
        (2, ("plan.schedule=two_batch",)),
        (4, ("plan.placement=balanced", "plan.redundant_experts=4")),
        (8, ("plan.placement=round_robin",)),
    ):
        found = use(run(QWEN, ep, phase, routing, *plan))
        assert found.load == alone.load
        assert (found.distinct, found.tokens) == (alone.distinct, alone.tokens)
        assert sum(found.load) == sum(found.rank_load) == pairs
        assert len(found.rank_load) == len(found.rows) == ep


def test_a_seed_is_a_routing() -> None:
    first, again, other = (use(run(QWEN, 2, "decode", seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first.load != other.load
    assert use(run(QWEN, 4, "decode", seed=2)).load == other.load


@pytest.mark.parametrize("model", [QWEN, MIXTRAL])
def test_ranks_share_the_work_and_add_none(model: str) -> None:
    """Tokens and experts are dealt out, so the operations of all ranks are those of one."""
    alone = run(model, 1, "prefill").model_flops
    for ep in (2, 4):
        for schedule in SCHEDULES[: 3 if ep == 2 else 2]:
            found = run(model, ep, "prefill", scheduled(schedule))
            assert found.model_flops == pytest.approx(alone, rel=1e-12)
            assert found.devices == ep


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("device", ["mi455x", "h200", "mi300x"])
def test_faster_links_are_never_slower_in_bulk(device: str, phase: str) -> None:
    link = load_hardware(device).scale_up
    assert link is not None
    times = [
        run(
            QWEN, 4, phase, f"scale_up.bandwidth={link.bandwidth * factor / 1e9} GB/s",
            device=device,
        ).latency
        for factor in (0.1, 0.5, 1, 2, 8)
    ]  # fmt: skip
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


def test_even_loads_lose_nothing() -> None:
    """128 experts get a row each: every rank has as much to do and to send."""
    even = use(run(QWEN, 4, "decode", "moe.routing=balanced", batch=16))
    assert set(even.rank_load) == {3 * 32}
    assert even.expert_imbalance == even.rank_imbalance == 1
    assert [step.time for step in even.lost[1:]] == [0, 0]


@pytest.mark.parametrize("schedule", ["bulk", "pipelined"])
@pytest.mark.parametrize("batch", [1, 3])
def test_ranks_without_sequences_serve_their_experts(batch: int, schedule: str) -> None:
    for model, ep in ((QWEN, 4), (MIXTRAL, 8)):
        result = run(model, ep, "decode", scheduled(schedule), batch=batch)
        found = use(result)
        assert found.tokens == batch
        assert [sum(row) > 0 for row in found.rows] == [rank < batch for rank in range(ep)]
        assert sum(found.rank_load) == sum(found.load) == batch * found.layers * found.top_k
        assert result.bounds.lower <= result.latency <= result.bounds.upper


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_all_experts_may_be_chosen(schedule: str) -> None:
    found = use(run(QWEN, 2, "decode", scheduled(schedule), "moe.top_k=128"))
    assert set(found.load) == {3 * 8}
    assert found.distinct == 128
    assert found.rank_imbalance == 1


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("phase", PHASES)
def test_what_a_capacity_drops_is_counted(phase: str, schedule: str) -> None:
    overrides = ("moe.capacity_factor=1", "moe.routing=zipf 1")
    for ep in (1, 2) if schedule == "bulk" else (2,):
        found = use(run(QWEN, ep, phase, *overrides, scheduled(schedule)))
        assert found.dropped > 0
        pairs = found.tokens * found.layers * found.top_k
        assert sum(found.load) == sum(found.rank_load) == pairs - found.dropped
    assert use(run(QWEN, 2, phase, scheduled(schedule))).dropped == 0


@pytest.mark.parametrize("phase", PHASES)
def test_balancing_evens_out_the_ranks(phase: str) -> None:
    uneven, even, copied = (
        use(run(QWEN, 4, phase, "moe.routing=zipf 1.2", *plan)).rank_imbalance
        for plan in (
            (),
            ("plan.placement=balanced",),
            ("plan.placement=balanced", "plan.redundant_experts=32"),
        )
    )
    assert 1 <= even < uneven
    assert 1 <= copied < uneven


@pytest.mark.parametrize("phase", PHASES)
def test_the_dispatch_matrix_is_the_copies_that_tokens_send(phase: str) -> None:
    """Low latency sends a copy for each expert, throughput one for each rank of a token."""
    model = load_workload(QWEN)
    assert isinstance(model, Transformer)
    net = next(layer.ffn for layer in model.layers() if isinstance(layer.ffn, MoE))
    found = use(run(QWEN, 4, phase, "plan.exchange=auto", batch=6))
    new = 1 if phase == "decode" else 48
    owners = [rank for rank, held in enumerate(shares(6, 4)) for _ in range(held * new)]
    for per_rank in (False, True):
        sent: Counter[tuple[int, int]] = Counter()
        for layer in range(3):
            for some in draw(net, len(owners), np.random.default_rng([0, layer]), layer=layer):
                hosts = zip(some.token.tolist(), (some.expert // 32).tolist(), strict=True)
                for token, host in set(hosts) if per_rank else hosts:
                    sent[owners[token], host] += 1
        if per_rank == (phase == "prefill"):
            assert found.rows == tuple(
                tuple(sent[source, host] for host in range(4)) for source in range(4)
            )


def test_rows_of_deepseek_have_the_published_sizes() -> None:
    """DeepEP: 7,168 bytes of FP8 and a scale of 4 bytes for each 128; back in bf16."""
    found = use(run(DEEPSEEK, 8, "decode"))
    assert found.dispatch_row == 7168 + 4 * 7168 // 128
    assert found.combine_row == 2 * 7168
    wide = use(run(DEEPSEEK, 8, "decode", "plan.dispatch=bf16"))
    assert wide.dispatch_row == 2 * 7168


def test_as_many_distinct_experts_are_hit_as_expected() -> None:
    found = use(run(QWEN, 2, "decode", whole=True))
    expected = expected_distinct_experts(128, 8, 8)
    spread = np.sqrt(expected * (1 - expected / 128) / found.layers)
    assert found.layers == 48
    assert found.distinct == pytest.approx(expected, abs=4 * spread)


@pytest.mark.parametrize("placement", ["contiguous", "round_robin", "balanced"])
def test_redundant_copies_make_ranks_divide(placement: str) -> None:
    """Nine ranks leave the domain of eight H200s, and do not divide over two of them."""
    for ep in (3, 9):
        result = run(
            MIXTRAL, ep, "decode", "plan.redundant_experts=1", f"plan.placement={placement}"
        )
        assert use(result).redundant == 1
        assert sum(use(result).rank_load) == 8 * 3 * 2


@pytest.mark.parametrize(
    ("model", "ep", "overrides", "kind", "words"),
    [
        (MIXTRAL, 3, (), InputError, ["8 experts do not divide by ep 3", "1 redundant"]),
        (MIXTRAL, 16, (), InputError, ["8 experts do not divide by ep 16", "8 redundant"]),
        (MIXTRAL, 1, ("plan.redundant_experts=1",), InputError, ["at most 0"]),
        (MIXTRAL, 0, (), SpecError, ["ep: 0 is zero"]),
        (MIXTRAL, 1, ("plan.schedule=pipelined",), SpecError, ["one rank has none", "ep 2"]),
        (MIXTRAL, 8, ("plan.schedule=two_batch",), SpecError, ["plan.schedule", "batch of 16"]),
        (MIXTRAL, 2, ("plan.schedule=bulky",), SpecError, ["did you mean bulk?"]),
        (MIXTRAL, 2, ("moe.top_k=9",), SpecError, ["9 of 8 experts"]),
        ("llama-3.1-8b", 2, (), SpecError, ["ep: llama-3.1-8b has no experts to spread"]),
    ],
)  # fmt: skip
def test_plans_that_cannot_be_say_what_would(
    model: str, ep: int, overrides: tuple[str, ...], kind: type[Exception], words: list[str]
) -> None:
    with pytest.raises(kind) as fault:
        make_scenario(model, "h200", phase="decode", batch=8, ep=ep, overrides=overrides)
    for word in words:
        assert word in str(fault.value)
