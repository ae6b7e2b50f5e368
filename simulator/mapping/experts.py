"""Which rank holds which expert, and which copy of an expert serves a token.

Knows counts of experts and ranks, and the load of each expert. Never touches weights, links or
time.

Balancing follows the rules published with DeepSeek's expert-parallel load balancer: copies go to
the experts of largest load per copy, one at a time; then slots go on ranks, largest load first,
each to the least loaded rank with room. Where expert groups divide over nodes, whole groups are
packed on nodes first and copies stay within their node.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Policy = Literal["contiguous", "round_robin", "balanced"]


@dataclass(frozen=True)
class ExpertPlacement:
    """Experts on ranks: ``slots[r]`` names the expert of each slot of rank r, in slot order.

    An expert with several slots has as many copies, and its rows go to them in turn.
    """

    experts: int
    slots: tuple[tuple[int, ...], ...]

    @property
    def ranks(self) -> int:
        """How many ranks hold experts."""
        return len(self.slots)

    @property
    def redundant(self) -> int:
        """Slots beyond one for each expert."""
        return sum(map(len, self.slots)) - self.experts

    @cached_property
    def _copies(self) -> tuple[Ints, Ints, Ints]:
        """Slots in expert order as one list, where each expert's begin, and how many it has."""
        many = np.bincount(self.expert_of_slot, minlength=self.experts)
        order = np.argsort(self.expert_of_slot, kind="stable")
        return order, np.cumsum(many) - many, many

    @cached_property
    def expert_of_slot(self) -> Ints:
        """Expert of each slot, slots of all ranks in order."""
        return np.array([expert for rank in self.slots for expert in rank], dtype=np.int64)

    @cached_property
    def rank_of_slot(self) -> Ints:
        """Rank of each slot, slots of all ranks in order."""
        return np.repeat(np.arange(self.ranks), [len(rank) for rank in self.slots])

    @property
    def copies(self) -> Ints:
        """Slots of each expert, (experts,)."""
        return self._copies[2]

    def serve(self, token: Ints, expert: Ints) -> Ints:
        """The slot, counted over all ranks, that serves each routed row.

        Tokens take the copies of an expert in turn, by their number.
        """
        order, begin, many = self._copies
        found: Ints = order[begin[expert] + token % many[expert]]
        return found

    def load(self, counts: Sequence[float] | Ints | Floats) -> Floats:
        """Load of each rank, (ranks,), where expert e has ``counts[e]``, its copies equal parts.

        >>> ExpertPlacement(experts=2, slots=((0, 1), (0, 0))).load([30, 5])
        array([15., 20.])
        """
        each = np.asarray(counts, dtype=np.float64) / self.copies
        weights = each[self.expert_of_slot]
        return np.bincount(self.rank_of_slot, weights, self.ranks).astype(np.float64)


