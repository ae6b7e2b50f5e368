"""Descriptors: one tile of a tensor as the few numbers that a data mover copies it by.

Knows layouts in memory and the limits of a mover. Never touches operators, devices or time. The
same descriptors are counted, timed and executed on numpy arrays (``mapping.moves``).

Limits, all of them spec data (``DataMover``): AMD's Tensor Data Mover copies tiles of rank 1-5,
repeats a tile up to 256 times and gathers 16 rows at 16-bit or 8 at 32-bit indices (LLVM AMDGPU
backend, gfx1250); NVIDIA's TMA copies boxes of rank 1-5 with at most 256 elements along an axis
and, on Blackwell, gathers 4 rows (PTX ISA 8.6). A tile past a limit takes several descriptors.

Threads copy where no descriptor can: a device without a mover, a gather without gather hardware,
a tile whose rows are not aligned. Such a tile is one ``TensorDescriptor`` of mode ``copy`` that
counts as one copy per contiguous row and as no descriptor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simulator.errors import InputError
from simulator.specs.hardware import DataMover
from simulator.units import Bytes

REQUEST = 128
"""Bytes of one request to memory: a cache line of CDNA, RDNA and NVIDIA's L2."""

Piece = tuple[int, int, int]
"""(offset, length, repetitions) of one descriptor along one axis of a tile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the elements of a tensor lie in its buffer, in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    base: int = 0
    bits: int = 16
    """Bits of one element."""

    @classmethod
    def of(cls, shape: tuple[int, ...], bits: int = 16, base: int = 0) -> Layout:
        """The row-major layout of that shape.

        >>> Layout.of((3, 4)).strides
        (4, 1)
        """
        strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        return cls(shape=tuple(shape), strides=strides, base=base, bits=bits)

    def offset(self, place: Sequence[int]) -> int:
        """Where in the buffer the element at ``place`` lies."""
        return self.base + sum(i * s for i, s in zip(place, self.strides, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDescriptor:
    """One tile: ``box`` elements of a tensor from ``start`` on, to ``at`` in local memory.

    What lies outside the tensor reads as zero and is dropped on a store; ``start`` may be
    negative (TMA takes signed coordinates; elsewhere the tile is clipped into cleared memory).
    With ``rows`` the tensor is two-dimensional and these rows of it are named one by one; a row
    outside the tensor is masked. ``repeat`` copies the box that many times along ``axis``.
    """

    layout: Layout
    start: tuple[int, ...]
    box: tuple[int, ...]
    at: tuple[int, ...]
    mode: Literal["tile", "gather", "copy"] = "tile"
    rows: tuple[int, ...] | None = None
    index_bits: int = 0
    repeat: int = 1
    axis: int = 0
    multicast: int = 1
    """Workgroups that one load delivers to."""

    @property
    def extent(self) -> tuple[int, ...]:
        """Elements along each axis, repetitions included."""
        return tuple(n * self.repeat if axis == self.axis else n for axis, n in enumerate(self.box))

    @property
    def rank(self) -> int:
        """Dimensions that the mover walks; axes of one element fold into the address."""
        return max(1, sum(n > 1 for n in self.box))

    @property
    def window(self) -> tuple[tuple[int, int], ...]:
        """(first, last + 1) of the extent that lies in the tensor, along each axis."""
        return tuple(
            (max(0, -start), max(max(0, -start), min(extent, size - start)))
            for start, extent, size in zip(self.start, self.extent, self.layout.shape, strict=True)
        )

    @property
    def places(self) -> tuple[int, ...]:
        """Places in ``rows`` whose row lies in the tensor."""
        return tuple(p for p, row in enumerate(self.rows or ()) if 0 <= row < self.layout.shape[0])

    @property
    def inside(self) -> tuple[int, ...]:
        """Elements along each axis that lie in the tensor: what really moves."""
        counts = tuple(last - first for first, last in self.window)
        return counts if self.rows is None else (len(self.places), *counts[1:])

    @property
    def bytes(self) -> Bytes:
        """Bytes that cross the memory: the elements in the tensor, without block scales."""
        return math.prod(self.inside) * self.layout.bits / 8

    @property
    def local_bytes(self) -> Bytes:
        """Bytes of local memory that the tile fills, zeros included."""
        return math.prod(self.extent) * self.layout.bits / 8

    @property
    def descriptors(self) -> int:
        """Descriptors that the mover gets: none where threads copy."""
        return 0 if self.mode == "copy" else 1

    @property
    def copies(self) -> int:
        """Contiguous rows that threads copy: none where a mover does."""
        return _rows_of(self.layout, self.inside) if self.mode == "copy" else 0

    @property
    def requests(self) -> int:
        """Requests of 128 bytes: the lines under each contiguous run of elements."""
        inside, strides = self.inside, self.layout.strides
        if math.prod(inside) == 0:
            return 0
        run, axes = 1, list(range(len(inside)))
        while axes and (inside[axes[-1]] == 1 or strides[axes[-1]] == run):
            if self.rows is not None and len(axes) == 1:
                break
            run *= inside[axes.pop()]
        firsts = np.zeros(1, dtype=np.int64) + self.layout.offset(self.origin)
        for axis in axes:
            if self.rows is not None and axis == 0:
                steps = np.array([self.rows[p] for p in self.places], dtype=np.int64)
            else:
                steps = np.arange(inside[axis], dtype=np.int64)
            firsts = (firsts[:, None] + steps * strides[axis]).ravel()
        line = REQUEST * 8
        head = firsts * self.layout.bits // line
        tail = ((firsts + run) * self.layout.bits - 1) // line
        return int((tail - head + 1).sum())

    @property
    def origin(self) -> tuple[int, ...]:
        """The first element of the tensor that the tile holds; row 0 where rows are named."""
        place = tuple(s + first for s, (first, _) in zip(self.start, self.window, strict=True))
        return place if self.rows is None else (0, *place[1:])


@dataclass(frozen=True, slots=True)
class MoveCount:
    """Descriptors that movers get and rows that threads copy."""

    descriptors: int = 0
    copies: int = 0

    def __add__(self, other: MoveCount) -> MoveCount:
        return MoveCount(self.descriptors + other.descriptors, self.copies + other.copies)

    def __mul__(self, times: int) -> MoveCount:
        return MoveCount(self.descriptors * times, self.copies * times)


def lower(
    layout: Layout,
    start: tuple[int, ...],
    box: tuple[int, ...],
    mover: DataMover | None,
    *,
    rows: Sequence[int] | None = None,
    multicast: int = 1,
) -> tuple[TensorDescriptor, ...]:
    """The descriptors that move ``box`` elements from ``start`` on, under the mover's limits.

    ``rows`` names the rows to gather or scatter instead of a range of them: at most ``box[0]``,
    of a two-dimensional layout. ``multicast`` workgroups get the tile; more than the mover serves
    at once take another round of descriptors, and threads copy for each workgroup. Raises
    InputError where ranks differ or rows do not fit the box.

    >>> from simulator.specs.hardware import DataMover
    >>> tma = DataMover(kind="tma", rank=5, tile_dim=256, alignment=16)
    >>> [d.box for d in lower(Layout.of((4096, 4096)), (0, 0), (128, 512), tma)]
    [(128, 256), (128, 256)]
    """
    plan = _plan(layout, start, box, mover, None if rows is None else len(rows), multicast)
    made: list[TensorDescriptor] = []
    for copies in plan.rounds:
        for pieces in itertools.product(*plan.pieces):
            at = tuple(offset for offset, _, _ in pieces)
            lengths = tuple(length for _, length, _ in pieces)
            repeats = [repeat for _, _, repeat in pieces]
            axis = max(range(len(pieces)), key=repeats.__getitem__)
            chosen = None
            origin = tuple(a + o for a, o in zip(start, at, strict=True))
            if rows is not None:
                chosen = tuple(int(row) for row in rows[at[0] : at[0] + lengths[0]])
                origin = (0, *origin[1:])
            made.append(
                TensorDescriptor(
                    layout=layout,
                    start=origin,
                    box=lengths,
                    at=at,
                    mode=plan.mode,
                    rows=chosen,
                    index_bits=plan.index_bits,
                    repeat=repeats[axis],
                    axis=axis,
                    multicast=copies,
                )
            )
    return tuple(made)


def descriptor_count(
    layout: Layout,
    box: tuple[int, ...],
    mover: DataMover | None,
    *,
    start: tuple[int, ...] | None = None,
    rows: int | None = None,
    multicast: int = 1,
) -> MoveCount:
    """What ``lower`` would give, without building it; ``rows`` is how many rows are named.

    Named rows are taken to lie in the tensor.
    """
    start = (0,) * len(box) if start is None else start
    plan = _plan(layout, start, box, mover, rows, multicast)
    if plan.mode != "copy":
        return MoveCount(math.prod(len(pieces) for pieces in plan.pieces) * len(plan.rounds))
    whole = TensorDescriptor(layout=layout, start=start, box=box, at=start, mode="copy")
    inside = whole.inside if rows is None else (rows, *whole.inside[1:])
    return MoveCount(0, _rows_of(layout, inside) * multicast)


def dispatch_count(
    counts: Iterable[int],
    layout: Layout,
    mover: DataMover | None,
    *,
    columns: int | None = None,
) -> MoveCount:
    """Moves that gather ``counts[e]`` routed rows for each expert e, column tile by column tile.

    The sum over experts of ceil(rows / rows per descriptor), times the column tiles: rows of two
    experts never share a descriptor. ``columns`` is the width of a column tile, else a whole row.

    >>> from simulator.specs.frozen import FrozenMap
    >>> tdm = DataMover(
    ...     kind="tdm", rank=5, tile_dim=65535, gather_rows=FrozenMap({16: 16, 32: 8}), alignment=4
    ... )
    >>> dispatch_count([16] * 256, Layout.of((4096, 7168), bits=8), tdm).descriptors
    256
    """
    width = layout.shape[1] if columns is None else columns
    total = MoveCount()
    known: dict[tuple[int, int], MoveCount] = {}
    for rows in counts:
        for first in range(0, layout.shape[1], width) if rows else ():
            key = (rows, min(width, layout.shape[1] - first))
            if key not in known:
                known[key] = descriptor_count(
                    layout, (rows, width), mover, start=(0, first), rows=rows
                )
            total += known[key]
    return total


def index_width(mover: DataMover, rows: int) -> int | None:
    """The narrowest index of the mover's gather that can name ``rows`` rows; None without one.

    A 16-bit index needs fewer than 65,536 source rows: one value past the last row masks.
    """
    return min((bits for bits in mover.gather_rows if rows < 2**bits), default=None)


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a tile falls into descriptors: pieces along each axis, and rounds of multicast."""

    mode: Literal["tile", "gather", "copy"]
    pieces: tuple[tuple[Piece, ...], ...]
    rounds: tuple[int, ...] = (1,)
    index_bits: int = 0


