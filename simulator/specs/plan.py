"""How a model is cut over devices, how a step is scheduled over them, and how experts are.

Knows degrees and names of policies. Never touches devices, links or time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from simulator.specs.fields import Checked, Flag
from simulator.specs.hardware import Origins
from simulator.specs.precision import FormatName

Recipe = Literal["model", "bf16", "fp8", "mxfp8", "fp8_block", "dynamic"]
ZeroStage = Annotated[int, Field(strict=True, ge=0, le=3)]
MOST = 1 << 20
Degree = Annotated[int, Field(strict=True, ge=1, le=MOST)]
Copies = Annotated[int, Field(strict=True, ge=0, le=MOST)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Checked):
    """A parallel plan.

    Of ``devices`` = tp x cp x dp x pp, ranks of one tensor-parallel group are neighbours, then
    those of one context-parallel group, then data-parallel replicas, then pipeline stages (the
    order of Megatron-LM, so that the heaviest traffic stays on the nearest links). Experts are
    spread over ``ep`` neighbours among the tp x cp x dp ranks of a stage.

    With expert-parallel ranks attention is data parallel unless tp or cp say else: each replica
    has its share of the sequences.
    """

    name: str = "plan"
    tp: Degree = 1
    """Tensor parallel: heads, widths and vocabulary are split."""
    pp: Degree = 1
    """Pipeline stages: layers are split."""
    cp: Degree = 1
    """Context parallel: the tokens of a sequence are split."""
    dp: Degree | None = None
    """Data-parallel replicas; None: as many as ``ep`` asks for."""
    ep: Degree = 1
    """Expert-parallel ranks."""
    sequence_parallel: Flag = True
    """Norms and residuals of a tensor-parallel group are split by token in training: its
    all-reduces become reduce-scatter and all-gather."""
    virtual_stages: Degree = 1
    """Pieces of the model on each pipeline stage; above 1 the schedule is interleaved."""
    pipeline: Literal["1f1b", "zero_bubble"] = "1f1b"
    """``1f1b``: one forward, one backward (PipeDream-flush, Megatron-LM). ``zero_bubble``: the
    gradients of weights are put off to fill the bubble (ZB-H1, arXiv 2401.10241)."""
    micro_batch: Degree = 1
    """Sequences of one micro-batch."""
    zero: ZeroStage = 0
    """What replicas, and the ranks of a context-parallel group, share: 1 optimizer states, 2
    gradients too, 3 weights too (ZeRO, FSDP)."""
    recompute: Literal["none", "selective", "full"] = "none"
    """Activations that the backward pass computes again: none, those of the attention core, or
    every layer from its input (arXiv 2205.05198)."""
    gradients: FormatName = "fp32"
    """Number format in which gradients are kept and reduced."""
    recipe: Recipe = "model"
    """Number format of the products in training: that of the model's weights, one for all layers,
    or ``dynamic``: fp8 inside, bf16 for the first and last layers and the head."""
    overlap: Flag = True
    """Gradients are reduced, and weights gathered, beside the computation."""
    overlap_exchanges: Flag = False
    """A micro-batch's forward runs beside another's backward in training, so that dispatch and
    combine of each hide behind the computation of the other (Megatron-LM's
    ``--overlap-moe-expert-parallel-comm``, DualPipe of arXiv 2412.19437). One more micro-batch is
    in flight; with pp above 1 it needs virtual_stages above 1, as there."""
    redundant_experts: Copies = 0
    """Copies of experts beyond one each, in every MoE layer."""
    placement: Literal["contiguous", "round_robin", "balanced"] = "contiguous"
    """Which rank holds which expert: in order, dealt in turn, or by the loads of the layer, which
    are those of the very batch that it serves: as good as balancing can be."""
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

    @property
    def replicas(self) -> int:
        """Data-parallel replicas."""
        return self.dp if self.dp is not None else max(1, self.ep // (self.tp * self.cp))

    @property
    def merged(self) -> bool:
        """Whether forwards run beside backwards: there are exchanges, and they are to be hidden."""
        return self.overlap_exchanges and self.ep > 1

    @property
    def devices(self) -> int:
        """Devices that the plan takes."""
        return self.tp * self.cp * self.pp * self.replicas
