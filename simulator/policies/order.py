"""Orders in which independent pieces of work are handed to equal units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush

from simulator.registry import Registry


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


ExpertOrder = Callable[[Sequence[int]], list[int]]
"""From the rows of each expert to the experts in the order in which a launch takes them."""

EXPERT_ORDERS: Registry[ExpertOrder] = Registry("expert order", group="tilecast.expert_orders")


@EXPERT_ORDERS.register("expert")
def in_expert_order(rows: Sequence[int]) -> list[int]:
    """As they are numbered: what grouped kernels do."""
    return list(range(len(rows)))


@EXPERT_ORDERS.register("longest_first")
def fullest_first(rows: Sequence[int]) -> list[int]:
    """The fullest expert first, so that no long tile comes last (Graham 1969).

    >>> fullest_first([3, 0, 7, 3])
    [2, 0, 3, 1]
    """
    return sorted(range(len(rows)), key=lambda expert: -rows[expert])


@EXPERT_ORDERS.register("by_class")
def by_class(rows: Sequence[int]) -> list[int]:
    """Experts with as many rows one after another, in the order in which each number first comes.

    >>> by_class([3, 0, 7, 3])
    [0, 3, 1, 2]
    """
    first: dict[int, int] = {}
    for expert, count in enumerate(rows):
        first.setdefault(count, expert)
    return sorted(range(len(rows)), key=lambda expert: first[rows[expert]])
