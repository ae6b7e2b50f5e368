"""What runs charge for dispatch and combine, beside what was published for them.

The layer is that of DeepSeek-V3: rows of 7,168, top-8 of 256 experts, FP8 with scales there and
bf16 back, random routing as the libraries' own tests draw it. Times of the low-latency form are
microseconds of one exchange. GB/s of the throughput form are what the libraries call algorithm
bandwidth: bytes of every copy of a token that is sent, those for the sender's own rank or node
included, over the time. A copy is counted once for each rank ("ranks") or, where the network is
what was published, once for each node ("nodes").

A figure is met where it lies in the 80 % interval of the answer. Figures that are not are listed
with the reason and must not be met by chance: a better model takes them off the list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from simulator import load_workload, make_scenario, predict, simulate
from simulator.check.measured import data_folder
from simulator.errors import InputError
from simulator.specs.workload import Transformer

WAYS = "dispatch", "combine"
ROW = {"dispatch": 7168 * 33 / 32, "combine": 7168 * 2.0}
ACCURACY = 0.14
"""Mean error on devices that were calibrated on."""
CALIBRATED = "h100", "b200", "gb200"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One published row; ``values`` are microseconds, or GB/s where ``per`` says of what."""

    device: str
    ranks: int
    tokens: int
    values: tuple[float, float]
    per: str = ""
    units: int = 0
    """Compute units that moved rows, where the stack's default is not what was published."""
    missed: tuple[str, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        return f"{self.device}-{self.ranks}-{self.tokens}-{self.per or 'us'}{self.units or ''}"

    @property
    def form(self) -> str:
        return "ht" if self.per else "ll"

    @property
    def settings(self) -> tuple[str, ...]:
        form = "throughput" if self.per else "low_latency"
        # Tokens went to any expert, but to four nodes at most in DeepEP's throughput form.
        groups = [] if self.per == "nodes" else ["moe.router.groups=1", "moe.router.top_groups=1"]
        units = [f"exchange_units={self.units}"] if self.units else []
        return (f"plan.exchange={form}", *groups, *units)

    def microseconds(self, way: str) -> float:
        """What was published, as the time of one exchange."""
        value = self.values[WAYS.index(way)]
        if not self.per:
            return value
        groups = min(self.ranks // 8, 4) if self.per == "nodes" else self.ranks
        copies = groups * (1 - (1 - 1 / groups) ** 8)
        return self.tokens * copies * ROW[way] / value / 1e3


def low_latency(device: str, tokens: int, rows: dict[int, tuple[float, float]], **more: Any):
    return [
        Figure(device=device, ranks=ranks, tokens=tokens, values=values, **more)
        for ranks, values in rows.items()
    ]


def throughput(device: str, tokens: int, per: str, rows: dict[int, tuple[float, float]], **more):
    return [
        Figure(device=device, ranks=ranks, tokens=tokens, values=values, per=per, **more)
        for ranks, values in rows.items()
    ]


START = "one token is the start of the kernel, for which one number was fitted to all groups"
NODES = "a little under what the kernels reach here, or more groups than tokens are limited to"
NVLINK = "NVLink of 160 GB/s: kernels of one expert each are taken to be slower than they were"
CLOSE = "a tenth off, and the interval of measured devices is narrower than that"
STALE = "marked as stale by its publisher, and slower than the same kernels on fewer nodes"
KERNEL = "kernels of DeepEP V2: the fit is of V1, which was half as fast"
TRAYS = "one fit for groups of 4 GB200 and of 8 B200, above these and below those"
MESH = "the fit to DeepEP, after which MORI's kernels are taken, has two nodes cost more"

FIGURES = [
    # README of DeepEP V1: H800, NVLink of 160 GB/s and a 400G network card for each GPU
    *low_latency("h800", 128, {8: (77, 114)}, missed=("combine",), why=NVLINK),
    *low_latency("h800", 128, {16: (118, 195), 32: (155, 273), 64: (173, 314)}),
    *low_latency("h800", 128, {128: (192, 369), 256: (194, 360)}),
    *throughput("h800", 4096, "ranks", {8: (153, 158)}),
    *throughput("h800", 4096, "nodes", {16: (43, 43)}),
    *throughput("h800", 4096, "nodes", {32: (58, 57)}),
    *throughput("h800", 4096, "nodes", {64: (51, 50)}, missed=("dispatch",), why=NODES),
    # README of DeepEP V2
    *throughput("h100", 8192, "nodes", {16: (90, 81)}, units=12, missed=WAYS, why=KERNEL),
    *throughput("h100", 8192, "nodes", {32: (61, 61)}),
    *throughput("b200", 8192, "nodes", {16: (90, 91)}, missed=WAYS, why=KERNEL),
    *throughput("b200", 8192, "ranks", {8: (726, 740)}, units=64, missed=WAYS, why=KERNEL),
    *throughput("b200", 8192, "ranks", {8: (643, 675)}, units=24, missed=WAYS, why=KERNEL),
    # aiconfigurator-core 0.12.0: DeepEP's low-latency kernels in SGLang
    *low_latency("h100", 1, {8: (16.3, 12.2)}, missed=("dispatch",), why=START),
    *low_latency("h100", 64, {8: (27.8, 40.9)}),
    *low_latency("h100", 128, {8: (39.8, 72.4), 32: (143, 263), 64: (167, 305)}),
    *low_latency("h100", 128, {16: (102, 186)}, missed=("combine",), why=CLOSE),
    *low_latency("b200", 1, {8: (22, 22)}, missed=WAYS, why=START),
    *low_latency("b200", 128, {8: (33.0, 40.9)}),
    *low_latency("b300", 128, {8: (33.4, 42.7)}),
    *low_latency("gb200", 128, {4: (26.9, 36.2)}, missed=("dispatch",), why=TRAYS),
    *low_latency("gb300", 128, {4: (26.3, 36.6)}),
    # README of MORI; its figures for 32 MI300X are marked as stale there
    *throughput("mi300x", 4096, "ranks", {8: (307, 330), 16: (171, 219)}),
    *throughput("mi300x", 4096, "ranks", {32: (103, 91)}, missed=("combine",), why=STALE),
    *throughput("mi355x", 4096, "ranks", {8: (345, 420), 16: (179, 234), 32: (85, 110)}),
    *low_latency("mi300x", 128, {8: (35, 47), 16: (76, 122), 32: (157, 280)}),
    *low_latency("mi355x", 128, {8: (31, 36), 32: (152, 187)}),
    *low_latency("mi355x", 128, {16: (84, 108)}, missed=("combine",), why=MESH),
]


@lru_cache
def charged(figure: Figure) -> dict[str, float]:
    """Microseconds of both exchanges in a run of one layer, on the rank with most to move."""
    model = load_workload("deepseek-v3")
    assert isinstance(model, Transformer)
    layer = replace(model, groups=(replace(model.groups[1], repeat=1),))
    result = simulate(
        make_scenario(
            layer, figure.device, phase="prefill", batch=figure.ranks, input=figure.tokens,
            ep=figure.ranks, fidelity="roofline", overrides=figure.settings,
        )
    )  # fmt: skip
    return {way: op.time * 1e6 for op in result.ops for way in WAYS if op.name == f"moe.{way}"}


def interval(figure: Figure, way: str) -> tuple[float, float]:
    """Factors of the 80 % interval of such an exchange."""
    answer = predict(
        "moe_comm",
        {
            "op": [f"moe_{way}_{figure.form}"], "tokens": [figure.tokens], "hidden": [7168],
            "topk": [8], "experts": [256], "n_gpus": [figure.ranks],
            "nodes": [max(1, figure.ranks // 8)], "sms": [figure.units],
            "framework": ["operator"],
        },
        figure.device,
    )  # fmt: skip
    time = answer["latency_us"][0]
    return answer["lower_us"][0] / time, answer["upper_us"][0] / time


def each() -> Iterator[Any]:
    for figure in FIGURES:
        for way in WAYS:
            missed = way in figure.missed
            marks = [pytest.mark.xfail(reason=figure.why, strict=True)] if missed else []
            yield pytest.param(figure, way, marks=marks, id=f"{figure}-{way}")


@pytest.mark.parametrize(("figure", "way"), list(each()))
def test_a_published_figure_lies_in_the_interval_of_the_answer(figure: Figure, way: str) -> None:
    found, (lower, upper) = charged(figure)[way], interval(figure, way)
    assert found * lower <= figure.microseconds(way) <= found * upper


@pytest.mark.parametrize("device", CALIBRATED)
def test_low_latency_figures_of_calibrated_devices_are_met_on_average(device: str) -> None:
    errors = [
        charged(figure)[way] / figure.microseconds(way) - 1
        for figure in FIGURES
        for way in WAYS
        if figure.device == device and not figure.per
    ]
    assert np.abs(errors).mean() <= ACCURACY


def data() -> bool:
    try:
        data_folder()
    except InputError:
        return False
    return True


@pytest.mark.data
@pytest.mark.skipif(not data(), reason="needs the calibration data")
@pytest.mark.parametrize("form", ["ht", "ll"])
@pytest.mark.parametrize("way", WAYS)
def test_what_runs_charge_is_near_what_was_measured(way: str, form: str) -> None:
    """Runs take the operator alone, without what was learned of a framework's shapes: the mean
    over calibrated devices of the mean error."""
    import polars as pl

    names = {"h100_sxm": "h100", "h200_sxm": "h200", "b200_sxm": "b200", "gb200": "gb200"}
    table = pl.read_parquet(data_folder() / "operators.parquet").with_columns(
        pl.col(pl.Categorical).cast(pl.String)
    )
    shapes = ["op", "dtype", "tokens", "hidden", "experts", "topk", "n_gpus", "nodes", "sms"]
    means = []
    for device, name in names.items():
        rows = table.filter((pl.col("device") == device) & (pl.col("op") == f"moe_{way}_{form}"))
        asked = rows.select(shapes).with_columns(framework=pl.lit("operator"))
        found = predict("moe_comm", asked, name)["latency_us"]
        means.append(np.abs(found / rows["latency_us"].to_numpy() - 1).mean())
    assert len(means) == 4
    assert np.mean(means) <= ACCURACY
