"""Routing statistics: what random choice must obey, whatever else is asked."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.costs.families.experts_counts import Load, load
from simulator.mapping.routing import expected_distinct_experts


def ask(tokens: list[float], experts: int = 128, topk: int = 8, ep: int = 1) -> Load:
    full = np.ones(len(tokens))
    return load(np.array(tokens), experts * full, topk * full, ep * full, "random")


def test_random_routing_of_a_batch_does_not_depend_on_its_neighbours() -> None:
    """Batches of this test alone, so that nothing was remembered."""
    together = ask([37.0, 101.0, 1003.0], experts=96, topk=5)
    alone = ask([101.0], experts=96, topk=5)
    assert together.active[1] == alone.active[0]
    assert together.blocks[:, 1].tolist() == alone.blocks[:, 0].tolist()


def test_more_tokens_never_hit_fewer_experts_or_fill_fewer_tiles() -> None:
    work = ask([float(count) for count in range(1, 2000)])
    for column in (work.pairs, work.active, work.largest, *work.blocks):
        assert (np.diff(column) >= 0).all()


@pytest.mark.parametrize("tokens", [1, 4, 16, 64, 1024])
def test_random_routing_gives_each_token_its_experts_and_hits_what_chance_gives(
    tokens: int,
) -> None:
    work = ask([float(tokens)])
    assert work.pairs[0] == pytest.approx(8 * tokens, rel=0.01)
    assert work.active[0] == pytest.approx(expected_distinct_experts(128, 8, tokens), rel=0.05)
