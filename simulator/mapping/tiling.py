"""How the work of one operator is cut: the tile, the depth of a step, and the splits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tiling:
    """Rows and columns of a tile of the result, depth of one step of the inner loop, and splits.

    Products: m, n, k and split-K. Attention: query rows, key-value tokens per step (``columns``),
    splits of the cache. Pointwise: elements of a block in ``rows``.
    """

    rows: int
    columns: int = 1
    depth: int = 1
    split: int = 1

    def __str__(self) -> str:
        sizes = [size for size in (self.rows, self.columns, self.depth) if size > 1]
        text = "x".join(map(str, sizes or [1]))
        return text if self.split == 1 else f"{text} split {self.split}"
