"""The catalogue against what was published: peaks, capacities, links, and who says so."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from simulator.specs.catalog import plain
from simulator.specs.dram import Dram
from simulator.specs.fabric import System
from simulator.specs.frozen import FrozenMap
from simulator.specs.hardware import BASES, Accelerator
from simulator.specs.load import (
    load_fit,
    load_hardware,
    load_memory,
    load_stack,
    load_system,
    names,
)
from simulator.specs.precision import FORMATS
from simulator.specs.stack import Stack

ROOT = Path(__file__).resolve().parents[2] / "hw_specs"
HARDWARE, SYSTEMS, STACKS = names("hardware"), names("systems"), names("stacks")
FILES = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.rglob("*.yaml"))]

# Dense TFLOPS as vendors print them (NVIDIA and AMD data sheets and white papers). Sparse figures
# are twice these and belong nowhere here.
PUBLISHED: dict[str, dict[str, float]] = {
    "mi210": {"bf16": 181, "fp64": 45.3, "fp32": 45.3},
    "mi250x": {"bf16": 383, "fp16": 383, "int8": 383, "fp64": 95.7},
    "mi300x": {
        "bf16": 1307.4, "fp8": 2614.9, "int8": 2614.9, "tf32": 653.7, "fp32": 163.4, "fp64": 163.4,
    },
    "mi325x": {"bf16": 1307.4, "fp8": 2614.9},
    "mi350x": {"bf16": 2307, "fp8": 4614, "fp4": 9227, "fp64": 72.1},
    "mi355x": {
        "bf16": 2516.6, "fp8": 5033, "fp6": 10066, "fp4": 10066, "int8": 5033, "fp32": 157.3,
        "fp64": 78.6,
    },
    "mi430x": {"fp64": 288},
    "mi455x": {
        "fp4": 40260, "fp6": 20130, "fp8": 20130, "bf16": 5030, "fp16": 5030, "int8": 5030,
        "fp32": 315,
    },
    "a100": {"bf16": 312, "tf32": 156, "int8": 624, "fp64": 19.5, "fp32": 19.5},
    "a100-40": {"bf16": 312},
    "a100-pcie": {"bf16": 312},
    "h100": {"bf16": 989.4, "fp8": 1979, "tf32": 494.5, "int8": 1979},
    "h100-pcie": {"bf16": 756.5, "fp8": 1513, "tf32": 378, "int8": 1513},
    "h100-nvl": {"bf16": 835.5, "fp8": 1671},
    "h800": {"bf16": 989.4},
    "h20": {"bf16": 148, "fp8": 296},
    "h200": {"bf16": 989, "fp8": 1979},
    "b200": {"bf16": 2250, "fp8": 4500, "fp4": 9000, "tf32": 1125, "int8": 4500},
    "gb200": {"bf16": 2500, "fp8": 5000, "fp4": 10000, "tf32": 1250, "int8": 5000},
    "b300": {"bf16": 2250, "fp8": 4500, "int8": 153.5, "fp64": 1.3},
    "gb300": {"bf16": 2500, "fp8": 5000, "fp4": 15000, "int8": 165, "fp64": 1.3},
    "rubin": {
        "fp4": 35000, "fp8": 17500, "bf16": 4000, "tf32": 2000, "int8": 2500, "fp32": 130,
    },
    "l40s": {"bf16": 362.05},
    "rtx-pro-6000": {"bf16": 467.8, "fp8": 935.6, "fp4": 1871},
    "l4": {"bf16": 121, "fp8": 242, "fp32": 30.3},
    "a40": {"bf16": 149.7, "int8": 299.3, "fp32": 37.4},
    "a10": {"bf16": 125, "int8": 250, "fp32": 31.2},
    "t4": {"fp16": 65, "int8": 130, "fp32": 8.1},
    "v100": {"fp16": 112, "fp32": 14},
    "p100": {"fp32": 9.3, "fp16": 18.7},
    "p4": {"fp32": 5.5, "int8": 22},
    "b60": {"bf16": 98.3, "int8": 197, "fp32": 12.28},
}  # fmt: skip

MIB = 2**20
# Total memory as nvidia-smi or rocm-smi prints it, in bytes.
USABLE = {
    "h100": 81_559 * MIB,
    "h200": 143_771 * MIB,
    "a100": 81_920 * MIB,
    "a100-40": 40_960 * MIB,
    "l40s": 46_068 * MIB,
    "l4": 23_034 * MIB,
    "gb200": 189_471 * MIB,
    "b300": 275_040 * MIB,
    "gb300": 284_208 * MIB,
    "rtx-pro-6000": 97_887 * MIB,
    "mi300x": 206_141_652_992,
}

# Matrix products as measured: AMD's max-achievable FLOPs blog, and the 99th percentile of the
# aiconfigurator tables (products above 0.2 ms), TFLOPS.
MEASURED = [
    ("mi300x", "bf16", 708),
    ("mi300x", "fp16", 654),
    ("mi300x", "fp8", 1273),
    ("mi325x", "bf16", 843),
    ("mi325x", "fp8", 1519),
    ("a100", "bf16", 285),
    ("a100", "int8", 578),
    ("h100", "bf16", 864),
    ("h200", "bf16", 868),
    ("h200", "fp8", 1529),
    ("b200", "bf16", 1811),
    ("b200", "fp8", 3096),
    ("b200", "nvfp4", 5340),
    ("gb200", "bf16", 2014),
    ("gb200", "nvfp4", 6029),
    ("rtx-pro-6000", "bf16", 438),
    ("rtx-pro-6000", "fp8", 808),
    ("mi355x", "bf16", 1565),
    ("mi455x", "mxfp4", 20_000),
]

# Accelerators as published latency tables call them.
PUBLISHED_NAMES = [
    "a100_sxm", "a100_pcie", "a100_pcie_40g", "a100_pair", "a40", "a40_pair", "b200_sxm",
    "b300_sxm", "b60", "gb200", "gb300", "h100_sxm", "h100_pair", "h200_sxm", "l4", "l40s", "mi210",
    "mi300x", "mi308x", "mi325x", "mi350x", "mi355x", "p100", "p4", "rtx_pro_6000_server", "t4",
    "v100_pcie",
]  # fmt: skip

BITS_PER_STACK = {"hbm3": 1024, "hbm3e": 1024, "hbm4": 2048, "hbm4e": 2048}


@lru_cache
def accelerators() -> dict[str, Accelerator]:
    return {name: load_hardware(name) for name in HARDWARE}


@lru_cache
def stacks() -> dict[str, Stack]:
    return {name: load_stack(name) for name in STACKS}


@lru_cache
def memories() -> dict[str, Dram]:
    return {name: load_memory(name) for name in names("memories")}


@lru_cache
def systems() -> dict[str, System]:
    return {name: load_system(name) for name in SYSTEMS}


def stack_of(device: Accelerator) -> Stack:
    return next(stack for stack in stacks().values() if device.architecture in stack.architectures)


def numbers(value: Any, path: str = "") -> set[str]:
    """Paths of the numbers that a spec holds and that are not its class's defaults."""
    found: set[str] = set()
    for entry in fields(value):
        inner = getattr(value, entry.name)
        here = f"{path}.{entry.name}".strip(".")
        if entry.name in ("provenance", "libraries") or inner is None or inner == entry.default:
            continue  # Which library runs is a choice; its rules cite the stack's own source.
        if is_dataclass(inner):
            found |= numbers(inner, here)
        elif isinstance(inner, FrozenMap):
            found |= {here} if isinstance(next(iter(inner), ""), int) else set()
            found |= {f"{here}.{key}" for key in inner if isinstance(key, str)}
        elif isinstance(inner, tuple) and inner and is_dataclass(inner[0]):
            for level in inner:
                found |= numbers(level, f"{here}.{level.kind}")
        elif (isinstance(inner, tuple) and inner and not isinstance(inner[0], str)) or (
            isinstance(inner, int | float) and not isinstance(inner, bool)
        ):
            found.add(here)
    return found


