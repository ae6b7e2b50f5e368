"""Trains the learned residual of a model: gradient boosting of oblivious trees on log residuals.

Deterministic. Knows arrays. Never touches devices or files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.costs.families.residual import Residual

Floats = NDArray[np.float64]


def train(
    columns: Mapping[str, Floats],
    groups: Sequence[str],
    residual: Floats,
    weights: Floats,
    *,
    trees: int = 120,
    depth: int = 4,
    rate: float = 0.1,
    bins: int = 32,
    shrink: float = 20.0,
    limit: float = 0.25,
) -> Residual:
    """Trees that predict ``residual`` = ln(measured / formula) from the columns and the group.

    ``groups`` names library and generation of each row; groups are ordered by their mean
    residual, so that one threshold parts them. ``weights`` are relative; ``shrink`` is the weight
    of rows that hold a leaf near zero. Residuals are clipped at three limits against outliers.
    """
    names = (*tuple(columns), "group")
    target = np.clip(residual, -3 * limit, 3 * limit)
    code = _group_codes(groups, target, weights)
    rows = [*columns.values(), np.array([code[name] for name in groups])]
    edges = tuple(_edges(column, bins) for column in rows)
    binned = np.stack(
        [np.searchsorted(e, c, side="right") for e, c in zip(edges, rows, strict=True)]
    )
    left = target.copy()
    weights = weights / weights.mean()
    asked, above, leaves = [], [], []
    for _ in range(trees):
        questions, leaf = _grow(binned, [len(e) + 1 for e in edges], left, weights, depth, shrink)
        size = 2**depth
        mass = np.bincount(leaf, weights, size)
        gain = np.bincount(leaf, weights * left, size) / (mass + shrink) * rate
        left -= gain[leaf]
        asked.append([feature for feature, _ in questions])
        above.append([start for _, start in questions])
        leaves.append(gain)
    return Residual(
        features=names,
        edges=edges,
        asked=np.array(asked),
        above=np.array(above),
        leaves=np.array(leaves),
        groups=code,
        limit=limit,
    )


def _group_codes(groups: Sequence[str], target: Floats, weights: Floats) -> dict[str, float]:
    names, index = np.unique(np.asarray(groups), return_inverse=True)
    means = np.bincount(index, weights * target) / np.bincount(index, weights)
    order = np.argsort(np.argsort(means))
    return {str(name): float(rank) for name, rank in zip(names, order, strict=True)}


def _edges(column: Floats, bins: int) -> Floats:
    inner = np.unique(np.quantile(column, np.linspace(0, 1, bins + 1)[1:-1]))
    values = np.unique(column)
    if len(values) <= bins:
        inner = (values[1:] + values[:-1]) / 2
    return np.asarray(inner)


def _grow(
    binned: NDArray[np.int64],
    sizes: list[int],
    left: Floats,
    weights: Floats,
    depth: int,
    shrink: float,
) -> tuple[list[tuple[int, int]], NDArray[np.int64]]:
    """The questions of one tree, and the leaf of each row."""
    leaf = np.zeros(len(left), dtype=np.int64)
    questions = []
    for level in range(depth):
        best, choice = -1.0, (0, 1)
        count = 2**level
        for feature, size in enumerate(sizes):
            if size < 2:
                continue
            cell = leaf * size + binned[feature]
            sums = np.bincount(cell, weights * left, count * size).reshape(count, size)
            mass = np.bincount(cell, weights, count * size).reshape(count, size)
            low_sum, low_mass = sums.cumsum(1)[:, :-1], mass.cumsum(1)[:, :-1]
            high_sum = sums.sum(1, keepdims=True) - low_sum
            high_mass = mass.sum(1, keepdims=True) - low_mass
            score = low_sum**2 / (low_mass + shrink) + high_sum**2 / (high_mass + shrink)
            total = score.sum(0)
            start = int(total.argmax())
            if total[start] > best:
                best, choice = float(total[start]), (feature, start + 1)
        questions.append(choice)
        leaf = leaf * 2 + (binned[choice[0]] >= choice[1])
    return questions, leaf
