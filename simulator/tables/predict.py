"""Predicted latency of a table of operator shapes on one device, with intervals and what binds.

Each row is predicted once per framework that it names, with that framework's kernel library; the
answer is the median over frameworks, as measured tables state it. Knows models, fits and stacks.
Never touches files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from simulator.costs.energy import clock_doubt
from simulator.costs.families.library import (
    ALONE,
    REFERENCE,
    distance,
    frameworks_of,
    nearest,
    split,
    values_for,
)
from simulator.costs.families.model import Floats, Model, Query, model_of
from simulator.costs.families.residual import Residuals, residual_of
from simulator.costs.target import Target
from simulator.result import Bound
from simulator.specs.fit import Fit
from simulator.specs.load import load_fit
from simulator.tables.trust import NORMAL, weakness, widened

DEFAULT_SPREAD = {"same": (0.8, 1.3), "sibling": (0.75, 1.4), "new": (0.6, 1.7)}
"""Factors of the 80 % interval where a fit states none for the operator."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """Columns of an answer, seconds, in the order of the rows asked for."""

    seconds: Floats
    lower: Floats
    upper: Floats
    bound_by: NDArray[np.str_]
    distance: NDArray[np.str_]

    @classmethod
    def empty(cls, rows: int) -> Prediction:
        """NaN for every row."""
        nan = np.full(rows, np.nan)
        text = np.full(rows, "", dtype="U8")
        return cls(
            seconds=nan, lower=nan.copy(), upper=nan.copy(), bound_by=text, distance=text.copy()
        )

    def put(self, rows: NDArray[np.int64], part: Prediction) -> None:
        """Write the answer to some rows."""
        self.seconds[rows], self.lower[rows], self.upper[rows] = (
            part.seconds,
            part.lower,
            part.upper,
        )
        self.bound_by[rows], self.distance[rows] = part.bound_by, part.distance


@lru_cache(maxsize=32)
def shipped_fit(model: str) -> Fit:
    """The fit of a model that ships with the product."""
    return load_fit(model)


def predict_query(
    query: Query,
    target: Target,
    *,
    fit: Fit | None = None,
    residual: Residuals | str | None = "shipped",
) -> Prediction:
    """Seconds for each shape of a query on a target; NaN where the stack has no kernel for it.

    ``fit`` and ``residual`` take the place of those that ship, for validation.
    """
    model = model_of(query.op)
    constants = shipped_fit(model.name) if fit is None else fit
    learned = residual_of(model.name) if residual == "shipped" else cast(Residuals | None, residual)
    if query.framework and not query.source and query.framework != REFERENCE:
        query = replace(query, source=_CAMPAIGNS.get(query.framework.split("+")[0], ""))
    if not query.source or query.source in model.unlearned:
        learned = None  # What serving frameworks decide is no part of the operator alone.
    found = [
        _one_framework(model, replace(query, framework=name), target, constants, learned)
        for name in _frameworks(model, query, target)
    ]
    if not found:
        return Prediction.empty(query.rows)
    return found[0] if len(found) == 1 else _median(found)


def _frameworks(model: Model, query: Query, target: Target) -> tuple[str, ...]:
    """The frameworks behind a row: those that it names, those of its source, or the stack's own."""
    stack = target.stack
    if query.framework:
        return tuple(query.framework.split("+"))
    if query.source:
        known = frameworks_of(stack, model.name, query)
        return tuple(name for name in known if name in _SERVING) or known
    alone = REFERENCE in stack.libraries.get(model.name, ())
    return (REFERENCE,) if alone else (stack.framework,)


_SERVING = ("sglang", "trtllm", "vllm")
_CAMPAIGNS = {
    **dict.fromkeys((*_SERVING, "nccl", "oneccl"), "aiconfigurator"),
    "aiter": "aiter",
    "sarathi": "vidur",
    "pytorch": "neusight",
}
"""The campaign that timed a framework: the convention of rows that name no source."""


def _one_framework(
    model: Model, query: Query, target: Target, fit: Fit, residual: Residuals | None
) -> Prediction:
    answer = Prediction.empty(query.rows)
    for part in split(target.stack, model.name, query):
        chosen = query.take(part.rows)
        values = values_for(fit, part.library, target.stack)
        terms = model.seconds(chosen, target, values)
        far = distance(fit, part.library, target)
        seconds = terms.seconds
        told = residual is not None and far != "new" and model.features is not None
        if told:
            assert residual is not None
            assert model.features is not None
            generation = nearest(fit.libraries[part.library], target.stack)
            group = f"{part.library}@{generation}"
            seconds = seconds * np.exp(residual.log_factor(model.features(chosen), group))
        bounds = list(terms.parts)
        parts = np.stack([np.broadcast_to(terms.parts[name], seconds.shape) for name in bounds])
        binds = parts.argmax(axis=0)
        factors = np.array([interval(fit, chosen, target, far, bound, told) for bound in bounds])
        answer.put(
            part.rows,
            Prediction(
                seconds=seconds,
                lower=seconds * factors[binds, 0],
                upper=seconds * factors[binds, 1],
                bound_by=np.array(bounds)[binds],
                distance=np.full(len(seconds), far),
            ),
        )
    return answer


def interval(
    fit: Fit, query: Query, target: Target, far: str, bound: Bound, told: bool
) -> tuple[float, float]:
    """Factors of the 80 % interval at a distance, the prediction inside; ``told``: with what a
    learned residual knows.

    Weak numbers of the spec widen it, but for a device that was measured: there the fit took them
    in, and the interval was read from what was left. A power cap widens it wherever units bind.
    """
    lower, upper = spread(fit, query.op, far, told=told)
    off = 0.0 if far == "same" else weakness(target, bound, query.dtype)
    if bound == "compute":
        off = math.hypot(off, clock_doubt(target.accelerator.power) / NORMAL)
    lower, upper = widened(lower, upper, off)
    return min(lower, 1.0), max(upper, 1.0)


def spread(fit: Fit, op: str, far: str, *, told: bool) -> tuple[float, float]:
    """Factors of the 80 % interval at a distance."""
    for name in (op,) if told else (op + ALONE, op):
        known = fit.intervals.get(name)
        if known is not None and far in known:
            return known[far].lower, known[far].upper
    return DEFAULT_SPREAD[far]


def _median(found: list[Prediction]) -> Prediction:
    """The median over frameworks, row by row; the interval and bound of the nearest to it."""
    seconds = np.stack([one.seconds for one in found])
    middle = np.full(seconds.shape[1], np.nan)
    some = ~np.isnan(seconds).all(axis=0)
    middle[some] = np.nanmedian(seconds[:, some], axis=0)
    known = np.where(np.isnan(seconds), np.inf, np.abs(seconds - middle))
    which = known.argmin(axis=0)
    rows = np.arange(len(which))
    pick = {
        name: np.stack([getattr(one, name) for one in found])[which, rows]
        for name in ("seconds", "lower", "upper", "bound_by", "distance")
    }
    scale = middle / pick["seconds"]
    return Prediction(
        seconds=middle,
        lower=pick["lower"] * scale,
        upper=pick["upper"] * scale,
        bound_by=pick["bound_by"],
        distance=pick["distance"],
    )