@pytest.mark.parametrize("name", HARDWARE)
def test_a_file_is_named_as_its_accelerator(name: str) -> None:
    device = accelerators()[name]
    assert device.name == name
    assert {plain(alias) for alias in device.aliases}.isdisjoint({name})


@pytest.mark.parametrize("name", [*STACKS, *SYSTEMS])
def test_a_stack_or_system_is_named_as_its_file(name: str) -> None:
    spec = stacks()[name] if name in STACKS else systems()[name]
    assert spec.name == name
    assert spec.description


@pytest.mark.parametrize("spec", FILES)
def test_every_number_has_a_source_and_a_basis(spec: str) -> None:
    name = Path(spec).stem
    if Path(spec).parent.name == "fits":
        fit = load_fit(name)
        assert {entry.source for entry in fit.provenance} == {fit.data}
        assert fit.date > "2026"
        assert fit.rows > 0
        return
    loaders: dict[str, Any] = {
        "memories": memories,
        "stacks": stacks,
        "systems": systems,
        "": accelerators,
    }
    loaded = loaders[Path(spec).parent.name]()[name]
    cited = {entry.path: entry for entry in loaded.provenance}
    assert numbers(loaded) <= cited.keys()
    for entry in cited.values():
        assert entry.basis in BASES
        assert len(entry.source) > 5, f"{entry.path} cites {entry.source!r}"


