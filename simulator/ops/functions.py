"""Pointwise functions on numpy arrays, in whatever precision the arrays have.

Knows arrays by name. Never touches shapes of models, number formats or hardware. A function works
on any set of whole rows, except the group norm, whose statistics span the rows of an image.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Function = Callable[[dict[str, Array]], Array]

EPSILON = 1e-6
"""Added to the variance of a norm, as Llama and DeepSeek-V3 configure it."""
ROPE_BASE = 10_000.0
"""Base of the rotary frequencies (RoFormer, arXiv 2104.09864, section 3.3)."""
CHOSEN = 8
"""Columns that ``top_k`` picks where there are as many."""
GROUPS = 32
"""Groups of a group norm, where they divide the channels (Wu and He, arXiv 1803.08494)."""


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0, -x)))


def silu(x: Array) -> Array:
    """x sigmoid(x)."""
    return x * sigmoid(x)


def gelu(x: Array) -> Array:
    """Gaussian error linear unit in its tanh form (arXiv 1606.08415, section 2)."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def rms_norm(a: dict[str, Array]) -> Array:
    """x over the root mean square of its row, times a scale (arXiv 1910.07467)."""
    x = a["x"]
    mean = (x * x).mean(axis=-1, keepdims=True, dtype=x.dtype)
    return _affine(x / np.sqrt(mean + EPSILON), a)


def add_rms_norm(a: dict[str, Array]) -> Array:
    """The norm of x + y, and the sum itself for the next residual: (2, rows, cols)."""
    total = a["x"] + a["y"]
    return np.stack([rms_norm({**a, "x": total}), total])


def layer_norm(a: dict[str, Array]) -> Array:
    """x less the mean of its row over its deviation, scaled and shifted (arXiv 1607.06450)."""
    x = a["x"]
    centred = x - x.mean(axis=-1, keepdims=True, dtype=x.dtype)
    variance = (centred * centred).mean(axis=-1, keepdims=True, dtype=x.dtype)
    return _affine(centred / np.sqrt(variance + EPSILON), a)


def group_norm_silu(a: dict[str, Array]) -> Array:
    """SiLU of x normalised over all rows and the channels of its group."""
    rows, cols = a["x"].shape
    x = a["x"].reshape(rows, groups(cols), -1)
    centred = x - x.mean(axis=(0, 2), keepdims=True, dtype=x.dtype)
    variance = (centred * centred).mean(axis=(0, 2), keepdims=True, dtype=x.dtype)
    return silu(_affine((centred / np.sqrt(variance + EPSILON)).reshape(rows, cols), a))


def groups(channels: int) -> int:
    """Groups of a group norm over that many channels: the most that divide both."""
    return int(np.gcd(channels, GROUPS))


def rope(a: dict[str, Array]) -> Array:
    """Rotary embedding of neighbouring pairs; row i, or ``position``, is the angle's factor."""
    x = a["x"]
    rows, cols = x.shape
    pairs = cols // 2
    position = a.get("position", np.arange(rows))
    angle = position[:, None] * ROPE_BASE ** (-np.arange(pairs) / max(1, pairs))
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    turned = x.copy()
    even, odd = x[:, 0 : 2 * pairs : 2], x[:, 1 : 2 * pairs : 2]
    turned[:, 0 : 2 * pairs : 2] = even * cos - odd * sin
    turned[:, 1 : 2 * pairs : 2] = even * sin + odd * cos
    return turned


def softmax(a: dict[str, Array]) -> Array:
    """exp(x) over its row's sum."""
    x = a["x"]
    shares = np.exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf))
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def top_k(a: dict[str, Array]) -> Array:
    """Columns of the largest values of each row, the largest first, equal ones in order."""
    return np.argsort(-a["x"], axis=-1, kind="stable")[:, :CHOSEN]


def clamped_silu_mul(a: dict[str, Array]) -> Array:
    """(value + 1) gate sigmoid(1.702 gate), both clamped at 7 (gpt-oss, reference model)."""
    gate, value = _halves(a)
    gate, value = np.minimum(gate, 7.0), np.clip(value, -7.0, 7.0)
    return np.asarray((value + 1.0) * gate * sigmoid(1.702 * gate))


def weighted_sum(a: dict[str, Array]) -> Array:
    """Rows of x that each result row names, times their shares, added up."""
    x, rows = a["x"], a["rows"]
    padded = np.concatenate([x, np.zeros((1, x.shape[1]), dtype=x.dtype)])
    return np.asarray((padded[rows] * a["shares"][..., None]).sum(axis=1, dtype=x.dtype))


def cache_write(a: dict[str, Array]) -> Array:
    """Row i of x at place ``rows[i]``."""
    cache = np.empty_like(a["x"])
    cache[a["rows"]] = a["x"]
    return cache


def _halves(a: dict[str, Array]) -> tuple[Array, Array]:
    """Gate and value, side by side in x."""
    width = a["x"].shape[1] // 2
    return a["x"][:, :width], a["x"][:, width:]


def _affine(x: Array, a: dict[str, Array]) -> Array:
    scaled = x * a["scale"] if "scale" in a else x
    return scaled + a["shift"] if "shift" in a else scaled


def _gated(function: Callable[[Array], Array]) -> Function:
    def apply(a: dict[str, Array]) -> Array:
        gate, value = _halves(a)
        return np.asarray(function(gate) * value)

    return apply


FUNCTIONS: dict[str, Function] = {
    "rms_norm": rms_norm,
    "add_rms_norm": add_rms_norm,
    "layer_norm": layer_norm,
    "group_norm_silu": group_norm_silu,
    "silu_mul": _gated(silu),
    "gelu_mul": _gated(gelu),
    "clamped_silu_mul": clamped_silu_mul,
    "sigmoid_mul": _gated(sigmoid),
    "relu2": lambda a: np.square(np.maximum(a["x"], 0)),
    "gelu": lambda a: gelu(a["x"]),
    "silu": lambda a: silu(a["x"]),
    "add": lambda a: np.asarray(a["x"] + a["y"]),
    "rope": rope,
    "softmax": softmax,
    "top_k": top_k,
    "gather": lambda a: np.asarray(a["x"][a["rows"]]),
    "cache_write": cache_write,
    "quantise": lambda a: a["x"],
    "weighted_sum": weighted_sum,
}
