"""The blocks of a latent-diffusion U-Net in order, their weights, and FLOPs of one step.

Knows the wiring of SDXL-like networks (arXiv 2307.01952; block layout as in the diffusers
UNet2DConditionModel). Never touches hardware, batches or time. One step is one pass over one
latent image; classifier-free guidance runs it twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simulator.models.weights import Weight
from simulator.specs.workload import UNet
from simulator.units import Flops

CONTEXT = "context"
"""Weights of this name multiply the text embedding, not the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A 3 x 3 convolution with bias; ``size`` is the height and width of its output."""

    name: str
    inputs: int
    outputs: int
    size: int
    stride: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """Norm, convolution, time projection, norm, convolution; a 1 x 1 shortcut if widths differ."""

    name: str
    inputs: int
    outputs: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attend:
    """``depth`` transformer blocks: self-attention, cross-attention, gated feed-forward of 4c."""

    name: str
    channels: int
    depth: int
    size: int


Block = Convolution | Residual | Attend


def blocks(model: UNet) -> Iterator[Block]:
    """Every convolution, residual block and transformer of one pass, in order.

    Down: each stage's blocks, then a stride-2 convolution except after the last. Up: one residual
    block more per stage, each fed the concatenated skip of the way down, then an up-convolution.
    """
    stages, size = model.stages, model.latent
    width = stages[0].channels
    yield Convolution(name="in", inputs=model.in_channels, outputs=width, size=size)
    skips = [width]
    for index, stage in enumerate(stages):
        for block in range(stage.residual_blocks):
            name = f"down{index}.{block}"
            yield Residual(name=name, inputs=width, outputs=stage.channels, size=size)
            width = stage.channels
            if stage.transformer_depth:
                depth = stage.transformer_depth
                yield Attend(name=name, channels=width, depth=depth, size=size)
            skips.append(width)
        if index < len(stages) - 1:
            size = -(-size // 2)
            name = f"down{index}"
            yield Convolution(name=name, inputs=width, outputs=width, size=size, stride=2)
            skips.append(width)
    yield Residual(name="middle.0", inputs=width, outputs=width, size=size)
    if model.middle_transformer_depth:
        depth = model.middle_transformer_depth
        yield Attend(name="middle", channels=width, depth=depth, size=size)
    yield Residual(name="middle.1", inputs=width, outputs=width, size=size)
    for index, stage in reversed(list(enumerate(stages))):
        for block in range(stage.residual_blocks + 1):
            name = f"up{index}.{block}"
            inputs = width + skips.pop()
            yield Residual(name=name, inputs=inputs, outputs=stage.channels, size=size)
            width = stage.channels
            if stage.transformer_depth:
                depth = stage.transformer_depth
                yield Attend(name=name, channels=width, depth=depth, size=size)
        if index:
            size = -(-model.latent // 2 ** (index - 1))
            yield Convolution(name=f"up{index}", inputs=width, outputs=width, size=size)
    yield Convolution(name="out", inputs=width, outputs=model.out_channels, size=size)


def unet_weights(model: UNet) -> Iterator[Weight]:
    """Every weight of the network, block by block."""
    first, wide = model.stages[0].channels, model.time_embedding
    yield from _linear("time", first, wide)
    yield from _linear("time", wide, wide)
    if model.added_embedding:
        yield from _linear("added", model.added_embedding, wide)
        yield from _linear("added", wide, wide)
    for block in blocks(model):
        yield from block_weights(model, block)
    yield _norm(first)


def block_weights(model: UNet, block: Block) -> Iterator[Weight]:
    """Weights of one block. Matrices are (outputs, inputs x kernel area)."""
    if isinstance(block, Convolution):
        yield from _convolution(block.inputs, block.outputs, 9)
    elif isinstance(block, Residual):
        yield _norm(block.inputs)
        yield from _convolution(block.inputs, block.outputs, 9)
        yield from _linear("time", model.time_embedding, block.outputs)
        yield _norm(block.outputs)
        yield from _convolution(block.outputs, block.outputs, 9)
        if block.inputs != block.outputs:
            yield from _convolution(block.inputs, block.outputs, 1)
    else:
        width, text = block.channels, model.context_dim
        yield _norm(width)
        yield from _linear("project", width, width)
        for _ in range(block.depth):
            yield Weight(name="self", part="attention", rows=width, columns=width, count=3)
            yield from _linear("out", width, width)
            yield Weight(name="cross", part="attention", rows=width, columns=width)
            yield Weight(name=CONTEXT, part="attention", rows=width, columns=text, count=2)
            yield from _linear("out", width, width)
            yield Weight(name="up", part="ffn", rows=8 * width, columns=width)
            yield Weight(name="down", part="ffn", rows=width, columns=4 * width)
            yield _vector("ffn bias", 9 * width)
            yield _norm(3 * width)
        yield from _linear("project", width, width)


def unet_flops(model: UNet) -> Flops:
    """FLOPs of one pass over one latent image: convolutions, projections and both attentions.

    Two per multiply-add; norms, activations, softmax and the time embedding's own two layers are
    left out.
    """
    total = 0.0
    for block in blocks(model):
        pixels = block.size * block.size
        for weight in block_weights(model, block):
            if weight.multiplied:
                if weight.name == CONTEXT:
                    positions = model.context_tokens
                else:
                    positions = 1 if weight.name == "time" else pixels
                total += 2.0 * weight.elements * positions
        if isinstance(block, Attend):
            keys = pixels + model.context_tokens
            total += block.depth * 4.0 * pixels * keys * block.channels
    return total


def _linear(name: str, inputs: int, outputs: int) -> Iterator[Weight]:
    yield Weight(name=name, part="attention", rows=outputs, columns=inputs)
    yield _vector(f"{name} bias", outputs)


def _convolution(inputs: int, outputs: int, area: int) -> Iterator[Weight]:
    yield Weight(name="convolution", part="convolution", rows=outputs, columns=inputs * area)
    yield _vector("convolution bias", outputs)


def _norm(width: int) -> Weight:
    return _vector("norm", 2 * width)


def _vector(name: str, length: int) -> Weight:
    return Weight(name=name, part="norms", rows=length, multiplied=False)
