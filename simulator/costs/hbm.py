"""What a device memory delivers of its peak, by length of the access and share of writes.

One pseudo-channel in closed form: pure functions of a memory generation and the rate of its pins.
Knows banks, channels and refreshes. Never touches accelerators, operators or a clock.

An access of some contiguous bytes is cut into pieces of at most ``STRIPE`` bytes, each in a row of
some bank. A piece keeps four things busy: the data bus, the window of activations, its bank and
its bank group. The slowest sets the pace (``share``). With the constants below, which all
devices share, streams come out as below; tests hold the same numbers, and hold the formula
against a simulation of single commands.

    device             generation  writes  measured  model
    A100               hbm2e       0       0.876     0.900
    H100               hbm3        0       0.924     0.897
    H200               hbm3e       0       0.911     0.892
    B200               hbm3e       0       0.932     0.888
    GB200              hbm3e       0       0.931     0.887
    MI300X             hbm3        1/2     0.81      0.835
    MI355X             hbm3e       0       0.85      0.882
    MI455X             hbm4        0       0.86      0.900
    RTX PRO 6000       gddr7       0       0.929     0.900
    A40                gddr6       0       0.842     0.815
    T4, additions      gddr6       1/3     0.765     0.749
    L4, additions      gddr6       1/3     0.78      0.749
    EPYC 9575F         ddr5        1/3     0.78      0.805

Off by more are additions in an eager framework on V100 (-6 %) and P100 (14 %), and B60, whose 0.997
is no stream from memory alone. One constant for all, KEPT, lies between B200 (-4.7 %) and MI455X
(4.7 %): no other choice meets each within 5 %.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.errors import UnknownNameError
from simulator.specs.dram import Dram
from simulator.specs.hardware import MemoryLevel
from simulator.specs.load import load_memory
from simulator.units import Bytes, BytesPerSecond

Floats = NDArray[np.float64]

QUEUE = 256
"""Bursts that a controller sees ahead in one pseudo-channel: 8 kB, what 30 GB/s bring in the
270 ns that an access takes at least."""

STRIPE: Bytes = 256.0
"""Contiguous bytes in one bank; the next ones lie in another bank group or channel. No vendor
states it for these devices: 256 B is the interleave of channels on earlier AMD parts. At twice as
much or half, random accesses of 64 B or less and streams stay within a few percent."""

WRITE_BATCH = 48
"""Bursts written before the bus turns back to reads. Set by copies and sums on A100, H100 and
H200 against their reads (Azure AI benchmarking guide, BabelStream): 37 to 53, and once 136."""

KEPT = 0.900
"""Share of its time that a channel in a stream has work: unequal channels, row-hammer management,
ramps. One number for all devices, set by the read streams above, which leave room from 0.897 to
0.903 if each is to be met within 5 %."""

SHARP = 12.0
"""Exponent of the mean by which limits join: equal ones cost 6 % each, and those 20 % apart 1 %.
Set by the simulation of single commands in the tests."""


@lru_cache(maxsize=64)
def generation(kind: str) -> Dram | None:
    """Geometry and timing of a kind of device memory, or None where none are known."""
    try:
        return load_memory(kind)
    except UnknownNameError:
        return None


def timing(level: MemoryLevel) -> Dram | None:
    """Geometry and timing of a device's memory, or None where none are known."""
    memory = generation(level.kind)
    if memory is None or level.stack_ids is None:
        return memory
    return replace(memory, stack_ids=level.stack_ids)


def channel_rate(memory: Dram, level: MemoryLevel) -> BytesPerSecond:
    """Bytes per second at the pins of one pseudo-channel of a device."""
    if level.stacks is not None and level.bandwidth is not None:
        return level.bandwidth / (level.stacks * memory.pseudo_channels)
    return memory.width / 8 * (level.pin_rate or memory.pin_rate)


def share(
    memory: Dram,
    rate: BytesPerSecond,
    contiguous: ArrayLike = np.inf,
    writes: ArrayLike = 0.0,
) -> Floats:
    """Share of the peak ``rate`` of a pseudo-channel, in useful bytes.

    ``contiguous`` bytes per access, aligned to a burst, at random places; infinite for a stream.
    ``writes`` is the share of the bytes that are written. Arrays broadcast. With n bursts of t
    seconds per piece, G groups of banks, B banks behind the pseudo-channel and m = QUEUE / n
    pieces in sight, a piece takes the mean of exponent SHARP of

    - bus: n t, the stack ids' gap, and w (1 - w) n / WRITE_BATCH turnarounds of the bus (writes
      that arrive while others drain join their batch, hence 1 - w);
    - window: the longer of tRRD and tFAW / 4;
    - group: n tCCD_L / G, of m pieces at G random groups: (G + m - 1) / m;
    - bank: its busy time over B u. A piece holds its place in the queue until its last column
      command, a share h of the bank's busy time; so m pieces keep a part u of the banks busy,
      with (1 - h) B u^2 + (h B + m - 1) u = m (closed network of equal stations).

    Refresh takes time off the banks (per bank) or off everything (all banks).

    >>> hbm4 = generation("hbm4")
    >>> [round(float(share(hbm4, 32e9, size) / KEPT), 2) for size in (32, 64, 128)]
    [0.27, 0.53, 0.97]
    """
    useful, w = np.asarray(contiguous, dtype=np.float64), np.asarray(writes, dtype=np.float64)
    stripe = min(STRIPE, memory.page)
    n = np.ceil(np.minimum(useful, stripe) / memory.burst)
    burst = memory.burst / rate
    banks = memory.bank_groups * memory.banks * memory.stack_ids
    groups = memory.bank_groups * memory.stack_ids
    pieces = np.maximum(QUEUE / n, 1.0)

    column = max(memory.column_group, burst)
    gap = max((memory.column_stack or 0.0) - burst, 0.0) * (1 - 1 / memory.stack_ids)
    turn = max(memory.read_write - burst, 0.0) + memory.write_latency + memory.write_read
    bus = n * (burst + gap * memory.burst / memory.page + w * (1 - w) * turn / WRITE_BATCH)

    window = max(memory.activate, memory.four_activates / 4)
    group = n * column / groups * (groups + pieces - 1) / pieces

    columns = (n - 1) * column
    after_write = memory.write_latency + burst + memory.write_recovery
    busy_read = columns + memory.row_read + memory.read_precharge + memory.precharge
    busy_write = columns + memory.row_write + after_write + memory.precharge
    busy = (1 - w) * np.maximum(memory.row_cycle, busy_read) + w * np.maximum(
        memory.row_cycle, busy_write
    )
    held = ((1 - w) * memory.row_read + w * memory.row_write + columns) / busy
    free = (1 - held) * banks
    lone = held * banks + pieces - 1
    used = 2 * pieces / (lone + np.sqrt(lone * lone + 4 * free * pieces))
    bank = busy / (banks * used)

    kept = KEPT
    if memory.refresh == "per_bank":
        bank = bank / (1 - memory.refresh_bank / memory.refresh_interval)
    else:
        kept *= 1 - memory.refresh_all / memory.refresh_interval
    limits = np.stack(np.broadcast_arrays(bus, np.asarray(window), group, bank))
    slowest = limits.max(axis=0)
    piece = slowest * ((limits / slowest) ** SHARP).sum(axis=0) ** (1 / SHARP)
    # Of a short access's last burst some bytes are of no use; of a long one's they do not count.
    length = np.minimum(useful, 1e9)
    whole = length / (np.ceil(length / memory.burst) * memory.burst)
    return np.asarray(kept * n * burst / piece * whole)
