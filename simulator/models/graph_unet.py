"""A latent-diffusion U-Net at one denoising step as operators in stream order.

Knows which operators image stacks launch for each block, and on which shapes. Never touches
hardware, tiles or time. Text encoders and the image decoder run once per image and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from simulator.models.unet import Attend, Block, Convolution, blocks
from simulator.ops.attention import Attention as AttentionCore
from simulator.ops.conv import Conv2d
from simulator.ops.matmul import Matmul
from simulator.ops.op import GraphSegment, Op, OpGraph
from simulator.ops.pointwise import Function, Pointwise
from simulator.specs.workload import UNet


def build_unet_graph(model: UNet, batch: int) -> OpGraph:
    """One denoising step on ``batch`` latents, doubled where guidance runs both prompts.

    Operators are named by what they do and at which resolution, so that equal shapes of different
    blocks add up in a breakdown.
    """
    images = batch * (2 if model.guidance else 1)
    segments = [GraphSegment(name="time", repeat=1, ops=tuple(_embedding(model, images)))]
    for block in blocks(model):
        segments.extend(_block(model, block, images))
    return OpGraph(segments=_merged(segments))


def _merged(segments: list[GraphSegment]) -> tuple[GraphSegment, ...]:
    """Equal neighbours as one segment that repeats."""
    merged = []
    for (name, ops), same in groupby(segments, key=lambda segment: (segment.name, segment.ops)):
        repeat = sum(segment.repeat for segment in same)
        merged.append(GraphSegment(name=name, repeat=repeat, ops=ops))
    return tuple(merged)


def _embedding(model: UNet, images: int) -> Iterator[Op]:
    wide = model.time_embedding
    sources = [("time", model.stages[0].channels)]
    if model.added_embedding:
        sources.append(("added", model.added_embedding))
    for name, width in sources:
        yield _linear(model, f"{name}.up", images, wide, width)
        yield _point(model, f"{name}.act", "silu", images, wide)
        yield _linear(model, f"{name}.down", images, wide, wide)
    if model.added_embedding:
        yield _point(model, "time.join", "add", images, wide)
    yield _point(model, "time.act", "silu", images, wide)


def _block(model: UNet, block: Block, images: int) -> Iterator[GraphSegment]:
    if isinstance(block, Attend):
        yield from _attend(model, block, images)
        return
    pixels = images * block.size**2
    if isinstance(block, Convolution):
        convolution = _conv(model, images, block.size, block.inputs, block.outputs, block.stride)
        yield GraphSegment(name="convolution", repeat=1, ops=(convolution,))
        return
    at = f"{block.size}px"
    ops: list[Op] = [
        _point(model, f"norm.{at}", "group_norm_silu", pixels, block.inputs),
        _conv(model, images, block.size, block.inputs, block.outputs),
        _linear(model, "time.project", images, block.outputs, model.time_embedding),
        _point(model, f"add.{at}", "add", pixels, block.outputs),
        _point(model, f"norm.{at}", "group_norm_silu", pixels, block.outputs),
        _conv(model, images, block.size, block.outputs, block.outputs),
    ]
    if block.inputs != block.outputs:
        ops.append(_conv(model, images, block.size, block.inputs, block.outputs, kernel=1))
    ops.append(_point(model, f"add.{at}", "add", pixels, block.outputs))
    yield GraphSegment(name="residual", repeat=1, ops=tuple(ops))


def _attend(model: UNet, block: Attend, images: int) -> Iterator[GraphSegment]:
    width, at = block.channels, f"{block.size}px"
    tokens = block.size**2
    rows = images * tokens
    project = _linear(model, f"project.{at}", rows, width, width)
    norm = _point(model, f"norm.{at}", "group_norm_silu", rows, width)
    yield GraphSegment(name="transformer in", repeat=1, ops=(norm, project))
    layer_norm = _point(model, f"layer_norm.{at}", "layer_norm", rows, width)
    add = _point(model, f"add.{at}", "add", rows, width)
    ops: tuple[Op, ...] = (
        layer_norm,
        _linear(model, f"self.qkv.{at}", rows, 3 * width, width, bias=False),
        _core(model, f"self.core.{at}", images, tokens, tokens, width),
        _linear(model, f"self.out.{at}", rows, width, width),
        add,
        layer_norm,
        _linear(model, f"cross.q.{at}", rows, width, width, bias=False),
        _linear(
            model, f"cross.kv.{at}", images * model.context_tokens, 2 * width, model.context_dim,
            bias=False,
        ),
        _core(model, f"cross.core.{at}", images, tokens, model.context_tokens, width),
        _linear(model, f"cross.out.{at}", rows, width, width),
        add,
        layer_norm,
        _linear(model, f"ffn.up.{at}", rows, 8 * width, width),
        _point(model, f"ffn.act.{at}", "gelu_mul", rows, 4 * width),
        _linear(model, f"ffn.down.{at}", rows, width, 4 * width),
        add,
    )  # fmt: skip
    yield GraphSegment(name="transformer", repeat=block.depth, ops=ops)
    yield GraphSegment(name="transformer out", repeat=1, ops=(project, add))


def _core(
    model: UNet, name: str, images: int, queries: int, keys: int, width: int
) -> AttentionCore:
    heads = width // model.head_dim
    return AttentionCore(
        name=name,
        batch=images,
        q_len=queries,
        kv_len=keys,
        heads=heads,
        kv_heads=heads,
        head_dim=model.head_dim,
        v_dim=model.head_dim,
        causal=False,
        format=model.activation_format,
        kv_format=model.activation_format,
        cached=False,
    )


def _linear(model: UNet, name: str, m: int, n: int, k: int, *, bias: bool = True) -> Matmul:
    kind = model.activation_format
    weight = model.formats.get("attention", model.formats["default"])
    return Matmul(name=name, m=m, n=n, k=k, a=kind, b=weight, out=kind, bias=bias)


def _point(model: UNet, name: str, function: Function, rows: int, cols: int) -> Pointwise:
    return Pointwise(
        name=name, function=function, rows=rows, cols=cols, format=model.activation_format
    )


def _conv(
    model: UNet,
    images: int,
    size: int,
    inputs: int,
    outputs: int,
    stride: int = 1,
    kernel: int = 3,
) -> Conv2d:
    kind = model.activation_format
    weight = model.formats.get("convolution", model.formats["default"])
    return Conv2d(
        name=f"conv{kernel}x{kernel}.{size}px",
        batch=images,
        height=size * stride,
        width=size * stride,
        in_channels=inputs,
        out_channels=outputs,
        kernel=kernel,
        stride=stride,
        a=kind,
        b=weight,
        out=kind,
    )