@pytest.mark.parametrize("spec", FILES)
def test_every_source_of_a_file_is_used(spec: str) -> None:
    text = (ROOT / spec).read_text()
    listed = re.search(r"^sources:\n((?:  .*\n)+)", text, re.M)
    keys = re.findall(r"^  (\S+): ", listed[1], re.M) if listed else []
    users = text + "".join(
        path.read_text()
        for path in ROOT.rglob("*.yaml")
        if re.search(rf"^base: {Path(spec).stem}$", path.read_text(), re.M)
    )
    cites = " ".join(re.findall(r"source: (\[[^\]]*\]|[^\s,}]+)", users))
    unused = [key for key in keys if key not in re.findall(r"[\w-]+", cites)]
    assert not unused
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("name", PUBLISHED)
def test_units_times_clock_times_rate_is_the_published_dense_peak(name: str) -> None:
    device = accelerators()[name]
    for number_format, tflops in PUBLISHED[name].items():
        assert device.peak(number_format) == pytest.approx(tflops * 1e12, rel=0.01), number_format


@pytest.mark.parametrize(("name", "number_format", "tflops"), MEASURED)
def test_rate_at_the_held_clock_times_efficiency_is_what_was_measured(
    name: str, number_format: str, tflops: float
) -> None:
    device = accelerators()[name]
    compute, kept = device.compute, stack_of(device).matmul.efficiency
    rate = compute.matrix[FORMATS[number_format].compute or number_format]
    reached = rate * compute.units * (compute.held_clock or compute.clock) * kept[number_format]
    assert reached == pytest.approx(tflops * 1e12, rel=0.03)


@pytest.mark.parametrize(("name", "number_format", "tflops"), MEASURED)
def test_the_cache_feeds_the_widest_tile_as_fast_as_was_measured(
    name: str, number_format: str, tflops: float
) -> None:
    device, wanted = accelerators()[name], FORMATS[number_format]
    l2 = device.level("l2")
    assert l2 is not None
    count = device.compute.dies if l2.scope == "die" else 1
    feed = count * (l2.bandwidth or (l2.per_clock or 0) * device.compute.clock)
    intensity = max(2 * m * n / (m + n) for m, n, _ in stack_of(device).matmul.tiles)
    assert feed * intensity / (wanted.bits / 8) > tflops * 1e12


@pytest.mark.parametrize("name", USABLE)
def test_capacity_is_what_the_driver_shows(name: str) -> None:
    assert accelerators()[name].dram.capacity == USABLE[name]


def test_80_gb_of_h100_are_neither_80e9_bytes_nor_80_gib() -> None:
    capacity = accelerators()["h100"].dram.capacity
    assert capacity == pytest.approx(85.52e9, rel=1e-4)
    assert capacity / 2**30 == pytest.approx(79.65, rel=1e-4)


@pytest.mark.parametrize("name", HARDWARE)
def test_pins_times_their_rate_are_the_bandwidth(name: str) -> None:
    dram = accelerators()[name].dram
    if dram.pin_rate is None or dram.stacks is None:
        return
    pins = dram.stacks * BITS_PER_STACK[dram.kind]
    assert dram.bandwidth == pytest.approx(pins * dram.pin_rate / 8, rel=0.025)


@pytest.mark.parametrize("name", HARDWARE)
def test_memory_grows_and_slows_with_distance(name: str) -> None:
    device = accelerators()[name]
    l2, dram = device.level("l2"), device.dram
    assert l2 is not None
    count = {"device": 1, "die": device.compute.dies, "unit": device.compute.units}[l2.scope]
    assert l2.capacity * count < dram.capacity
    if l2.per_clock:
        assert dram.bandwidth is not None
        assert l2.per_clock * count * device.compute.clock > dram.bandwidth


