"""What occupies the memory of a rank that trains a U-Net, part by part, with its formula.

Knows a model, a plan and a capacity. Never touches time or links. Sizes are bytes. Replicas alone
share the work: a U-Net has no layers that other degrees cut.
"""

from __future__ import annotations

from dataclasses import replace

from simulator.mapping.activations import FP32
from simulator.mapping.training_states import ADAM, WORKING, model_states
from simulator.memory_use import MemoryPart, MemoryUse
from simulator.models.graph_unet import build_unet_graph
from simulator.models.unet import unet_weights
from simulator.ops.attention import Attention
from simulator.ops.conv import Conv2d
from simulator.ops.matmul import Matmul
from simulator.ops.op import Op
from simulator.ops.pointwise import GATED, Pointwise
from simulator.specs.plan import Plan
from simulator.specs.precision import number_format
from simulator.specs.workload import UNet
from simulator.units import Bytes


def unet_training_memory(
    model: UNet, plan: Plan, *, capacity: Bytes, framework: Bytes
) -> MemoryUse:
    """The memory of one replica with ``plan.micro_batch`` latents, one prompt each.

    Every operator keeps what its gradient reads: products their input, norms and activations
    theirs, attention its queries, keys and values. Full recompute keeps the input of each block
    and the tensors of the block under way; selective has nothing to leave out of fused attention
    but its statistics.
    """
    weights = [weight.elements for weight in unet_weights(model)]
    total, zero, group = sum(weights), plan.zero, plan.replicas
    states = model_states(total, gradients=plan.gradients, zero=zero, group=group)
    parts = [
        MemoryPart(
            name=name,
            bytes=size,
            formula=f"{total:,} weights{f' / {group}' if zero >= least and group > 1 else ''} x "
            f"{each:g} B",
        )
        for name, size, least, each in (
            ("weights", states.weights, 3, WORKING),
            ("gradients", states.gradients, 2, number_format(plan.gradients).bytes(1)),
            ("optimizer", states.optimizer, 1, ADAM),
        )
    ]
    if zero >= 2 and group > 1:
        each = 2 * WORKING if zero == 3 else WORKING
        parts.append(
            MemoryPart(
                name="gathered layer",
                bytes=each * max(weights),
                formula=f"the largest tensor: {max(weights):,} x {each:g} B",
            )
        )
    graph = build_unet_graph(replace(model, guidance=False), plan.micro_batch)
    blocks = [
        ([_kept(op, plan) for op in segment.ops], segment.repeat) for segment in graph.segments
    ]
    full = plan.recompute == "full"
    kept = sum((sizes[0] if full else sum(sizes)) * repeat for sizes, repeat in blocks)
    parts.append(
        MemoryPart(
            name="activations",
            bytes=kept,
            formula=f"{plan.micro_batch:,} latents x {kept / plan.micro_batch:,.0f} B: "
            + ("inputs of blocks" if full else "what operators keep"),
        )
    )
    if full:
        most = max(sum(sizes) for sizes, _ in blocks)
        parts.append(MemoryPart(name="recomputed block", bytes=most, formula="the largest block"))
    widest = max(size for sizes, _ in blocks for size in sizes)
    parts += [
        MemoryPart(
            name="working buffers",
            bytes=2 * widest,
            formula="gradients of the widest tensor and of what came of it",
        ),
        MemoryPart(name="runtime", bytes=framework, formula="what the stack holds"),
    ]
    return MemoryUse(parts=tuple(parts), capacity=capacity)


def _kept(op: Op, plan: Plan) -> Bytes:
    """Bytes that the gradient of one operator reads and that no other keeps."""
    if isinstance(op, Conv2d):
        if op.kernel == 1:  # a shortcut: the norm of its block keeps the same input
            return 0.0
        return number_format(op.a).bytes(op.batch * op.height * op.width * op.in_channels)
    if isinstance(op, Matmul):
        return number_format(op.a).bytes(op.batch * op.m * op.k)
    if isinstance(op, Attention):
        queries = op.q_len * op.heads * op.head_dim
        keys = op.kv_len * op.kv_heads * (op.head_dim + op.v_dim)
        statistics = 0.0 if plan.recompute == "selective" else FP32 * op.q_len * op.heads
        return op.batch * (number_format(op.format).bytes(queries + keys) + statistics)
    if isinstance(op, Pointwise) and op.function != "add":
        halves = 2 if op.function in GATED else 1
        return number_format(op.format).bytes(halves * op.rows * op.cols)
    return 0.0
