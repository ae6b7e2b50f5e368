"""Fits the constants of a cost model to measurements: robust, with priors, by library.

Every constant is positive and fitted as its logarithm. A library's constant is its own value plus
a deviation by hardware generation, both held by priors, so that a generation nobody measured gets
the library's own value. The loss is soft-L1 on the logarithm of predicted over measured. Knows
models and measurements. Never touches files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from simulator.check.measured import Measured
from simulator.costs.families.library import UNKNOWN, split
from simulator.costs.families.model import Floats, Model, Query
from simulator.costs.target import Target
from simulator.specs.fit import Fit, FittedLibrary
from simulator.specs.frozen import FrozenMap

SOFT = 0.12
"""Deviation of the logarithm from which the loss turns from squares to absolute values."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """Rows that one library ran on one device, with the weight of each."""

    library: str
    generation: str
    device: str
    target: Target
    query: Query
    log_time: Floats
    weight: Floats


def samples(
    model: Model,
    measured: Iterable[Measured],
    target_of: Callable[[str], Target],
    *,
    per_group: int = 150,
    held: bool = False,
    leave_out: Sequence[str] = (),
    seed: int = 0,
) -> list[Sample]:
    """Rows to fit to: at most ``per_group`` per device, format, operator and library.

    Groups weigh alike, whatever their number of rows. ``held`` picks the held-back rows instead;
    rows of the devices in ``leave_out`` are dropped. Rows that the device's stack names no
    library for are dropped.
    """
    chance = np.random.default_rng(seed)
    pools: dict[tuple[str, str, str, str], list[Sample]] = {}
    for one in measured:
        if one.device in leave_out or one.query.op not in model.columns:
            continue
        target = target_of(one.device)
        kept = one.take(np.flatnonzero(one.held == held))
        if not len(kept.latency):
            continue
        for part in split(target.stack, model.name, kept.query):
            query = kept.query.take(part.rows)
            sample = Sample(
                library=part.library,
                generation=target.stack.generation,
                device=one.device,
                target=target,
                query=query,
                log_time=np.log(kept.latency[part.rows] * 1e-6),
                weight=np.ones(len(part.rows)),
            )
            key = (one.device, query.dtype, query.op, part.library)
            pools.setdefault(key, []).append(sample)
    found = []
    for pool in pools.values():
        total = sum(len(sample.log_time) for sample in pool)
        share = min(1.0, per_group / total)
        for sample in pool:
            rows = len(sample.log_time)
            count = rows if share == 1 else int(chance.binomial(rows, share))
            if not count:
                continue
            chosen = np.sort(chance.permutation(rows)[:count])
            weight = np.full(count, 1.0 / max(1, min(total, per_group)) * 100)
            found.append(
                Sample(
                    library=sample.library, generation=sample.generation, device=sample.device,
                    target=sample.target, query=sample.query.take(chosen),
                    log_time=sample.log_time[chosen], weight=weight,
                )
            )  # fmt: skip
    return found


@dataclass(slots=True, kw_only=True)
class Constants:
    """Logarithms of all constants of a model while they are fitted."""

    shared: dict[str, float]
    own: dict[str, dict[str, float]]
    """By library."""
    deviation: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    """By library and generation."""

    def values(self, library: str, generation: str) -> dict[str, float]:
        """The constants that hold for a library on a generation."""
        own = self.own[library]
        off = self.deviation.get((library, generation), {})
        logs = {**self.shared, **{name: value + off.get(name, 0.0) for name, value in own.items()}}
        return {name: float(np.exp(value)) for name, value in logs.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Constants as a fit left them."""

    shared: Mapping[str, float]
    libraries: Mapping[str, FittedLibrary]
    rows: int
    loss: float


def start(
    model: Model, data: Sequence[Sample], priors: Mapping[str, Mapping[str, float]]
) -> Constants:
    """Constants at their priors; ``priors`` replaces the model's value for single libraries."""
    libraries = sorted({sample.library for sample in data})
    constants = Constants(
        shared={name: float(np.log(prior.value)) for name, prior in model.shared.items()},
        own={
            library: {
                name: float(np.log(priors.get(library, {}).get(name, prior.value)))
                for name, prior in model.own.items()
            }
            for library in libraries
        },
    )
    differing = [name for name, prior in model.own.items() if prior.by_generation > 0]
    for sample in data:
        key = (sample.library, sample.generation)
        constants.deviation.setdefault(key, dict.fromkeys(differing, 0.0))
    return constants


