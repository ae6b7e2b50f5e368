"""Descriptors executed on numpy arrays: the copies that a data mover would make.

Knows descriptors and buffers. Never touches hardware, operators or time. Addresses come from the
descriptor alone, so a wrong stride, start or row reads wrong numbers here as it would there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError
from simulator.mapping.descriptors import TensorDescriptor

Array = NDArray[Any]


def load(descriptor: TensorDescriptor, buffer: Array) -> Array:
    """The tile that a descriptor reads from a tensor's buffer, zeros outside the tensor."""
    tile: Array = np.zeros(descriptor.extent, dtype=buffer.dtype)
    view = _view(descriptor, buffer)
    tile[_inside(descriptor)] = view if descriptor.rows is None else view[_named(descriptor)]
    return tile


def store(descriptor: TensorDescriptor, buffer: Array, tile: Array) -> None:
    """Write a tile to where its descriptor says in a tensor's buffer, in place.

    Elements outside the tensor are dropped.
    """
    view = _view(descriptor, buffer)
    if descriptor.rows is None:
        view[...] = tile[_inside(descriptor)]
    else:
        view[_named(descriptor)] = tile[_inside(descriptor)]


def touch(descriptor: TensorDescriptor, counts: Array) -> None:
    """Add one to each element of a buffer of counts that a descriptor moves."""
    view = _view(descriptor, counts)
    if descriptor.rows is None:
        view += 1
    else:
        view[_named(descriptor)] += 1


def fetch(descriptors: Iterable[TensorDescriptor], buffer: Array, box: tuple[int, ...]) -> Array:
    """One tile of ``box`` elements, put together from the descriptors that it was lowered to."""
    tile: Array = np.zeros(box, dtype=buffer.dtype)
    for descriptor in descriptors:
        tile[_place(descriptor)] = load(descriptor, buffer)
    return tile


def put(descriptors: Iterable[TensorDescriptor], buffer: Array, tile: Array) -> None:
    """Store one tile through the descriptors that it was lowered to."""
    for descriptor in descriptors:
        store(descriptor, buffer, tile[_place(descriptor)])


def _place(descriptor: TensorDescriptor) -> tuple[slice, ...]:
    return tuple(
        slice(at, at + extent) for at, extent in zip(descriptor.at, descriptor.extent, strict=True)
    )


def _named(descriptor: TensorDescriptor) -> NDArray[np.intp]:
    """The named rows that lie in the tensor."""
    rows = descriptor.rows or ()
    return np.array([rows[place] for place in descriptor.places], dtype=np.intp)


def _inside(descriptor: TensorDescriptor) -> tuple[Any, ...]:
    """The part of the tile that lies in the tensor, as an index into the tile."""
    window = tuple(slice(*span) for span in descriptor.window)
    if descriptor.rows is None:
        return window
    return (np.array(descriptor.places, dtype=np.intp), *window[1:])


def _view(descriptor: TensorDescriptor, buffer: Array) -> Array:
    """The tensor's elements that a descriptor's window covers, as a view of the buffer.

    With named rows the view holds every row. Raises InputError where the layout leaves the
    buffer: the descriptor would read what is not the tensor's.
    """
    if not buffer.flags.c_contiguous:
        raise InputError("a descriptor addresses a buffer; give a contiguous array")
    layout, flat = descriptor.layout, buffer.reshape(-1)
    inside = tuple(last - first for first, last in descriptor.window)
    if descriptor.rows is not None:
        inside = (layout.shape[0], *inside[1:])
    if math.prod(inside) == 0:
        return flat[:0].reshape(inside)
    first = layout.offset(descriptor.origin)
    last = first + sum((n - 1) * s for n, s in zip(inside, layout.strides, strict=True))
    if first < 0 or last >= flat.size:
        raise InputError(
            f"a layout that reaches element {last} leaves a buffer of {flat.size} elements"
        )
    steps = tuple(stride * flat.itemsize for stride in layout.strides)
    return np.lib.stride_tricks.as_strided(flat[first:], inside, steps)
