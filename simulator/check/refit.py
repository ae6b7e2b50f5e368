"""Fits a cost model anew and says how far it can be trusted.

Constants, a learned residual, intervals and scores.

No number here is judged on what it was fitted to: constants and the learned residual see the
shapes that are not held back, errors and intervals come from those that are. The interval of a
sibling comes from fits without one device, that of a new generation from fits without any device
of it. Knows models and measurements. Never touches formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date as calendar
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.check.boost import train
from simulator.check.fit import Sample, as_fit, fit, samples
from simulator.check.measured import Measured, by_framework, medians
from simulator.check.targets import target_of
from simulator.check.write import write_fit
from simulator.costs.families.library import ALONE, nearest, values_for
from simulator.costs.families.model import Floats, Model, models
from simulator.costs.families.residual import Residual, Residuals
from simulator.specs.catalog import find_root
from simulator.specs.fit import DISTANCES, Fit, Score, Spread
from simulator.specs.frozen import FrozenMap
from simulator.tables.predict import predict_query

LEVEL = 0.8
FIXED = 1e-3
"""Spread of a prior below which a constant is a fact of the library, and no fit moves it."""
TREES = 120
PROTOCOL = (
    "operator latencies measured on silicon (aiconfigurator-core 0.12.0, ROCm aiter, vidur, "
    "LLMCompass, NeuSight); one shape in five, by a hash of its sizes, was never fitted to"
)
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Held-back rows with their predictions, microseconds."""

    op: str
    dtype: str
    device: str
    source: str
    predicted: Floats
    measured: Floats
    lower: Floats
    upper: Floats
    distance: NDArray[np.str_]


def refit(
    model: Model,
    *,
    folder: str | Path | None = None,
    leave_out: Sequence[str] = (),
    per_group: int = 150,
    steps: int = 12,
    learned: bool = True,
) -> tuple[Fit, Residuals | None]:
    """Constants and learned residual from the shapes not held back, without some devices.

    Raises InputError where the folder does not hold the measurements.
    """
    found = _usable(model, by_framework(folder, ops=tuple(model.columns)))
    data = samples(model, found, target_of, per_group=per_group, leave_out=leave_out)
    fitted = fit(model, data, priors=_module_value(model, "PRIORS", {}), steps=steps)
    told = _module_value(model, "DESCRIPTIONS", {})
    made = as_fit(
        model, fitted, date=calendar.today().isoformat(), data=PROTOCOL, descriptions=told
    )
    made = _with_stand_ins(model, made)
    untuned = _module_value(model, "UNTUNED", ())
    kin = _module_value(model, "KIN", True)
    made = replace(
        made,
        libraries=FrozenMap(
            {
                name: replace(library, tuned=name not in untuned, kin=kin)
                for name, library in made.libraries.items()
            }
        ),
    )
    if model.features is None or not learned:
        return made, None
    rows = samples(model, found, target_of, per_group=1500, leave_out=leave_out, seed=1)
    return made, _learn(model, made, rows)


def _with_stand_ins(model: Model, made: Fit) -> Fit:
    """Libraries that nobody measured, with the constants of the nearest that somebody did.

    Constants follow what the priors of the two say: those that no fit moves stay the library's
    own, the others are scaled by the ratio of the priors.
    """
    priors = _module_value(model, "PRIORS", {})
    libraries = dict(made.libraries)

    def prior(library: str, constant: str) -> float:
        return float(priors.get(library, {}).get(constant, model.own[constant].value))

    for name, others in _module_value(model, "STAND_INS", {}).items():
        near = next((other for other in others if other in made.libraries), None)
        if name in made.libraries or near is None:
            continue

        def moved(values: FrozenMap[str, float], name: str = name, near: str = near) -> Any:
            return FrozenMap(
                {
                    constant: prior(name, constant)
                    if model.own[constant].spread < FIXED
                    else value * (prior(name, constant) / prior(near, constant))
                    for constant, value in values.items()
                }
            )

        known = made.libraries[near]
        libraries[name] = replace(
            known,
            description=f"Not measured: after {near}.",
            values=moved(known.values),
            by_generation=FrozenMap(
                {generation: moved(values) for generation, values in known.by_generation.items()}
            ),
            devices=(),
        )
    return replace(made, libraries=FrozenMap(libraries))


