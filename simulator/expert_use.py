"""What a router did to the machine in one pass of a run: rows, traffic, time. Data alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.units import Bytes, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertPhase:
    """One step of the MoE layers, all layers of the pass together."""

    name: str
    """router, dispatch, permute, up, act, down, unpermute, combine or shared."""
    time: Seconds
    """On the path of the slowest rank."""
    bytes: Bytes
    """What moves over all ranks: through their memories, or over links for an exchange."""
    descriptors: int = 0
    """Descriptors that data movers get."""
    copies: int = 0
    """Rows that threads copy where no descriptor can."""
    requests: int = 0
    """Requests of 128 bytes."""
    issue: Seconds = 0.0
    """In which each unit's mover is given its share of the descriptors; 0 where not known."""
    slot: Bytes = 0.0
    """Local memory that the fullest gather of one tile of columns fills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What one rank does from ``start`` to ``end``, in seconds from the start of the layer."""

    rank: int
    lane: Literal["units", "links", "wait"]
    name: str
    start: Seconds
    end: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One step from the run with even loads to this one."""

    name: str
    time: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertUse:
    """What the router did to the machine in one pass: who got which rows, and what that cost."""

    phase: str
    routing: str
    """How tokens chose: a distribution, a router or a trace."""
    experts: int
    top_k: int
    layers: int
    tokens: int
    """Tokens of one layer, over all ranks."""
    dropped: int = 0
    """Token-expert pairs that a capacity left out, over all layers."""
    ranks: int = 1
    domain: int = 1
    """Ranks that reach each other over scale-up links."""
    redundant: int = 0
    """Copies of experts beyond one each."""
    placement: str = ""
    schedule: str = ""
    order: str = ""
    load: tuple[int, ...]
    """Rows of each expert, over all layers."""
    gathers: tuple[int, ...] = ()
    """Descriptors that bring each expert's rows for one tile of columns, over all layers; rows that
    threads copy where nothing gathers."""
    distinct: float
    """Experts with at least one row, mean over the layers."""
    rank_load: tuple[int, ...]
    """Rows of each rank, over all layers."""
    expert_imbalance: float
    """Fullest expert over the mean one, mean over the layers."""
    rank_imbalance: float
    """Fullest rank over the mean one, mean over the layers."""
    rows: tuple[tuple[int, ...], ...] = ()
    """Token copies from rank (row) to rank (column), over all layers: what dispatch sends and
    combine sends back. The diagonal stays at home."""
    dispatch_row: Bytes = 0.0
    """Bytes of one copy on its way to an expert, scales included."""
    combine_row: Bytes = 0.0
    """Bytes of one copy on its way back."""
    phases: tuple[ExpertPhase, ...] = ()
    layer: int = 0
    """The layer, counted from the first MoE layer, that ``spans`` shows: the slowest one, of those
    behind the first, whose own stage has dense layers in it."""
    spans: tuple[Span, ...] = ()
    lost: tuple[Loss, ...] = ()
    """With even loads of ranks and experts, then what each step adds; sums to the latency."""
