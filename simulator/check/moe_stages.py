"""The stages of an expert layer as ranks run them: router, experts, sums of rows, shared experts.

Knows the layer, its operands and how each operator runs block by block. Never touches time, and
never decides which expert or which rank a token goes to. Mutable: it counts what its stages did.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulator.check.functional import BUCKETS, RUNS
from simulator.check.memory import Array, Memory
from simulator.check.moe_layer import MoELayer, Operators
from simulator.check.reduced import default_tiling
from simulator.mapping.tiling import Tiling
from simulator.ops.functions import sigmoid
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Arrays, Op, TensorOp
from simulator.ops.pointwise import Pointwise
from simulator.specs.hardware import DataMover

Ints = NDArray[np.int64]


@dataclass(slots=True)
class Stages:
    """Stages on the operands of one layer, and what they did, moved and stated so far."""

    layer: MoELayer
    arrays: Arrays
    mover: DataMover | None = None
    tiling: Tiling | None = None
    flops: float = 0.0
    stated: float = 0.0
    counted_bytes: float = 0.0
    stated_bytes: float = 0.0
    moved: float = 0.0
    blocks: int = 0
    descriptors: int = 0
    copies: int = 0
    twice: int = 0

    def logits(self, x: Array) -> Array:
        """Logits of every expert for these tokens, (tokens, experts)."""
        op = self.layer.router(len(x))
        operands = {"a": x[None], "b": self.arrays["router"][None]}
        if op.bias:
            operands["bias"] = self.arrays["router_bias"][None]
        logits: Array = self.stage(op, operands)[0]
        return logits

    def experts(
        self, x: Array, rows: Ints, counts: tuple[int, ...], held: Ints, share: Array
    ) -> Array:
        """Rows that leave the experts ``held``, in their order.

        Routed row i is row ``rows[i]`` of x; the first ``counts[0]`` of them belong to the first
        expert that is held. ``share`` is used where the layer weighs what enters.
        """
        if self.layer.net.router.on_input:
            places = rows[:, None]
            weigh = self.layer.rows_sum("weigh", len(rows), len(rows))
            x = self.stage(weigh, {"x": x, "rows": places, "shares": share[:, None]})
            rows = np.arange(len(rows))
        own: Arrays = {
            name: self.arrays[name][held]
            for name in ("up", "down", "up_bias", "down_bias")
            if name in self.arrays
        }
        return self._network(self.layer.routed(counts), own, x, rows)

    def combine(self, x: Array, token: Ints, order: Ints, share: Array, tokens: int) -> Array:
        """Sum of the rows of each of ``tokens`` tokens, times their shares; zero without a row.

        Row i of x belongs to ``token[i]``. A token's rows are added one by one, the row of least
        ``order`` first.
        """
        places, shares = terms(token, order, share, tokens)
        op = self.layer.rows_sum("combine", len(token), tokens)
        return self.stage(op, {"x": x, "rows": places, "shares": shares})

    def joined(self, x: Array, routed: Array) -> Array:
        """``routed`` and what the shared experts make of the same tokens."""
        layer, rows = self.layer, len(x)
        if not layer.net.shared_experts:
            return routed
        own = {"up": self.arrays["shared_up"], "down": self.arrays["shared_down"]}
        shared = self._network(layer.shared(rows), own, x, None)
        if not layer.net.shared_gate:
            join = Pointwise(
                name="join", function="add", rows=rows, cols=layer.hidden, format=layer.format
            )
            return self.stage(join, {"x": routed, "y": shared}).reshape(routed.shape)
        gate = self.stage(
            layer.shared_gate(rows), {"a": x[None], "b": self.arrays["shared_gate"][None]}
        )[0]
        both = np.stack([np.arange(rows), np.arange(rows, 2 * rows)], axis=1)
        return self.stage(
            layer.rows_sum("join", 2 * rows, rows),
            {
                "x": np.concatenate([routed, shared]),
                "rows": both,
                "shares": np.hstack([np.ones_like(gate), sigmoid(gate)]),
            },
        )

    def _network(self, operators: Operators, own: Arrays, x: Array, rows: Ints | None) -> Array:
        """One network, or one of each expert: up, function, down. The rows are gathered once."""
        halves = iter(("up", "down"))
        for op in operators:
            if isinstance(op, Pointwise):
                op = replace(op, rows=len(x))
                x = self.stage(op, {"x": x}).reshape(len(x), op.cols)
                continue
            half = next(halves)
            bias = {"bias": own[f"{half}_bias"]} if f"{half}_bias" in own else {}
            if isinstance(op, GroupedMatmul):
                places = np.arange(len(x)) if rows is None else rows
                x = self.stage(op, {"tokens": x, "rows": places, "b": own[half], **bias})
                rows = None
            elif isinstance(op, Matmul):
                x = self.stage(op, {"a": x[None], "b": own[half][None], **bias})[0]
        return x

    def stage(self, op: Op, arrays: Arrays) -> Array:
        """Run one operator on the given operands and return its result.

        A row that is named several times is read once in the bytes that are stated.
        """
        assert isinstance(op, TensorOp)
        memory = Memory(self.mover)
        tiling = self.tiling
        if tiling is None or isinstance(op, Pointwise):
            tiling = default_tiling(op)
        flops, blocks = RUNS[type(op)](op, arrays, memory, tiling)
        demand = op.demand()
        self.flops += flops
        self.stated += demand.flops
        self.counted_bytes += sum(memory.touched(bucket) for bucket in BUCKETS)
        self.stated_bytes += demand.bytes
        if "rows" in arrays:
            source = arrays["tokens" if "tokens" in arrays else "x"]
            named = arrays["rows"][arrays["rows"] < len(source)]
            again = named.size - np.unique(named).size
            self.stated_bytes -= demand.read * again / max(1, named.size)
        self.moved += memory.moved
        self.blocks += blocks
        self.descriptors += memory.descriptors
        self.copies += memory.copies
        self.twice += memory.written_twice("out")
        out = memory.operands["out"]
        return out.buffer.reshape(out.layout.shape)

    def faults(self) -> tuple[str, ...]:
        """What the stages did or moved otherwise than their operators state."""
        found = {
            f"blocks did {self.flops:.0f} FLOP, not {self.stated:.0f}": self.flops != self.stated,
            f"{self.counted_bytes:.0f} bytes moved, not {self.stated_bytes:.0f}": not math.isclose(
                self.counted_bytes, self.stated_bytes, rel_tol=1e-12
            ),
            f"{self.twice} elements were written more than once": self.twice > 0,
        }
        return tuple(text for text, wrong in found.items() if wrong)


def terms(token: Ints, order: Ints, share: Array, tokens: int) -> tuple[Ints, Array]:
    """Rows and shares of each token, (tokens, most rows of one); past the last row: none.

    >>> places, shares = terms(np.array([1, 0, 1]), np.array([2, 0, 1]), np.ones(3), 3)
    >>> places.tolist()
    [[1, 3], [2, 0], [3, 3]]
    """
    many = np.bincount(token, minlength=tokens)
    sequence = np.lexsort((order, token))
    column = np.arange(len(token)) - np.repeat(np.cumsum(many) - many, many)
    shape = (tokens, int(many.max(initial=0)))
    places, shares = np.full(shape, len(token), dtype=np.int64), np.zeros(shape, dtype=np.float32)
    places[token[sequence], column] = sequence
    shares[token[sequence], column] = share[sequence]
    return places, shares
