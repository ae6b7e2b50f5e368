"""The product's own errors: predictions against measurements that no fit saw.

As shipped, or refitted without the device (or its whole generation) whose rows are judged. Knows
measurements, models and fits. Never touches formulas, files of reports or terminals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from simulator.check.measured import Measured, medians
from simulator.check.plain import plain_seconds
from simulator.check.refit import refit
from simulator.check.targets import target_of
from simulator.costs.families.model import Model, models
from simulator.costs.families.residual import Residuals
from simulator.errors import UnknownNameError
from simulator.report.validation import Case
from simulator.specs.fit import Fit
from simulator.specs.load import names
from simulator.tables.predict import predict_query, shipped_fit
from simulator.tables.queries import SIZES
from simulator.tables.shapes import FAMILIES

MICRO = 1e6
PROTOCOLS = {
    "shipped": (
        "Other shapes of measured devices",
        "Constants, learned corrections and intervals as shipped. One shape in five, by a hash of "
        "its sizes, is held back from every fit, the same shapes on all devices; only those are "
        "judged. Interval factors were read from these rows for each operator, all devices "
        "together: the coverage of an operator as a whole is by construction, that of a device or "
        "a format is not.",
    ),
    "device": (
        "Devices left out",
        "For each device the models were fitted again without any row of it, and judged on its "
        "held-back rows. Where its generation has another measured device it is a sibling, "
        "otherwise its generation is new. Interval factors are those shipped for that class.",
    ),
    "generation": (
        "Generations left out",
        "For each generation the models were fitted again without any row of its devices, and "
        "judged on their held-back rows. Interval factors are those shipped for new generations.",
    ),
}
"""Title and words of each way to judge."""
PER_GROUP, STEPS = 80, 8
"""Rows and steps of a refit without some devices: as those that the intervals were read from."""

Step = Callable[[str], None]
"""Told what is done next."""


def chosen(family: str | None) -> list[Model]:
    """The models of a family, or all of them; those that were not fitted yet are left out.

    Raises UnknownNameError for an unknown family.
    """
    if family is not None and family not in FAMILIES:
        raise UnknownNameError("family", family, FAMILIES)
    fitted = names("fits")
    found = [model for model in models().values() if family in (None, model.family)]
    return sorted(
        (model for model in found if model.name in fitted),
        key=lambda model: (FAMILIES.index(model.family), model.name),
    )


def as_shipped(
    wanted: Sequence[Model], folder: str | Path | None = None, *, step: Step = lambda _: None
) -> list[Case]:
    """The shipped models against the held-back rows of every device.

    Raises InputError where the folder does not hold the measurements.
    """
    found: list[Case] = []
    for model in wanted:
        step(model.name)
        measured = medians(folder, ops=tuple(model.columns))
        found += _cases(model, measured, shipped_fit(model.name), "shipped")
    return found


def left_out(
    model: Model, measured: Iterable[Measured], by: str
) -> list[tuple[str, tuple[str, ...]]]:
    """What to leave out, one after the other: each ``device``, or each ``generation``."""
    groups: dict[str, set[str]] = {}
    for one in measured:
        key = one.device if by == "device" else target_of(one.device).stack.generation
        groups.setdefault(key, set()).add(one.device)
    return [(name, tuple(sorted(devices))) for name, devices in sorted(groups.items())]


def steps_of(wanted: Sequence[Model], folder: str | Path | None, by: str) -> int:
    """How many refits ``leaving_out`` does."""
    return sum(
        len(left_out(model, medians(folder, ops=tuple(model.columns)), by)) for model in wanted
    )


def leaving_out(
    wanted: Sequence[Model],
    folder: str | Path | None = None,
    *,
    by: str,
    step: Step = lambda _: None,
) -> list[Case]:
    """Models refitted without a device or a generation, against its held-back rows, for each.

    A model that was measured on one device alone cannot do without it and is skipped.
    """
    found: list[Case] = []
    for model in wanted:
        measured = medians(folder, ops=tuple(model.columns))
        everywhere = {one.device for one in measured}
        for name, devices in left_out(model, measured, by):
            step(f"{model.name} without {name}")
            if everywhere <= set(devices):
                continue
            made, learned = refit(
                model, folder=folder, leave_out=devices, per_group=PER_GROUP, steps=STEPS
            )
            made = replace(made, intervals=shipped_fit(model.name).intervals)
            there = [one for one in measured if one.device in devices]
            found += _cases(model, there, made, learned)
    return found


def _cases(
    model: Model, measured: Iterable[Measured], fit: Fit, learned: Residuals | str | None
) -> Iterator[Case]:
    for one in measured:
        kept = one.take(np.flatnonzero(one.held))
        if not len(kept.latency):
            continue
        target = target_of(one.device)
        answer = predict_query(kept.query, target, fit=fit, residual=learned)
        with np.errstate(invalid="ignore"):
            plain = plain_seconds(kept.query, target)
        known = np.isfinite(answer.seconds)
        sizes = {
            name: kept.query[name][known]
            for name in SIZES
            if name in kept.query.sizes and (kept.query[name] >= 0).any()
        }
        for far in np.unique(answer.distance[known]):
            part = answer.distance[known] == far
            yield Case(
                family=model.family,
                op=one.query.op,
                dtype=one.query.dtype,
                device=one.device,
                source=one.query.source,
                distance=str(far),
                predicted=answer.seconds[known][part] * MICRO,
                lower=answer.lower[known][part] * MICRO,
                upper=answer.upper[known][part] * MICRO,
                measured=kept.latency[known][part],
                fastest=kept.lower[known][part],
                slowest=kept.upper[known][part],
                plain=plain[known][part] * MICRO,
                sizes={name: column[part] for name, column in sizes.items()},
            )
