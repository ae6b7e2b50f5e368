"""FLOPs of a training token that hardware executes, under named conventions of recomputation.

Knows what ``flops`` knows. Never touches operators, batches or time.
"""

from __future__ import annotations

from simulator.models.flops import Convention, flops_per_token
from simulator.models.training_recompute import Recompute
from simulator.specs.workload import Transformer
from simulator.units import Flops


def hardware_flops_per_token(
    model: Transformer, sequence: int, recompute: Recompute, convention: Convention = "megatron"
) -> Flops:
    """Model FLOPs of a training convention plus those that recomputation adds (HFU; MFU has none).

    ``selective``: the two products of every attention core again (Korthikanti et al., arXiv
    2205.05198, appendix A: 72 B L s h^2 (1 + 2 s / 9 h + V / 12 h L) where the mask counts full).
    A fused kernel does this inside its backward pass, whatever the plan says. ``full``: the
    layers' forward pass again, four passes in all; the head stays at three, for the hidden state
    before it is kept. Prediction modules are not computed again.
    """
    forward: Convention = "forward_full" if convention == "training_full" else "forward"
    weights = flops_per_token(model, sequence, "forward_weights")
    attention = flops_per_token(model, sequence, forward) - weights
    added = {
        "none": 0.0,
        "selective": attention,
        "full": weights - 2.0 * model.vocab * model.hidden + attention,
    }
    return flops_per_token(model, sequence, convention) + added[recompute]
