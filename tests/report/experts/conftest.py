"""Uses of experts to draw: routings of a DeepSeek-V3-like decode (58 MoE layers, 256 experts,
top 8), drawn with a seed, with times that are plain arithmetic on rows and bytes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from simulator.expert_use import ExpertPhase, ExpertUse, Loss, Span

LAYERS, HIDDEN = 58, 7168


def use(
    *,
    ranks: int = 8,
    experts: int = 256,
    top_k: int = 8,
    tokens: int = 1024,
    skew: float = 1.2,
    domain: int = 8,
    seed: int = 0,
    balanced: bool = False,
    pieces: int = 1,
    **changes: object,
) -> ExpertUse:
    """A pass whose experts are drawn by a Zipf law, hot ones anywhere; ``pieces`` spans an expert
    step is cut into."""
    rng = np.random.default_rng(seed)
    chance = np.arange(1, experts + 1, dtype=float) ** -skew
    load = np.zeros(experts, dtype=int)
    rows = np.zeros((ranks, ranks), dtype=int)
    fullest, hit, uneven = [], [], []
    rank_of = np.arange(experts) * ranks // experts
    for layer in range(LAYERS):
        p = rng.permutation(chance) if layer % 4 else np.roll(chance, 3 * experts // 8)
        keys = np.log(p / p.sum()) + rng.gumbel(size=(tokens, experts))
        chosen = np.argpartition(-keys, top_k, axis=1)[:, :top_k]
        if balanced:
            chosen = (np.arange(tokens * top_k) % experts).reshape(tokens, top_k)
        counts = np.bincount(chosen.ravel(), minlength=experts)
        load += counts
        by_rank = np.bincount(rank_of, weights=counts, minlength=ranks)
        fullest.append(counts.max() / counts.mean())
        uneven.append(by_rank.max() / by_rank.mean())
        hit.append((counts > 0).sum())
        meets = np.zeros((tokens, ranks), dtype=bool)
        np.put_along_axis(meets, rank_of[chosen], True, axis=1)
        home = np.arange(tokens) * ranks // tokens
        np.add.at(rows, home, meets.astype(int))
    rank_load = np.bincount(rank_of, weights=load, minlength=ranks).astype(int)
    if balanced:
        rows[:] = rows.sum() // ranks**2
    spans, end = layer_spans(rank_load / LAYERS, rows / LAYERS, pieces)
    lost = (
        Loss(name="balanced", time=0.8 * end * LAYERS),
        Loss(name="slowest rank", time=0.17 * end * LAYERS),
        Loss(name="dispatch contention", time=0.06 * end * LAYERS),
        Loss(name="smaller tiles", time=-0.03 * end * LAYERS),
    )
    fields: dict[str, object] = {
        "phase": "decode",
        "routing": "balanced" if balanced else f"zipf {skew:g}",
        "experts": experts,
        "top_k": top_k,
        "layers": LAYERS,
        "tokens": tokens,
        "ranks": ranks,
        "domain": min(domain, ranks),
        "placement": "contiguous",
        "schedule": "bulk",
        "order": "expert",
        "load": tuple(map(int, load)),
        "distinct": float(np.mean(hit)),
        "rank_load": tuple(map(int, rank_load)),
        "expert_imbalance": float(np.mean(fullest)),
        "rank_imbalance": float(np.mean(uneven)),
        "rows": tuple(tuple(map(int, row)) for row in rows),
        "dispatch_row": HIDDEN + 4.0 * HIDDEN / 128,
        "combine_row": 2.0 * HIDDEN,
        "phases": phases(rows, load, end),
        "layer": 17,
        "spans": spans,
        "lost": lost[:1] if balanced else lost,
    }
    return ExpertUse(**(fields | changes))  # type: ignore[arg-type]


def layer_spans(load: np.ndarray, rows: np.ndarray, pieces: int) -> tuple[tuple[Span, ...], float]:
    """Router, dispatch, two expert steps and combine, each rank waiting for the slowest."""
    ranks = len(load)
    speed, link, floor = 4e8, 60e9, 2e-6
    out = rows.sum(axis=1) - rows.diagonal()
    back = rows.sum(axis=0) - rows.diagonal()
    router = 4e-6
    there = router + floor + np.maximum(out, back) * HIDDEN / link
    work = floor + load / speed * 6
    slowest = (there + work).max()
    home = floor + np.maximum(out, back) * 2 * HIDDEN / link
    end = slowest + home.max() if ranks > 1 else slowest
    found: list[Span] = []

    def add(rank: int, lane: str, name: str, start: float, stop: float) -> None:
        if stop - start > 1e-12:
            found.append(
                Span(rank=rank, lane=lane, name=name, start=float(start), end=float(stop))  # type: ignore[arg-type]
            )

    for rank in range(ranks):
        add(rank, "units", "router", 0.0, router)
        ready = router
        if ranks > 1:
            ready = there[rank]
            add(rank, "links", "dispatch", router, ready)
            add(rank, "units", "shared", router, router + 0.6 * (ready - router))
            add(rank, "wait", "wait", router + 0.6 * (ready - router), ready)
        parts = {"gate_up": 0.62, "act": 0.06, "down": 0.32}
        step = work[rank] / pieces
        for piece in range(pieces):
            at = ready + piece * step
            for name, share in parts.items():
                add(rank, "units", name, at, at + share * step)
                at += share * step
        done = ready + work[rank]
        add(rank, "wait", "wait", done, slowest)
        if ranks > 1:
            add(rank, "links", "combine", slowest, slowest + home[rank])
            add(rank, "wait", "wait", slowest, end)
    return tuple(found), float(end)


def phases(rows: np.ndarray, load: np.ndarray, end: float) -> tuple[ExpertPhase, ...]:
    """Steps with bytes that follow from the rows."""
    routed = int(load.sum())
    sent = int(rows.sum() - rows.diagonal().sum())
    moved = float(routed * HIDDEN)
    found = [
        ExpertPhase(name="router", time=4e-6 * LAYERS, bytes=1e8),
        ExpertPhase(
            name="permute", time=2e-6 * LAYERS, bytes=2 * moved, copies=routed, requests=routed * 56
        ),
    ]
    if sent:
        found.append(
            ExpertPhase(name="dispatch", time=0.2 * end * LAYERS, bytes=float(sent * HIDDEN))
        )
    found += [
        ExpertPhase(
            name="gate_up",
            time=0.4 * end * LAYERS,
            bytes=6e11,
            descriptors=routed // 16 * 64,
            requests=int(6e11 / 128),
        ),
        ExpertPhase(name="act", time=0.02 * end * LAYERS, bytes=moved),
        ExpertPhase(
            name="down",
            time=0.2 * end * LAYERS,
            bytes=3e11,
            descriptors=routed // 16 * 32,
            requests=int(3e11 / 128),
        ),
    ]
    if sent:
        found.append(
            ExpertPhase(name="combine", time=0.2 * end * LAYERS, bytes=2.0 * sent * HIDDEN)
        )
    return tuple(found)


def without_rows() -> ExpertUse:
    """A pass with three experts that no token chose."""
    found = use(seed=3, tokens=64)
    load = list(found.load)
    for expert in (0, 2, 4):
        load[expert + 1] += load[expert]
        load[expert] = 0
    return dataclasses.replace(found, load=tuple(load))


@pytest.fixture(scope="session")
def uses() -> dict[str, ExpertUse]:
    """Uses by name."""
    return {
        "zipf": use(),
        "one": use(ranks=1, tokens=256),
        "balanced": use(balanced=True, tokens=256),
        "wide": use(ranks=72, experts=288, tokens=720, domain=72),
        "domains": use(ranks=128, tokens=512, domain=8),
        "drops": use(ranks=16, tokens=512, domain=8, dropped=1234, pieces=32),
        "few": use(ranks=4, experts=8, top_k=2, domain=4, tokens=256),
        "empty": without_rows(),
        "crowded": use(ranks=72, experts=288, tokens=144, pieces=100),
    }
