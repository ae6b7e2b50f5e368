"""Devices screened in closed form: the scalar closed form, over arrays."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import changed, load_scenario, simulate
from simulator.costs.estimate import estimate
from simulator.errors import CapacityError, SpecError
from simulator.fronts import pareto
from simulator.mapping.kernel import Kernel, TileClass
from simulator.study.closed_form import estimate_many
from simulator.study.closed_form_sweep import screen

HBM = "hardware.memory.hbm.bandwidth"
CLOCK = "hardware.compute.clock"
DECODE = load_scenario("llama-3.1-8b decode batch=16 context=2048 on mi455x")

amounts = st.floats(0, 1e6, allow_subnormal=False)
tiles = st.builds(
    TileClass, load=amounts, store=amounts, compute=st.floats(0, 1e-3, allow_subnormal=False)
)
kernels = st.lists(st.tuples(tiles, st.integers(0, 40)), min_size=1, max_size=5).map(
    lambda rows: Kernel(
        name="kernel", classes=tuple(tile for tile, _ in rows),
        runs=tuple((count, at) for at, (_, count) in enumerate(rows)),
        units=1, bandwidth=1e9, fixed=1e-6,
    )
).filter(lambda kernel: kernel.tiles > 0)  # fmt: skip
points = st.tuples(st.floats(1e8, 1e12), st.floats(0.1, 10), st.integers(1, 64))


@given(
    kernels,
    st.lists(points, min_size=1, max_size=4),
    st.sampled_from([np.inf, 1e9]),
    st.sampled_from([1.0, 1.7]),
)
def test_the_closed_form_over_arrays_is_the_scalar_one(
    kernel: Kernel, points: list[tuple[float, float, int]], cap: float, pace: float
) -> None:
    kernel = replace(kernel, rate_cap=cap, pace=pace)
    bandwidth, slower, units = (np.array(column) for column in zip(*points, strict=True))
    want = [
        estimate(
            replace(
                kernel, bandwidth=rate, units=on,
                classes=tuple(replace(c, compute=c.compute * slow) for c in kernel.classes),
            )
        )
        for rate, slow, on in points
    ]  # fmt: skip
    found = estimate_many(kernel, bandwidth=bandwidth, slower=slower, units=units)
    assert found == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize(
    "line",
    [
        "llama-3.1-8b decode batch=16 context=2048 on mi455x",
        "llama-3.1-8b prefill batch=1 input=2048 on mi500x-mid",
        "llama-3.1-70b generate batch=4 input=512 output=32 tp=2 on h200",
    ],
)
def test_along_each_axis_the_screen_is_the_run_at_roofline_fidelity(line: str) -> None:
    base = load_scenario(line)
    for path, values in (
        (HBM, ["3 TB/s", "40 TB/s"]),
        (CLOCK, ["1.2 GHz", "1.9 GHz"]),
        ("hardware.compute.units", [100, 300]),
        ("hardware.scale_up.bandwidth", ["100 GB/s"]),
    ):
        found = screen(base, {path: values})
        want = [simulate(changed(base, {path: value, "fidelity": "roofline"})) for value in values]
        assert found.latency == pytest.approx([one.latency for one in want], rel=1e-12)
        assert found.throughput == pytest.approx([one.throughput for one in want], rel=1e-12)


def test_between_the_axes_a_kernel_that_is_bound_by_one_rate_keeps_to_it() -> None:
    axes = {HBM: ["10 TB/s", "20 TB/s"], CLOCK: ["1.5 GHz", "3 GHz"]}
    found = screen(DECODE, axes).latency.reshape(2, 2)
    want = np.array(
        [
            simulate(changed(DECODE, {HBM: a, CLOCK: b, "fidelity": "roofline"})).latency
            for a in axes[HBM]
            for b in axes[CLOCK]
        ]
    ).reshape(2, 2)
    assert found == pytest.approx(want, rel=0.1)
    assert np.all(np.diff(found, axis=0) < 0)


def test_what_does_not_fit_takes_forever_and_is_on_no_front() -> None:
    capacity = "hardware.memory.hbm.capacity"
    found = screen(DECODE, {capacity: ["10 GB", "400 GB"], HBM: ["10 TB/s", "20 TB/s"]})
    assert np.isinf(found.latency).tolist() == [True, True, False, False]
    assert found.throughput[:2].tolist() == [0, 0]
    assert pareto(found.latency, [1, 1, 2, 2]).tolist() == [3]
    with pytest.raises(CapacityError):
        screen(changed(DECODE, {capacity: "10 GB"}), {HBM: ["10 TB/s"]})


def test_chosen_points_are_simulated_at_the_fidelity_of_the_base() -> None:
    found = screen(DECODE, {HBM: ["10 TB/s", "20 TB/s"], CLOCK: ["2 GHz", "2.4 GHz"]})
    (result,) = found.exactly([2])
    assert result == simulate(changed(DECODE, {HBM: "20 TB/s", CLOCK: "2 GHz"}))
    assert result.provenance.fidelity == "cohort"


@pytest.mark.parametrize(
    ("line", "axes", "said"),
    [
        ("llama-3.1-8b decode on h200", {"batch": [1, 2]}, "no number of the accelerator"),
        ("deepseek-v3 decode batch=64 ep=8 on h200", {HBM: ["5 TB/s"]}, "expert parallelism"),
        ("llama-3.1-8b train on h200", {HBM: ["5 TB/s"]}, "training"),
        ("llama-3.1-8b decode on h200", {HBM: ["5 TB"]}, "5 TB"),
        (
            "llama-3.1-8b decode on h200",
            {HBM: ["5 TB/s"], HBM.removeprefix("hardware."): ["6 TB/s"]},
            "is set twice",
        ),
    ],
)
def test_what_has_no_closed_form_is_refused(
    line: str, axes: dict[str, list[object]], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        screen(load_scenario(line), axes)


@given(st.integers(1, 4), st.lists(st.lists(st.integers(0, 4), min_size=4, max_size=4)))
def test_the_front_is_what_no_other_point_beats(goals: int, rows: list[list[int]]) -> None:
    rows = [row[:goals] for row in rows]
    want = [
        at
        for at, row in enumerate(rows)
        if not any(
            other != row and all(a <= b for a, b in zip(other, row, strict=True)) for other in rows
        )
    ]
    assert pareto(*([row[goal] for row in rows] for goal in range(goals))).tolist() == want
