"""How a model is cut over devices, and how its experts are scheduled.

Knows degrees and names of policies. Never touches devices, links or time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from simulator.specs.fields import Checked, Count, Natural
from simulator.specs.hardware import Origins
from simulator.specs.precision import FormatName


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Checked):
    """A parallel plan.

    With ``ep`` ranks attention is data parallel: each rank has its share of the sequences and all
    weights but those of the routed experts, of which it has its slots.
    """

    name: str = "plan"
    ep: Count = 1
    """Expert-parallel ranks."""
    redundant_experts: Natural = 0
    """Copies of experts beyond one each, in every MoE layer."""
    placement: Literal["contiguous", "round_robin", "balanced"] = "contiguous"
    """Which rank holds which expert: in order, dealt in turn, or by the loads of the layer."""
    schedule: Literal["bulk", "pipelined", "two_batch"] = "bulk"
    """``bulk``: dispatch, experts and combine one after another. ``pipelined``: an expert starts
    when its rows have arrived. ``two_batch``: half the batch exchanges while the other computes."""
    expert_order: Literal["expert", "longest_first", "by_class"] = "expert"
    """Order of the experts in the queue of a grouped product."""
    exchange: Literal["auto", "throughput", "low_latency"] = "auto"
    """Form of dispatch and combine; ``auto``: low latency for decode, throughput for prefill."""
    dispatch: FormatName | None = None
    """Number format of rows on their way to the experts; None: that of the experts' operands."""
    combine: FormatName = "bf16"
    """Number format of rows on their way back."""
    descriptors: Literal["hardware", "article"] = "hardware"
    """How rows of an expert are gathered: as many descriptors as the mover's limits ask for, or
    one for each expert, as an article on the MI500 series reads."""
    provenance: Origins = field(default=(), compare=False)
