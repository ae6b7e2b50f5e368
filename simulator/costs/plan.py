"""The kernel that an operator becomes on a target, and the choice among candidates.

Knows kernels and the closed form of equal tiles. Never touches operators or a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from simulator.costs.closed_form import closed_form_many
from simulator.costs.target import Target
from simulator.mapping.kernel import Kernel, TileClass
from simulator.mapping.tiling import Tiling
from simulator.units import Bytes, BytesPerSecond, Flops, FlopsPerSecond, Seconds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SLAB_WAVES = 8
"""Waves below which the inner loop of a tile is cut into slabs. A kernel of few waves would hide
too little if whole tiles were loaded before they are computed; with slabs at most an eighth of
the work stands alone, and the events of a kernel stay at twice this number or its waves."""


EXTRA_WAVES = np.arange(32)
"""Waves beyond the least that a launch is tried with: enough for a device with a few more units
to have every choice that matters of one with fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPlan:
    """One operator as a kernel, with what a report says about it."""

    kernel: Kernel
    format: str
    """Number format of the matrix units, or of the data where they are not used."""
    roof: FlopsPerSecond
    """Peak rate of the whole device in that format."""
    tiling: Tiling


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of several candidates: its position, on how many units, in how many slabs."""

    index: int
    units: int
    slabs: int
    compute: Seconds
    """Seconds that one unit computes a whole tile."""
    bandwidth: BytesPerSecond
    """Rate of the pipe that the units share."""
    again: Bytes
    """What the launch reads from the memory more than once."""
    time: Seconds = 0.0
    """Seconds by the closed form, where candidates were ranked."""


Rereads = Callable[[Ints, Ints], Floats]
"""Bytes that a launch reads again: of candidates by position, on how many units each."""

CHUNK = 8
"""Choices whose rereads are worked out at once."""


def rank(
    target: Target,
    *,
    tiles: Ints,
    moved: Floats,
    multiply: Floats,
    fed: Floats,
    drawn: Floats,
    steps: Ints,
    extra: Floats,
    contiguous: Bytes = inf,
    again: Rereads | None = None,
    keep: int = 1,
    alike: float = 1.0,
) -> list[Choice]:
    """The ``keep`` candidates of least time, on how many units each runs, in how many slabs.

    Each candidate has ``tiles`` tiles. A tile moves ``moved`` bytes of device memory and computes
    for ``multiply`` seconds while ``fed`` bytes fill its unit, ``drawn`` of them read from the
    cache for this tile alone, in ``steps`` steps of an inner loop; the launch takes ``extra``
    seconds more. Device memory is read in runs of ``contiguous`` bytes, and ``again`` tells what a
    launch reads beyond ``moved``. The inner loop is handed out in slabs of whole steps. A launch of
    n tiles in w waves takes as few units as they need, k = ceil(n / w): no unit only crowds the
    pipe, and the slabs of a tile cannot spread over units that had none of it. More waves than the
    least are tried too. Ties go to the earlier candidate. Of those that take at most ``alike``
    times the least, the one with the fewest pieces of work comes first.
    """
    least = np.maximum(-(-tiles // target.units), 1)
    waves = least[:, None] + EXTRA_WAVES
    taken = np.maximum(-(-tiles[:, None] // waves), 1)
    slabs = np.minimum(steps[:, None], -(-SLAB_WAVES // waves))
    compute = np.maximum(multiply, fed / target.fill)
    bound = extra[:, None] + closed_form_many(
        tiles[:, None] * slabs,
        taken,
        moved[:, None] / slabs,
        compute[:, None] / slabs,
        pipe_bandwidth(target, moved, drawn, contiguous)[:, None],
    )

    def priced(index: Ints, wave: Ints) -> list[Choice]:
        units, cut = taken[index, wave], slabs[index, wave]
        more = np.zeros(len(index)) if again is None else again(index, units)
        size = moved[index] + more / tiles[index]
        rate = pipe_bandwidth(target, size, drawn[index], contiguous)
        times = extra[index] + closed_form_many(
            tiles[index] * cut, units, size / cut, compute[index] / cut, rate
        )
        rows = zip(*(c.tolist() for c in (index, units, cut, rate, more, times)), strict=True)
        return [
            Choice(
                index=i, units=n, slabs=parts, compute=float(compute[i]), bandwidth=bandwidth,
                again=reread, time=time,
            )
            for i, n, parts, bandwidth, reread, time in rows
        ]  # fmt: skip

    best: dict[int, Choice] = {}

    def keep_better(found: list[Choice]) -> None:
        for choice in found:
            if choice.index not in best or choice.time < best[choice.index].time:
                best[choice.index] = choice

    for index, wave in _by_bound(bound, lambda: _worst(best, min(keep, len(tiles)))):
        keep_better(priced(index, wave))
    if alike > 1:
        limit = alike * min(choice.time for choice in best.values())
        likely = bound.argmin(axis=1)
        near = np.flatnonzero(bound.min(axis=1) <= limit)
        keep_better(priced(near, likely[near]))
    ranked = sorted(best.values(), key=lambda choice: (choice.time, choice.index))
    if alike > 1:
        near_by = [choice for choice in ranked if choice.time <= alike * ranked[0].time]
        first = min(near_by, key=lambda choice: tiles[choice.index] * choice.slabs)
        ranked.remove(first)
        ranked.insert(0, first)
    return ranked[:keep]


def _worst(best: dict[int, Choice], keep: int) -> Seconds:
    """Time of the last candidate that would be kept so far; infinite where some are missing."""
    times = sorted(choice.time for choice in best.values())
    return times[keep - 1] if len(times) >= keep else inf


def _by_bound(bound: Floats, worst: Callable[[], Seconds]) -> Iterator[tuple[Ints, Ints]]:
    """Positions of choices in chunks, those of least bound first, until none can beat ``worst``.

    A time without rereads is a bound below. Most launches are settled by the first chunk, which
    is found without sorting all.
    """
    flat = bound.ravel()
    chunk = min(CHUNK, flat.size)
    few = np.flatnonzero(flat <= np.partition(flat, chunk - 1)[chunk - 1])
    first = few[np.argsort(flat[few], kind="stable")][:chunk]
    yield np.divmod(first, bound.shape[1])
    left = np.setdiff1d(np.flatnonzero(flat < worst()), first)
    left = left[np.argsort(flat[left], kind="stable")]
    for start in range(0, len(left), chunk):
        some = left[start : start + chunk]
        if flat[some[0]] >= worst():
            return
        yield np.divmod(some, bound.shape[1])


def pipe_bandwidth(target: Target, moved: Floats, drawn: Floats, contiguous: Bytes = inf) -> Floats:
    """Rate at which ``moved`` bytes of device memory pass when ``drawn`` bytes leave the cache.

    All that units read comes through the cache, so a kernel whose tiles share much is held to
    the cache's bandwidth: its few bytes from the memory wait for the many that hit. The memory
    itself is read in runs of ``contiguous`` bytes.
    """
    ratio = np.divide(
        moved, np.maximum(drawn, 1.0), out=np.full(np.shape(moved), np.inf), where=moved > 0
    )
    return np.asarray(
        np.minimum(target.gather_bandwidth(contiguous), target.cache_bandwidth * ratio)
    )


def equal_tiles(
    name: str,
    target: Target,
    choice: Choice,
    *,
    tiles: int,
    read: Bytes,
    written: Bytes,
    flops: Flops,
    extra: Seconds = 0.0,
) -> Kernel:
    """A kernel whose tiles all cost the same: an equal share of what the launch moves.

    Which tile of a row or column misses the cache first, and pays for the others, is chance; and
    an edge tile computes as long as a full one, since matrix instructions are padded.
    """
    entries = tiles * choice.slabs
    share = TileClass(
        load=read / entries,
        store=written / entries,
        compute=choice.compute / choice.slabs,
        flops=flops / entries,
    )
    return Kernel(
        name=name,
        classes=(share,),
        runs=((entries, 0),),
        units=choice.units,
        bandwidth=choice.bandwidth,
        fixed=target.stack.fill + extra,
    )