@pytest.mark.parametrize("name", HARDWARE)
def test_formats_are_known_and_fewer_bits_are_never_slower(name: str) -> None:
    compute = accelerators()[name].compute
    assert set(compute.matrix) | set(compute.vector) <= set(FORMATS)
    for wide, narrow in [("bf16", "fp8"), ("fp8", "fp4"), ("tf32", "bf16")]:
        if wide in compute.matrix and narrow in compute.matrix:
            assert compute.matrix[wide] <= compute.matrix[narrow]
    assert all(ratio == 2 for ratio in compute.sparsity.values())


def test_names_and_aliases_are_unique() -> None:
    shared = Counter(plain(name) for name in HARDWARE)
    shared.update(plain(alias) for device in accelerators().values() for alias in device.aliases)
    assert [name for name, count in shared.items() if count > 1] == []


@pytest.mark.parametrize("name", PUBLISHED_NAMES)
def test_names_of_published_tables_are_accepted(name: str) -> None:
    assert load_hardware(name).compute.units > 0


def test_every_architecture_has_exactly_one_default_stack() -> None:
    claimed = Counter(entry for stack in stacks().values() for entry in stack.architectures)
    assert {device.architecture for device in accelerators().values()} <= set(claimed)
    assert [entry for entry, count in claimed.items() if count > 1] == []


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_has_narrow_and_wide_tiles_and_loses_something(name: str) -> None:
    stack = stacks()[name]
    tiles = stack.matmul.tiles
    assert len(set(tiles)) == len(tiles) >= 6
    assert min(m for m, _, _ in tiles) <= 64
    assert max(m * n for m, n, _ in tiles) >= 128 * 128
    assert max(m * n for m, n, _ in tiles) <= 256 * 256
    assert stack.matmul.split_k[0] == 1
    for kept in [*stack.matmul.efficiency.values(), *stack.attention.efficiency.values()]:
        assert 0 < kept < 1
    assert set(stack.matmul.efficiency) - {"default"} <= set(FORMATS)
    assert 0 < stack.bandwidth < 1


@pytest.mark.parametrize("name", STACKS)
def test_an_accumulator_tile_fits_the_unit_that_the_stack_is_for(name: str) -> None:
    widest = max(m * n for m, n, _ in stacks()[name].matmul.tiles)
    for device in accelerators().values():
        registers = device.level("registers")
        if device.architecture in stacks()[name].architectures and registers is not None:
            assert widest * 4 <= registers.capacity


def test_mi455x_is_what_amd_launched() -> None:
    device = accelerators()["mi455x"]
    assert (device.compute.units, device.compute.unit, device.compute.dies) == (256, "WGP", 8)
    assert device.architecture == "gfx1250"
    assert (device.dram.kind, device.dram.stacks) == ("hbm4", 12)
    assert device.dram.capacity == 432e9
    assert device.dram.bandwidth == 23.3e12
    assert device.dram.achieved == 0.86
    assert device.transistors == 320e9
    assert device.scale_up is not None
    assert device.scale_up.bandwidth == 72 * 200e9 / 8


def test_the_variants_of_mi455x_differ_in_bandwidth() -> None:
    bandwidth = {
        name: accelerators()[name].dram.bandwidth
        for name in ("mi455x-article", "mi455x-prelaunch", "mi455x")
    }
    assert list(bandwidth.values()) == [6.4e12, 19.6e12, 23.3e12]
    basis = {entry.path: entry.basis for entry in accelerators()["mi455x-prelaunch"].provenance}
    assert basis["memory.hbm4.bandwidth"] == "vendor"
    assert basis["memory.hbm4.capacity"] == "datasheet"


@pytest.mark.parametrize("name", HARDWARE)
def test_articles_and_projections_never_pass_as_vendor_data(name: str) -> None:
    device = accelerators()[name]
    if device.status in ("article", "projection"):
        assert {entry.basis for entry in device.provenance} <= {"derived", "estimated", "assumed"}
    else:
        assert not re.search("article|-low|-mid|-high", name)


