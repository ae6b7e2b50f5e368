"""Wrong answers that people met in studies and refusals, each as the claim that is right.

Every expected figure is arithmetic or published.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simulator import compare, load_scenario, make_scenario, sensitivity, simulate
from simulator.cli.compare import print_comparison
from simulator.cli.sensitivity import print_sensitivity
from simulator.errors import CapacityError, InputError
from simulator.report.compare_words import notes, use_rows
from simulator.report.facts import facts
from simulator.report.sweep import idle, warnings
from simulator.study.study_file import read_study
from simulator.study.sweep import sweep

LINE = "llama-3.1-8b decode context=512 on h200"


def rows(folder: Path, vary: str, base: str = LINE, how: str = "grid") -> list[dict[str, Any]]:
    """Rows of a study, ``vary`` being the lines of what varies."""
    path = folder / "study.yaml"
    path.write_text(f"base: {base}\nhow: {how}\nvary:\n{vary}")
    return sweep(read_study(path), folder / "rows.csv")


def refusal(line: str) -> str:
    with pytest.raises(CapacityError) as error:
        simulate(load_scenario(line))
    return str(error.value)


@pytest.mark.parametrize(
    ("plan", "held"),
    [("", "3 x mi300x hold it, 4"), ("tp=2", "3 x mi300x hold it, 4"),
     ("pp=2", "3 x mi300x hold it, 4"), ("dp=2 batch=2", "6 x mi300x hold it, 8")],
)  # fmt: skip
def test_what_holds_a_model_is_that_of_its_weights_whatever_plan_was_asked(
    plan: str, held: str
) -> None:
    # 405.85 GB of weights in fp8 and 192 GB a device; a replica more is as much again.
    said = refusal(f"llama-3.1-405b decode dtype=fp8 {plan} on mi300x")
    assert f"by capacity {held} with tensor parallelism" in said


@pytest.mark.parametrize("model", ["deepseek-v3 tp=8", "llama-3.1-405b pp=2", "qwen3-235b-a22b"])
def test_a_degree_that_is_told_to_fit_does(model: str) -> None:
    said = refusal(f"{model} decode on h100")
    degree = re.search(r"(\d+) with tensor parallelism", said)
    assert degree is not None
    name = model.partition(" ")[0]
    assert simulate(load_scenario(f"{name} decode tp={degree[1]} on h100")).latency > 0


@pytest.mark.parametrize("plan", ["", "tp=2", "dp=2", "tp=2 dp=2", "ep=2"])
def test_the_largest_batch_that_is_told_fits_and_one_more_does_not(plan: str) -> None:
    line = f"qwen3-30b-a3b decode {plan} batch={{}} on h200"
    said = re.search(r"on (\d) x h200 the largest batch that fits is ([\d,]+)", refusal(
        line.format(100_000)
    ))  # fmt: skip
    assert said is not None
    fits = simulate(load_scenario(line.format(largest := int(said[2].replace(",", "")))))
    assert fits.devices == int(said[1])
    assert refusal(line.format(largest + 1))


def test_a_number_that_changes_no_row_is_named(tmp_path: Path) -> None:
    links = "  scale_up.bandwidth: [100 GB/s, 900 GB/s]\n  batch: [1, 4]\n"
    found = rows(tmp_path, links)
    assert idle(found, ("scale_up.bandwidth", "batch")) == ["scale_up.bandwidth"]
    (tmp_path / "rows.csv").unlink()
    wide = "llama-3.1-8b decode tp=2 on h200"
    assert idle(rows(tmp_path, links, base=wide), ("scale_up.bandwidth", "batch")) == []
    (tmp_path / "rows.csv").unlink()
    # Where both change together neither can be told from the other.
    assert idle(rows(tmp_path, links, how="zip"), ("scale_up.bandwidth", "batch")) == []


def said(lines: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = " ".join(capsys.readouterr().out.split())
    assert [line for line in lines if line not in out] == []


def test_comparisons_and_sensitivities_tell_what_has_no_say_and_what_is_no_data_sheet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    idle_link = ["scale_up.bandwidth=100GB/s"]
    print_comparison(
        compare("llama-3.1-8b", ["h200", "mi500x-mid"], overrides=idle_link), sys.stdout
    )
    nothing = "scale_up.bandwidth was set, but has no say in this run"
    said([f"warning: h200, mi500x-mid: {nothing}", "mi500x-mid is a projection"], capsys)
    found = sensitivity(load_scenario("llama-3.1-8b decode scale_up.bandwidth=100GB/s on h200"))
    print_sensitivity(found, sys.stdout, 3)
    # The context that was taken is said, as it is the default and not the longest there is.
    said([f"warning: {nothing}", "batch 1, context 4,096"], capsys)


def test_bits_in_a_study_are_an_eighth_of_bytes(tmp_path: Path) -> None:
    bits, byte, giga = rows(tmp_path, "  memory.hbm.bandwidth: [400 Gbps, 50 GB/s, 400 GB/s]\n")
    assert bits["latency"] == byte["latency"] > 6 * giga["latency"]


def test_a_capacity_in_a_study_stays_as_it_was_written_and_means_what_it_says(
    tmp_path: Path,
) -> None:
    written = ("20 GB", "20 GiB", "20480 MiB", "20480 MB")
    found = rows(tmp_path, f"  memory.hbm.capacity: [{', '.join(written)}]\n")
    assert tuple(row["memory.hbm.capacity"] for row in found) == written
    # 8,030,261,248 weights of 2 bytes, 512 tokens of 131,072, and what the stack holds.
    needs = next(row["memory_bytes"] for row in found if row["status"] == "ok")
    holds = (20e9, 20 * 2**30, 20_480 * 2**20, 20_480e6)
    assert [row["status"] == "ok" for row in found] == [size >= needs for size in holds]


def test_what_does_not_fit_has_neither_rate_nor_energy_in_a_study(tmp_path: Path) -> None:
    large = "llama-3.1-405b decode batch=128 on h100"
    (row,) = rows(tmp_path, "  context: [4096]\n", base=large)
    assert {row[name] for name in ("latency", "throughput", "energy", "cost", "bound_by")} == {None}
    assert "weights 811.7 GB" in row["reason"]
    assert idle([row, row | {"context": "1"}], ["context"]) == []


@pytest.mark.parametrize(
    "text", ["no", "yes", "12:30:00", "1_000", "0o17", "1e12", "1.0e12", "~", "3.35TB/s", "'on'"]
)
def test_a_count_in_a_study_that_is_none_is_refused_with_its_line(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(InputError, match=r"study.yaml:4: batch: "):
        rows(tmp_path, f"  batch: [1, {text}]\n")


def test_a_leading_zero_in_a_study_is_no_octal(tmp_path: Path) -> None:
    zero, plain, octal = rows(tmp_path, "  batch: [017, 17, 15]\n")
    assert zero["throughput"] == plain["throughput"] != octal["throughput"]


def test_rates_times_and_costs_of_a_study_belong_together(tmp_path: Path) -> None:
    for base, tokens in ((LINE, 1), ("llama-3.1-8b generate input=64 output=16 on h200", 16)):
        for row in rows(tmp_path, "  batch: [1, 3, 64]\n", base=base):
            # Little's law: what is under way is the rate times the time of each.
            under_way = row["throughput"] * row["latency"] / tokens
            assert under_way == pytest.approx(int(row["batch"]))
            assert row["cost"] == pytest.approx(4.75 / 3600 * row["latency"])
        (tmp_path / "rows.csv").unlink()


def test_devices_are_compared_by_their_dense_peaks() -> None:
    printed = {"h100-pcie": 756, "h100-nvl": 835.5, "h200": 989, "h20": 148}
    found = compare("qwen3-4b", [*printed], context=512)
    for entry in found.entries:
        assert (entry.sheet.peak or 0) / 1e12 == pytest.approx(printed[entry.hardware], abs=0.6)


def test_tokens_by_watt_are_by_the_power_that_is_drawn() -> None:
    (entry,) = compare("llama-3.1-8b", ["h200"], context=512, batch=4).entries
    run = entry.result
    assert run is not None
    assert run.power is not None
    assert entry.speed is not None
    assert run.power < 0.5 * 700
    assert entry.per_joule == pytest.approx(entry.speed / run.power)


def test_one_sequence_on_eight_devices_pays_for_what_is_no_bandwidth() -> None:
    """Llama 3.1 70B in fp8 on eight MI300X writes 2,048 tokens after 128 in 15.88 s (amd.com):
    7.75 ms a token, where bytes over bandwidth give 1.66."""
    line = "llama-3.1-70b generate dtype=fp8 tp=8 input=128 output=2048 on mi300x"
    result = simulate(load_scenario(line))
    measured, roofline = 15.88 / 2048, 70.55e9 / 8 / 5.3e12
    assert measured / roofline == pytest.approx(4.7, abs=0.05)
    found = result.latency / 2048
    assert abs(math.log(found / measured)) < abs(math.log(roofline / measured))
    reduced = [op for op in result.ops if "all_reduce" in op.name and "embedding" not in op.name]
    assert sum(op.count for op in reduced if op.name.startswith("decode")) == 160 * 2047
    fixed = result.breakdown["latency"] + result.breakdown["link"]
    assert fixed / 2048 > (measured - roofline) / 2


def test_a_rent_is_no_multiple_of_a_purchase() -> None:
    found = compare("llama-3.1-8b", ["h200", "b200", "mi300x"], context=512)
    rented, bought, other = found.entries
    assert (rented.sheet.rented, bought.sheet.rented, other.sheet.rented) == (True, False, True)
    assert found.spec(bought, "hour") is None
    assert found.spec(other, "hour") == pytest.approx(1.75 / 4.75)
    costs = [row[5] for row in use_rows(found)[1]]
    assert [cost.endswith("*") for cost in costs] == [False, True, False]
    assert any("such costs are not alike" in text for text in notes(found))


def test_a_price_without_a_say_is_named() -> None:
    overrides = ["price.purchase=60000 USD", "price.pue=1.5"]
    scenario = make_scenario("llama-3.1-8b", "h200", context=512, overrides=overrides)
    plain = simulate(make_scenario("llama-3.1-8b", "h200", context=512))
    result = simulate(scenario)
    said = " ".join(result.warnings)
    assert result.cost == plain.cost
    assert "costs are those of the rent" in said
    assert all(
        f"{name} was set, but has no say" in said for name in ("price.purchase", "price.pue")
    )
    overrides = [*overrides, "price.rent=null"]
    bought = simulate(make_scenario("llama-3.1-8b", "h200", context=512, overrides=overrides))
    assert bought.warnings == ()
    assert bought.cost is not None
    # 60,000 USD and half as much for the server over four years of 70 % use, and electricity.
    hours = bought.latency / 3600
    written_off = 90_000 / (4 * 8766 * 0.7)
    assert bought.power is not None
    drawn = bought.power / 1000 * 1.5 * 0.08
    assert bought.cost == pytest.approx((written_off + drawn) * hours)


def test_warnings_of_runs_are_in_the_rows_of_a_study(tmp_path: Path) -> None:
    found = rows(tmp_path, "  power.cap: [150 W, 250 W, 700 W]\n")
    warned = [row["warnings"] for row in found]
    assert "a cap of 150 W" in warned[0]
    assert "a cap of 250 W" in warned[1]
    assert warned[2] == "power.cap was set, but has no say in this run"
    (said,) = (text for text in warnings(found, ["power.cap"]) if "a cap of" in text)
    assert said.endswith("(2 of 3 points)")


def test_what_is_as_busy_as_what_binds_is_said() -> None:
    # Decode of 64 sequences on an H200: the units read keys and values as long as the memory does.
    result = simulate(load_scenario("llama-3.1-8b decode batch=64 on h200"))
    (core,) = (op for op in result.ops if op.name == "attn.core")
    assert min(core.compute, core.memory) > 0.95 * max(core.compute, core.memory)
    assert core.nearly == ("memory" if core.bound_by == "compute" else "compute",)
    (binding,) = (fact for fact in facts(result) if fact.label == "bound by")
    assert f"{core.nearly[0]} as busy in" in binding.details[0]
