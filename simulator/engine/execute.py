"""Kernels and streams of kernels, run.

Knows kernels, launches and the processes that simulate them. Never touches hardware specs,
operators or reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simpy import Environment

from simulator.engine.cohorts import KernelProcess
from simulator.engine.instant import Instant
from simulator.engine.pipes import Pipe
from simulator.mapping.kernel import Kernel
from simulator.units import Seconds

Mode = Literal["cohort", "tile"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRun:
    """What came of one kernel, alone on an idle device.

    ``makespan`` is from its start to the end of its last tile, the kernel's ``fixed`` time
    included. ``events`` counts loads and computes of cohorts (of tiles in tile mode).
    ``pipe_busy`` is the seconds in which any load was under way, ``compute_busy`` the
    unit-seconds of compute.
    """

    makespan: Seconds
    events: int
    pipe_busy: Seconds
    compute_busy: Seconds


def run_kernel(kernel: Kernel, *, mode: Mode = "cohort") -> KernelRun:
    """Simulate ``kernel`` from idle units and an empty pipe, without a launch."""
    env = Environment()
    instant = Instant(env)
    pipe = Pipe(instant, kernel.bandwidth)
    process = KernelProcess(kernel, pipe, instant, single=mode == "tile")
    process.begin()
    env.run()
    return KernelRun(
        makespan=kernel.fixed + process.end,
        events=process.events,
        pipe_busy=pipe.busy,
        compute_busy=process.computing,
    )
