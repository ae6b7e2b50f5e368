"""Which numbers an answer rests on, and how far the weakest of them can be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields

from simulator.costs.energy import BASIS, CAP_BASIS
from simulator.costs.exchange import links_of
from simulator.costs.money import basis
from simulator.costs.target import Target
from simulator.result import Basis, Bound
from simulator.specs.hardware import BASES, Price
from simulator.specs.scenario import Scenario
from simulator.tables.alone import Alone
from simulator.tables.predict import shipped_fit


def numbers_behind(
    scenario: Scenario, formats: list[str], fitted: Iterable[Alone], *, tiled: bool
) -> tuple[Basis, ...]:
    """The spec numbers and fits that this run used, with their sources.

    Rates of other number formats, and the links of a single device are left out: they had no say.
    Nor had the stack's tile library where no operator was ``tiled`` alone: fits set the time.
    """
    hardware, stack = scenario.hardware, scenario.stack
    dram = hardware.dram
    used = [
        *(f"compute.{name}" for name in ("units", "clock", "held_clock", "vector.fp32")),
        f"compute.vector.{scenario.model.activation_format}",
        "compute.exponentials",
        *(f"compute.matrix.{name}" for name in formats),
        *(f"memory.{dram.kind}.{name}" for name in ("capacity", "bandwidth", "achieved")),
        *(f"memory.{kind}.{name}" for kind in ("l2", "mall") for name in _CACHE),
        "memory.lds.per_clock",
        "compute.dies",
        "power.peak",
        "power.idle",
        *(("power.cap",) if hardware.power is not None and hardware.power.capped else ()),
        *(f"price.{name}" for name in _price(hardware.price)),
    ]
    efficiency = stack.matmul.efficiency
    of_stack = ["launch.gap", "framework_memory"]
    if scenario.phase != "train":
        of_stack.append("launch.graph" if stack.mode == "graph" else "launch.host")
    of_tiles = [
        "fill",
        "matmul.tiles",
        "matmul.split_k",
        "matmul.multicast",
        *(f"attention.{name}" for name in ("prefill_tile", "decode_tile", "min_split")),
        *(f"matmul.efficiency.{name if name in efficiency else 'default'}" for name in formats),
        *(
            f"attention.efficiency.{name if name in stack.attention.efficiency else 'default'}"
            for name in formats
        ),
    ]
    if tiled:
        of_stack += of_tiles
    if scenario.has_experts:
        deep = hardware.data_mover is not None and hardware.data_mover.depth is not None
        used += [
            entry.path
            for entry in hardware.provenance
            if entry.path.startswith("data_mover.") and (entry.path != _LATENCY or deep)
        ]
    if scenario.phase == "train":
        used.append("compute.sustained")
    if scenario.plan.ep > 1:
        of_stack.append("exchange_units")
    devices = scenario.plan.devices
    if scenario.communicates:
        ways = ["scale_up" if hardware.scale_up else "host"]
        if links_of(devices, Target(accelerator=hardware, stack=stack)).islands[0] > 1:
            ways.append("scale_out" if hardware.scale_out else "host")
        used += [f"{link}.{name}" for link in ways for name in _LINK]
    if dram.achieved is None:
        of_stack.append("bandwidth")
    numbers = [
        Basis(path=f"{name}.{entry.path}", source=entry.source, basis=entry.basis)
        for name, wanted, provenance in (
            (hardware.name, used, hardware.provenance),
            (stack.name, of_stack, stack.provenance),
        )
        for entry in provenance
        if entry.path in wanted
    ]
    numbers += sorted({_fit_behind(known) for known in fitted}, key=lambda basis: basis.path)
    if hardware.power is not None:
        if hardware.power.capped:
            numbers.append(Basis(path="clock under the cap", source=CAP_BASIS, basis="estimated"))
        numbers.append(Basis(path="energy", source=BASIS, basis="estimated"))
    price = hardware.price
    if price is not None and price.rent is None and price.purchase is not None:
        numbers.append(Basis(path="cost", source=basis(price), basis="assumed"))
    numbers.append(Basis(path=scenario.model.name, source="workload", basis=scenario.model.basis))
    return tuple(numbers)


def _price(price: Price | None) -> list[str]:
    """What of a price has a say: a rent stands for all else."""
    if price is not None and price.rent is not None:
        return ["rent"]
    return [entry.name for entry in fields(Price)]


_FAR: dict[str, str] = {"same": "measured", "sibling": "derived", "new": "estimated"}
"""How far constants of a kernel library can be trusted, by where it was measured."""


def _fit_behind(known: Alone) -> Basis:
    """The fit behind a fitted time: measured here, on a sibling, or carried to a new generation."""
    fit = shipped_fit(known.model)
    devices = fit.libraries[known.library].devices if known.library in fit.libraries else ()
    where = ", ".join(devices) or "no device"
    source = f"fit of {fit.date} to {fit.rows:,} rows; this library on {where}"
    return Basis(
        path=f"fits.{known.model}.{known.library}", source=source, basis=_FAR[known.distance]
    )


_CACHE = ("capacity", "bandwidth", "per_clock")
_LATENCY = "data_mover.latency"
"""Of a data mover whose queues hold any number: fitted times contain it, so it has no say."""
_LINK = ("kind", "bandwidth", "achieved", "latency", "peers", "shared", "topology", "lost")


MATTERS = 0.05
"""Share of the time below which what a number decides is left out of the weakest basis."""

_DECIDES: tuple[tuple[str, tuple[Bound, ...]], ...] = (
    ("compute.units", ("compute",)),
    ("compute.clock", ("compute", "cache")),
    ("compute.held_clock", ("compute",)),
    ("compute.matrix", ("compute",)),
    ("compute.vector", ("compute",)),
    ("compute.exponentials", ("compute",)),
    ("memory.l2", ("cache",)),
    ("memory.mall", ("cache",)),
    ("memory.lds", ("cache",)),
    ("memory.", ("memory",)),
    ("scale_up.", ("link",)),
    ("scale_out.", ("link",)),
    ("exchange_units", ("link",)),
    ("launch.", ("latency",)),
    ("fill", ("latency",)),
    ("fits.", ("compute", "memory", "cache", "link", "latency", "waiting")),
    ("matmul.efficiency", ("compute",)),
    ("attention.efficiency", ("compute",)),
    ("matmul.multicast", ("cache",)),
    ("matmul.", ("compute", "waiting")),
    ("attention.", ("compute", "waiting")),
    ("bandwidth", ("memory",)),
)
"""Which part of the time the numbers below a path decide; the first that fits."""


def weakest(numbers: tuple[Basis, ...], shares: Mapping[Bound, float]) -> Basis:
    """The number of the weakest basis among those that decide a part of the time that matters.

    ``shares`` is the share of the time by what binds. Of equally weak numbers the one that decides
    the largest part is named. The model's own basis always counts.
    """

    def weight(number: Basis) -> float:
        for path, bounds in _DECIDES:
            if f".{path}" in f".{number.path}":
                return sum(shares.get(bound, 0.0) for bound in bounds)
        return 1.0 if number.source == "workload" else 0.0

    heavy = [number for number in numbers if weight(number) >= MATTERS] or list(numbers)
    return max(heavy, key=lambda number: (BASES.index(number.basis), weight(number)))