def _usable(model: Model, found: Iterable[Measured]) -> list[Measured]:
    """Without the measurement campaigns that a model keeps for judging alone."""
    kept = _module_value(model, "NEVER_FITTED", ())
    return [one for one in found if one.query.source not in kept]


def _module_value(model: Model, name: str, default: Any) -> Any:
    module = import_module(model.seconds.__module__)
    value = getattr(module, name, default)
    return value.get(model.name, default) if isinstance(value, dict) and _by_model(value) else value


def _by_model(value: dict[str, Any]) -> bool:
    return bool(value) and set(value) <= set(models())


def _learn(model: Model, made: Fit, rows: list[Sample]) -> Residuals:
    """Trees for each library: what one decides says little about another."""
    pools: dict[str, list[Sample]] = {}
    for sample in rows:
        pools.setdefault(sample.library, []).append(sample)
    return Residuals(
        by_library={name: _learn_one(model, made, pool) for name, pool in pools.items()}
    )


def _learn_one(model: Model, made: Fit, rows: list[Sample]) -> Residual:
    assert model.features is not None
    columns: dict[str, list[Floats]] = {}
    groups: list[str] = []
    off, weight = [], []
    for sample in rows:
        values = values_for(made, sample.library, sample.target.stack)
        time = model.seconds(sample.query, sample.target, values).seconds
        for name, column in model.features(sample.query).items():
            columns.setdefault(name, []).append(np.broadcast_to(column, time.shape))
        off.append(sample.log_time - np.log(time))
        weight.append(sample.weight)
        generation = nearest(made.libraries[sample.library], sample.target.stack)
        groups += [f"{sample.library}@{generation}"] * len(time)
    return train(
        {name: np.concatenate(parts) for name, parts in columns.items()},
        groups,
        np.concatenate(off),
        np.concatenate(weight),
        trees=_module_value(model, "TREES", TREES),
        rate=_module_value(model, "RATE", 0.1),
        limit=_module_value(model, "LIMIT", 0.5),
    )


def judge(
    made: Fit,
    residual: Residuals | None,
    measured: Iterable[Measured],
    *,
    devices: Sequence[str] | None = None,
    held: bool = True,
) -> Iterator[Judged]:
    """Predictions for held-back medians of some devices; rows without a kernel are left out."""
    for one in measured:
        if devices is not None and one.device not in devices:
            continue
        kept = one.take(np.flatnonzero(one.held)) if held else one
        if not len(kept.latency):
            continue
        target = target_of(one.device)
        answer = predict_query(kept.query, target, fit=made, residual=residual)
        known = np.isfinite(answer.seconds)
        yield Judged(
            op=one.query.op,
            dtype=one.query.dtype,
            device=one.device,
            source=one.query.source,
            predicted=answer.seconds[known] * 1e6,
            measured=kept.latency[known],
            lower=kept.lower[known],
            upper=kept.upper[known],
            distance=answer.distance[known],
        )


def scores(found: Iterable[Judged], distance: str) -> Iterator[Score]:
    """Errors by operator, format and device, percent."""
    pools: dict[tuple[str, str, str], list[Judged]] = {}
    for one in found:
        pools.setdefault((one.op, one.dtype, one.device), []).append(one)
    for (op, dtype, device), pool in sorted(pools.items()):
        predicted, measured, lower, upper = (
            np.concatenate([getattr(one, name) for one in pool])
            for name in ("predicted", "measured", "lower", "upper")
        )
        if not len(measured):
            continue
        error = np.abs(predicted / measured - 1)
        outside = np.maximum(np.maximum(predicted / upper - 1, 1 - predicted / lower), 0)
        yield Score(
            op=op,
            dtype=dtype,
            device=device,
            distance=distance,
            rows=len(measured),
            mean=round(100 * float(error.mean()), 2),
            median=round(100 * float(np.median(error)), 2),
            band=round(100 * float(outside.mean()), 2),
        )