def place(
    experts: int,
    ranks: int,
    *,
    redundant: int = 0,
    policy: str = "contiguous",
    loads: Sequence[float] | Ints | Floats | None = None,
    nodes: int = 1,
    groups: int = 1,
) -> ExpertPlacement:
    """Put ``experts`` experts and ``redundant`` further copies on ``ranks`` ranks.

    Every rank gets as many slots, and no expert twice. ``contiguous`` fills one rank after the
    other, ``round_robin`` deals; both copy experts 0, 1, ... in turn. ``balanced`` needs
    ``loads``, one per expert, which the other policies leave unused: it copies the heaviest and
    evens out the ranks, and is at most as uneven as ``contiguous``. Where ``nodes`` divides
    ``groups``, the groups of consecutive experts that a router chooses first, ``balanced`` gives
    each of the nodes, which are runs of consecutive ranks, whole groups with all their copies.

    Raises InputError with everything that is wrong and what would do.

    >>> place(4, 2, redundant=2, policy="balanced", loads=[8, 1, 1, 6]).slots
    ((0, 1, 3), (0, 2, 3))
    """
    faults = [
        *_faults_of_counts(experts, ranks, redundant),
        *_faults_of_nodes(experts, ranks, nodes, groups),
        *_faults_of_loads(experts, policy, loads),
    ]
    hierarchy = not faults and policy == "balanced" and groups % nodes == 0
    width = nodes if hierarchy else 1
    if not faults and redundant > experts * (ranks // width - 1):
        where = f"ranks of a node, {ranks // width}" if width > 1 else f"ranks, {ranks}"
        faults.append(
            f"{redundant} redundant copies are more copies of an expert than {where}; "
            f"at most {experts * (ranks // width - 1)} leave each rank distinct experts"
        )
    if faults:
        raise InputError("\n".join(faults))
    dealt = _dealt(experts, ranks, redundant, in_turn=policy == "round_robin")
    if loads is None or policy != "balanced":
        return dealt
    weights = np.asarray(loads, dtype=np.float64)
    found = ExpertPlacement(
        experts=experts,
        slots=tuple(
            _balanced(weights, ranks, redundant, *(nodes, groups) if hierarchy else (1, 1))
        ),
    )
    if width == 1 and dealt.load(weights).max() < found.load(weights).max():
        return dealt
    return found


def _dealt(experts: int, ranks: int, redundant: int, *, in_turn: bool) -> ExpertPlacement:
    """Experts in their order, then copies of them, by runs or in turn."""
    slots: list[list[int]] = [[] for _ in range(ranks)]
    total = experts + redundant
    # Dealing comes back to the same rank with the same expert after this many slots; one further
    # rank from there on keeps the copies apart.
    again = math.lcm(experts, ranks)
    for slot in range(total):
        rank = (slot + slot // again) % ranks if in_turn else slot // (total // ranks)
        slots[rank].append(slot % experts)
    return ExpertPlacement(experts=experts, slots=tuple(map(tuple, slots)))


def _balanced(
    loads: Floats, ranks: int, redundant: int, nodes: int, groups: int
) -> Iterator[tuple[int, ...]]:
    """Experts of each rank: groups on nodes, copies within a node, slots on its ranks."""
    members = np.arange(len(loads)).reshape(groups, -1)
    for held in _packed(loads[members].sum(axis=1), [1] * groups, nodes):
        experts = members[sorted(held)].ravel()
        copies = _replicas(loads[experts], redundant // nodes, ranks // nodes)
        for rank in _packed(loads[experts] / copies, copies, ranks // nodes):
            yield tuple(int(expert) for expert in experts[sorted(rank)])


def _replicas(loads: Floats, redundant: int, most: int) -> list[int]:
    """Copies of each expert, at most ``most``: the next one to the largest load per copy."""
    copies = [1] * len(loads)
    heap = [(-float(load), expert) for expert, load in enumerate(loads)] if most > 1 else []
    heapq.heapify(heap)
    for _ in range(redundant):
        _, expert = heapq.heappop(heap)
        copies[expert] += 1
        if copies[expert] < most:
            heapq.heappush(heap, (-float(loads[expert]) / copies[expert], expert))
    return copies


def _packed(loads: Floats, copies: Sequence[int], bins: int) -> list[list[int]]:
    """Items in bins of equal number, ``copies[i]`` times item i of load ``loads[i]`` each.

    Largest first, to the least loaded bins with room. No bin gets an item twice; ``copies`` are
    at most ``bins``.
    """
    room = sum(copies) // bins
    held: list[list[int]] = [[] for _ in range(bins)]
    heap = [(0.0, 0, number) for number in range(bins)]
    for item in np.argsort(-loads, kind="stable").tolist():
        open_bins = [heapq.heappop(heap) for _ in range(min(copies[item], len(heap)))]
        for load, filled, number in open_bins:
            held[number].append(item)
            if filled + 1 < room:
                heapq.heappush(heap, (load + float(loads[item]), filled + 1, number))
        for _ in range(copies[item] - len(open_bins)):
            heap = _swapped(loads, held, item, room)
    return held


def _swapped(
    loads: Floats, held: list[list[int]], item: int, room: int
) -> list[tuple[float, int, int]]:
    """Make room for one more ``item`` where only bins that hold it have any; the bins with room.

    A full bin without it gives up the lightest item that a bin with room lacks. There is one: the
    full bin has more items than the other has besides ``item``.
    """
    to = [number for number, items in enumerate(held) if len(items) < room]
    full = [number for number, items in enumerate(held) if item not in items]
    _, given, source, target = min(
        (float(loads[given]), given, source, target)
        for source, target in product(full, to)
        for given in held[source]
        if given not in held[target]
    )
    held[source].remove(given)
    held[source].append(item)
    held[target].append(given)
    heap = [
        (float(loads[items].sum()), len(items), number)
        for number, items in enumerate(held)
        if len(items) < room
    ]
    heapq.heapify(heap)
    return heap


def _faults_of_counts(experts: int, ranks: int, redundant: int) -> Iterator[str]:
    if experts < 1:
        yield f"{experts} experts; at least 1"
    if ranks < 1:
        yield f"{ranks} ranks; at least 1"
    if redundant < 0:
        yield f"{redundant} redundant copies; at least 0"
    total = experts + redundant
    if min(experts, ranks, redundant + 1) < 1 or total % ranks == 0:
        return
    found = f"{experts} experts" + (f" and {redundant} redundant copies" if redundant else "")
    found += f" do not divide by {ranks} ranks"
    if total < ranks:
        found += f", {ranks - total} of which would have none"
    makes = [
        f"{slots - experts} redundant copies make {slots} = {ranks} x {slots // ranks}"
        for slots in (total // ranks * ranks, -(-total // ranks) * ranks)
        if experts <= slots <= experts * ranks
    ]
    near = sorted((d for d in range(2, total + 1) if total % d == 0), key=lambda d: abs(d - ranks))
    divide = [f"ranks that divide {total}: {', '.join(map(str, sorted(near[:3])))}"] * bool(near)
    yield "; ".join([found, *makes, *divide])


def _faults_of_nodes(experts: int, ranks: int, nodes: int, groups: int) -> Iterator[str]:
    for what, count, whole, of in (
        ("nodes", nodes, ranks, "ranks"),
        ("groups", groups, experts, "experts"),
    ):
        if count < 1:
            yield f"{count} {what}; at least 1"
        elif whole > 0 and whole % count:
            would = [str(d) for d in range(1, whole + 1) if whole % d == 0]
            yield f"{whole} {of} do not divide by {count} {what}; {what}: {', '.join(would)} would"


def _faults_of_loads(
    experts: int, policy: str, loads: Sequence[float] | Ints | Floats | None
) -> Iterator[str]:
    known = get_args(Policy)
    if policy not in known:
        yield f"unknown placement {policy!r}; known: {', '.join(known)}"
    if loads is None:
        if policy == "balanced":
            yield "balanced placement needs loads, one per expert"
        return
    weights = np.asarray(loads, dtype=np.float64)
    if weights.shape != (max(experts, 0),):
        yield f"loads of shape {weights.shape}; one load for each of {experts} experts"
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)).ravel())
    if len(wrong):
        some = ", ".join(f"expert {i}: {weights.flat[i]}" for i in wrong[:3])
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        yield f"loads that are no finite number from 0 on ({some}{more})"
