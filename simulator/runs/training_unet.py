"""One training step of a U-Net: every replica trains all of it on its share of the latents.

Reads the backward pass off the operators of a denoising step, and plays it as the step of a single
pipeline stage. Loss and noise are left out, as are the encoders, which training keeps frozen.
"""

from __future__ import annotations

from dataclasses import replace

from simulator.mapping.stages import Stage
from simulator.models.graph_unet import build_unet_graph
from simulator.models.training import optimizer_step
from simulator.models.training_tape import Group, LayerPass, Tape
from simulator.models.unet import unet_weights
from simulator.ops.op import GraphSegment, Op
from simulator.runs.passes import Pass
from simulator.runs.prices import Prices
from simulator.runs.training import Piece, TrainingRun, pass_of
from simulator.specs.plan import Plan
from simulator.specs.workload import UNet


class UNetRun(TrainingRun):
    """The one piece of every replica, and what a step makes of it."""

    def __init__(self, prices: Prices) -> None:
        scenario, plan = prices.scenario, prices.scenario.plan
        unet = scenario.model
        assert isinstance(unet, UNet), "a language model is cut by its layers"
        self.prices, self.plan = prices, plan
        self.wide = unet.activation_format
        self.micro_batches = scenario.batch // (plan.replicas * plan.micro_batch)
        self.gap = scenario.stack.launch.gap
        graph = build_unet_graph(replace(unet, guidance=False), plan.micro_batch)
        stage = Stage(rank=0, piece=0, start=0, layers=(), first=True, last=True)
        passes = tuple(
            (unet_segment(segment, self.wide, plan), segment.repeat) for segment in graph.segments
        )
        weights = sum(weight.elements for weight in unet_weights(unet))
        self.ranks = [[Piece(stage=stage, passes=passes, dense=weights, routed=0)]]

    def buckets(self, piece: Piece) -> int:
        """Blocks, whose gradients are reduced as they are done."""
        return sum(count for _, count in piece.passes)

    def update(self, pieces: list[Piece]) -> tuple[Op, ...]:
        """The optimizer step of one replica."""
        return optimizer_step(sum(piece.dense for piece in pieces), self.plan)


def unet_segment(segment: GraphSegment, wide: str, plan: Plan) -> LayerPass:
    """Forward and backward of one block; full recomputation runs its forward pass again."""
    tape = Tape(Group(ranks=1, sequence_parallel=False), wide=wide, kept=plan.gradients)
    for op in segment.ops:
        tape.run(op)
    found = tape.finish()
    return replace(found, recomputed=found.forward) if plan.recompute == "full" else found


def unet_training_pass(prices: Prices) -> Pass:
    """The step of a U-Net."""
    run = UNetRun(prices)
    times = run.micro_batches * run.plan.replicas
    passes = [one for pieces in run.ranks for piece in pieces for one in piece.passes]
    flops = sum(count * done.model_flops for done, count in passes)
    hardware = sum(count * done.hardware_flops for done, count in passes)
    return pass_of(run, times * flops, times * hardware)
