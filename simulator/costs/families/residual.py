"""A learned correction on top of a cost formula: what libraries decide that no formula says.

Boosted oblivious trees on shapes, one bounded factor per row. It never looks at the device, so
that no faster device gets a longer time from it, and it is only asked on generations that the
library was measured on. Knows trees and columns. Never touches measurements.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.specs.catalog import find_root

Floats = NDArray[np.float64]

CHUNK = 8192
"""Rows at a time: their bins and sums stay in the caches of one core."""
FEW = 64
"""Rows up to which all trees are evaluated at once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Residual:
    """Trees of equal depth: every level of one asks the same question of every row."""

    features: tuple[str, ...]
    edges: tuple[Floats, ...]
    """Bin edges of each feature."""
    asked: NDArray[np.int64]
    """(trees, depth): which feature each level looks at."""
    above: NDArray[np.int64]
    """(trees, depth): the bin from which the answer is yes."""
    leaves: Floats
    """(trees, 2 ** depth): what each leaf adds to the logarithm of the time."""
    groups: Mapping[str, float]
    """Value of the feature ``group`` for each library and generation."""
    limit: float
    """Largest correction of the logarithm."""

    def log_factor(self, columns: Mapping[str, Floats], group: str) -> Floats:
        """Logarithm of the factor on the predicted time, one per row; 0 for unknown groups."""
        if group not in self.groups:
            return np.zeros(len(next(iter(columns.values()))))
        given = {**columns, "group": np.full(1, self.groups[group])}
        return self.evaluate([given[name] for name in self.features])

    def evaluate(self, columns: list[Floats]) -> Floats:
        """The sum of all trees, held within the limit; a column of one value is alike in all."""
        rows = max(len(column) for column in columns)
        total = np.empty(rows)
        for at in range(0, rows, CHUNK):
            part = slice(at, min(at + CHUNK, rows))
            bins = [
                np.searchsorted(edges, column if len(column) == 1 else column[part], "right")
                for edges, column in zip(self.edges, columns, strict=True)
            ]
            total[part] = self._few(bins) if rows <= FEW else self._many(bins, part.stop - at)
        return np.asarray(np.clip(total, -self.limit, self.limit))

    def _few(self, bins: list[NDArray[np.int64]]) -> Floats:
        """All trees at once: little to do per row, and no loop."""
        answers = np.stack(np.broadcast_arrays(*bins))[self.asked] >= self.above[:, :, None]
        weight = 2 ** np.arange(self.asked.shape[1])[::-1]
        leaf = np.einsum("d,tdr->tr", weight, answers)
        return np.asarray(np.take_along_axis(self.leaves, leaf, axis=1).sum(axis=0))

    def _many(self, bins: list[NDArray[np.int64]], rows: int) -> Floats:
        """Tree after tree: no array larger than the columns."""
        narrow = [one.astype(np.uint8) for one in bins]
        total = np.zeros(rows)
        for asked, above, leaves in zip(self.asked, self.above, self.leaves, strict=True):
            leaf = np.zeros(rows, dtype=np.uint8)
            for feature, start in zip(asked, above, strict=True):
                leaf += leaf
                leaf += narrow[feature] >= start
            total += leaves.take(leaf)
        return total

    def to_plain(self) -> dict[str, Any]:
        """Plain data for JSON; leaves in units of 1e-4."""
        return {
            "features": list(self.features),
            "edges": [[float(f"{v:.6g}") for v in column] for column in self.edges],
            "limit": self.limit,
            "groups": dict(self.groups),
            "asked": self.asked.tolist(),
            "above": self.above.tolist(),
            "leaves": np.round(self.leaves * 1e4).astype(int).tolist(),
        }

    @classmethod
    def of_plain(cls, data: Mapping[str, Any]) -> Residual:
        """Read what ``to_plain`` made."""
        return cls(
            features=tuple(data["features"]),
            edges=tuple(np.array(column, dtype=np.float64) for column in data["edges"]),
            asked=np.array(data["asked"], dtype=np.int64),
            above=np.array(data["above"], dtype=np.int64),
            leaves=np.array(data["leaves"], dtype=np.float64) * 1e-4,
            groups=data["groups"],
            limit=float(data["limit"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Residuals:
    """The learned correction of each library of a model."""

    by_library: Mapping[str, Residual]

    def log_factor(self, columns: Mapping[str, Floats], group: str) -> Floats:
        """Logarithm of the factor on the predicted time, one per row; 0 for unknown libraries.

        ``group`` is ``library@generation``.
        """
        known = self.by_library.get(group.partition("@")[0])
        if known is None:
            return np.zeros(len(next(iter(columns.values()))))
        return known.log_factor(columns, group)

    def save(self, path: Path) -> None:
        """Write it as JSON, one library a line."""
        lines = ",\n".join(
            f"{json.dumps(name)}: {json.dumps(one.to_plain(), separators=(',', ':'))}"
            for name, one in sorted(self.by_library.items())
        )
        path.write_text("{\n" + lines + "\n}\n")

    @classmethod
    def load(cls, path: Path) -> Residuals:
        """Read what ``save`` wrote."""
        data = json.loads(path.read_text())
        return cls(by_library={name: Residual.of_plain(one) for name, one in data.items()})


@lru_cache(maxsize=16)
def residual_of(model: str) -> Residuals | None:
    """The learned correction that ships beside the fit of a model, or None where none does."""
    path = find_root() / "hw_specs" / "fits" / f"{model}.residual.json"
    return Residuals.load(path) if path.is_file() else None
