"""A whole expert layer in float64 with the error that blocks may have, and once more in torch.

Knows the layer and its operands, and which experts were chosen. Never touches blocks, descriptors
or ranks. Values and errors go through the layer side by side: each stage's error enters the next
one by its slope, and is rounded once more to the format. Nothing here is fitted or widened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.check.moe_choice import Mask
from simulator.check.moe_layer import MoELayer, Operators
from simulator.check.tolerance import STEPS, Floats, rounded_once, roundoff
from simulator.ops.functions import FUNCTIONS, gelu, sigmoid, silu
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Arrays
from simulator.ops.pointwise import Pointwise
from simulator.ops.rounding import grid, quantise, round_to
from simulator.specs.precision import number_format

SLOPE = 1.13
"""Largest slope of SiLU (1.0998) and of GELU in its tanh form (1.1290)."""


@dataclass(frozen=True, slots=True)
class Known:
    """Exact values and how far blocks may be off."""

    value: Floats
    error: Floats


def logits(layer: MoELayer, arrays: Arrays) -> Known:
    """What the router sees of each expert, (tokens, experts)."""
    x = _exact(arrays["x"])
    bias = arrays.get("router_bias")
    return _product(x, arrays["router"], bias, layer.router(0))


def shares(layer: MoELayer, seen: Known, made: Mask, kept: Mask, arrays: Arrays) -> Known:
    """Weight of each expert in each token, zero where it is not one of its own.

    ``made`` is the choice before the capacity of the experts, which normalises over all of it. A
    softmax or a ratio of sigmoids moves by at most e^2d where logits move by d.
    """
    net, u = layer.net, roundoff(layer.router(0))
    router = net.router
    normalise = router.normalise and router.choice == "token_choice"
    if router.scoring == "sigmoid":
        scores, over = sigmoid(seen.value), made
    else:
        scores = np.exp(seen.value - seen.value.max(axis=1, keepdims=True))
        over = made if normalise else np.ones_like(made)
    value = np.where(kept, scores, 0) * router.scale
    if normalise or router.scoring == "softmax":
        whole = np.where(over, scores, 0).sum(axis=1, keepdims=True)
        value = value / np.where(whole == 0, 1, whole)
    if router.expert_scale:
        value = value * arrays["expert_scale"]
    off = np.expm1(2 * seen.error.max(axis=1, keepdims=True)) + (net.top_k + STEPS) * u
    return Known(value, np.abs(value) * off)


def exact_layer(layer: MoELayer, arrays: Arrays, gates: Known, *, sums: int = 0) -> Known:
    """Every token through every expert, times its gate, which is mostly zero; (tokens, hidden).

    ``sums`` are partial sums that a result is added up from, each rounded to the format before.
    """
    net, u = layer.net, roundoff(layer.router(0))
    x = _exact(arrays["x"])
    total, off, terms = (np.zeros(x.value.shape) for _ in range(3))
    terms_of = int((gates.value != 0).sum(axis=1).max(initial=0))
    operators = layer.routed((0,) * net.experts)
    for expert in range(net.experts):
        share = Known(gates.value[:, expert, None], gates.error[:, expert, None])
        inside, one = x, share
        if net.router.on_input:
            inside = _rounded(_times(x, share, u), layer.format)
            one = Known((share.value != 0).astype(np.float64), np.zeros_like(share.error))
        weights = [(arrays[name][expert], _of(arrays, f"{name}_bias", expert)) for name in _TWO]
        out = _network(operators, inside, weights, layer.format)
        part = _times(out, one, 0.0)
        total, off = total + part.value, off + part.error
        terms += np.abs(part.value) + part.error
    off += (terms_of + 2) * u * terms
    if sums:
        entry = grid(layer.format)
        off += (entry.roundoff + (sums + 2) * u) * (terms + off) + sums * entry.smallest
    result = _rounded(Known(total, off), layer.format)
    return _joined(layer, arrays, x, result) if net.shared_experts else result


_TWO = ("up", "down")


def _of(arrays: Arrays, name: str, expert: int) -> NDArray[Any] | None:
    return arrays[name][expert] if name in arrays else None


def _joined(layer: MoELayer, arrays: Arrays, x: Known, routed: Known) -> Known:
    """The routed result and that of the shared experts."""
    u = roundoff(layer.router(0))
    weights = [(arrays["shared_up"], None), (arrays["shared_down"], None)]
    shared = _network(layer.shared(0), x, weights, layer.format)
    if layer.net.shared_gate:
        seen = _product(x, arrays["shared_gate"], None, layer.shared_gate(0))
        gate = sigmoid(seen.value)
        off = gate * (np.expm1(seen.error) + STEPS * u)
        shared = _times(shared, Known(gate, off), u)
    value = routed.value + shared.value
    off = routed.error + shared.error
    off = off + STEPS * u * (np.abs(routed.value) + np.abs(shared.value) + off)
    return _rounded(Known(value, off), layer.format)


def _network(operators: Operators, x: Known, weights: list[tuple[Any, Any]], format_: str) -> Known:
    """One expert: its products, its function and what is quantised between them."""
    left = iter(weights)
    for op in operators:
        if isinstance(op, Matmul | GroupedMatmul):
            weight, bias = next(left)
            x = _product(x, weight, bias, op)
        elif isinstance(op, Pointwise) and op.function == "quantise":
            x = _quantised(x, op.result)
        elif isinstance(op, Pointwise):
            x = _rounded(_function(op, x), format_)
    return x


def _exact(array: NDArray[Any]) -> Known:
    return Known(array.astype(np.float64), np.zeros(array.shape))


def _rounded(x: Known, format_: str) -> Known:
    return Known(x.value, rounded_once(x.error, x.value, format_))


def _times(x: Known, y: Known, u: float) -> Known:
    """The product of two, with one rounding of ``u``."""
    value = x.value * y.value
    off = x.error * np.abs(y.value) + (np.abs(x.value) + x.error) * y.error
    return Known(value, off + u * (np.abs(value) + off))


def _product(x: Known, weight: Any, bias: Any, op: Matmul | GroupedMatmul) -> Known:
    """(k + 4) u of the product of magnitudes: k sums, the product itself and the bias."""
    wide = weight.astype(np.float64)
    add = np.zeros(wide.shape[-1]) if bias is None else bias.astype(np.float64)
    size = (np.abs(x.value) + x.error) @ np.abs(wide) + np.abs(add)
    off = x.error @ np.abs(wide) + (op.k + 4) * roundoff(op) * size
    return _rounded(Known(x.value @ wide + add, off), op.out)


def _function(op: Pointwise, x: Known) -> Known:
    """The function between the two products of an expert."""
    u = roundoff(op)
    value = FUNCTIONS[op.function]({"x": x.value})
    if op.function in ("gelu", "silu"):
        size = np.abs(x.value) + x.error
        return Known(value, SLOPE * x.error + STEPS * u * size)
    if op.function == "relu2":
        off = x.error * (2 * np.abs(x.value) + x.error)
        return Known(value, off + STEPS * u * (np.abs(value) + off))
    gate, factor = np.split(x.value, 2, axis=1)
    off_gate, off = np.split(x.error, 2, axis=1)
    if op.function == "clamped_silu_mul":  # Clamping brings values no further apart.
        gate, factor = np.minimum(gate, 7.0), np.clip(factor, -7.0, 7.0) + 1.0
        off = off + 2 * u * (np.abs(factor) + 1)
        through = silu(1.702 * gate) / 1.702
    else:
        through = gelu(gate) if op.function == "gelu_mul" else silu(gate)
    off_value = SLOPE * off_gate * (np.abs(factor) + off) + np.abs(through) * off
    return Known(value, off_value + STEPS * u * (np.abs(gate) + off_gate) * (np.abs(factor) + off))


def _quantised(x: Known, name: str) -> Known:
    """Values as a format with scales holds them; rounding is monotone.

    Where blocks along a row share scale = largest / top, a value ends between its least and its
    largest one over the largest and the least scale. Other scales jump: there a value is off by
    half a step on both sides.
    """
    value = quantise(x.value, name).astype(np.float64)
    if not x.error.any():
        return Known(value, np.zeros_like(value))
    entry, block = grid(name), {"fp8_block": 128, "int8": x.value.shape[1]}.get(name)
    if block is None:
        size = np.abs(x.value) + x.error
        lowest = 2.0 ** np.floor(np.log2(entry.largest))
        clipped = 1 - entry.largest / (2 * lowest) if number_format(name).block > 1 else 0.0
        scale = size.max(axis=1, keepdims=True, initial=0.0) / lowest if clipped else 1.0
        step = max(entry.roundoff, clipped) * size + entry.smallest * np.maximum(scale, 2.0**-9)
        return Known(value, x.error + 2 * step)
    error = np.zeros_like(value)
    for first in range(0, value.shape[1], block):
        part = np.s_[:, first : first + block]
        size, off = np.abs(x.value[part]), x.error[part]
        least, most = np.maximum(size - off, 0), size + off
        # Scales are rounded to fp32.
        down = least.max(axis=1, keepdims=True) / entry.largest * (1 - 2.0**-23)
        up = most.max(axis=1, keepdims=True) / entry.largest * (1 + 2.0**-23)
        element = "fp8" if name == "fp8_block" else name
        safe = np.maximum(down, np.finfo(np.float32).tiny)
        high = round_to(most / safe, element) * up
        low = round_to(least / np.maximum(up, safe), element) * down
        low = np.where(off > size, -high, low)
        held = np.abs(value[part])
        error[part] = np.maximum(high - held, held - low) * (1 + 2.0**-23)
    return Known(value, error)


def torch_layer(layer: MoELayer, arrays: Arrays, gates: Floats) -> Floats:
    """The layer as model code writes it: each token in turn through each of its experts.

    ``gates`` (tokens, experts) are zero for experts that a token has not. Raises ImportError where
    torch is not installed.
    """
    import torch

    net = layer.net
    a = {
        name: torch.from_numpy(np.ascontiguousarray(array)).double()
        for name, array in arrays.items()
    }
    operand = layer.operand if layer.operand != layer.format else None
    result = torch.zeros_like(a["x"])
    for token, row in enumerate(a["x"]):
        for expert in np.flatnonzero(gates[token]).tolist():
            share = float(gates[token, expert])
            biases = [a[f"{name}_bias"][expert] if net.bias else 0.0 for name in _TWO]
            taken = row * share if net.router.on_input else row
            out = _torch_expert(layer, taken, a["up"][expert], a["down"][expert], biases, operand)
            result[token] += out if net.router.on_input else out * share
    if net.shared_experts:
        shared = layer.shared(0)[0]
        held = shared.result if isinstance(shared, Pointwise) else None
        for token, row in enumerate(a["x"]):
            out = _torch_expert(
                layer, row, a["shared_up"], a["shared_down"], [0.0, 0.0], held
            )  # fmt: skip
            gate = torch.sigmoid(row @ a["shared_gate"]) if net.shared_gate else 1.0
            result[token] += gate * out
    return np.asarray(result.numpy())


def _torch_expert(
    layer: MoELayer, row: Any, up: Any, down: Any, biases: list[Any], operand: str | None
) -> Any:
    """One token through one expert; operands are held in ``operand`` where it is given."""
    import torch
    from torch.nn import functional

    def held(values: Any) -> Any:
        if operand is None:
            return values
        return torch.from_numpy(quantise(values.numpy()[None], operand)[0]).double()

    functions: dict[str, Callable[[Any], Any]] = {
        "silu": functional.silu,
        "gelu": lambda x: functional.gelu(x, approximate="tanh"),
        "relu2": lambda x: functional.relu(x) ** 2,
    }
    hidden = held(row) @ up + biases[0]
    name = layer.function
    if name in functions:
        acted = functions[name](hidden)
    elif name == "clamped_silu_mul":
        gate, value = hidden.chunk(2)
        gate, value = gate.clamp(max=7.0), value.clamp(min=-7.0, max=7.0)
        acted = gate * torch.sigmoid(1.702 * gate) * (value + 1)
    else:
        gate, value = hidden.chunk(2)
        acted = functions[name.removesuffix("_mul")](gate) * value
    return held(acted) @ down + biases[1]
