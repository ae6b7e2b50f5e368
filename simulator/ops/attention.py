"""Attention cores: scores, softmax and values, without the projections around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from simulator.ops.op import Demand, Op
from simulator.specs.precision import number_format


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(Op):
    """``softmax(q k^T) v`` over ``batch`` sequences of ``kv_len`` tokens, the last ``q_len`` new.

    q is (batch, q_len, heads, head_dim), k (batch, kv_len, kv_heads, head_dim), v (batch, kv_len,
    kv_heads, v_dim). ``latent``: values are the first v_dim elements of the keys, so the cache
    holds one vector per token (absorbed MLA). Prefill has q_len > 1, decode q_len = 1.
    """

    kind: ClassVar[str] = "attention"
    batch: int
    q_len: int
    kv_len: int
    heads: int
    kv_heads: int
    head_dim: int
    v_dim: int
    causal: bool = True
    window: int | None = None
    chunk: int | None = None
    sinks: bool = False
    latent: bool = False
    format: str = "bf16"
    kv_format: str = "bf16"
    cached: bool = True
    """Keys and values come from the KV cache; False for encoders and cross-attention."""

    def visible(self, first: int, rows: int) -> tuple[int, int]:
        """Key range [start, stop) that the queries first..first+rows-1 need together."""
        offset = self.kv_len - self.q_len
        if not self.causal:
            return 0, self.kv_len
        stop = min(self.kv_len, offset + first + rows)
        start = 0
        if self.window is not None:
            start = max(0, offset + first + 1 - self.window)
        if self.chunk is not None:
            start = max(start, (offset + first) // self.chunk * self.chunk)
        return start, stop

    def pairs(self) -> int:
        """Query-key pairs per sequence and head that enter the softmax."""
        if not self.causal:
            return self.q_len * self.kv_len
        if self.window is None and self.chunk is None:
            first = self.kv_len - self.q_len + 1
            return (first + self.kv_len) * self.q_len // 2
        total = 0
        for query in range(self.q_len):
            start, stop = self.visible(query, 1)
            total += stop - start
        return total

    def demand(self) -> Demand:
        """2 pairs (head_dim + v_dim) FLOP per head; the visible cache once per kv head."""
        start, stop = self.visible(0, self.q_len)
        pairs = float(self.batch * self.heads * self.pairs())
        per_token = self.kv_heads * (self.head_dim + (0 if self.latent else self.v_dim))
        kv = number_format(self.kv_format).bytes(self.batch * (stop - start) * per_token)
        activation = number_format(self.format)
        rows = self.batch * self.q_len * self.heads
        return Demand(
            flops=2.0 * pairs * (self.head_dim + self.v_dim),
            vector_flops=4.0 * pairs,  # maximum, exponential, sum, scale
            kv_read=kv if self.cached else 0.0,
            read=activation.bytes(rows * self.head_dim) + (0.0 if self.cached else kv),
            written=activation.bytes(rows * self.v_dim),
        )
