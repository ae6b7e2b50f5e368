"""Wrong energies, costs and rates that people met, each as the claim that is right.

Every expected figure is arithmetic or published.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from simulator import Result, make_scenario, simulate
from simulator.costs.money import run_cost
from simulator.errors import CapacityError
from simulator.report.facts import title
from simulator.result import Bounds
from simulator.specs.hardware import Price
from simulator.study.training_run import train_for

SIZES = {
    "prefill": {"input": 512},
    "decode": {"context": 512, "batch": 4},
    "generate": {"input": 512, "output": 64, "batch": 4},
    "train": {"dp": 8, "zero": 1, "sequence": 512, "global_batch": 8},
}


def run(phase: str, device: str = "h200") -> Result:
    return simulate(make_scenario("llama-3.1-8b", device, phase=phase, **SIZES[phase]))


def at_rate(phase: str, rate: float, devices: int, rent: float) -> Result:
    """A run of ``devices`` at so many tokens per second and dollars per hour and device."""
    found = run(phase)
    latency = found.work / rate
    return replace(
        found,
        latency=latency,
        bounds=Bounds(lower=latency, upper=latency),
        devices=devices,
        cost=run_cost(Price(rent=rent), None, latency, devices),
    )


def test_tokens_of_a_published_day_cost_what_its_nodes_do() -> None:
    # DeepSeek-V3/R1 inference system overview, 2025-02: nodes of eight at $2 an hour and device
    # read 73,700 and write 14,800 tokens per second; 608 B and 168 B tokens in a day on 226.75.
    reads = at_rate("prefill", 73_700, 8, 2.0).cost_per_million
    writes = at_rate("decode", 14_800, 8, 2.0).cost_per_million
    assert reads["output"] is writes["input"] is None
    assert reads["input"] is not None
    assert writes["output"] is not None
    day = reads["input"] * 608e3 + writes["output"] * 168e3
    assert day == pytest.approx(87_072, rel=0.001)


@pytest.mark.parametrize("device", ["h200", "b200"], ids=["rented", "bought"])
def test_what_is_read_and_written_costs_what_the_run_costs(device: str) -> None:
    result = run("generate", device)
    per, cost = result.cost_per_million, result.cost
    assert cost is not None
    assert all(value is not None and value > 0 for value in per.values())
    read, written = 4 * 512 / 1e6, 4 * 64 / 1e6
    assert (per["input"] or 0) * read + (per["output"] or 0) * written == pytest.approx(cost)
    assert (per["total"] or 0) * (read + written) == pytest.approx(cost)


def test_tokens_by_their_price_are_devices_by_theirs() -> None:
    result = simulate(make_scenario("llama-3.1-8b", "h200", tp=2, **SIZES["decode"]))
    assert result.throughput is not None
    per_hour = (result.cost_per_million["total"] or 0) / 1e6 * result.throughput * 3600
    assert per_hour == pytest.approx(2 * 4.75)


def test_a_run_that_takes_no_time_has_no_rates() -> None:
    none = Bounds(lower=0.0, upper=0.0)
    for cost, energy in ((0.0, 0.0), (1.0, 1.0)):
        still = replace(run("decode"), latency=0.0, bounds=none, cost=cost, energy=energy)
        told = json.loads(still.to_json())
        for name in ("throughput", "power", "mfu", "mbu"):
            assert told[name] is None
        assert set(told["cost_per_million"].values()) == {None}
    nothing = replace(run("decode"), energy=0.0)
    assert nothing.tokens_per_joule is None


def test_a_device_without_a_price_has_no_cost_and_says_why() -> None:
    told = run("decode", "mi455x").to_dict()
    assert told["cost"] is None
    assert set(told["cost_per_million"].values()) == {None}
    assert "price.rent" in told["unknown"]["cost"]
    assert "energy" not in told["unknown"]


def test_the_context_that_was_taken_is_said_and_is_not_the_longest_that_the_model_knows() -> None:
    scenario = make_scenario("llama-3.1-8b", "h200")
    assert title(simulate(scenario))[-1] == "context 4,096"
    longest = simulate(make_scenario("llama-3.1-8b", "h200", context=131_072)).memory.total
    # 128 KiB of keys and values a token: 32 layers x 2 x 8 heads x 128 x 2 bytes.
    more = (131_072 - 4_096) * 131_072
    assert longest - simulate(scenario).memory.total == pytest.approx(more, rel=0.01)


def test_a_device_that_does_not_hold_the_model_has_neither_time_nor_power() -> None:
    # Llama 3.1 405B in bf16, 811.7 GB, on one H100 of 80 GB: not 460 ms a token at 0 W.
    with pytest.raises(CapacityError, match=r"weights 811\.7 GB"):
        simulate(make_scenario("llama-3.1-405b", "h100", batch=128, context=4096))


def test_bandwidth_over_size_is_the_rate_of_one_sequence_not_of_all() -> None:
    one, many = (
        simulate(make_scenario("llama-3.1-8b", "h200", context=512, batch=batch))
        for batch in (1, 64)
    )
    assert one.throughput is not None
    assert many.throughput is not None
    limit = one.roof.bandwidth / one.model_bytes
    assert one.throughput < limit < many.throughput / 10
    # Little's law: what is under way is the rate times the time of each.
    for result, batch in ((one, 1), (many, 64)):
        assert (result.throughput or 0) * result.latency == pytest.approx(batch)


def test_phases_alone_say_less_than_the_whole() -> None:
    whole = run("generate")
    first = simulate(make_scenario("llama-3.1-8b", "h200", phase="prefill", input=512, batch=4))
    prefill, decode = whole.phases
    assert first.latency == pytest.approx(prefill.latency, rel=1e-9)
    assert first.energy == pytest.approx(prefill.energy, rel=1e-9)
    assert first.cost == pytest.approx(prefill.cost, rel=1e-9)
    assert whole.latency == pytest.approx(prefill.latency + decode.latency)
    assert whole.throughput is not None
    assert whole.throughput < decode.tokens / decode.latency


def test_device_hours_of_a_published_training_are_those_of_its_rate() -> None:
    # DeepSeek-V3 (arXiv 2412.19437): 180 thousand H800 hours for each trillion tokens, which is
    # 1,543 tokens per second and device.
    step = at_rate("train", 8 * 1543, 8, 2.0)
    done = train_for(step, "1T").training
    assert done is not None
    assert done.budget is not None
    assert done.budget.device_hours == pytest.approx(180e3, rel=0.001)
    assert done.budget.cost == pytest.approx(360e3, rel=0.001)
    assert (step.cost_per_million["total"] or 0) * 1e6 == pytest.approx(done.budget.cost)
