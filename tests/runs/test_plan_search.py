"""The search over plans against brute force, the rules of plans, and the commands that it gives."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from simulator import make_scenario, search_plans, simulate
from simulator.costs.target import Target
from simulator.engine.execute import Memo
from simulator.errors import CapacityError, ImpossibleError, InputError, SpecError
from simulator.mapping.legality import plan_faults
from simulator.mapping.placement import memory_use
from simulator.runs.plan_search import PlanSearch, RankedPlan, estimate
from simulator.runs.plan_space import RECOMPUTE
from simulator.runs.prices import Prices
from simulator.specs.scenario import Scenario

DECODE = {"phase": "decode", "context": 4096}
TRAIN = {"phase": "train", "sequence": 4096, "global_batch": 32}


@pytest.fixture(scope="module")
def dense() -> PlanSearch:
    return search_plans("llama-3.1-8b", "mi300x", **DECODE, batch=64, devices=[1, 2, 4, 8])


@pytest.fixture(scope="module")
def trained() -> PlanSearch:
    return search_plans("llama-3.1-8b", "mi300x", **TRAIN, devices=[4, 8], exact=2)


def scenarios(found: PlanSearch) -> Iterator[Scenario]:
    (base,) = found.bases
    return (replace(base, plan=plan.plan) for plan in found.plans)


def stated(command: str) -> Scenario:
    """The scenario of a command line, read word by word."""
    words = shlex.split(command)
    assert words[:2] == ["tilecast", "run"]
    options: dict[str, Any] = {}
    overrides = []
    for name, value in zip(words[3::2], words[4::2], strict=True):
        if name == "--set":
            overrides.append(value)
        else:
            options[name[2:].replace("-", "_")] = int(value) if value.isdigit() else value
    return make_scenario(words[2], options.pop("on"), **options, overrides=overrides)


@pytest.mark.parametrize(
    ("model", "hardware", "devices", "options"),
    [
        ("llama-3.1-8b", "mi300x", [1, 2, 4], {**DECODE, "batch": 64}),
        ("gpt-oss-20b", "h200", [1, 2, 4], {**DECODE, "batch": 32}),
        ("llama-3.1-8b", "h100", [4], {**TRAIN, "global_batch": 64}),
    ],
)
def test_the_best_plan_is_that_of_brute_force(
    model: str, hardware: str, devices: list[int], options: dict[str, Any]
) -> None:
    found = search_plans(model, hardware, **options, devices=devices)
    times = [simulate(scenario).latency for scenario in scenarios(found)]
    fastest, cheapest = found.ranked("time")[0], found.ranked("throughput")[0]
    assert fastest.exact
    assert fastest.latency == min(times)
    assert cheapest.exact
    assert cheapest.latency * cheapest.devices == min(
        time * plan.devices for time, plan in zip(times, found.plans, strict=True)
    )


def test_no_plan_breaks_a_rule_or_overflows(dense: PlanSearch, trained: PlanSearch) -> None:
    for found in (dense, trained):
        for scenario in scenarios(found):
            assert not plan_faults(
                scenario.model,
                scenario.plan,
                phase=scenario.phase,
                batch=scenario.batch,
                sequence=None if scenario.phase == "decode" else scenario.input,
            )
            use = memory_use(scenario)
            assert use.total <= use.capacity
        (space,) = found.spaces
        dropped = space.illegal + space.too_large + space.outdone
        assert space.tried == dropped + len(space.kept)
        assert len(space.kept) == len(found.plans)


def test_no_legal_plan_that_fits_is_left_out() -> None:
    """All degrees up to the devices, in a grid that knows no divisors."""
    found = search_plans("mixtral-8x7b", "h200", **DECODE, batch=4, devices=[4], exact=0)
    (base,) = found.bases
    grid = set()
    for tp, pp, dp, ep in product(range(1, 5), repeat=4):
        plan = replace(base.plan, tp=tp, pp=pp, dp=dp, ep=ep)
        if tp * pp * dp != 4 or plan_faults(base.model, plan, phase="decode", batch=4):
            continue
        use = memory_use(replace(base, plan=plan))
        if use.total <= use.capacity:
            grid.add((tp, pp, dp, ep))
    listed = {(one.plan.tp, one.plan.pp, one.plan.replicas, one.plan.ep) for one in found.plans}
    assert listed == grid


def test_more_devices_never_lower_the_best_throughput(dense: PlanSearch) -> None:
    best = [
        max(plan.work / plan.latency for plan in dense.plans if plan.devices == count)
        for count in (1, 2, 4, 8)
    ]
    assert best == sorted(best)
    assert best[-1] > 2 * best[0]


def test_each_command_gives_the_listed_time(dense: PlanSearch, trained: PlanSearch) -> None:
    for found in (dense, trained):
        (base,) = found.bases
        for plan in found.plans:
            scenario = stated(plan.command)
            assert replace(scenario.plan, dp=plan.plan.dp) == plan.plan
            assert scenario.plan.replicas == plan.plan.replicas
            assert (scenario.model, scenario.hardware) == (base.model, base.hardware)
            if plan.exact:
                result = simulate(scenario)
                assert result.latency == plan.latency
                assert result.throughput == pytest.approx(plan.throughput * plan.devices)
                assert result.memory.total == plan.memory
                assert result.bound_by == plan.bound_by


def test_degrees_that_are_set_stay(dense: PlanSearch) -> None:
    found = search_plans(
        "llama-3.1-8b", "mi300x", **DECODE, batch=64, devices=[8], overrides=["plan.tp=4"], exact=1
    )
    assert {plan.plan.tp for plan in found.plans} == {4}
    assert len(found.plans) == 2
    best = found.ranked()[0]
    assert "--tp" not in best.command
    assert stated(best.command).plan.tp == 4
    assert simulate(stated(best.command)).latency == best.latency


def test_llama_405b_needs_five_mi300x() -> None:
    """Its 405.85e9 bf16 parameters are 811.7 GB, 4 x 206.1 GB (192 GiB each) are 824.6 GB, of which
    the runtime and the cache take more than the rest."""
    with pytest.raises(CapacityError, match=r"fits on 4 x mi300x.* 1\.5 GB short.*8 fits"):
        search_plans("llama-3.1-405b", "mi300x", **DECODE, devices=4)
    found = search_plans("llama-3.1-405b", "mi300x", **DECODE, devices=[4, 5, 8])
    assert min(plan.devices for plan in found.plans) == 5
    for plan in found.plans:
        assert plan.memory <= plan.capacity == pytest.approx(192 * 2**30, rel=1e-3)
        assert plan.memory * plan.devices > 811e9


@pytest.mark.parametrize("degrees", [{"ep": 8}, {"tp": 2, "ep": 4, "dp": 2}, {"tp": 4, "ep": 2}])
@pytest.mark.parametrize(
    "options", [{"phase": "decode", "context": 2048, "batch": 32}, {"phase": "prefill", "batch": 8}]
)
def test_an_estimate_of_experts_is_within_five_percent(
    degrees: dict[str, int], options: dict[str, Any]
) -> None:
    scenario = make_scenario("gpt-oss-20b", "h200", **options, **degrees)
    found = estimate(priced(scenario))
    assert found == pytest.approx(simulate(scenario).latency, rel=0.05)


def test_an_estimate_without_experts_is_the_simulated_time(dense: PlanSearch) -> None:
    for scenario in scenarios(dense):
        assert estimate(priced(scenario)) == simulate(scenario).latency


@pytest.mark.parametrize("degrees", [{"pp": 2, "dp": 2}, {"tp": 2, "pp": 4, "zero": 1}])
@pytest.mark.parametrize("batch", [8, 64])
def test_an_estimate_of_a_step_is_within_two_percent(degrees: dict[str, int], batch: int) -> None:
    scenario = make_scenario(
        "llama-3.1-8b", "mi300x", phase="train", sequence=2048, global_batch=batch, **degrees
    )
    assert estimate(priced(scenario)) == pytest.approx(simulate(scenario).latency, rel=0.02)


def priced(scenario: Scenario) -> Prices:
    return Prices(scenario, Target(accelerator=scenario.hardware, stack=scenario.stack), Memo())


def test_no_plan_shares_and_recomputes_more_than_another() -> None:
    found = search_plans("llama-3.1-8b", "h100", **TRAIN, devices=4, exact=0)
    known: dict[object, list[tuple[int, int]]] = {}
    for one in found.plans:
        rest = replace(one.plan, zero=0, recompute="none")
        known.setdefault(rest, []).append((one.plan.zero, RECOMPUTE.index(one.plan.recompute)))
    assert sum(map(len, known.values())) > len(known) > 10
    for ways in known.values():
        for way in ways:
            assert not any(
                other != way and other[0] <= way[0] and other[1] <= way[1] for other in ways
            )


@pytest.mark.parametrize("degrees", [{"dp": 4}, {"tp": 2, "pp": 2, "dp": 2}, {"cp": 2, "dp": 2}])
def test_sharing_and_recomputing_more_is_never_faster(degrees: dict[str, int]) -> None:
    def time(zero: int, recompute: int) -> float:
        return estimate(
            priced(
                make_scenario(
                    "llama-3.1-8b", "mi300x", **TRAIN, **degrees, zero=zero,
                    recompute=RECOMPUTE[recompute],
                )
            )
        )  # fmt: skip

    times = {way: time(*way) for way in product(range(4), range(3))}
    for (zero, recompute), took in times.items():
        if zero:
            assert took <= times.get((zero + 1, recompute), took)
        assert took <= times.get((zero, recompute + 1), took)
        assert times[1, recompute] <= times[0, recompute]


def test_orders_are_sorted_and_leave_out_what_has_no_cost() -> None:
    found = search_plans(
        "llama-3.1-8b", ["mi300x", "mi455x"], **DECODE, batch=8, devices=[1, 2], exact=1
    )
    assert found.by == ("time", "cost")
    times = [plan.latency for plan in found.ranked("time")]
    assert times == sorted(times)
    rates = [plan.throughput for plan in found.ranked("throughput")]
    assert rates == sorted(rates, reverse=True)
    costs = found.ranked("cost")
    assert {plan.hardware for plan in costs} == {"mi300x"}
    assert {plan.hardware for plan in found.plans} == {"mi300x", "mi455x"}
    first = costs[0]
    rent = found.bases[0].hardware.price.rent
    assert first.cost == pytest.approx(
        rent * first.devices * first.latency / 3600 / (8 / 1e6), rel=1e-12
    )
    for kind in ("mi300x", "mi455x"):
        mine = [plan for plan in found.ranked("time") if plan.hardware == kind]
        assert mine[0].exact


def test_equal_plans_stand_by_devices_then_by_plan(dense: PlanSearch) -> None:
    def equal(plan: RankedPlan) -> RankedPlan:
        return replace(plan, latency=1.0)

    plans = tuple(map(equal, reversed(dense.plans)))
    order = [(plan.devices, plan.text) for plan in replace(dense, plans=plans).ranked("time")]
    assert order == sorted(order)


def test_the_same_search_gives_the_same_plans(trained: PlanSearch) -> None:
    again = search_plans("llama-3.1-8b", "mi300x", **TRAIN, devices=[4, 8], exact=2)
    assert again.plans == trained.plans


def test_what_is_done_is_told() -> None:
    told: list[tuple[str, int, int | None]] = []
    found = search_plans(
        "llama-3.1-8b", "mi300x", **DECODE, batch=8, devices=[2], by="time", exact=1,
        told=lambda *what: told.append(what),
    )  # fmt: skip
    assert told[-1] == ("mi300x: plans simulated", 1, None)
    count = len(found.plans)
    assert ("mi300x: plans estimated", count, count) in told
    assert ("mi300x: plans tried", found.spaces[0].tried, None) in told


def test_no_legal_plan_is_said_with_its_rules() -> None:
    with pytest.raises(ImpossibleError, match=r"no plan for 1,009 x mi300x is legal.*batch of 1"):
        search_plans("llama-3.1-8b", "mi300x", **DECODE, devices=1009)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InputError) as error:
        search_plans(
            "llama-3.1-8c", ["h20x", "mi300", "h200"], devices=[0, -1, 2.5, 1 << 20],
            by="speed", exact=-1,
        )  # fmt: skip
    for words in ("'llama-3.1-8c'", "'h20x'", "'mi300'", "'speed'", "0;", "-1;", "2.5", "exact"):
        assert words in str(error.value)
    assert str(error.value).count("llama-3.1-8c") == 1
    with pytest.raises(InputError, match="U-Net"):
        search_plans("sdxl", "h200")
    with pytest.raises(SpecError, match="devices: none"):
        search_plans("llama-3.1-8b", "h200", devices=[])
    with pytest.raises(SpecError, match=r"price.rent: not known for mi455x"):
        search_plans("llama-3.1-8b", "mi455x", by="cost")
