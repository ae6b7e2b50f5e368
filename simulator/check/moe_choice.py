"""Which experts the tokens of a layer under test go to, and whether that is right.

Knows logits, routers and how far the logits may be off. Never touches experts, blocks or ranks.
Near a tie either choice is right: an expert may be chosen where the error of the logits allows
that it is among the best, and only there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulator.check.moe_layer import MoELayer
from simulator.check.tolerance import STEPS, Floats
from simulator.mapping.routers import Assignment, capacity, expert_choice, token_choice, within
from simulator.ops.functions import sigmoid, softmax
from simulator.ops.op import Arrays

Mask = NDArray[np.bool_]
_U = 2.0**-53
"""Relative error of one operation of the routers."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What a router chose, and what of it the capacity of the experts left."""

    made: Assignment
    kept: Assignment


def route(layer: MoELayer, logits: NDArray[np.floating], arrays: Arrays) -> Choice:
    """Route by the layer's router; ``logits`` are (tokens, experts) of the whole batch."""
    net, tokens = layer.net, len(logits)
    factor = net.capacity_factor
    if net.router.choice == "expert_choice":
        taken = capacity(1.0 if factor is None else factor, tokens, net.top_k, net.experts)
        made = expert_choice(logits, taken, net.router)
    else:
        bias = arrays.get("choice_bias")
        wide = None if bias is None else bias.astype(np.float64)
        made = token_choice(logits, net.top_k, net.router, bias=wide)
    if net.router.expert_scale:
        made = replace(made, weight=made.weight * arrays["expert_scale"][made.expert])
    if factor is None or net.router.choice == "expert_choice":
        return Choice(made, made)
    most = capacity(factor, tokens, net.top_k, net.experts)
    return Choice(made, within(made, most, np.zeros(net.experts, dtype=np.int64)))


def mask(assignment: Assignment) -> Mask:
    """Which experts each token has, (tokens, experts)."""
    chosen = np.zeros((assignment.tokens, assignment.experts), dtype=np.bool_)
    chosen[assignment.token - assignment.first, assignment.expert] = True
    return chosen


def choice_faults(
    layer: MoELayer, logits: Floats, doubt: Floats, arrays: Arrays, choice: Choice
) -> tuple[str, ...]:
    """What is wrong with a choice; ``logits`` are exact, the router's within ``doubt`` of them."""
    net, chosen = layer.net, mask(choice.made)
    faults: list[str] = []
    low, high = _liked(layer, logits, doubt, arrays)
    if net.router.choice == "expert_choice":
        factor = 1.0 if net.capacity_factor is None else net.capacity_factor
        taken = capacity(factor, len(logits), net.top_k, net.experts)
        wrong = _not_best(low.T, high.T, chosen.T, np.ones_like(chosen.T))
        wrong |= chosen.sum(axis=0) != min(taken, len(logits))
        who = "experts took tokens that are not their best"
    else:
        inside, wrong = _groups(layer, low, high, chosen)
        wrong |= _not_best(low, high, chosen, inside) | (chosen.sum(axis=1) != net.top_k)
        who = "tokens went to experts that are not their best"
    if wrong.any():
        faults.append(f"{int(wrong.sum())} {who}")
    return (*faults, *_dropping_faults(layer, choice))


def _liked(layer: MoELayer, logits: Floats, doubt: Floats, arrays: Arrays) -> tuple[Floats, Floats]:
    """Least and largest value by which the router may rank each pair."""
    router = layer.net.router
    bias = arrays.get("choice_bias")
    if bias is None and router.choice == "token_choice":
        return logits - doubt, logits + doubt  # Scores rise with their logits.
    if router.scoring == "sigmoid":
        low, high = sigmoid(logits - doubt), sigmoid(logits + doubt)
    else:
        share = softmax({"x": logits})
        off = 2 * doubt.max(axis=1, keepdims=True)
        low, high = share * np.exp(-off), share * np.exp(off)
    add = np.zeros(layer.net.experts) if bias is None else bias.astype(np.float64)
    slack = STEPS * _U * (high + np.abs(add))
    return low + add - slack, high + add + slack


def _not_best(low: Floats, high: Floats, chosen: Mask, inside: Mask) -> Mask:
    """Rows in which something that was left out is surely better than something chosen."""
    least = np.where(chosen, high, np.inf).min(axis=1, initial=np.inf)
    most = np.where(inside & ~chosen, low, -np.inf).max(axis=1, initial=-np.inf)
    return np.asarray(least < most)


def _groups(layer: MoELayer, low: Floats, high: Floats, chosen: Mask) -> tuple[Mask, Mask]:
    """Experts in groups that were surely open to each token, and tokens in a wrong group."""
    router, (tokens, experts) = layer.net.router, chosen.shape
    if router.top_groups == router.groups:
        return np.ones_like(chosen), np.zeros(tokens, dtype=np.bool_)
    size = experts // router.groups
    best = min(2, size) if router.bias else 1
    least, most = (
        np.sort(side.reshape(tokens, router.groups, size), axis=2)[:, :, -best:].sum(axis=2)
        for side in (low, high)
    )
    entered = chosen.reshape(tokens, router.groups, size).any(axis=2)
    # [t, g, h]: group h is surely better than g, or may be as good.
    better = (least[:, None, :] > most[:, :, None]).sum(axis=2)
    rivals = (most[:, None, :] >= least[:, :, None]).sum(axis=2) - 1
    wrong = (entered & (better >= router.top_groups)).any(axis=1)
    wrong |= entered.sum(axis=1) > router.top_groups
    inside = entered | (rivals < router.top_groups)
    return inside.repeat(size, axis=1), wrong


def _dropping_faults(layer: MoELayer, choice: Choice) -> tuple[str, ...]:
    """Pairs beyond the capacity that stayed, and others that were dropped."""
    net, made, kept = layer.net, choice.made, choice.kept
    missing = len(made.token) - len(kept.token)
    faults = []
    if missing != kept.dropped:
        faults.append(f"{missing} pairs are missing where {kept.dropped} were dropped")
    if net.capacity_factor is None or net.router.choice == "expert_choice":
        most = len(made.token)
    else:
        most = capacity(net.capacity_factor, layer.tokens, net.top_k, net.experts)
    room = [most] * net.experts
    right = []
    for token, expert in zip(made.token.tolist(), made.expert.tolist(), strict=True):
        if room[expert]:
            room[expert] -= 1
            right.append((token, expert))
    if right != list(zip(kept.token.tolist(), kept.expert.tolist(), strict=True)):
        faults.append(f"kept pairs are not the first {most} of each expert")
    return tuple(faults)
