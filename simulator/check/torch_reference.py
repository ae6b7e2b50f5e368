"""Whole operators in torch, as a second opinion that shares no code with the first.

Knows operators and torch, which is imported on first use. Never touches blocks. float64 on the
CPU, like the numpy references.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.ops.attention import Attention
from simulator.ops.conv import Conv2d
from simulator.ops.functions import CHOSEN, EPSILON, ROPE_BASE, groups
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Arrays, TensorOp
from simulator.ops.pointwise import Pointwise


def has_torch() -> bool:
    """Whether torch is installed, without importing it."""
    return importlib.util.find_spec("torch") is not None


def torch_reference(op: TensorOp, arrays: Arrays) -> NDArray[np.float64]:
    """The whole result of ``op`` in torch, shaped like ``op.reference``.

    Raises ImportError where torch is not installed, TypeError for a kind that it does not know.
    """
    import torch

    a: dict[str, Any] = {
        name: torch.from_numpy(np.ascontiguousarray(array)).to(
            torch.float64 if array.dtype.kind == "f" else torch.int64
        )
        for name, array in arrays.items()
    }
    if isinstance(op, Matmul):
        result = torch.bmm(a["a"], a["b"]) + (a["bias"][:, None] if op.bias else 0)
    elif isinstance(op, GroupedMatmul):
        result = _grouped(op, a)
    elif isinstance(op, Conv2d):
        result = _conv(op, a)
    elif isinstance(op, Attention):
        result = _attention(op, a)
    elif isinstance(op, Pointwise):
        result = _pointwise(op, a)
    else:
        raise TypeError(f"torch has no reference for operators of kind {op.kind}")
    return np.asarray(result.contiguous().numpy(), dtype=np.float64)


def _grouped(op: GroupedMatmul, a: dict[str, Any]) -> Any:
    import torch
    from torch.nn import functional

    parts = a["tokens"].index_select(0, a["rows"]).split(list(op.counts))
    results = [
        functional.linear(part, a["b"][expert].T, a["bias"][expert] if op.bias else None)
        for expert, part in enumerate(parts)
    ]
    return torch.cat(results)


def _conv(op: Conv2d, a: dict[str, Any]) -> Any:
    from torch.nn import functional

    high, wide = op.pixels
    pad, reach = op.padding, op.kernel + op.stride
    padded = functional.pad(a["x"].permute(0, 3, 1, 2), (pad, reach, pad, reach))
    weight = a["b"].permute(3, 2, 0, 1)
    result = functional.conv2d(padded, weight, a.get("bias"), stride=op.stride)
    return result[:, :, :high, :wide].permute(0, 2, 3, 1)


def _attention(op: Attention, a: dict[str, Any]) -> Any:
    """Scaled dot-product attention; a sink is one more key of zeros whose logit is the sink."""
    import torch
    from torch.nn import functional

    q, k = a["q"].transpose(1, 2), a["k"].transpose(1, 2)
    v = k[..., : op.v_dim] if op.latent else a["v"].transpose(1, 2)
    position = torch.arange(op.kv_len - op.q_len, op.kv_len)[:, None]
    token = torch.arange(op.kv_len)[None]
    seen = torch.ones(op.q_len, op.kv_len, dtype=torch.bool)
    if op.causal:
        seen = token <= position
        if op.window is not None:
            seen &= token > position - op.window
        if op.chunk is not None:
            seen &= token // op.chunk == position // op.chunk
    bias = torch.zeros(op.heads, op.q_len, op.kv_len, dtype=torch.float64)
    bias = bias.masked_fill(~seen, -torch.inf)
    if op.sinks:
        sink = a["sinks"][:, None, None].expand(op.heads, op.q_len, 1)
        bias = torch.cat([bias, sink], dim=-1)
        k, v = functional.pad(k, (0, 0, 0, 1)), functional.pad(v, (0, 0, 0, 1))
    # The heads that share keys become rows of one head, so that no key is repeated.
    rows = op.heads // op.kv_heads * op.q_len
    result = functional.scaled_dot_product_attention(
        q.reshape(op.batch, op.kv_heads, rows, op.head_dim),
        k,
        v,
        attn_mask=bias.reshape(op.kv_heads, rows, -1),
        scale=op.head_dim**-0.5,
    )
    return result.reshape(op.batch, op.heads, op.q_len, op.v_dim).transpose(1, 2)


def _pointwise(op: Pointwise, a: dict[str, Any]) -> Any:
    import torch
    from torch.nn import functional

    x: Any = a["x"]
    y: Any = a.get("y")
    scale, shift = a.get("scale"), a.get("shift")
    gate, value = x.chunk(2, dim=-1) if x.shape[1] % 2 == 0 else (x, x)
    clamped = gate.clamp(max=7.0)
    functions: dict[str, Any] = {
        "rms_norm": lambda: functional.rms_norm(x, [op.cols], scale, EPSILON),
        "add_rms_norm": lambda: torch.stack(
            [functional.rms_norm(x + y, [op.cols], scale, EPSILON), x + y]
        ),
        "layer_norm": lambda: functional.layer_norm(x, [op.cols], scale, shift, EPSILON),
        "group_norm_silu": lambda: functional.silu(
            functional.group_norm(x.T[None], groups(op.cols), scale, shift, EPSILON)[0].T
        ),
        "silu_mul": lambda: functional.silu(gate) * value,
        "gelu_mul": lambda: functional.gelu(gate, approximate="tanh") * value,
        "clamped_silu_mul": lambda: (
            (value.clamp(-7.0, 7.0) + 1) * clamped * torch.sigmoid(1.702 * clamped)
        ),
        "sigmoid_mul": lambda: torch.sigmoid(gate) * value,
        "relu2": lambda: functional.relu(x) ** 2,
        "gelu": lambda: functional.gelu(x, approximate="tanh"),
        "silu": lambda: functional.silu(x),
        "add": lambda: x + y,
        "rope": lambda: _rope(x),
        "softmax": lambda: torch.softmax(x, dim=-1),
        "top_k": lambda: x.topk(min(CHOSEN, op.cols), dim=-1).indices,
        "gather": lambda: x.index_select(0, a["rows"]),
        "cache_write": lambda: torch.zeros_like(x).index_copy(0, a["rows"], x),
        "quantise": lambda: x,
        "weighted_sum": lambda: torch.einsum(
            "rtc,rt->rc", functional.pad(x, (0, 0, 0, 1))[a["rows"]], a["shares"]
        ),
    }
    return functions[op.function]()


def _rope(x: Any) -> Any:
    """Pairs as complex numbers, turned by their angle."""
    import torch

    rows, cols = x.shape
    pairs = cols // 2
    powers = -torch.arange(pairs, dtype=torch.float64) / max(1, pairs)
    angle = torch.arange(rows, dtype=torch.float64)[:, None] * ROPE_BASE**powers
    points = torch.view_as_complex(x[:, : 2 * pairs].reshape(rows, pairs, 2).contiguous())
    turned = torch.view_as_real(points * torch.polar(torch.ones_like(angle), angle))
    return torch.cat([turned.reshape(rows, 2 * pairs), x[:, 2 * pairs :]], dim=1)
