"""A mixture-of-experts layer end to end on real numbers: route, dispatch, experts, combine.

Knows the operators of the layer and how each runs block by block. Never touches time. Tokens are
dispatched by gather descriptors over their rows, each expert multiplies its own rows, and the
results return to their tokens' order by index. The reference sends every token through every
expert and weighs with zero what the router left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.check.functional import BUCKETS, RUNS, Backend, OpCheck, compare
from simulator.check.memory import Array, Memory
from simulator.check.reduced import default_tiling
from simulator.check.tolerance import STEPS, Floats, rounded_once, roundoff
from simulator.mapping.tiling import Tiling
from simulator.ops.functions import silu
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Arrays, TensorOp
from simulator.ops.pointwise import Pointwise
from simulator.specs.hardware import DataMover


@dataclass(frozen=True, slots=True, kw_only=True)
class MoELayer:
    """A gated expert layer; softmax router, the shares of the chosen experts sum to one."""

    tokens: int
    hidden: int
    width: int
    experts: int
    top_k: int
    format: str = "bf16"
    weights: str = "bf16"

    @property
    def router(self) -> Matmul:
        """Logits of every expert in fp32."""
        return Matmul(
            name="router", m=self.tokens, n=self.experts, k=self.hidden,
            a=self.format, b=self.format, out="fp32",
        )  # fmt: skip

    def up(self, counts: tuple[int, ...]) -> GroupedMatmul:
        """Gate and value of each expert's rows."""
        return GroupedMatmul(
            name="gate_up", counts=counts, n=2 * self.width, k=self.hidden,
            a=self.format, b=self.weights, out=self.format,
        )  # fmt: skip

    def activation(self, rows: int) -> Pointwise:
        """SiLU of the gate times the value."""
        return Pointwise(
            name="act", function="silu_mul", rows=rows, cols=self.width, format=self.format
        )

    def down(self, counts: tuple[int, ...]) -> GroupedMatmul:
        """Back to the hidden size, rows still in expert order."""
        return GroupedMatmul(
            name="down", counts=counts, n=self.hidden, k=self.width,
            a=self.format, b=self.weights, out=self.format,
        )  # fmt: skip

    def combine(self, rows: int) -> Pointwise:
        """The experts' rows of each token, times their shares, in token order."""
        return Pointwise(
            name="combine", function="weighted_sum", rows=rows, cols=self.hidden,
            written_rows=self.tokens, format=self.format,
        )  # fmt: skip


@dataclass(slots=True)
class _Run:
    """The stages of a layer so far: what they did, moved and stated."""

    mover: DataMover | None
    tiling: Tiling | None
    flops: float = 0.0
    stated: float = 0.0
    counted_bytes: float = 0.0
    stated_bytes: float = 0.0
    moved: float = 0.0
    blocks: int = 0
    descriptors: int = 0
    copies: int = 0
    twice: int = 0

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

    def stage(self, op: TensorOp, arrays: Arrays) -> Array:
        """Run one operator on the given operands and return its result."""
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
        self.moved += memory.moved
        self.blocks += blocks
        self.descriptors += memory.descriptors
        self.copies += memory.copies
        self.twice += memory.written_twice("out")
        out = memory.operands["out"]
        return out.buffer.reshape(out.layout.shape)


def check_moe_layer(
    layer: MoELayer,
    mover: DataMover | None,
    rng: np.random.Generator,
    *,
    tiling: Tiling | None = None,
    libraries: Iterable[Backend] = ("numpy",),
) -> list[OpCheck]:
    """Run a whole layer block by block once and compare it with the dense one of each library.

    A token that several experts got is read once in the bytes that are stated: its rows are
    gathered from where it lies. Differences are faults of the check; ``require_ok`` raises them.
    """
    run = _Run(mover, tiling)
    router = layer.router
    routing = router.inputs(rng)
    logits = run.stage(router, routing)[0]
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, : layer.top_k]
    shares = _softmax(np.take_along_axis(logits, chosen, axis=1))
    # Expert order: routed rows sorted by expert, tokens in order within one.
    order = np.argsort(chosen, axis=None, kind="stable")
    token = order // layer.top_k
    counts = tuple(np.bincount(chosen.ravel(), minlength=layer.experts).tolist())
    x = routing["a"][0]
    up, down = layer.up(counts), layer.down(counts)
    up_weights, down_weights = up.inputs(rng)["b"], down.inputs(rng)["b"]
    hidden = run.stage(up, {"tokens": x, "rows": token, "b": up_weights})
    acted = run.stage(layer.activation(len(order)), {"x": hidden})
    rows = np.arange(len(order))
    returned = run.stage(down, {"tokens": acted[0], "rows": rows, "b": down_weights})
    places = np.empty(len(order), dtype=np.int64)
    places[order] = rows
    result = run.stage(
        layer.combine(len(order)),
        {"x": returned, "rows": places.reshape(chosen.shape), "shares": shares},
    )
    twice = len(order) - len(np.unique(token))
    run.stated_bytes -= up.demand().read * twice / max(1, up.rows)

    weights = _Weights(routing["b"][0], up_weights, down_weights)
    limit, doubt = _bound(layer, x, weights, chosen)
    checks: list[OpCheck] = []
    for library in libraries:
        whole, exact = (_torch if library == "torch" else _dense)(x, weights, chosen)
        error, tolerance, faults = compare(result, whole, limit)
        checks.append(
            OpCheck(
                name="expert layer",
                kind="moe_layer",
                backend=library,
                tile=str(tiling or default_tiling(up)),
                max_error=error,
                tolerance=tolerance,
                flops_counted=run.flops,
                flops_stated=run.stated,
                bytes_counted=run.counted_bytes,
                bytes_stated=run.stated_bytes,
                bytes_moved=run.moved,
                blocks=run.blocks,
                descriptors=run.descriptors,
                copies=run.copies,
                faults=(*faults, *_routing_faults(exact, doubt, chosen), *run.faults()),
            )
        )
    return checks