def test_projections_rise_from_low_to_high_and_stay_below_the_claim() -> None:
    low, mid, high = (accelerators()[f"mi500x-{level}"] for level in ("low", "mid", "high"))
    now = accelerators()["mi455x"]
    for slower, faster in [(now, low), (low, mid), (mid, high)]:
        assert (slower.peak("fp8") or 0) < (faster.peak("fp8") or 0)
        assert (slower.dram.bandwidth or 0) < (faster.dram.bandwidth or 0)
    # "Up to 1000x MI300X" compares systems and formats, not devices.
    assert (high.peak("fp4") or 0) < 100 * (accelerators()["mi300x"].peak("fp8") or 0)


def test_h20_is_capped_far_below_its_silicon() -> None:
    h20, h100 = accelerators()["h20"], accelerators()["h100"]
    silicon = h20.compute.units * h20.compute.clock * h100.compute.matrix["bf16"]
    assert (h20.peak("bf16") or 0) < 0.3 * silicon
    assert (h20.peak("bf16") or 0) < (accelerators()["h200"].peak("bf16") or 0) / 6


def test_links_are_per_direction() -> None:
    per_direction = {
        "a100": 300e9, "h100": 450e9, "h200": 450e9, "h800": 200e9, "h20": 450e9, "b200": 900e9,
        "gb200": 900e9, "rubin": 1.8e12, "mi300x": 7 * 64e9, "mi355x": 7 * 76.8e9, "mi455x": 1.8e12,
        "l40s": 32e9, "a100-pair": 300e9, "h100-pair": 300e9,
    }  # fmt: skip
    for name, bandwidth in per_direction.items():
        link = accelerators()[name].scale_up
        assert link is not None
        assert link.bandwidth == bandwidth, name


def test_gather_is_what_each_generation_can() -> None:
    rows = {
        name: dict(mover.gather_rows) if (mover := accelerators()[name].data_mover) else None
        for name in ("mi300x", "mi355x", "a100", "h100", "b200", "rtx-pro-6000", "mi455x")
    }
    assert rows["mi300x"] is rows["mi355x"] is rows["a100"] is None
    assert rows["h100"] == rows["rtx-pro-6000"] == {}
    assert rows["b200"] == {32: 4}
    assert rows["mi455x"] == {16: 16, 32: 8}


def test_every_accelerator_of_a_system_exists_and_has_one_home() -> None:
    homes = Counter(entry for system in systems().values() for entry in system.accelerators)
    assert set(homes) <= set(HARDWARE)
    assert [entry for entry, count in homes.items() if count > 1] == []


@pytest.mark.parametrize("name", SYSTEMS)
def test_members_of_a_system_have_the_link_that_its_topology_needs(name: str) -> None:
    system = systems()[name]
    for entry in system.accelerators:
        link = system.scale_up.link or accelerators()[entry].scale_up
        assert link is not None
        assert (link.kind == "pcie") == (system.scale_up.topology == "pcie"), entry


def test_helios_loses_a_twelfth_with_a_switch_and_sums_to_its_brochure() -> None:
    system, device = systems()["helios-72"], accelerators()["mi455x"]
    assert device.scale_up is not None
    assert system.nic is not None
    assert system.scale_up.planes == 12
    total = system.scale_up.devices
    assert total * device.dram.capacity == pytest.approx(31e12, rel=0.01)
    assert total * (device.dram.bandwidth or 0) == pytest.approx(1.68e15, rel=0.01)
    assert total * (device.peak("fp4") or 0) == pytest.approx(2.9e18, rel=0.01)
    assert total * 2 * device.scale_up.bandwidth == pytest.approx(260e12, rel=0.01)
    scale_out = total * 2 * (system.nics_per_accelerator or 0) * system.nic.bandwidth
    assert scale_out == pytest.approx(43e12, rel=0.01)


def test_vera_rubin_sums_to_its_page() -> None:
    system, device = systems()["vera-rubin-nvl72"], accelerators()["rubin"]
    assert device.scale_up is not None
    assert system.nic is not None
    total = system.scale_up.devices
    assert total * device.dram.capacity == pytest.approx(20.7e12, rel=0.01)
    assert total * (device.dram.bandwidth or 0) == pytest.approx(1580e12, rel=0.01)
    assert total * (device.peak("fp4") or 0) == pytest.approx(2520e15, rel=0.01)
    assert total * 2 * device.scale_up.bandwidth == pytest.approx(260e12, rel=0.01)
    assert total * 2 * system.nic.bandwidth == pytest.approx(28.8e12, rel=0.01)