def fit(
    model: Model,
    data: Sequence[Sample],
    *,
    priors: Mapping[str, Mapping[str, float]] | None = None,
    steps: int = 12,
    progress: Callable[[int, float], None] | None = None,
) -> Fitted:
    """Levenberg-Marquardt on the logarithms, derivatives by differences.

    All libraries are perturbed at once, since a row depends on one library alone: a step costs as
    many evaluations as a model has names of constants, however many libraries there are. Where no
    constant is shared, nothing ties the libraries together and each is fitted alone.
    """
    priors = priors or {}
    libraries = sorted({sample.library for sample in data})
    if not model.shared and len(libraries) > 1:
        return _join(
            fit(
                model,
                [sample for sample in data if sample.library == library],
                priors=priors,
                steps=steps,
            )
            for library in libraries
        )
    constants = start(model, data, priors)
    index, means, widths, low, high = _layout(model, constants)
    x = _pack(constants, index)
    x0 = means.copy()
    damping = 1e-2
    residual = _residual(model, data, constants)
    loss = _loss(residual, data) + _penalty(x, x0, widths)
    weight = np.concatenate([sample.weight for sample in data])
    for step in range(steps):
        jacobian = _jacobian(model, data, constants, index, residual)
        robust = weight / np.sqrt(1 + (residual / SOFT) ** 2)
        normal = jacobian.T @ (jacobian * robust[:, None]) / SOFT**2
        gradient = jacobian.T @ (robust * residual) / SOFT**2 + (x - x0) / widths**2
        normal[np.diag_indices_from(normal)] += 1 / widths**2
        # A constant that leans on its bound stays there, or the others would move as if it went on.
        stuck = np.where(gradient > 0, x <= low, x >= high)
        normal[stuck] = normal[:, stuck] = 0.0
        normal[stuck, stuck], gradient[stuck] = 1.0, 0.0
        improved = False
        for _ in range(8):
            lifted = normal + damping * np.diag(np.diag(normal))
            move = np.clip(np.linalg.solve(lifted, -gradient), -0.7, 0.7)
            trial = np.clip(x + move, low, high)
            candidate = _unpack(trial, index, constants)
            trial_residual = _residual(model, data, candidate)
            trial_loss = _loss(trial_residual, data) + _penalty(trial, x0, widths)
            if trial_loss < loss:
                gained = loss - trial_loss
                x, constants, residual, loss = trial, candidate, trial_residual, trial_loss
                damping = max(damping / 4, 1e-6)
                improved = True
                break
            damping *= 5
        if progress is not None:
            progress(step, loss)
        if not improved or gained < 1e-4 * loss:
            break
    return _finish(model, data, constants, loss)


_Key = tuple[str, str, str]
"""(library or '', generation or '', name)."""


def _layout(
    model: Model, constants: Constants
) -> tuple[list[_Key], Floats, Floats, Floats, Floats]:
    index: list[_Key] = [("", "", name) for name in constants.shared]
    means = list(constants.shared.values())
    priors = [model.shared[name] for name in constants.shared]
    widths = [prior.spread for prior in priors]
    low = [np.log(prior.low) for prior in priors]
    high = [np.log(prior.high) for prior in priors]
    for library, own in constants.own.items():
        for name, value in own.items():
            prior = model.own[name]
            index.append((library, "", name))
            means.append(value)
            widths.append(prior.spread)
            low.append(np.log(prior.low))
            high.append(np.log(prior.high))
    for (library, generation), own in constants.deviation.items():
        for name in own:
            index.append((library, generation, name))
            means.append(0.0)
            widths.append(model.own[name].by_generation)
            low.append(-5.0)
            high.append(5.0)
    return index, *(np.asarray(values, dtype=np.float64) for values in (means, widths, low, high))  # type: ignore[return-value]


def _pack(constants: Constants, index: list[_Key]) -> Floats:
    return np.array([_get(constants, key) for key in index])


def _get(constants: Constants, key: _Key) -> float:
    library, generation, name = key
    if generation:
        return constants.deviation[library, generation][name]
    return constants.own[library][name] if library else constants.shared[name]


def _unpack(x: Floats, index: list[_Key], like: Constants) -> Constants:
    made = Constants(
        shared=dict(like.shared),
        own={library: dict(own) for library, own in like.own.items()},
        deviation={key: dict(own) for key, own in like.deviation.items()},
    )
    for value, (library, generation, name) in zip(x, index, strict=True):
        if generation:
            made.deviation[library, generation][name] = float(value)
        elif library:
            made.own[library][name] = float(value)
        else:
            made.shared[name] = float(value)
    return made


def _log_times(model: Model, data: Sequence[Sample], constants: Constants) -> list[Floats]:
    found = []
    for sample in data:
        values = _bounded(model, constants.values(sample.library, sample.generation))
        found.append(np.log(model.seconds(sample.query, sample.target, values).seconds))
    return found


