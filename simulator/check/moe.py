"""A mixture-of-experts layer end to end on real numbers: route, dispatch, experts, combine.

Knows the stages of the layer and its whole reference. Never touches time. Tokens are dispatched by
gather descriptors over their rows, each expert multiplies its own rows, and the results return to
their tokens' order by index.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from simulator.check.functional import Backend, OpCheck, compare
from simulator.check.memory import Array
from simulator.check.moe_choice import Choice, choice_faults, mask, route
from simulator.check.moe_layer import MoELayer
from simulator.check.moe_reference import Known, exact_layer, logits, shares, torch_layer
from simulator.check.moe_stages import Stages
from simulator.check.reduced import default_tiling
from simulator.mapping.routers import Assignment
from simulator.mapping.tiling import Tiling
from simulator.ops.op import Arrays
from simulator.specs.hardware import DataMover


@dataclass(frozen=True, slots=True, eq=False)
class Ran:
    """What a layer made of its tokens, (tokens, hidden), and how they were routed."""

    result: Array
    choice: Choice


def run_layer(stages: Stages, assignment: Assignment | None = None) -> Ran:
    """Run the whole layer on one rank; ``assignment`` stands in for what the router chooses.

    A token's rows are added in ascending order of their experts.
    """
    x = stages.arrays["x"]
    seen = stages.logits(x)
    choice = chosen(stages, seen, assignment)
    kept = choice.kept
    # Expert order: routed rows sorted by expert, tokens in order within one.
    order = np.argsort(kept.expert, kind="stable")
    token, expert = kept.token[order] - kept.first, kept.expert[order]
    share = kept.weight[order].astype(np.float32)
    counts = tuple(kept.counts.tolist())
    rows = stages.experts(x, token, counts, np.arange(kept.experts), share)
    left = np.ones_like(share) if stages.layer.net.router.on_input else share
    routed = stages.combine(rows, token, expert, left, len(x))
    return Ran(stages.joined(x, routed), choice)


def chosen(stages: Stages, seen: Array, assignment: Assignment | None) -> Choice:
    """What the layer's router makes of its logits, or ``assignment`` in its stead."""
    if assignment is None:
        return route(stages.layer, seen, stages.arrays)
    return Choice(assignment, assignment)


def check_moe_layer(
    layer: MoELayer,
    mover: DataMover | None,
    rng: np.random.Generator,
    *,
    tiling: Tiling | None = None,
    libraries: Iterable[Backend] = ("numpy",),
    assignment: Assignment | None = None,
) -> list[OpCheck]:
    """Run a whole layer block by block once and compare it with the dense one of each library.

    A token that several experts got is read once in the bytes that are stated: its rows are
    gathered from where it lies. Differences are faults of the check; ``require_ok`` raises them.
    """
    stages = Stages(layer, layer.inputs(rng), mover, tiling)
    ran = run_layer(stages, assignment)
    return report("expert layer", stages, ran, libraries, routed=assignment is None)


def report(
    name: str,
    stages: Stages,
    ran: Ran,
    libraries: Iterable[Backend],
    *,
    routed: bool = True,
    sums: int = 0,
    faults: tuple[str, ...] = (),
) -> list[OpCheck]:
    """The checks of one run: its result, its choice of experts, and what its stages did.

    ``routed``: the layer's router chose, rather than somebody else. ``sums`` are partial sums
    that each result was added up from.
    """
    layer, arrays, choice = stages.layer, stages.arrays, ran.choice
    seen = logits(layer, arrays)
    wrong = choice_faults(layer, seen.value, seen.error, arrays, choice) if routed else ()
    gates = weighed(layer, arrays, choice) if routed else _given(choice.kept)
    whole = exact_layer(layer, arrays, gates, sums=sums)
    checks: list[OpCheck] = []
    for library in libraries:
        other = torch_layer(layer, arrays, gates.value) if library == "torch" else whole.value
        error, tolerance, off = compare(ran.result, other, whole.error)
        checks.append(
            OpCheck(
                name=name,
                kind="moe_layer",
                backend=library,
                tile=str(stages.tiling or default_tiling(layer.router(0))),
                max_error=error,
                tolerance=tolerance,
                flops_counted=stages.flops,
                flops_stated=stages.stated,
                bytes_counted=stages.counted_bytes,
                bytes_stated=stages.stated_bytes,
                bytes_moved=stages.moved,
                blocks=stages.blocks,
                descriptors=stages.descriptors,
                copies=stages.copies,
                faults=(*off, *wrong, *faults, *stages.faults()),
            )
        )
    return checks


def weighed(layer: MoELayer, arrays: Arrays, choice: Choice) -> Known:
    """Weights that the exact logits give what was chosen and kept, (tokens, experts)."""
    seen = logits(layer, arrays)
    return shares(layer, seen, mask(choice.made), mask(choice.kept), arrays)


def _given(assignment: Assignment) -> Known:
    """Weights as an assignment states them; the sums take them in fp32."""
    value = np.zeros((assignment.tokens, assignment.experts))
    value[assignment.token - assignment.first, assignment.expert] = assignment.weight
    return Known(value, np.abs(value) * 2.0**-24)
