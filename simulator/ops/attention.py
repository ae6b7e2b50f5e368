"""Attention cores: scores, softmax and values, without the projections around them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from simulator.ops.op import Arrays, Demand, TensorOp
from simulator.ops.rounding import quantise, round_to
from simulator.specs.precision import number_format


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention(TensorOp):
    """``softmax(q k^T) v`` over ``batch`` sequences of ``kv_len`` tokens, the last ``q_len`` new.

    q is (batch, q_len, heads, head_dim), k (batch, kv_len, kv_heads, head_dim), v (batch, kv_len,
    kv_heads, v_dim). ``latent``: values are the first v_dim elements of the keys, so the cache
    holds one vector per token (absorbed MLA). Prefill has q_len > 1, decode q_len = 1. A sink is
    one more logit per head that takes its share of the softmax and has no value (gpt-oss).
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

    def __post_init__(self) -> None:
        sizes = (self.batch, self.heads, self.kv_heads, self.head_dim, self.v_dim, self.kv_len)
        self.require(min(sizes) >= 1 and self.q_len >= 0, "every size is at least 1")
        self.require(
            self.heads % self.kv_heads == 0,
            f"{self.heads} heads do not share {self.kv_heads} key-value heads evenly",
        )
        self.require(
            not self.causal or self.q_len <= self.kv_len,
            f"{self.q_len} new tokens are not among the {self.kv_len} that they attend to",
        )
        self.require(
            not self.latent or self.v_dim <= self.head_dim,
            f"latent values of {self.v_dim} elements are not part of keys of {self.head_dim}",
        )
        for span in (self.window, self.chunk):
            self.require(span is None or span >= 1, f"a window of {span} tokens sees nothing")

    @property
    def scale(self) -> float:
        """What the scores are multiplied by before the softmax: 1 / sqrt(head_dim)."""
        return 1.0 / math.sqrt(self.head_dim)

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

    def inputs(self, rng: np.random.Generator) -> Arrays:
        """q, k, v as the class has them (no v where latent) and, with sinks, sinks (heads,)."""
        keys = (self.batch, self.kv_len, self.kv_heads)
        queries = (self.batch, self.q_len, self.heads, self.head_dim)
        arrays = {
            "q": quantise(rng.standard_normal(queries), self.format),
            "k": quantise(rng.standard_normal((*keys, self.head_dim)), self.kv_format),
        }
        if not self.latent:
            arrays["v"] = quantise(rng.standard_normal((*keys, self.v_dim)), self.kv_format)
        if self.sinks:
            arrays["sinks"] = round_to(rng.standard_normal(self.heads), self.format)
        return arrays

    def mask(self) -> NDArray[np.bool_]:
        """Which keys each query sees, (q_len, kv_len)."""
        seen = np.zeros((self.q_len, self.kv_len), dtype=np.bool_)
        for query in range(self.q_len):
            start, stop = self.visible(query, 1)
            seen[query, start:stop] = True
        return seen

    def scores(self, q: NDArray[Any], k: NDArray[Any]) -> NDArray[np.float64]:
        """Scaled product of each query with each key, (batch, heads, q_len, kv_len)."""
        grouped = (self.batch, self.kv_heads, -1, self.head_dim)
        queries = q.astype(np.float64).transpose(0, 2, 1, 3).reshape(grouped)
        keys = k.astype(np.float64).transpose(0, 2, 3, 1)
        shape = (self.batch, self.heads, self.q_len, self.kv_len)
        return np.asarray(queries @ keys * self.scale).reshape(shape)

    def shares(self, arrays: Arrays) -> NDArray[np.float64]:
        """Weight of each key in each query's mean, (batch, heads, q_len, kv_len)."""
        scores = np.where(self.mask(), self.scores(arrays["q"], arrays["k"]), -np.inf)
        sinks = np.full((self.heads, 1, 1), -np.inf)
        if self.sinks:
            sinks = arrays["sinks"].astype(np.float64)[:, None, None]
        largest = np.maximum(scores.max(axis=-1, keepdims=True), sinks)
        powers = np.exp(scores - largest)
        return np.asarray(powers / (powers.sum(axis=-1, keepdims=True) + np.exp(sinks - largest)))

    def values(self, arrays: Arrays) -> NDArray[Any]:
        """What is weighed, (batch, kv_len, kv_heads, v_dim)."""
        return arrays["k"][..., : self.v_dim] if self.latent else arrays["v"]

    def weigh(self, shares: NDArray[Any], values: NDArray[Any]) -> NDArray[np.float64]:
        """Values times their shares, (batch, q_len, heads, v_dim)."""
        grouped = shares.reshape(self.batch, self.kv_heads, -1, self.kv_len)
        result = np.asarray(grouped @ values.astype(np.float64).transpose(0, 2, 1, 3))
        shape = (self.batch, self.heads, self.q_len, self.v_dim)
        return result.reshape(shape).transpose(0, 2, 1, 3)

    def reference(self, arrays: Arrays) -> NDArray[np.float64]:
        """Softmax of the whole score matrix times the values, (batch, q_len, heads, v_dim)."""
        return self.weigh(self.shares(arrays), self.values(arrays))

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
            weights=activation.bytes(self.heads) if self.sinks else 0.0,
            kv_read=kv if self.cached else 0.0,
            read=activation.bytes(rows * self.head_dim) + (0.0 if self.cached else kv),
            written=activation.bytes(rows * self.v_dim),
        )