def _bounded(model: Model, values: dict[str, float]) -> dict[str, float]:
    for name, prior in model.own.items():
        values[name] = min(max(values[name], prior.low), prior.high)
    return values


def _residual(model: Model, data: Sequence[Sample], constants: Constants) -> Floats:
    times = _log_times(model, data, constants)
    return np.concatenate(
        [time - sample.log_time for time, sample in zip(times, data, strict=True)]
    )


def _loss(residual: Floats, data: Sequence[Sample]) -> float:
    weight = np.concatenate([sample.weight for sample in data])
    return float(np.sum(weight * 2 * (np.sqrt(1 + (residual / SOFT) ** 2) - 1)))


def _penalty(x: Floats, x0: Floats, widths: Floats) -> float:
    return float(np.sum(((x - x0) / widths) ** 2))


def _jacobian(
    model: Model, data: Sequence[Sample], constants: Constants, index: list[_Key], residual: Floats
) -> Floats:
    step = 1e-3
    rows = [len(sample.log_time) for sample in data]
    ends = np.cumsum(rows)
    place = {key: column for column, key in enumerate(index)}
    jacobian = np.zeros((len(residual), len(index)))
    for name in constants.shared:
        moved = _moved(constants, shared=name, by=step)
        jacobian[:, place["", "", name]] = (_residual(model, data, moved) - residual) / step
    for name in model.own:
        moved = _moved(constants, own=name, by=step)
        slope = (_residual(model, data, moved) - residual) / step
        for sample, end, count in zip(data, ends, rows, strict=True):
            part = slice(end - count, end)
            jacobian[part, place[sample.library, "", name]] = slope[part]
            column = place.get((sample.library, sample.generation, name))
            if column is not None:
                jacobian[part, column] = slope[part]
    return jacobian


def _moved(constants: Constants, *, shared: str = "", own: str = "", by: float) -> Constants:
    return Constants(
        shared={name: value + by * (name == shared) for name, value in constants.shared.items()},
        own={
            library: {name: value + by * (name == own) for name, value in values.items()}
            for library, values in constants.own.items()
        },
        deviation=constants.deviation,
    )


def _finish(model: Model, data: Sequence[Sample], constants: Constants, loss: float) -> Fitted:
    devices: dict[str, set[str]] = {}
    for sample in data:
        devices.setdefault(sample.library, set()).add(sample.target.accelerator.name)
    libraries = {}
    for library, own in constants.own.items():
        special = {}
        for (name, generation), off in constants.deviation.items():
            if name == library:
                special[generation] = FrozenMap(
                    {
                        constant: _round(
                            min(
                                max(np.exp(own[constant] + change), model.own[constant].low),
                                model.own[constant].high,
                            )
                        )
                        for constant, change in sorted(off.items())
                    }
                )
        libraries[library] = FittedLibrary(
            values=FrozenMap({constant: _round(np.exp(value)) for constant, value in own.items()}),
            by_generation=FrozenMap(special),
            devices=tuple(sorted(devices[library])),
        )
    libraries[UNKNOWN] = _unknown(libraries)
    return Fitted(
        shared={name: _round(np.exp(value)) for name, value in constants.shared.items()},
        libraries=libraries,
        rows=sum(len(sample.log_time) for sample in data),
        loss=loss,
    )


def _unknown(libraries: Mapping[str, FittedLibrary]) -> FittedLibrary:
    logs = [
        {name: np.log(value) for name, value in one.values.items()} for one in libraries.values()
    ]
    return FittedLibrary(
        description="Mean of the measured libraries, for one that was not measured.",
        values=FrozenMap(
            {name: _round(np.exp(np.mean([one[name] for one in logs]))) for name in logs[0]}
        ),
    )


def _join(parts: Iterable[Fitted]) -> Fitted:
    """Fits of single libraries as one."""
    found = list(parts)
    libraries = {
        name: library
        for part in found
        for name, library in part.libraries.items()
        if name != UNKNOWN
    }
    return Fitted(
        shared={},
        libraries={**libraries, UNKNOWN: _unknown(libraries)},
        rows=sum(part.rows for part in found),
        loss=sum(part.loss for part in found),
    )


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def as_fit(
    model: Model,
    fitted: Fitted,
    *,
    date: str,
    data: str,
    descriptions: Mapping[str, str] | None = None,
) -> Fit:
    """The constants as a fit that predictions can be made with, without intervals or scores."""
    told = descriptions or {}
    return Fit(
        name=model.name,
        date=date,
        data=data,
        rows=fitted.rows,
        shared=FrozenMap(dict(fitted.shared)),
        libraries=FrozenMap(
            {
                name: replace(library, description=told.get(name, library.description))
                for name, library in fitted.libraries.items()
            }
        ),
    )
