"""What training holds of a U-Net, counted by hand and against torch's own count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulator import load_workload
from simulator.mapping.unet_memory import unet_training_memory
from simulator.models.arithmetic import parameters
from simulator.specs.plan import Plan
from simulator.specs.workload import UNet


def sdxl() -> UNet:
    found = load_workload("sdxl")
    assert isinstance(found, UNet)
    return found


def sizes(plan: Plan, **more: Any) -> dict[str, float]:
    use = unet_training_memory(replace(sdxl(), **more), plan, capacity=80e9, framework=1e9)
    assert all(part.formula for part in use.parts)
    return {part.name: part.bytes for part in use.parts}


def test_states_are_18_bytes_and_shared_by_replicas() -> None:
    total = parameters(sdxl())
    alone, shared = sizes(Plan()), sizes(Plan(dp=8, zero=1))
    states = ("weights", "gradients", "optimizer")
    assert sum(alone[name] for name in states) == 18 * total
    assert sum(shared[name] for name in states) == pytest.approx((6 + 12 / 8) * total)
    assert sizes(Plan(dp=8, zero=3))["gathered layer"] == 4 * 9 * 2560 * 1280


def test_a_residual_block_keeps_four_tensors_and_what_torch_keeps() -> None:
    """Of one block of the same width: inputs of two norms and of two convolutions; the activation
    after a norm is computed again with it, where plain torch keeps its input too."""
    torch = pytest.importorskip("torch")
    from torch.nn import functional

    width, size = 32, 16
    x = torch.randn(1, width, size, size, requires_grad=True)
    kernels = [torch.randn(width, width, 3, 3, requires_grad=True) for _ in range(2)]
    own = {kernel.data_ptr() for kernel in kernels}
    kept: dict[int, int] = {}
    alive = []

    def pack(tensor: Any) -> Any:
        if tensor.data_ptr() not in own and tensor.numel() >= width * size * size:
            alive.append(tensor)
            kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        inner = x
        for kernel in kernels:
            inner = functional.silu(functional.group_norm(inner, 8))
            inner = functional.conv2d(inner, kernel, padding=1)
        out = x + inner
    out.sum().backward()
    assert sum(kept.values()) == (4 + 2) * width * size * size

    one, two = (
        sizes(
            Plan(),
            latent=size,
            stages=tuple(
                replace(stage, channels=width, residual_blocks=blocks, transformer_depth=0)
                for stage in sdxl().stages[:1]
            ),
            middle_transformer_depth=1,
            head_dim=width,
        )["activations"]
        for blocks in (1, 2)
    )
    # One block more on the way down, and one on the way up whose input has the skip beside it;
    # two bytes an element, and the time embedding's activation.
    assert two - one == 2 * (4 + 6) * width * size * size + 2 * 2 * sdxl().time_embedding


def test_activations_grow_with_the_batch_and_full_recompute_keeps_far_less() -> None:
    one, four = sizes(Plan()), sizes(Plan(micro_batch=4))
    assert four["activations"] == pytest.approx(4 * one["activations"])
    full = sizes(Plan(recompute="full"))
    assert full["activations"] + full["recomputed block"] < 0.5 * one["activations"]
