"""Which operators of the forward pass run again before the backward pass.

Knows operators by name. Never touches shapes, hardware, memory or time.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Literal

from simulator.models.training_tape import LayerPass

Recompute = Literal["none", "selective", "full"]
MODULES: dict[str, tuple[str, ...]] = {
    "core_attn": (),
    "layernorm": ("*.norm", "post.norm?"),
    "moe_act": ("moe.act",),
    "mla_up_proj": ("*.q_b*", "*.kv_b*", "*.rope"),
    "mlp": ("ffn*.gate_up*", "ffn*.up*", "ffn*.act", "ffn*.down*"),
    "shared_experts": ("moe.shared.*",),
    "moe": ("moe.*",),
}
"""Parts of a layer that selective recomputation may run again, as Megatron Core names them, and
the operators of each. A fused attention core keeps nothing but the statistics of its softmax and
computes scores again inside its backward kernel in any case, so ``core_attn`` adds no operator."""


def again(done: LayerPass, recompute: Recompute, modules: tuple[str, ...]) -> LayerPass:
    """``done`` with what runs again: nothing, the operators of ``modules``, or all of them."""
    if recompute == "none":
        return done
    if recompute == "full":
        return replace(done, recomputed=done.forward)
    patterns = [pattern for module in modules for pattern in MODULES[module]]
    named = (op for op in done.forward if any(fnmatchcase(op.name, each) for each in patterns))
    return replace(done, recomputed=tuple(named))
