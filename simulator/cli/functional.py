"""``verify``: a model's operators on real numbers, on the tiles that a device would run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from simulator.api import make_scenario
from simulator.check.functional import OpCheck, backends
from simulator.check.moe_layer import expert_layers
from simulator.check.verify import verify_model
from simulator.cli.catalogue import Table, print_table
from simulator.costs.target import Target
from simulator.models.graph import Step, build_graph
from simulator.models.graph_unet import build_unet_graph
from simulator.ops.op import OpGraph
from simulator.specs.workload import Model, Transformer

STEPS = (
    Step(batch=2, new=777, context=777),
    Step(batch=5, new=1, context=1500),
)
"""A prefill and a decode step; each operator is then reduced to a few tiles."""


def verify_workload(workload: str, on: str, seed: int) -> list[OpCheck]:
    """Check one operator of each family that a prefill and a decode step of the model launch."""
    scenario = make_scenario(workload, on, seed=seed)
    target = Target(accelerator=scenario.hardware, stack=scenario.stack)
    return verify_model(
        _graph(scenario.model),
        target,
        np.random.default_rng(seed),
        layers=expert_layers(scenario.model),
    )


def _graph(model: Model) -> OpGraph:
    if not isinstance(model, Transformer):
        return build_unet_graph(model, 1)
    graphs = [build_graph(model, step) for step in STEPS]
    return OpGraph(segments=tuple(segment for graph in graphs for segment in graph.segments))


def as_data(checks: Sequence[OpCheck]) -> list[dict[str, Any]]:
    """The checks as plain data."""
    return [asdict(check) | {"ok": check.ok} for check in checks]


def print_checks(checks: Sequence[OpCheck]) -> None:
    """A line per operator and library, then what failed."""
    rows = [
        (
            check.name,
            check.backend,
            f"{check.blocks:,}",
            f"{check.descriptors:,}",
            f"{check.flops_counted:,.0f}",
            f"{check.max_error:.1e}",
            f"{check.tolerance:.1e}",
            "ok" if check.ok else "FAILED",
        )
        for check in checks
    ]
    columns = ("operator", "vs", "blocks", "descr.", "FLOP", "error", "allowed", "")
    print_table(Table(title="blocks on real numbers", columns=columns, rows=rows))
    failed = sum(not check.ok for check in checks)
    counted = "" if failed else "; FLOP and bytes counted equal those stated"
    sys.stdout.write(f"{len(checks)} checks, {failed} failed{counted}\n")
    if "torch" not in backends():
        sys.stdout.write("torch is not installed: compared with numpy alone\n")
