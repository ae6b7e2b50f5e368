"""What training holds of each weight: the weight, its gradient, and the states of the optimizer.

Knows counts of weights and how replicas share them. Never touches shapes, batches or time.
Mixed-precision Adam and ZeRO: Rajbhandari et al. (arXiv 1910.02054, section 3.1 and 5).
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.specs.precision import number_format
from simulator.units import Bytes

WORKING: Bytes = 2.0
"""Bytes of one weight, and of its gradient as the backward pass makes it: bf16."""
ADAM: Bytes = 12.0
"""Bytes of the states of one weight: fp32 master copy, first and second moment."""
LAYOUTS = 2
"""Copies of a narrow weight: products need it as it is and transposed (Transformer Engine)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Bytes of weights, of their gradients and of the optimizer on one rank."""

    weights: Bytes
    gradients: Bytes
    optimizer: Bytes


def model_states(parameters: float, *, gradients: str, zero: int, group: int) -> States:
    """What one of ``group`` ranks with the same ``parameters`` holds of their states.

    2 bytes of weight, those of the gradient's format, and 12 of Adam: 18 with fp32 gradients, 16
    with bf16. ZeRO 1 shares the 12, 2 the gradients too, 3 the weights too.
    """
    return States(
        weights=WORKING * parameters / (group if zero >= 3 else 1),
        gradients=number_format(gradients).bytes(parameters) / (group if zero >= 2 else 1),
        optimizer=ADAM * parameters / (group if zero >= 1 else 1),
    )