def spreads(found: Iterable[Judged]) -> dict[str, Spread]:
    """80 % interval by operator: factors on a prediction; groups of rows weigh alike."""
    pools: dict[str, list[Judged]] = {}
    for one in found:
        pools.setdefault(one.op, []).append(one)
    made = {}
    for op, pool in pools.items():
        sizes: dict[tuple[str, str], int] = {}
        for one in pool:
            key = (one.device, one.dtype)
            sizes[key] = sizes.get(key, 0) + len(one.measured)
        ratio = np.concatenate([one.measured / one.predicted for one in pool])
        weight = np.concatenate(
            [
                np.full(len(one.measured), min(sizes[one.device, one.dtype], 100.0))
                / max(1, sizes[one.device, one.dtype])
                for one in pool
            ]
        )
        if len(ratio) < 10:
            continue
        low, high = _quantiles(ratio, weight, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
        made[op] = Spread(
            lower=float(f"{low:.3g}"), upper=float(f"{max(high, low):.3g}"), rows=len(ratio)
        )
    return made


def _quantiles(values: Floats, weights: Floats, at: tuple[float, float]) -> list[float]:
    order = np.argsort(values)
    mass = np.cumsum(weights[order])
    return [float(values[order][np.searchsorted(mass, share * mass[-1])]) for share in at]


def leave_outs(model: Model, found: Iterable[Measured]) -> Iterator[tuple[str, str, list[str]]]:
    """(distance, name, devices to leave out): each device with a sibling, then each generation."""
    by_generation: dict[str, set[str]] = {}
    for one in found:
        by_generation.setdefault(target_of(one.device).stack.generation, set()).add(one.device)
    for devices in by_generation.values():
        if len(devices) > 1:
            for device in sorted(devices):
                yield "sibling", device, [device]
    if len(by_generation) > 1:
        for generation, devices in by_generation.items():
            yield "new", generation, sorted(devices)


def ship(model: Model, *, folder: str | Path | None = None, say: Say = print) -> Fit:
    """Fit, judge and write what the product ships for a model; returns the fit."""
    measured = medians(folder, ops=tuple(model.columns))
    made, residual = refit(model, folder=folder)
    same = list(judge(made, residual, measured))
    found = list(scores(same, "same"))
    say(_summary(found))
    learned, plain = [same], [list(judge(made, None, measured))]
    for far, name, devices in leave_outs(model, measured):
        without, corrected = refit(model, folder=folder, leave_out=devices, per_group=80, steps=8)
        learned.append(list(judge(without, corrected, measured, devices=devices)))
        plain.append(list(judge(without, None, measured, devices=devices)))
        part = list(scores(learned[-1], far))
        found += part
        say(f"without {name}:\n{_summary(part)}")
    intervals: dict[str, dict[str, Spread]] = {}
    for suffix, pools in (("", learned), (ALONE, plain)):
        for far in DISTANCES:
            at = [_at(one, far) for pool in pools for one in pool]
            for op, spread in spreads(at).items():
                intervals.setdefault(op + suffix, {})[far] = spread
    ordered = {
        op: FrozenMap({far: known[far] for far in DISTANCES if far in known})
        for op, known in intervals.items()
    }
    made = replace(made, intervals=FrozenMap(ordered), scores=tuple(found))
    folder_of_fits = find_root() / "hw_specs" / "fits"
    write_fit(made, folder_of_fits / f"{model.name}.yaml")
    if residual is not None:
        residual.save(folder_of_fits / f"{model.name}.residual.json")
    return made


def _at(judged: Judged, far: str) -> Judged:
    """The rows that were predicted over that distance."""
    chosen = judged.distance == far
    columns = ("predicted", "measured", "lower", "upper", "distance")
    return replace(judged, **{name: getattr(judged, name)[chosen] for name in columns})


def _summary(found: Iterable[Score]) -> str:
    return "\n".join(
        f"  {score.op:22s} {score.dtype:12s} {score.device:20s} {score.rows:5d} "
        f"{score.mean:6.1f} {score.median:6.1f} band {score.band or 0:6.1f}"
        for score in found
    )
