"""A kernel as the engine sees it: classes of tiles, in queue order, on equal units.

Knows counts, bytes and seconds. Never touches hardware specs, operators or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.units import Bytes, BytesPerSecond, Flops, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TileClass:
    """Tiles that cost the same: what one moves through the shared pipe and how long it computes.

    ``load`` and ``store`` are bytes of this tile that cross the kernel's shared pipe (device
    memory). A tile's write-back is charged to the pipe together with its load: the same bytes on
    the same pipe, one event instead of two.
    """

    load: Bytes
    store: Bytes
    compute: Seconds
    flops: Flops = 0.0

    @property
    def pipe_bytes(self) -> Bytes:
        """Bytes of this tile on the shared pipe, reads and writes."""
        return self.load + self.store


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One launch: a queue of tiles served by ``units`` equal compute units through one pipe.

    ``runs`` is the queue in order, run-length encoded as (count, class index). ``rate_cap`` is
    the most that one unit can pull from the pipe. ``fixed`` is time spent once per launch on the
    device, before the first tile (pipeline fill, grid setup) and after the last (drain, a
    split-K reduction), during which units and pipe do no counted work.

    ``releases``, where given, has for each run the time from the launch before which its tiles
    cannot begin, in ascending order. ``pace`` stretches the run: a kernel held to a measured time
    does the same work at other rates, so every duration but the releases is that many times as
    long.
    """

    name: str
    classes: tuple[TileClass, ...]
    runs: tuple[tuple[int, int], ...]
    units: int
    bandwidth: BytesPerSecond
    rate_cap: BytesPerSecond = float("inf")
    fixed: Seconds = 0.0
    releases: tuple[Seconds, ...] = ()
    pace: float = 1.0

    @property
    def tiles(self) -> int:
        """How many tiles the launch has."""
        return sum(count for count, _ in self.runs)

    @property
    def pipe_bytes(self) -> Bytes:
        """Bytes that the whole launch moves through the shared pipe."""
        return sum(count * self.classes[index].pipe_bytes for count, index in self.runs)

    @property
    def compute(self) -> Seconds:
        """Unit-seconds of compute in the whole launch."""
        return sum(count * self.classes[index].compute for count, index in self.runs)

    @property
    def flops(self) -> Flops:
        """Floating-point operations of the whole launch."""
        return sum(count * self.classes[index].flops for count, index in self.runs)

    def at_pace(self, factor: float) -> Kernel:
        """The same work, alone or beside others, with every duration times ``factor``."""
        return replace(self, pace=self.pace * factor)

    @property
    def unpaced(self) -> Kernel:
        """The kernel at pace 1; only what arrives from outside comes at other times of it."""
        if self.pace == 1:
            return self
        releases = tuple(time / self.pace for time in self.releases)
        return replace(self, pace=1.0, releases=releases)