def _routing_faults(exact: Floats, error: Floats, chosen: NDArray[np.int64]) -> tuple[str, ...]:
    """Tokens whose chosen experts are not their best ones, as far as the logits can tell."""
    left = np.ones(exact.shape, dtype=np.bool_)
    np.put_along_axis(left, chosen, False, axis=1)
    least = np.where(left, np.inf, exact + error).min(axis=1)
    most = np.where(left, exact - error, -np.inf).max(axis=1)
    wrong = int((least < most).sum())
    return (f"{wrong} tokens went to experts that are not their best",) if wrong else ()


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


@dataclass(frozen=True, slots=True)
class _Weights:
    """Router (hidden, experts), gate and value (experts, hidden, 2 width), down (.., hidden)."""

    router: Array
    up: Array
    down: Array


def _gates(logits: Floats, chosen: NDArray[np.int64]) -> Floats:
    """Share of each expert in each token, zero where it was not chosen, (tokens, experts)."""
    gates = np.zeros_like(logits)
    picked = np.take_along_axis(logits, chosen, axis=1)
    np.put_along_axis(gates, chosen, _softmax(picked), axis=1)
    return gates


def _dense(x: Array, weights: _Weights, chosen: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Every token through every expert in float64, and the logits."""
    wide = x.astype(np.float64)
    logits = wide @ weights.router.astype(np.float64)
    gates = _gates(logits, chosen)
    total = np.zeros(wide.shape)
    for expert, (up, down) in enumerate(zip(weights.up, weights.down, strict=True)):
        gate, value = np.split(wide @ up.astype(np.float64), 2, axis=1)
        total += gates[:, expert, None] * (silu(gate) * value @ down.astype(np.float64))
    return total, logits


def _torch(x: Array, weights: _Weights, chosen: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The same in torch, all experts at once."""
    import torch
    from torch.nn import functional

    wide, router, up, down = (
        torch.from_numpy(np.ascontiguousarray(array)).double()
        for array in (x, weights.router, weights.up, weights.down)
    )
    logits = wide @ router
    index = torch.from_numpy(chosen)
    gates = torch.zeros_like(logits).scatter(1, index, logits.gather(1, index).softmax(dim=1))
    gate, value = torch.einsum("th,ehw->etw", wide, up).chunk(2, dim=-1)
    results = torch.bmm(functional.silu(gate) * value, down)
    return torch.einsum("te,eth->th", gates, results).numpy(), logits.numpy()


def _bound(
    layer: MoELayer, x: Array, weights: _Weights, chosen: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Largest errors of the result and of the logits, stage by stage as the blocks round.

    Each stage's error enters the next one by its slope and is rounded once more to the format.
    """
    u, wide = roundoff(layer.router), x.astype(np.float64)
    logits = wide @ weights.router.astype(np.float64)
    router = np.abs(weights.router.astype(np.float64))
    doubt = rounded_once((layer.hidden + 4) * u * (np.abs(wide) @ router), logits, "fp32")
    gates = _gates(logits, chosen)
    unsure = gates * (np.expm1(2 * doubt.max(axis=1, keepdims=True)) + (layer.top_k + STEPS) * u)
    total, terms = np.zeros(wide.shape), np.zeros(wide.shape)
    for expert, (narrow_up, narrow_down) in enumerate(zip(weights.up, weights.down, strict=True)):
        up, down = narrow_up.astype(np.float64), narrow_down.astype(np.float64)
        hidden = wide @ up
        off = (layer.hidden + 4) * u * (np.abs(wide) @ np.abs(up))
        off = rounded_once(off, hidden, layer.format)
        (gate, value), (off_gate, off_value) = (np.split(part, 2, axis=1) for part in (hidden, off))
        acted = silu(gate) * value
        # SiLU has a slope of at most 1.1 and is at most its argument.
        off = 1.1 * off_gate * (np.abs(value) + off_value) + np.abs(silu(gate)) * off_value
        off += STEPS * u * (np.abs(gate) + off_gate) * (np.abs(value) + off_value)
        off = rounded_once(off, acted, layer.format)
        returned = acted @ down
        size = np.abs(acted) + off
        off = off @ np.abs(down) + (layer.width + 4) * u * (size @ np.abs(down))
        off = rounded_once(off, returned, layer.format)
        share, slack = gates[:, expert, None], unsure[:, expert, None]
        size = np.abs(returned) + off
        total += share * off + slack * size
        terms += (share + slack) * size
    total += (layer.top_k + 2) * u * terms
    return rounded_once(total, _dense(x, weights, chosen)[0], layer.format), doubt
