"""What a kernel's duration cannot leave: a bound below and a bound above.

Knows counts, bytes and seconds of a kernel. Never touches a clock, hardware specs or policies.
"""

from __future__ import annotations

from dataclasses import replace

from simulator.costs.closed_form import one_wave, tiles_by_cost
from simulator.mapping.kernel import Kernel
from simulator.units import Seconds

# A run adds up as many rounded terms as it has events in a row, each off by 1.1e-16 at most: with
# this slack the bounds hold for floats as they do for real numbers, up to a million events.
ROUNDING = 1e-9


def bounds(kernel: Kernel) -> tuple[Seconds, Seconds]:
    """Seconds that the kernel takes at least and at most, in cohort and tile mode.

    n tiles of B_i bytes and C_i seconds on K units, pipe bandwidth W, rate cap r; B and C without
    index are sums, k = min(K, n), s = 1 / min(W, r) the seconds per byte of a lone flow.

    **Lower.** The largest of

    - max(B / W, B / (k r)) + min C_i. At most k loads run at once, each at no more than r, all at
      no more than W; and after the last load its tile is still to be computed.
    - min B_i s + C / k. A unit computes nothing before its first load is done; summed over the
      at most k units that get tiles.
    - min B_i s + ceil(m / K) c, where m tiles compute for c or longer: some unit has
      ceil(m / K) of them.
    - max (B_i s + C_i).

    **Upper**, for n > K, the smaller of B s + C (at any time the pipe moves at least 1 / s bytes
    per second or, when nothing loads, some unit computes) and

        B p + C / K + R (1 - 1 / K) + max B_i / r x max(0, 1 - r p),   p = max(1 / W, 1 / (K r))

    with R the sum of the two longest computes. Proof. Let t be the time at which the last tile is
    taken from the queue, u >= t the end of the last load, T the end. Call the pipe full while
    its loads could use more than W, so that it moves W.

    1. Before t a unit always loads, computes or both: with both done it would start and take the
       next tile. So while the pipe is not full, of K units each either loads at r or computes,
       and K seconds are paid per second, out of (bytes so moved) / r + (compute so done).
    2. From t to u no load begins. While the pipe is not full, the load that ends at u moves at r;
       so that lasts for v <= max B_i / r, and moves at least v r bytes.
    3. After u the unit that ends last computes what it holds, at most two tiles: x <= R, and this
       compute is in none of the sums above.

    Bytes moved while full, in 1 and in 2 add up to at most B, hence
    T <= (B - v r) p + (C - x) / K + v + x, and the claim follows as x <= R, v <= max B_i / r.

    For n <= K all loads begin at once, and both bounds are the exact time (``one_wave``).

    With ``releases`` the run ends at the earliest when the last released tile has been loaded and
    computed, and at the latest the upper bound after the last release, from which on the proof
    holds for what is left.

    Bounds are widened by one part in 10^9 so that they also hold for sums of floats. ``fixed`` is
    in both.
    """
    if kernel.pace != 1:
        lower, upper = bounds(kernel.unpaced)
        return lower * kernel.pace, upper * kernel.pace
    counts = tiles_by_cost(kernel)
    if not counts:
        return kernel.fixed, kernel.fixed
    if kernel.releases:
        lower, upper = bounds(replace(kernel, releases=()))
        if kernel.tiles <= kernel.units:  # loads that begin apart share the pipe less
            lone = 1 / min(kernel.bandwidth, kernel.rate_cap)
            moved = kernel.pipe_bytes / kernel.bandwidth + min(time for _, time in counts)
            lower = max(moved, *(size * lone + time for size, time in counts))
            lower = (kernel.fixed + lower) * (1 - ROUNDING)
        last, tile = max(
            (due, index)
            for due, (count, index) in zip(kernel.releases, kernel.runs, strict=True)
            if count
        )
        alone = kernel.classes[tile].pipe_bytes / min(kernel.bandwidth, kernel.rate_cap)
        alone += kernel.classes[tile].compute
        return max(lower, (last + alone) * (1 - ROUNDING)), (last + upper) * (1 + ROUNDING)
    units = kernel.units
    tiles = sum(counts.values())
    if tiles <= units:
        exact = kernel.fixed + one_wave(counts, kernel.bandwidth, kernel.rate_cap)
        return exact * (1 - ROUNDING), exact * (1 + ROUNDING)

    moved = sum(count * size for (size, _), count in counts.items())
    computed = sum(count * time for (_, time), count in counts.items())
    bandwidth, cap = kernel.bandwidth, kernel.rate_cap
    lone = 1 / min(bandwidth, cap)
    shared = max(1 / bandwidth, 1 / (units * cap))
    least = min(size for size, _ in counts)
    most = max(size for size, _ in counts)

    slowest = sorted(((time, count) for (_, time), count in counts.items()), reverse=True)
    at_least_as_slow, waves, longest = 0, 0.0, 0.0
    for time, count in slowest:
        longest += time * max(0, min(count, 2 - at_least_as_slow))
        at_least_as_slow += count
        waves = max(waves, -(-at_least_as_slow // units) * time)

    lower = max(
        moved * shared + slowest[-1][0],
        least * lone + max(computed / units, waves),
        max(size * lone + time for size, time in counts),
    )
    upper = min(
        moved * lone + computed,
        moved * shared
        + computed / units
        + longest * (1 - 1 / units)
        + most / cap * max(0.0, 1 - cap * shared),
    )
    return (kernel.fixed + lower) * (1 - ROUNDING), (kernel.fixed + upper) * (1 + ROUNDING)
