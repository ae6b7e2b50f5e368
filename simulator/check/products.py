"""Matrix products and convolutions, block by block on real numbers.

Knows operators, blocks and a memory under test. Never touches costs or time. Each function
returns the multiply-adds that it did, twice, and the blocks that it went through.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.check.memory import Array, Memory
from simulator.mapping.blocks import Block, concatenate, decompose
from simulator.mapping.tiling import Tiling
from simulator.ops.conv import Conv2d
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Arrays
from simulator.ops.rounding import round_to
from simulator.specs.precision import number_format

Ran = tuple[float, int]
"""(FLOP, blocks) of one run."""


def precision(*formats: str) -> np.dtype[np.floating]:
    """What matrix units accumulate in: fp32, fp64 for fp64 operands."""
    return np.dtype(np.float64 if "fp64" in formats else np.float32)


def rounded(tile: Array, name: str) -> Array:
    """A tile of the result in its format; formats with scales are left to a quantise operator."""
    return tile if number_format(name).block > 1 else round_to(tile, name).astype(tile.dtype)


def shares(k: int, tiling: Tiling) -> list[tuple[int, int]]:
    """(start, stop) of each part of a split K, in whole steps of the inner loop."""
    share = -(-k // tiling.split)
    step = -(-share // tiling.depth) * tiling.depth
    return [(start, min(start + step, k)) for start in range(0, k, step)]


def run_matmul(op: Matmul, arrays: Arrays, memory: Memory, tiling: Tiling) -> Ran:
    """``a @ b + bias`` in tiles of the result; parts of a split K are added at the end."""
    kind = precision(op.a, op.b)
    memory.add("a", arrays["a"], op.a, "read")
    memory.add("b", arrays["b"], op.b, "weights", turned=True)
    if op.bias:
        memory.add("bias", arrays["bias"], op.out, "weights")
    memory.result("out", (op.batch, op.m, op.n), op.out, "written", kind)
    flops, done = 0.0, 0
    tile_m, tile_n, step = tiling.rows, tiling.columns, tiling.depth
    for block in decompose((op.m, op.n), (tile_m, tile_n)):
        (row, column), (high, wide) = block.start, block.extent
        for batch in range(op.batch):
            total = np.zeros((tile_m, tile_n), dtype=kind)
            for first, last in shares(op.k, tiling):
                part = np.zeros_like(total)
                for at in range(first, last, step):
                    a = memory.load("a", (batch, row, at), (1, tile_m, step))[0]
                    b = memory.load("b", (batch, at, column), (1, step, tile_n))[0]
                    part += a @ b
                    flops += 2.0 * high * wide * (min(at + step, last) - at)
                total += part
            if op.bias:
                total += memory.load("bias", (batch, column), (1, tile_n))
            memory.store("out", (batch, row, column), rounded(total, op.out)[None])
            done += 1
    return flops, done


def run_grouped(op: GroupedMatmul, arrays: Arrays, memory: Memory, tiling: Tiling) -> Ran:
    """One product per expert: its tokens' rows are gathered by index, tile by tile."""
    kind = precision(op.a, op.b)
    memory.add("tokens", arrays["tokens"], op.a, "read")
    memory.add("b", arrays["b"], op.b, "weights", turned=True)
    if op.bias:
        memory.add("bias", arrays["bias"], op.out, "weights")
    memory.result("out", (op.rows, op.n), op.out, "written", kind)
    tile = (tiling.rows, tiling.columns)
    firsts = np.concatenate([[0], np.cumsum(op.counts)])
    flops, done = 0.0, 0
    for block in concatenate(decompose((count, op.n), tile) for count in op.counts):
        (row, column), (high, wide) = block.start, block.extent
        first = int(firsts[block.part]) + row
        places = arrays["rows"][first : first + high]
        total = np.zeros(tile, dtype=kind)
        for at in range(0, op.k, tiling.depth):
            a = memory.load("tokens", (0, at), (tiling.rows, tiling.depth), places)
            b = memory.load("b", (block.part, at, column), (1, tiling.depth, tiling.columns))[0]
            total += a @ b
            flops += 2.0 * high * wide * (min(at + tiling.depth, op.k) - at)
        if op.bias:
            total += memory.load("bias", (block.part, column), (1, tiling.columns))
        # Only this expert's rows: the next ones in memory belong to another.
        memory.store("out", (first, column), rounded(total, op.out)[:high])
        done += 1
    return flops, done


def run_conv(op: Conv2d, arrays: Arrays, memory: Memory, tiling: Tiling) -> Ran:
    """An implicit GEMM: for each tap the pixels under a tile of outputs are gathered by index."""
    kind = precision(op.a, op.b)
    pixels = (op.batch * op.height * op.width, op.in_channels)
    taps = (op.kernel**2, op.in_channels, op.n)
    memory.add("x", arrays["x"].reshape(pixels), op.a, "read")
    memory.add("b", arrays["b"].reshape(taps), op.b, "weights", turned=True)
    if op.bias:
        memory.add("bias", arrays["bias"], op.b, "weights")
    memory.result("out", (op.m, op.n), op.out, "written", kind)
    flops, done = 0.0, 0
    for block in decompose((op.m, op.n), (tiling.rows, tiling.columns)):
        column, (high, wide) = block.start[1], block.extent
        total = np.zeros((tiling.rows, tiling.columns), dtype=kind)
        for tap in range(op.kernel**2):
            places = _under(op, block, tap)
            for at in range(0, op.in_channels, tiling.depth):
                a = memory.load("x", (0, at), (tiling.rows, tiling.depth), places)
                b = memory.load("b", (tap, at, column), (1, tiling.depth, tiling.columns))[0]
                total += a @ b
                flops += 2.0 * high * wide * (min(at + tiling.depth, op.in_channels) - at)
        if op.bias:
            total += memory.load("bias", (column,), (tiling.columns,))
        memory.store("out", block.start, rounded(total, op.out))
        done += 1
    return flops, done


def _under(op: Conv2d, block: Block, tap: int) -> NDArray[np.int64]:
    """The input pixel under each output pixel of a block for one tap; -1 in the padding."""
    high, wide = op.pixels
    output = np.arange(block.start[0], block.start[0] + block.extent[0])
    image, rest = np.divmod(output, high * wide)
    row, column = np.divmod(rest, wide)
    y = row * op.stride + tap // op.kernel - op.padding
    x = column * op.stride + tap % op.kernel - op.padding
    inside = (y >= 0) & (y < op.height) & (x >= 0) & (x < op.width)
    return np.where(inside, (image * op.height + y) * op.width + x, -1)
