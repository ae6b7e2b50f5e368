"""Comparisons are runs at equal work; ratios, fronts and refusals follow from them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import make_scenario, simulate
from simulator.errors import CapacityError, InputError, SpecError
from simulator.mapping.placement import memory_use
from simulator.report.compare import Comparison, Point, front
from simulator.report.compare_words import notes
from simulator.study.compare import compare

DECODE: dict[str, Any] = {"phase": "decode", "batch": 32, "context": 4096}


@pytest.fixture(scope="module")
def dense() -> Comparison:
    return compare("llama-3.1-8b", ["h200", "mi300x", "mi455x"], batches=(8, 32, 64), **DECODE)


def test_each_row_is_a_run(dense: Comparison) -> None:
    for entry in dense.entries:
        run = simulate(make_scenario("llama-3.1-8b", entry.hardware, **DECODE))
        assert entry.result is not None
        assert entry.result.latency == run.latency
        assert entry.speed == pytest.approx(32 / run.latency)
        assert entry.headroom == run.memory.capacity - run.memory.total
        assert run.energy is not None
        assert entry.per_joule == pytest.approx(32 / run.energy)


def test_ratios_are_to_the_first_device_and_their_intervals_add_as_squares(
    dense: Comparison,
) -> None:
    base, new = dense.entries[0].result, dense.entries[2].result
    assert base is not None
    assert new is not None
    assert base.interval is not None
    assert new.interval is not None
    assert dense.value(dense.entries[0]) == 1.0
    value = dense.value(dense.entries[2])
    assert value == pytest.approx(base.latency / new.latency)
    slow = math.log(new.interval.upper / new.latency), math.log(base.latency / base.interval.lower)
    within = dense.ends(dense.entries[2])
    assert within is not None
    assert value is not None
    assert within[0] == pytest.approx(value * math.exp(-math.hypot(*slow)))


def test_what_the_interval_covers_cannot_be_told(dense: Comparison) -> None:
    for entry in dense.entries[1:]:
        within = dense.ends(entry)
        assert within is not None
        covers = within[0] <= 1 <= within[1]
        assert (dense.verdict(entry) == "cannot tell") == covers
    assert dense.verdict(dense.entries[0]) is None


def test_data_sheets_stand_beside_what_is_reached(dense: Comparison) -> None:
    """4.8 TB/s and 989.4 TFLOP/s of BF16 against 23.3 TB/s and 5.03 PFLOP/s."""
    new = dense.entries[2]
    assert dense.spec(new, "bandwidth") == pytest.approx(23.3 / 4.8)
    assert dense.spec(new, "peak") == pytest.approx(5033 / 989.4, rel=2e-3)
    assert dense.spec(new, "hour") is None
    assert dict(new.unknown)["cost"].startswith("no price is known")


def test_the_fewest_devices_hold_it_and_one_fewer_do_not() -> None:
    found = compare("llama-3.1-70b", ["h100"], **DECODE, fit=True)
    (entry,) = found.entries
    assert entry.least == 3  # two hold 171 GB, and weights and cache alone are 184
    assert entry.fitted
    assert entry.result is not None
    assert entry.result.devices == 3
    for degrees in ({"tp": 2}, {"pp": 2}, {"dp": 2}, {}):
        use = memory_use(make_scenario("llama-3.1-70b", "h100", **DECODE, **degrees))
        assert use.total > use.capacity


def test_a_device_that_does_not_hold_it_is_a_row_with_the_reason() -> None:
    found = compare("llama-3.1-70b", ["h100", "mi300x"], **DECODE)
    lacking, base = found.entries
    assert lacking.result is None
    assert "does not fit on 1 x h100" in lacking.refused
    assert found.base is base
    assert found.to_dict()["devices"][0]["refused"] == lacking.refused
    with pytest.raises(CapacityError, match=r"h100[^\n]*\n.*h200"):
        compare("llama-3.1-70b", ["h100", "h200"], **DECODE)


def test_a_curve_doubles_the_batch_until_the_memory_is_full() -> None:
    (entry,) = compare("llama-3.1-70b", ["mi300x"], **DECODE, batches="all").entries
    batches = [point.batch for point in entry.points]
    assert batches == [1 << place for place in range(len(batches))]
    assert entry.full == f"a batch of {2 * batches[-1]} does not fit"
    last = simulate(make_scenario("llama-3.1-70b", "mi300x", **DECODE | {"batch": batches[-1]}))
    assert entry.points[-1].device == pytest.approx(batches[-1] / last.latency)
    assert entry.points[-1].user == pytest.approx(1 / last.latency)


def point(batch: int, user: float, device: float) -> Point:
    return Point(batch=batch, latency=1 / user, user=user, device=device, bound_by="memory")


rates = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=12)


@given(rates)
def test_the_front_is_what_nothing_beats(pairs: list[tuple[int, int]]) -> None:
    points = [point(place, *pair) for place, pair in enumerate(pairs)]
    kept = {(one.user, one.device) for one in front(points)}
    best = {
        pair
        for pair in pairs
        if not any(o != pair and o[0] >= pair[0] and o[1] >= pair[1] for o in pairs)
    }
    assert kept == best
    assert len(front(points)) == len(best)  # a tie stands once


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InputError) as wrong:
        compare("llama-3.1-8b", ["h2oo", "mi300x", "mi300x", "nix"], batches=(0, 8), phase="decode")
    text = str(wrong.value)
    for part in ("h2oo", "nix", "mi300x: is named twice", "batches: found 0"):
        assert part in text
    with pytest.raises(SpecError, match="a device without a name"):
        compare("llama-3.1-8b", [])
    with pytest.raises(SpecError, match="no rate of one sequence"):
        compare("llama-3.1-8b", ["h200"], phase="prefill", batches=(1,))


@pytest.mark.data
def test_such_intervals_hold_four_ratios_in_five_of_what_no_fit_saw() -> None:
    """Ratios of one shape on two devices, measured against predicted, errors as independent."""
    from simulator.check.measured import data_folder
    from simulator.check.validate import as_shipped, chosen

    try:
        folder: Path = data_folder(None)
    except InputError:
        pytest.skip("no measured data here")
    pools: dict[tuple[str, str], dict[str, dict[tuple[float, ...], tuple[float, ...]]]] = {}
    for case in as_shipped(chosen("attention"), folder):
        rows = pools.setdefault((case.op, case.dtype), {}).setdefault(case.device, {})
        sizes = zip(*(case.sizes[name].tolist() for name in sorted(case.sizes)), strict=True)
        off = np.log(case.measured / case.predicted)
        ends = np.log(case.lower / case.predicted), np.log(case.upper / case.predicted)
        rows |= dict(zip(sizes, zip(off, *ends, strict=True), strict=True))
    held = []
    for devices in pools.values():
        names = sorted(devices)
        for place, first in enumerate(names):
            for second in names[place + 1 :]:
                for shape in devices[first].keys() & devices[second].keys():
                    one, other = devices[first][shape], devices[second][shape]
                    low = -math.hypot(one[1], other[2])
                    high = math.hypot(one[2], other[1])
                    held.append(low <= one[0] - other[0] <= high)
    assert len(held) > 3000
    assert 0.7 < np.mean(held) < 0.92


def test_a_cost_of_a_purchase_is_told_from_a_rent() -> None:
    found = compare("llama-3.1-8b", ["h200", "b200"], batch=4, context=512)
    told = [text for text in notes(found) if text.startswith("cost of")]
    assert [text.split(",")[0] for text in told] == ["cost of b200"]
