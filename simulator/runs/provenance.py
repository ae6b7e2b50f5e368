"""Which numbers an answer rests on, and how far the weakest of them can be trusted."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.result import Basis, Bound
from simulator.specs.hardware import BASES
from simulator.specs.scenario import Scenario


def numbers_behind(scenario: Scenario, formats: list[str]) -> tuple[Basis, ...]:
    """The spec numbers that this run used, with their sources.

    Rates of other number formats, links, power and prices are left out: they had no say.
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
        "price.rent",
    ]
    efficiency = stack.matmul.efficiency
    of_stack = [
        "launch.gap",
        "launch.graph" if stack.mode == "graph" else "launch.host",
        "fill",
        "framework_memory",
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
    numbers.append(Basis(path=scenario.model.name, source="workload", basis=scenario.model.basis))
    return tuple(numbers)


_CACHE = ("capacity", "bandwidth", "per_clock")


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
    ("launch.", ("latency",)),
    ("fill", ("latency",)),
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
            if f".{path}" in number.path:
                return sum(shares.get(bound, 0.0) for bound in bounds)
        return 1.0 if number.source == "workload" else 0.0

    heavy = [number for number in numbers if weight(number) >= MATTERS] or list(numbers)
    return max(heavy, key=lambda number: (BASES.index(number.basis), weight(number)))
