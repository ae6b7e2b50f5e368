"""The absorbed projections of latent attention: one small product per head, all heads at once.

``mla_bmm_pre`` takes queries into the latent space (n 512, k 128) and ``mla_bmm_post`` brings
outputs back (n 128, k 512); batch is the heads, m the tokens. Tiles of each head run in waves over
the units; memory is a mix of the cache and the device. Below bf16 the activations are quantised
first, unless the library widens the weights and multiplies as bf16. Knows shapes, a target and
constants. Never touches tables or a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from simulator.costs.families.model import Column, Floats, Model, Prior, Query, Terms, Values
from simulator.costs.target import Target

OWN: Mapping[str, Prior] = {
    "launch": Prior(value=4e-6, spread=0.4),  # s, gap, first fill and drain
    "matrix": Prior(value=0.8, spread=0.3, by_generation=0.15, high=1.3),  # of the rate
    "memory": Prior(value=0.95, spread=0.03, by_generation=0.03, high=1.15),  # of the bandwidth
    "cache": Prior(value=0.15, spread=0.3, by_generation=0.1, high=1.2),  # of the units' ports
    "warm": Prior(value=0.7, spread=0.3, by_generation=0.2, high=2.0),  # share kept between calls
    "write": Prior(value=1.2, spread=0.3, by_generation=0.1),  # a written byte over a read one
    "tile": Prior(value=1000.0, spread=0.7, by_generation=0.2),  # clocks of a tile, set-up and end
    "quantise": Prior(value=1e-9, spread=0.4, by_generation=0.3),  # s, launches of quantising
    "passes": Prior(value=3.0, spread=0.5, by_generation=0.4),  # of quantising over memory
    "row": Prior(value=10.0, spread=1.0, by_generation=0.4),  # clocks of one unit per row of a head
    "serial": Prior(value=1.0, spread=1.5, by_generation=1.0),  # clocks per token, heads at once
}
PRIORS: Mapping[str, Mapping[str, float]] = {
    "trtllm-fp8-bmm": {"quantise": 3e-6},
    "sgl-fp8-bmm": {"quantise": 3e-6, "passes": 6.0},
}

_TILES = ((16, 64), (16, 128), (64, 64), (64, 128), (128, 128), (128, 256))
"""Rows and columns of the tiles that a library chooses from."""
_DEPTH = 64  # elements of k that one step of a tile takes
_CHUNK = 4096  # rows at a time: the columns then stay in the cache of one core


class _Widths(NamedTuple):
    """Bytes per element as the product reads and writes them."""

    activation: float
    weight: float
    result: float


def seconds(query: Query, target: Target, values: Values) -> Terms:
    """Seconds of each product; columns batch (heads), m, n, k.

    Raises SpecError where the device has no matrix rate for the format.
    """
    narrow = query.dtype != "bf16" and values["quantise"] > 1e-8
    total, computing, moving = (np.empty(query.rows) for _ in range(3))
    for first in range(0, query.rows, _CHUNK):
        part = slice(first, first + _CHUNK)
        shape = tuple(query[name][part] for name in ("batch", "m", "n", "k"))
        tiles, memory, before = _product(shape, target, values, narrow=narrow)
        a, b = tiles * tiles, memory * memory
        body = np.sqrt(np.sqrt(a * a + b * b))
        total[part], computing[part], moving[part] = body + before, tiles, memory + before
    launch = values["launch"]
    return Terms(
        seconds=total + launch,
        parts={"compute": computing, "memory": moving, "latency": np.full(query.rows, launch)},
    )


def _product(
    shape: tuple[Floats, ...], target: Target, values: Values, *, narrow: bool
) -> tuple[Floats, Floats, Floats]:
    """Seconds of the tiles, of the memory, and of quantising before them."""
    batch, m, n, k = shape
    clock = target.accelerator.compute.clock
    width = _Widths(1, 1, 2) if narrow else _Widths(2, 2, 2)
    device = target.bandwidth * values["memory"]
    ports = target.fill * target.units * values["cache"]
    cache = max(min(ports, target.cache_bandwidth), device)
    written = m * n * (width.result * values["write"])
    touched = batch * (m * k * width.activation + n * k * width.weight + written)
    x = touched / (values["warm"] * target.cache + 1.0)
    x = (x * x) ** 2
    rate = 1 / cache + x / (1 + x) * (1 / device - 1 / cache)
    tiles = _tiles(shape, target, values, width, "fp8" if narrow else "bf16")
    if not narrow:
        return tiles, touched * rate, np.zeros_like(m)
    rows = batch * m
    passes = values["passes"] * rows * k * 3 * rate
    units = (rows * values["row"] / target.units + m * values["serial"]) / clock
    return tiles, touched * rate, values["quantise"] + passes + units


def _tiles(
    shape: tuple[Floats, ...], target: Target, values: Values, width: _Widths, name: str
) -> Floats:
    """Seconds of all waves with the fastest tile."""
    batch, m, n, k = shape
    compute = target.accelerator.compute
    clock = target.held_clock
    flops = compute.matrix[target.matrix_format(name)] * clock * values["matrix"]
    depth = np.ceil(k / _DEPTH) * _DEPTH
    best = np.full(len(m), np.inf)
    for rows, columns in _TILES:
        waves = np.maximum(batch * np.ceil(m / rows) * np.ceil(n / columns) / target.units, 1)
        multiply = 2 * rows * columns * depth / flops
        fill = rows * width.activation + columns * width.weight
        moved = (fill * depth + rows * columns * width.result) / target.fill
        time = waves * (multiply + moved + values["tile"] / compute.clock)
        best = np.minimum(best, time)
    return best


_COLUMNS = (Column(name="batch"), Column(name="m"), Column(name="n"), Column(name="k"))


def features(query: Query) -> Mapping[str, Floats]:
    """What the learned residual looks at: sizes, blocks and the operator."""
    batch, m, n, k = (query[name] for name in ("batch", "m", "n", "k"))
    return {
        "m": np.log2(m), "batch": np.log2(batch), "rows": np.log2(batch * m),
        "blocks": batch * np.ceil(m / 128) * np.ceil(n / 128), "deep": k / n,
        "narrow": np.full(len(m), float(query.dtype != "bf16")),
    }  # fmt: skip


MODEL = Model(
    name="absorption",
    family="gemm",
    columns={"mla_bmm_pre": _COLUMNS, "mla_bmm_post": _COLUMNS},
    dtypes=dict.fromkeys(("mla_bmm_pre", "mla_bmm_post"), ("bf16", "fp8")),
    shared={},
    own=OWN,
    seconds=seconds,
    features=features,
)
