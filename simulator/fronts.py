"""Pareto fronts over arrays. Knows numbers alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]


def pareto(*goals: ArrayLike) -> Ints:
    """Positions that no other beats, ascending: of equal lengths, each goal better the smaller.

    One beats another that is nowhere larger and somewhere smaller. What is not finite is left out.
    With more than two goals the work grows with the points times those on the front: with a goal
    for each axis of a grid, most of it is on the front.

    >>> pareto([1.0, 2.0, 3.0], [3.0, 3.0, 1.0]).tolist()
    [0, 2]
    """
    table = np.stack([np.asarray(goal, dtype=np.float64) for goal in goals])
    left = np.flatnonzero(np.isfinite(table).all(axis=0))
    # In the order of the first goals nothing is beaten by what comes later.
    left = left[np.lexsort(table[::-1, left])]
    rows = table[:, left]
    new = np.ones(len(left), dtype=bool)
    new[1:] = (rows[:, 1:] != rows[:, :-1]).any(axis=0)
    first = np.flatnonzero(new)
    kept = _sorted_front(rows[:, first])
    return np.sort(left[kept[np.cumsum(new) - 1]])


def _sorted_front(rows: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of the columns, all different and in order, no other beats."""
    kept = np.ones(rows.shape[1], dtype=bool)
    if len(rows) <= 2:
        kept[1:] = rows[-1, 1:] < np.minimum.accumulate(rows[-1])[:-1]
        return kept
    at, left = 0, np.arange(rows.shape[1])
    while at < len(left):
        rest = left[at + 1 :]
        left = np.append(
            left[: at + 1], rest[(rows[:, rest] < rows[:, left[at], None]).any(axis=0)]
        )
        at += 1
    kept[:] = False
    kept[left] = True
    return kept
