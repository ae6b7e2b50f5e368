"""Pointwise operators, block by block on real numbers.

Knows the operator, blocks and a memory under test. Never touches costs or time. Functions of
single elements take flat blocks, functions of rows take whole rows, moves name rows by index, and
the group norm goes over its image once for each statistic and once to normalise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.check.memory import Memory
from simulator.check.products import Ran, precision, rounded
from simulator.mapping.blocks import TileBlocks, decompose
from simulator.mapping.tiling import Tiling
from simulator.ops.functions import CHOSEN, EPSILON, FUNCTIONS, groups, silu
from simulator.ops.op import Arrays
from simulator.ops.pointwise import GATED, Pointwise
from simulator.ops.rounding import quantise

Kind = np.dtype[Any]
FLAT = frozenset({"relu2", "gelu", "silu", "add"})


def run_pointwise(op: Pointwise, arrays: Arrays, memory: Memory, tiling: Tiling) -> Ran:
    """The function over blocks of ``tiling.rows`` elements; no multiply-adds."""
    kind = precision(op.format)
    for name, array in arrays.items():
        if name in ("x", "y"):
            memory.add(name, array.reshape(-1) if op.function in FLAT else array, op.format, "read")
        elif name in ("scale", "shift"):
            memory.add(name, array, op.format, "weights")
    run = {
        "group_norm_silu": _group_norm,
        "gather": _moves,
        "cache_write": _moves,
        "weighted_sum": _weighted_sum,
    }.get(op.function, _flat if op.function in FLAT else _rows)
    return 0.0, run(op, arrays, memory, tiling, kind)


def _flat(op: Pointwise, arrays: Arrays, memory: Memory, tiling: Tiling, kind: Kind) -> int:
    memory.result("out", (op.rows * op.cols,), op.result, "written", kind)
    blocks = decompose((op.rows * op.cols,), (tiling.rows,))
    for block in blocks:
        tiles = {name: memory.load(name, block.start, blocks.block) for name in arrays}
        memory.store("out", block.start, rounded(FUNCTIONS[op.function](tiles), op.result))
    return blocks.count


def _rows(op: Pointwise, arrays: Arrays, memory: Memory, tiling: Tiling, kind: Kind) -> int:
    blocks = _whole_rows(op.rows, arrays["x"].shape[1], tiling)
    high = blocks.block[0]
    if op.function == "top_k":
        memory.result("out", (op.rows, min(CHOSEN, op.cols)), "fp32", "table", kind)
    else:
        parts = 2 if op.function == "add_rms_norm" else 1
        memory.result("out", (parts, op.rows, op.cols), op.result, "written", kind)
    for block in blocks:
        row = block.start[0]
        tiles: Arrays = {
            name: memory.load(name, (0,), (op.cols,))
            for name in ("scale", "shift")
            if name in arrays
        }
        for name in ("x", "y"):
            if name in arrays:
                halves = (0, op.cols) if op.function in GATED else (0,)
                tiles[name] = np.hstack(
                    [memory.load(name, (row, at), (high, op.cols)) for at in halves]
                )
        tiles["position"] = np.arange(row, row + high)
        result = FUNCTIONS[op.function](tiles)
        if op.function == "top_k":
            memory.store("out", (row, 0), result.astype(kind))
            continue
        if op.function == "quantise":  # With its scales, which one more rounding has not.
            memory.store("out", (0, row, 0), quantise(result, op.result)[None])
            continue
        for part, tile in enumerate(result if result.ndim == 3 else [result]):
            memory.store("out", (part, row, 0), rounded(tile, op.result)[None])
    return blocks.count


def _moves(op: Pointwise, arrays: Arrays, memory: Memory, tiling: Tiling, kind: Kind) -> int:
    """Rows by index: read from there (gather) or written to there (cache_write)."""
    scatter = op.function == "cache_write"
    shape = (op.rows, op.cols)
    memory.result("out", shape, op.result, "kv_written" if scatter else "written", kind)
    blocks = _whole_rows(*shape, tiling)
    box = blocks.block
    for block in blocks:
        places = arrays["rows"][block.start[0] :][: block.extent[0]]
        tile = memory.load("x", block.start, box, None if scatter else places)
        tile = quantise(tile, op.result).astype(kind)
        memory.store("out", block.start, tile, places if scatter else None)
    return blocks.count


def _weighted_sum(op: Pointwise, arrays: Arrays, memory: Memory, tiling: Tiling, kind: Kind) -> int:
    """Each term of the rows of a block is gathered by index; a row past the last is zero."""
    places, shares = arrays["rows"], arrays["shares"].astype(kind)
    memory.result("out", (len(places), op.cols), op.result, "written", kind)
    blocks = _whole_rows(len(places), op.cols, tiling)
    for block in blocks:
        mine = slice(block.start[0], block.start[0] + block.extent[0])
        total = np.zeros(blocks.block, dtype=kind)
        for term in range(places.shape[1]):
            rows = memory.load("x", (0, 0), blocks.block, places[mine, term])
            total[: block.extent[0]] += rows[: block.extent[0]] * shares[mine, term, None]
        memory.store("out", block.start, rounded(total, op.result))
    return blocks.count


def _group_norm(op: Pointwise, arrays: Arrays, memory: Memory, tiling: Tiling, kind: Kind) -> int:
    """Mean, then variance, then the result: three passes over the blocks of a group."""
    memory.result("out", (op.rows, op.cols), op.result, "written", kind)
    wide = op.cols // groups(op.cols)
    blocks = decompose((op.rows, op.cols), (max(1, tiling.rows // wide), wide), (1, 0))
    high = blocks.block[0]
    for column in range(0, op.cols, wide):
        mean = variance = kind.type(0)
        for row in range(0, op.rows, high):
            mean += memory.load("x", (row, column), blocks.block).sum() / (op.rows * wide)
        for row in range(0, op.rows, high):
            tile = memory.load("x", (row, column), blocks.block)[: op.rows - row] - mean
            variance += (tile * tile).sum() / (op.rows * wide)
        for row in range(0, op.rows, high):
            tile = memory.load("x", (row, column), blocks.block) - mean
            tile = tile / np.sqrt(variance + EPSILON)
            if "scale" in arrays:
                tile = tile * memory.load("scale", (column,), (wide,))
            if "shift" in arrays:
                tile = tile + memory.load("shift", (column,), (wide,))
            memory.store("out", (row, column), rounded(silu(tile), op.result))
    return blocks.count


def _whole_rows(rows: int, cols: int, tiling: Tiling) -> TileBlocks:
    """Blocks of whole rows, about as many elements each as the tiling asks for."""
    return decompose((rows, cols), (max(1, tiling.rows // cols), cols))
