"""Which numbers an answer rests on, and how far the weakest of them can be trusted."""

from __future__ import annotations

from simulator.result import Basis
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


def weakest(numbers: tuple[Basis, ...]) -> Basis:
    """The number of the weakest basis; the first of several."""
    return max(numbers, key=lambda number: BASES.index(number.basis))
