"""How far a blocked result may stray from the exact one: bounds from rounding-error theory.

Knows operators and their operands. Never touches blocks or results. A bound is an array like the
result and follows from the operands at hand and the roundoff u of the formats alone: sums of n
terms err by n u times the sum of magnitudes in any order (Higham, Accuracy and Stability of
Numerical Algorithms, 2nd edition, chapters 3 and 4). Nothing here is fitted or widened.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.check.products import precision
from simulator.mapping.tiling import Tiling
from simulator.ops.attention import Attention
from simulator.ops.conv import Conv2d
from simulator.ops.functions import EPSILON, FUNCTIONS, groups
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Arrays, TensorOp
from simulator.ops.pointwise import GATED, Pointwise
from simulator.ops.rounding import grid
from simulator.specs.precision import number_format

Floats = NDArray[np.float64]

STEPS = 16
"""Roundings in one elementwise function: exp and tanh of numpy within 4 units in the last place,
at most 12 operations around them."""
EXACT = frozenset({"top_k", "gather", "cache_write", "quantise"})
"""Functions that compute nothing: their results are equal bit by bit."""


def roundoff(op: TensorOp) -> float:
    """Relative error of one operation as the blocks compute."""
    names = [getattr(op, field, "fp32") for field in ("a", "b", "format", "kv_format")]
    return 2.0**-53 if precision(*names) == np.float64 else 2.0**-24


def bound(op: TensorOp, arrays: Arrays, whole: Floats, tiling: Tiling) -> Floats:
    """Largest error of each element of ``op``'s blocked result; ``whole`` is the exact one."""
    if isinstance(op, Pointwise) and op.function in EXACT:
        return np.zeros_like(whole)
    wide = {
        name: array.astype(np.float64) if array.dtype.kind == "f" else array
        for name, array in arrays.items()
    }
    if isinstance(op, Attention):
        error, out = _attention(op, wide, tiling), op.format
    elif isinstance(op, Pointwise):
        error, out = _pointwise(op, wide, whole), op.result
    elif isinstance(op, Matmul | GroupedMatmul | Conv2d):
        error, out = _product(op, wide, tiling), op.out
    else:
        raise TypeError(f"no error bound for operators of kind {op.kind}")
    return rounded_once(error, whole, out)


def rounded_once(error: Floats, whole: Floats, out: str) -> Floats:
    """An error after one more rounding to ``out``; formats with scales are not rounded to."""
    if number_format(out).block > 1:
        return error
    entry = grid(out)
    return error + entry.roundoff * (np.abs(whole) + error) + entry.smallest


def _product(op: Matmul | GroupedMatmul | Conv2d, arrays: Arrays, tiling: Tiling) -> Floats:
    """(k + 3) u of the product of magnitudes: k sums, the product itself, bias, and the splits."""
    sizes = {
        name: array if array.dtype.kind in "iu" else np.abs(array) for name, array in arrays.items()
    }
    return (op.k + tiling.split + 3) * roundoff(op) * op.reference(sizes)


def _attention(op: Attention, arrays: Arrays, tiling: Tiling) -> Floats:
    """Errors of scores, exponentials and sums, then of the probabilities' own rounding.

    A relative error e of every weight, and p more of those that multiply the values, move a
    weighted mean by at most (1 + e)(1 + p) / (1 - e) - 1 of the weighted magnitudes.
    """
    u = roundoff(op)
    sizes = op.scores(np.abs(arrays["q"]), np.abs(arrays["k"]))
    largest = np.where(op.mask(), sizes, 0.0).max(axis=-1)
    if op.sinks:
        largest = np.maximum(largest, np.abs(arrays["sinks"])[:, None])
    # A score errs by its product; its exponential by the rounded difference to the maximum, at
    # most twice the largest; each key-value tile and each split rescale the sums once.
    tiles = -(-op.kv_len // tiling.columns) + 2 * tiling.split
    error = (op.head_dim + 3 + 4) * u * largest + (op.kv_len + STEPS * (tiles + 1)) * u
    entry = grid(op.format)
    growth = (1 + error) * (1 + entry.roundoff) / (1 - error) - 1
    values = np.abs(op.values(arrays))
    # A probability below the least of its format may vanish.
    shares = growth[..., None] * op.shares(arrays) + entry.smallest
    return op.weigh(shares, values)


def _pointwise(op: Pointwise, arrays: Arrays, whole: Floats) -> Floats:
    """A few roundings of the largest intermediate value; norms and sums as derived below."""
    u, x = roundoff(op), np.abs(arrays["x"])
    if op.function == "weighted_sum":
        return (op.terms + 2) * u * FUNCTIONS["weighted_sum"]({**arrays, "x": x})
    if op.function in ("layer_norm", "group_norm_silu", "rms_norm", "add_rms_norm"):
        return _norm(op, arrays, u)
    if op.function == "softmax":
        spread = arrays["x"].max(axis=-1, keepdims=True) - arrays["x"]
        widest = spread.max(axis=-1, keepdims=True)
        return np.asarray((op.cols + STEPS + spread + widest) * u * whole)
    if op.function in GATED:
        gate, value = x[:, : op.cols], x[:, op.cols :]
        sizes = {"sigmoid_mul": value, "clamped_silu_mul": gate * (value + 1)}
        return np.asarray(STEPS * u * sizes.get(op.function, gate * value))
    if op.function == "rope":
        other = x.copy()
        even = op.cols // 2 * 2
        other[:, 0:even:2], other[:, 1:even:2] = x[:, 1:even:2], x[:, 0:even:2]
        return np.asarray(4 * u * (x + other))
    sizes = {"relu2": x * x, "add": x + np.abs(arrays.get("y", x))}
    return np.asarray(STEPS * u * sizes.get(op.function, x))


def _norm(op: Pointwise, arrays: Arrays, u: float) -> Floats:
    """A norm over n elements: errors of its mean, of the differences to it, and of its deviation.

    The mean errs by n u of the mean magnitude; a difference d by that and one rounding; the
    deviation, relatively, by the largest error of a difference over itself and n / 2 roundings.
    """
    x = arrays["x"] + arrays["y"] if op.function == "add_rms_norm" else arrays["x"]
    axis: int | tuple[int, ...] = -1
    if op.function == "group_norm_silu":
        x, axis = x.reshape(op.rows, groups(op.cols), -1), (0, 2)
    n = x.size // max(1, x.mean(axis=axis).size)
    centred = x
    difference = u * np.abs(x)
    if op.function in ("layer_norm", "group_norm_silu"):
        mean = x.mean(axis=axis, keepdims=True)
        centred = x - mean
        difference = u * (np.abs(x) + (n + 2) * np.abs(x).mean(axis=axis, keepdims=True))
    deviation = np.sqrt((centred * centred).mean(axis=axis, keepdims=True) + EPSILON)
    relative = difference.max(axis=axis, keepdims=True) / deviation + (n / 2 + STEPS) * u
    error = (difference + np.abs(centred) * relative) / deviation
    error = error.reshape(op.rows, op.cols)
    z = (np.abs(centred) / deviation).reshape(op.rows, op.cols)
    scale = np.abs(arrays["scale"]) if "scale" in arrays else np.ones(op.cols)
    shift = np.abs(arrays["shift"]) if "shift" in arrays else np.zeros(op.cols)
    error = error * scale + 2 * u * (z * scale + shift)
    if op.function == "group_norm_silu":  # the slope of SiLU is at most 1.1
        error = 1.1 * error + STEPS * u * (z * scale + shift)
    return np.stack([error, u * np.abs(x)]) if op.function == "add_rms_norm" else np.asarray(error)
