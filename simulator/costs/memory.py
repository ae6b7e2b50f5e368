"""What a product reads from the device memory beyond each operand once: its walk through the cache.

Tiles of a product are walked in groups: down ``group`` rows, then to the next column, group after
group; one row wide this is row-major, all rows high column-major, in between it is what kernels
call swizzled, grouped or rasterised. A wave of tiles runs through its panels in step. Whether a
panel that comes back is still in the cache follows from what was touched in between, as in a
cache that drops the least recently used; tests hold the form against exactly that, access by
access. Pure functions of counts and bytes, on numpy arrays. Never touches operators or time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.units import Bytes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GROUPS = (1, 2, 4, 8, 16)
"""Widths of groups that kernels walk in: CUTLASS swizzles by 1 to 8 (TileScheduler), Triton's
``GROUP_M`` is 4 to 16, DeepGEMM takes 8 or 16, whichever touches less."""


def rereads(
    rows: ArrayLike,
    columns: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    *,
    concurrent: ArrayLike,
    cache: Bytes,
    dies: int = 1,
) -> Floats:
    """Bytes that one product of (rows, columns) tiles reads again, in the best order of its tiles.

    ``a`` and ``b`` are the bytes of one row's and one column's panel over the whole inner
    dimension, ``concurrent`` the tiles under way at once. Each of ``dies`` caches of ``cache``
    bytes serves as many units; their tiles are dealt in turn or in chunks, whichever reads less.
    Arrays broadcast. Kernels choose among GROUPS along rows or columns, so the least counts.

    >>> float(rereads(8, 8, 1e6, 1e6, concurrent=16, cache=20e6))
    0.0
    >>> float(rereads(8, 8, 1e6, 1e6, concurrent=16, cache=9e6)) / 16e6
    0.5
    """
    r, c, w = (np.maximum(np.asarray(x, dtype=np.int64), 1) for x in (rows, columns, concurrent))
    pa, pb = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    r, c, w, pa, pb = np.broadcast_arrays(r, c, w, pa, pb)
    once = r * pa + c * pb
    if cache >= once.max(initial=0.0) and dies == 1:
        return np.zeros(once.shape)
    widths = np.array(GROUPS).reshape(-1, *(1,) * r.ndim)
    fast, slow = np.stack([r, c])[:, None], np.stack([c, r])[:, None]
    of_fast, of_slow = np.stack([pa, pb])[:, None], np.stack([pb, pa])[:, None]
    read = walk_bytes(fast, slow, of_fast, of_slow, widths, w, cache, dies)
    return np.asarray(np.maximum(read.min(axis=(0, 1)) - once, 0.0))


def walk_bytes(
    rows: ArrayLike,
    columns: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    group: ArrayLike,
    concurrent: ArrayLike,
    cache: Bytes,
    dies: int = 1,
    *,
    chunked: bool | None = None,
) -> Floats:
    """Bytes read from memory when tiles are walked in groups of ``group`` rows.

    Arguments as of ``rereads``. ``chunked`` deals each die a contiguous part of the walk, or else
    every ``dies``-th tile; None takes the better of both. A die that gets every ``dies``-th tile
    sees one of q = gcd(dies, group) rows; one that gets a chunk sees a part of the groups or of
    the columns. Either is a smaller product walked alike, of which there are ``dies``.
    """
    r, c, g, w = (np.asarray(x, dtype=np.int64) for x in (rows, columns, group, concurrent))
    pa, pb = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    r, c, g, w, pa, pb = np.broadcast_arrays(r, c, np.minimum(g, r), w, pa, pb)
    if dies == 1:
        return _loads(r, c, pa, pb, g, w, cache)
    totals = []
    share = np.maximum(w // dies, 1)
    if chunked is not True:
        of_rows = np.gcd(g, dies)
        of_columns = dies // of_rows
        even = (c % of_columns == 0) & (r % g == 0)
        turn = _loads(-(-r // of_rows), -(-c // of_columns), pa, pb, g // of_rows, share, cache)
        totals.append(np.where(even, dies * turn, np.inf))
    if chunked is not False:
        n = r * c / dies
        inside = n <= g * c
        part_r = np.where(inside, g, np.ceil(n / c)).astype(np.int64)
        part_c = np.where(inside, np.ceil(n / g), c).astype(np.int64)
        totals.append(dies * _loads(part_r, part_c, pa, pb, g, share, cache))
    return np.asarray(np.min(totals, axis=0))


def _loads(r: Ints, c: Ints, a: Floats, b: Floats, g: Ints, w: Ints, cache: Bytes) -> Floats:
    """Bytes that one cache loads for a walk in groups of ``g`` of ``r`` rows, ``w`` tiles at once.

    Each panel is loaded once; then, of each time that it comes back in another wave, the share
    that ``_kept`` says is gone. A row's panel comes back at the next column, ``h`` tiles on, in a
    group of h rows; a column's panel at the next row, where a wave ends within a column, and in
    the next group, h c tiles on. A return after t tiles is t // w waves later, or one more.
    """
    w = np.minimum(w, r * c)
    full, rest = np.divmod(r, g)
    last = np.maximum(rest, 1)
    returns = np.stack([g, last, g * c])
    heights = np.stack([g, last, g])
    # Windows of one wave, and those of returns: of the fewer and of the more waves.
    lags, later = np.divmod(returns, w)
    near = np.maximum(lags, 1) * w
    windows = np.concatenate([np.stack([w, w]), near, near + np.where(lags > 0, w, 0)])
    lost = 1 - _kept(windows, np.concatenate([heights[:2], heights, heights]), r, c, a, b, cache)
    of_wave, fewer, more = lost[:2], lost[2:5], lost[5:]
    share = later / w
    after = np.where(lags > 0, (1 - share) * fewer, 0.0) + share * more

    rows, columns = np.zeros(r.shape), np.zeros(r.shape)
    for at, count in enumerate((full, rest > 0)):
        h = heights[at]
        size = h * c
        visits = np.minimum(c, (size + w - np.gcd(w, size)) / w)
        rows += count * h * (1 + np.where(w < h, (c - 1) * after[at], (visits - 1) * of_wave[at]))
        ends = np.minimum(size / w * (1 - np.gcd(w, h) / h), c * (h - 1))
        columns += count * ends * of_wave[at]
    groups, size = full + (rest > 0), g * c
    waves, part = np.divmod(r * c, w)
    visits = np.minimum(groups, waves + np.minimum(1.0, part / size))
    columns += c * (1 + np.where(w > size, (visits - 1) * of_wave[0], (groups - 1) * after[2]))
    tiles = r * c
    return np.asarray(np.minimum(rows, tiles) * a + np.minimum(columns, tiles) * b)


SOFT = 0.02
"""Half width, relative, in which a distance counts as partly kept: waves are not all alike."""


def _kept(n: Ints, h: Ints, r: Ints, c: Ints, a: Floats, b: Floats, cache: Bytes) -> Floats:
    """Share of panels that are still in the cache after ``n`` tiles in groups of ``h`` rows.

    The window of n tiles touches (n + h - gcd(n, h)) / h columns and
    (n + h c - gcd(n, h c)) / (h c) groups on average; the whole numbers next to these each have
    their part of the windows.
    """
    size = h * c
    across = (n + h - np.gcd(n, h)) / h
    down = np.minimum(-(-r // h), (n + size - np.gcd(n, size)) / size)
    few, low = np.floor(across), np.floor(down)
    more, higher = across - few, down - low
    tall = np.minimum(n, h)
    kept = np.zeros(n.shape)
    for deep, of_groups in ((low, 1 - higher), (low + 1, higher)):
        of_rows = np.minimum(r, tall * deep) * a
        for wide, part in ((few, 1 - more), (few + 1, more)):
            distance = of_rows + np.minimum(c, wide) * b
            near = np.clip((cache / distance - (1 - SOFT)) / (2 * SOFT), 0.0, 1.0)
            kept += of_groups * part * near
    return kept
