"""What a data mover is given to bring an MoE layer's rows and weights to the experts.

Knows rows per expert, layouts and the limits of a mover. Never touches devices or time. Counts
are those of the descriptors that ``descriptors.lower`` builds, without building them for every
expert: column tiles of one layout fall into pieces alike whatever the expert.

Two readings of a gather. ``hardware``: a descriptor names as many rows as the mover's index field
holds (16 of 16 bits or 8 of 32 on gfx1250 after LLVM's AMDGPU backend, 4 on Blackwell after PTX
ISA 8.6), rows of two experts never share one, and threads copy row by row where nothing gathers.
``article``: one descriptor for each expert that has rows and each column tile, whatever its rows,
as a news article on the MI500 series has it ("1 TDM MoE descriptor"). No published unit does that.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError
from simulator.mapping.descriptors import REQUEST, Layout, MoveCount, index_width, lower
from simulator.specs.frozen import FrozenMap
from simulator.specs.hardware import DataMover
from simulator.units import Bytes

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Reading = Literal["hardware", "article"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpertMoves:
    """Moves of each expert of one layer; the arrays are (experts,), all column tiles together."""

    descriptors: Ints
    """Descriptors that the mover gets."""
    copies: Ints
    """Contiguous rows that threads copy, where no descriptor can."""
    bytes: Floats
    """Bytes that cross the memory."""
    requests: Floats
    """Requests of 128 bytes, in expectation over the rows of the source; exact where rows are
    whole requests long."""
    tiles: int
    """Tiles of an expert: column tiles of a row, or tiles of its weights."""
    rows: int
    """Rows of a slot: those that the fullest descriptor, or one copy, of a column tile brings."""
    slot: Bytes
    """Local memory that a column tile of those rows takes, or a tile of weights."""

    @property
    def count(self) -> MoveCount:
        """Descriptors and copies of all experts."""
        return MoveCount(int(self.descriptors.sum()), int(self.copies.sum()))


def expert_moves(
    counts: Sequence[int] | Ints,
    layout: Layout,
    mover: DataMover | None,
    *,
    columns: int | None = None,
    reading: str = "hardware",
) -> ExpertMoves:
    """Moves that gather ``counts[e]`` routed rows of ``layout`` for each expert e.

    ``layout`` is that of the source, (rows, hidden), and decides the index width; ``columns`` is
    the width of a column tile, else a whole row. Raises InputError for counts that are no whole
    numbers from 0 on, a layout of another rank, columns below 1 or an unknown reading.

    A group of 16 rows of 7,168 FP8 columns moves at once and takes 112 of the 320 KiB of a WGP:

    >>> tdm = DataMover(
    ...     kind="tdm", rank=5, tile_dim=65535, gather_rows=FrozenMap({16: 16, 32: 8}), alignment=4
    ... )
    >>> moves = expert_moves([16] * 256, Layout.of((4096, 7168), bits=8), tdm)
    >>> moves.count.descriptors, moves.slot / 1024
    (256, 112.0)
    >>> int(320 * 1024 // moves.slot)
    2
    """
    rows = _whole(counts, "rows of experts")
    faults = []
    if len(layout.shape) != 2:
        faults.append(f"a gather reads a layout of rank 2, not {len(layout.shape)}")
    if columns is not None and columns < 1:
        faults.append(f"a column tile of {columns} columns; at least 1, or none for a whole row")
    if reading not in get_args(Reading):
        faults.append(f"unknown reading {reading!r}; known: {', '.join(get_args(Reading))}")
    if faults:
        raise InputError("\n".join(faults))
    width = layout.shape[1] if columns is None else columns
    if reading == "article":
        mover = _unlimited(mover)
    source = _alike(layout, mover)
    # A single row needs no row stride that the mover can address.
    lone, many = (_gather(source, width, mover, some) for some in (1, 2))
    single = rows == 1
    limit = min(many.rows, int(rows.max(initial=0)))
    return ExpertMoves(
        descriptors=-(-rows // max(1, limit)) * np.where(single, lone.pieces, many.pieces),
        copies=rows * np.where(single, lone.copies, many.copies),
        bytes=rows * np.float64(many.bytes),
        requests=np.where(single, lone.requests, many.requests).astype(np.float64) * rows,
        tiles=-(-layout.shape[1] // width),
        rows=limit,
        slot=limit * width * layout.bits / 8,
    )


def weight_moves(
    loads: Sequence[int] | Ints,
    layout: Layout,
    mover: DataMover | None,
    *,
    tile: tuple[int, int],
) -> ExpertMoves:
    """Moves that bring the weights of each expert e ``loads[e]`` times, tile by tile.

    ``layout`` is that of one expert's matrix, which every expert has at a multiple of 128 bytes.
    An expert without rows loads nothing, one whose rows take several row tiles may load once for
    each. Raises InputError for loads that are no whole numbers from 0 on, another rank or a tile
    without elements.

    >>> tma = DataMover(kind="tma", rank=5, tile_dim=256, alignment=16)
    >>> weight_moves([1, 0, 2], Layout.of((2048, 7168), bits=8), tma, tile=(128, 128)).descriptors
    array([ 896,    0, 1792])
    """
    times = _whole(loads, "loads of weights")
    if len(layout.shape) != 2 or min(tile) < 1:
        raise InputError(
            f"a tile {tile[0]} x {tile[1]} of a layout of rank {len(layout.shape)}; weights have "
            "rank 2 and a tile at least one element along each axis"
        )
    one = _weights(layout, tile, mover)
    return ExpertMoves(
        descriptors=times * one.pieces,
        copies=times * one.copies,
        bytes=times * np.float64(one.bytes),
        requests=times * np.float64(one.requests),
        tiles=math.prod(-(-n // t) for n, t in zip(layout.shape, tile, strict=True)),
        rows=one.rows,
        slot=math.prod(tile) * layout.bits / 8,
    )


@dataclass(frozen=True, slots=True)
class _Moved:
    """What one row, or one expert's weights, takes over all tiles."""

    pieces: int
    """Descriptors, for as many rows as one names; 0 where threads copy."""
    copies: int
    bytes: Bytes
    requests: float
    rows: int


def _period(layout: Layout) -> int:
    """In how many ways rows at multiples of their stride lie in a request's lines."""
    return REQUEST * 8 // math.gcd(REQUEST * 8, layout.strides[0] * layout.bits)


def _alike(layout: Layout, mover: DataMover | None) -> Layout:
    """The layout with as few rows as have all that is told of a row: the ways in which it lies in
    lines, and the width of its index. Sources that differ in their rows alone are then few."""
    rows = layout.shape[0]
    few = min(rows, _period(layout))
    if mover is not None and index_width(mover, few) != index_width(mover, rows):
        few = 1 << rows.bit_length() - 1  # an index as wide, and a multiple of the period
    return replace(layout, shape=(few, layout.shape[1]))


@lru_cache(maxsize=256)
def _gather(layout: Layout, width: int, mover: DataMover | None, rows: int) -> _Moved:
    """A row's share of a gather of ``rows`` rows, which are one group of the mover at most.

    Rows lie in a request's lines in ``_period`` ways, equally often.
    """
    every = tuple(range(min(_period(layout), max(1, layout.shape[0]))))
    pieces = copies = 0
    size, requests, limit = 0.0, 0.0, 1
    for first in range(0, layout.shape[1], width):
        for piece in lower(layout, (0, first), (rows, width), mover, rows=(0,) * rows):
            if piece.at[0] > 0:  # the same columns of a further group of rows
                continue
            if mover is not None and piece.mode == "gather":
                limit = mover.gather_rows[piece.index_bits]
            whole = replace(piece, rows=every)
            pieces += piece.descriptors
            copies += piece.copies // rows
            size += whole.bytes / len(every)
            requests += whole.requests / len(every)
    return _Moved(pieces, copies, size, requests, limit)


@lru_cache(maxsize=256)
def _weights(layout: Layout, tile: tuple[int, int], mover: DataMover | None) -> _Moved:
    """One expert's weights; tiles that lie alike in requests and edges are lowered once."""
    alike: Counter[tuple[tuple[int, int], tuple[bool, bool]]] = Counter()
    known: dict[tuple[int, tuple[bool, bool]], tuple[int, int]] = {}
    rows, columns = layout.shape
    for start in itertools.product(range(0, rows, tile[0]), range(0, columns, tile[1])):
        edge = (start[0] + tile[0] > rows, start[1] + tile[1] > columns)
        key = (layout.offset(start) * layout.bits % (REQUEST * 8), edge)
        alike[known.setdefault(key, start), edge] += 1
    pieces, copies, size, requests = 0, 0, 0.0, 0
    for (start, _), times in alike.items():
        for piece in lower(layout, start, tile, mover):
            pieces += piece.descriptors * times
            copies += piece.copies * times
            size += piece.bytes * times
            requests += piece.requests * times
    return _Moved(pieces, copies, size, requests, tile[0])


def _unlimited(mover: DataMover | None) -> DataMover | None:
    """The mover with one gather for any rows and columns: what the article's reading takes."""
    if mover is None:
        return None
    return replace(mover, gather_rows=FrozenMap({64: 2**62}), tile_dim=2**62, alignment=1 / 8)


def _whole(counts: Sequence[int] | Ints, what: str) -> Ints:
    found = np.asarray(counts)
    wrong = [i for i, n in enumerate(found.ravel().tolist()) if not (n >= 0 and n == n // 1)]
    if found.ndim != 1 or wrong:
        some = ", ".join(f"{found.ravel()[i]} of expert {i}" for i in wrong[:3])
        raise InputError(
            f"{what}: shape {found.shape}" + (f", {some}" if some else "") + "; "
            "one whole number from 0 on for each expert"
        )
    return found.astype(np.int64)