def _plan(
    layout: Layout,
    start: tuple[int, ...],
    box: tuple[int, ...],
    mover: DataMover | None,
    rows: int | None,
    multicast: int,
) -> _Plan:
    rank = len(layout.shape)
    if not len(start) == len(box) == rank:
        raise InputError(f"start {start} and box {box} do not fit a tensor of rank {rank}")
    if rows is not None and (rank != 2 or rows > box[0]):
        raise InputError(f"{rows} named rows need a tensor of rank 2 and a box of as many rows")
    if rows is not None:
        box = (rows, box[1])
    width = None if mover is None or rows is None else index_width(mover, layout.shape[0])
    inner = _inner(layout, box)
    if mover is None or not _aligned(layout, box, inner, mover) or (rows is not None and not width):
        return _Plan("copy", tuple(((0, n, 1),) if n else () for n in box), (1,) * multicast)
    limits = [mover.tile_dim] * rank
    if inner is not None:
        step = max(1, int(mover.alignment * 8) // layout.bits)
        limits[inner] = max(step, mover.tile_dim // step * step)
    rounds = tuple(
        min(mover.multicast, multicast - first) for first in range(0, multicast, mover.multicast)
    )
    if width is not None:
        limits[0] = mover.gather_rows[width]
        pieces = tuple(tuple(_cut(n, limit)) for n, limit in zip(box, limits, strict=True))
        return _Plan("gather", pieces, rounds, width)
    wide = [axis for axis, n in enumerate(box) if n > 1]
    for axis in wide[: max(0, len(wide) - mover.rank)]:
        limits[axis] = 1
    parts = [list(_cut(n, limit)) for n, limit in zip(box, limits, strict=True)]
    split = [axis for axis in range(rank) if len(parts[axis]) > 1]
    # The fields of a repetition stand where dimensions 3 and 4 of the tile would.
    depth = sum(pieces[0][1] > 1 for pieces in parts if pieces)
    if mover.iterate > 1 and split and depth <= 3:
        axis = split[-1]
        room = layout.shape[axis] - start[axis] if start[axis] >= 0 else 0
        parts[axis] = _repeated(parts[axis], room, mover.iterate)
    return _Plan("tile", tuple(tuple(part) for part in parts), rounds)


def _cut(extent: int, limit: int) -> Iterator[Piece]:
    for offset in range(0, extent, limit):
        yield offset, min(limit, extent - offset), 1


def _repeated(pieces: list[Piece], room: int, most: int) -> list[Piece]:
    """Equal pieces that lie within the first ``room`` elements, joined ``most`` at a time."""
    length = pieces[0][1]
    equal = [piece for piece in pieces if piece[1] == length and piece[0] + length <= room]
    joined = [
        (equal[first][0], length, min(most, len(equal) - first))
        for first in range(0, len(equal), most)
    ]
    return joined + pieces[len(equal) :]


def _inner(layout: Layout, box: tuple[int, ...]) -> int | None:
    """The axis whose elements lie side by side, or None where no axis has that."""
    axes = [axis for axis, stride in enumerate(layout.strides) if stride == 1]
    return max(axes, key=lambda axis: (box[axis], axis), default=None)


def _aligned(layout: Layout, box: tuple[int, ...], inner: int | None, mover: DataMover) -> bool:
    """Whether the mover can address the tile: row length and strides of whole alignments."""
    if inner is None:
        return False
    steps = [s for axis, s in enumerate(layout.strides) if axis != inner and box[axis] > 1]
    unit = int(mover.alignment * 8)
    return all(n * layout.bits % unit == 0 for n in (layout.base, box[inner], *steps))


def _rows_of(layout: Layout, inside: tuple[int, ...]) -> int:
    """Contiguous rows of a tile: its elements over those along the contiguous axis."""
    inner = _inner(layout, inside)
    length = 1 if inner is None else inside[inner]
    return math.prod(inside) // length if length else 0
