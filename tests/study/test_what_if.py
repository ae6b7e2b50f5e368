"""What-ifs: each point is what a run of its own gives, in the order that was asked for."""

from itertools import product

import pytest

from simulator import changed, load_scenario, simulate, what_if
from simulator.errors import CapacityError, InputError, SpecError

BASE = load_scenario("llama-3.1-8b decode batch=16 context=2048 on h200")
HBM = "hardware.memory.hbm.bandwidth"


@pytest.mark.parametrize(
    ("line", "axes"),
    [
        ("llama-3.1-8b decode batch=16 context=2048 on h200",
         {HBM: ["4 TB/s", "6 TB/s"], "batch": [1, 8],
          "hardware.price.rent": ["2 USD/h", "3 USD/h"]}),
        ("llama-3.1-70b decode batch=16 context=2048 system=hgx-8 on h200",
         {"tp": [4, 8], "hardware.scale_up.bandwidth": ["300 GB/s", "450 GB/s", "900 GB/s"]}),
        ("mixtral-8x7b decode batch=16 context=512 ep=4 on h200",
         {"hardware.scale_up.bandwidth": ["300 GB/s", "450 GB/s"],
          "plan.schedule": ["bulk", "pipelined"]}),
    ],
)  # fmt: skip
def test_each_point_is_a_run_of_its_own_the_last_path_fastest(
    line: str, axes: dict[str, list[object]]
) -> None:
    base = load_scenario(line)
    found = list(what_if(base, axes))
    rows = [dict(zip(axes, row, strict=True)) for row in product(*axes.values())]
    assert found == [simulate(changed(base, row)) for row in rows]
    assert [result.provenance.command for result in found] == [
        changed(base, row).command for row in rows
    ]


def test_a_number_set_to_what_it_is_makes_a_point_of_its_own() -> None:
    own, device = {"hardware.price.rent": [None]}, BASE.hardware
    same = {HBM: [f"{device.dram.bandwidth} B/s"], "hardware.price.rent": ["3 USD/h"]}
    for axes in (own, same, {"hardware.price.rent": ["3 USD/h"]}, own):
        (found,) = what_if(BASE, axes)
        assert found == simulate(changed(BASE, {path: values[0] for path, values in axes.items()}))


def test_zip_takes_the_first_values_together() -> None:
    found = what_if(BASE, {HBM: ["4 TB/s", "6 TB/s"], "batch": [1, 8]}, how="zip")
    assert [(result.batch, *result.provenance.overrides) for result in found] == [
        (1, f"{HBM}=4 TB/s"),
        (8, f"{HBM}=6 TB/s"),
    ]


def test_without_axes_the_base_is_the_only_point() -> None:
    assert list(what_if(BASE, {})) == [simulate(BASE)]


def test_faults_of_all_points_are_told_before_the_first_is_run() -> None:
    ran: list[int] = []
    with pytest.raises(InputError) as error:
        what_if(BASE, {HBM: ["4 TB/s", "5 TB"], "batch": [1, 0]}, told=lambda: ran.append(1))
    assert "5 TB" in str(error.value)
    assert "batch" in str(error.value)
    assert not ran


def test_a_point_that_does_not_fit_is_told_when_its_turn_comes() -> None:
    found = what_if(BASE, {"hardware.memory.hbm.capacity": ["141 GB", "10 GB"]})
    assert next(found).latency > 0
    with pytest.raises(CapacityError):
        next(found)


@pytest.mark.parametrize(
    ("axes", "how", "said"),
    [
        ({HBM: "4 TB/s"}, "grid", "write a list"),
        ({HBM: []}, "grid", "write a list"),
        ({HBM: ["4 TB/s"], "batch": [1, 2]}, "zip", "as many values"),
        ({"batch": range(1, 1 << 11), "seed": range(1 << 11)}, "grid", "points"),
    ],
)
def test_values_that_cannot_be_combined_are_refused(
    axes: dict[str, list[object]], how: str, said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        what_if(BASE, axes, how=how)  # type: ignore[arg-type]
