"""How far predictions are from measurements: the rows judged, and the scores that sum them up.

Plain columns in, scores out. Never touches models, files or drawings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulator.report import numbers

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """Rows of one operator, format and device, microseconds, one entry per row."""

    family: str
    op: str
    dtype: str
    device: str
    source: str
    distance: str
    predicted: Floats
    lower: Floats
    upper: Floats
    measured: Floats
    fastest: Floats
    slowest: Floats
    """Of the frameworks behind a row, the fastest and the slowest."""
    plain: Floats
    """The plain roofline's answer; NaN where it has none."""
    sizes: Mapping[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors of some rows, as fractions."""

    rows: int
    mean: float
    """Mean absolute error relative to the measured time (MAPE)."""
    median: float
    ratio: float
    """Geometric mean of predicted over measured."""
    band: float
    """Mean distance to the band between the fastest and the slowest framework, relative to the
    nearer of them."""
    covered: float
    """Share of rows whose measured time is inside the 80 % interval."""
    plain: float | None
    """Mean absolute error of the plain roofline on the same rows."""


def score(cases: Sequence[Case]) -> Score:
    """Errors over all rows of ``cases``, which hold one at least."""
    predicted, measured, fastest, slowest, lower, upper, plain = (
        np.concatenate([getattr(case, name) for case in cases])
        for name in ("predicted", "measured", "fastest", "slowest", "lower", "upper", "plain")
    )
    error = np.abs(predicted / measured - 1)
    outside = np.maximum(np.maximum(predicted / slowest - 1, 1 - predicted / fastest), 0)
    known = np.isfinite(plain)
    return Score(
        rows=len(measured),
        mean=float(error.mean()),
        median=float(np.median(error)),
        ratio=float(np.exp(np.log(predicted / measured).mean())),
        band=float(outside.mean()),
        covered=float(((measured >= lower) & (measured <= upper)).mean()),
        plain=float(np.abs(plain[known] / measured[known] - 1).mean()) if known.any() else None,
    )


def grouped(cases: Iterable[Case], *by: str) -> Iterator[tuple[tuple[str, ...], list[Case]]]:
    """Cases that agree in the fields ``by``, in the order of first appearance."""
    pools: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        pools.setdefault(tuple(str(getattr(case, one)) for one in by), []).append(case)
    yield from pools.items()


HEADS = ("rows", "mean", "median", "ratio", "band", "in 80 %", "plain")


def cells(found: Score) -> tuple[str, ...]:
    """A score as text, in the order of ``HEADS``."""
    return (
        numbers.count(found.rows),
        numbers.points(found.mean),
        numbers.points(found.median),
        numbers.digits(found.ratio),
        numbers.points(found.band),
        numbers.points(found.covered),
        numbers.points(found.plain),
    )
