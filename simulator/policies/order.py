"""Orders in which independent pieces of work are handed to equal units."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush


def longest_first(jobs: Iterable[tuple[int, int]], units: int) -> int:
    """Makespan of ``jobs``, (count, length) each, when a unit takes the longest left as it ends.

    Graham's longest-processing-time rule (SIAM J. Appl. Math. 17, 1969), on groups of units that
    end together instead of one by one. Never longer with more units, fewer jobs or shorter ones.

    >>> longest_first([(2, 3), (2, 1)], 2)
    4
    """
    free: list[int] = [0]
    many = {0: units}
    for count, length in sorted(jobs, key=lambda job: -job[1]):
        left = count
        while left:
            start = free[0]
            taken = min(left, many[start])
            many[start] -= taken
            if not many[start]:
                heappop(free)
                del many[start]
            end = start + length
            if end in many:
                many[end] += taken
            else:
                many[end] = taken
                heappush(free, end)
            left -= taken
    return max(free)
