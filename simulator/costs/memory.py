"""What a tiling moves through the device memory, beyond each operand once.

Pure functions of bytes, on floats or numpy arrays. Never touches operators or time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.units import Bytes

Floats = NDArray[np.float64]

CACHE_SHARE = 0.15
"""Share of the last-level cache at which half of the rereads still hit. Fitted together with
REREAD on 189,049 measured operators of 22 accelerators, 2026-12."""

REREAD = 0.055
"""Share of the cache's refill traffic that reaches the device memory once operands no longer
stay in the cache: units of one wave walk the same panels in step, so most rereads merge."""


def rereads(
    fabric: Floats | float, once: Floats | float, footprint: Floats | float, cache: Bytes
) -> Floats:
    """Bytes read again from the device memory because the cache did not keep them.

    ``fabric`` is what the units pull from the cache, ``once`` the operands' own bytes and
    ``footprint`` what would have to stay. Falls with ``cache``, never below zero.

    >>> bool(rereads(10e9, 1e9, 1e6, 100e6) < rereads(10e9, 1e9, 1e9, 100e6))
    True
    """
    beyond = np.asarray(np.maximum(np.subtract(fabric, once), 0.0))
    if cache <= 0:
        return beyond
    miss = 1.0 - 1.0 / (1.0 + (np.asarray(footprint) / (CACHE_SHARE * cache)) ** 2)
    return np.asarray(REREAD * miss * beyond)
