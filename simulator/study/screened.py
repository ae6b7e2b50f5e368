"""A study in closed form: all of its points as a table, and which of them are worth a run.

Knows studies and what screening makes of them. Never touches costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.errors import Fault, SpecError
from simulator.fronts import pareto
from simulator.study.closed_form_sweep import Ints, Screened, screen
from simulator.study.study_file import Study

if TYPE_CHECKING:
    from polars import DataFrame


def screen_of(study: Study) -> Screened:
    """The points of a grid in closed form. Raises SpecError for a study that is no grid, and
    InputError for one that ``screen`` refuses."""
    if study.how != "grid":
        fix = "how: grid, or run every point"
        raise SpecError([Fault("sweep", None, "how", "only a grid is screened", fix)])
    return screen(study.base, study.axes)


def steps(found: Screened) -> Ints:
    """How many steps up its lists each point is from the least accelerator of the grid.

    Lists count from whichever end is slower, all else at its first value, so that a step is more
    hardware whether a rate or a delay is listed.
    """
    counts = [len(values) for values in found.axes.values()]
    grid = found.latency.reshape(counts)
    total = np.zeros(counts, dtype=np.int64)
    for axis, count in enumerate(counts):
        alone = grid[tuple(slice(None) if at == axis else 0 for at in range(len(counts)))]
        up = np.arange(count) if alone[-1] <= alone[0] else np.arange(count)[::-1]
        total += up.reshape([-1 if at == axis else 1 for at in range(len(counts))])
    return total.ravel()


def best_of(found: Screened) -> Ints:
    """Indices of the points that no other beats: as fast, and as few ``steps`` up the lists."""
    return pareto(found.latency, steps(found))


def whole_table(
    found: Screened, rows: Sequence[Mapping[str, Any]], metrics: Sequence[str]
) -> DataFrame:
    """All points in order, ``rows`` in the place of those that were run."""
    import polars

    many = len(found.latency)
    fits = np.isfinite(found.latency)
    columns: dict[str, Any] = {"index": np.arange(many)}
    for path, places in found.places(np.arange(many)).items():
        texts = polars.Series([str(value) for value in found.axes[path]])
        columns[path] = texts.gather(places)
    columns["steps"] = steps(found)
    for name in metrics:
        columns[name] = polars.repeat(None, many, eager=True)
    for name, values in (("latency", found.latency), ("throughput", found.throughput)):
        columns[name] = polars.Series(np.where(fits, values, np.nan)).fill_nan(None)
    state = polars.Series(["does not fit", "screened"]).gather(fits.astype(np.uint32))
    columns["status"] = state
    reason = polars.Series(["more than the memory holds", None], dtype=polars.String)
    columns["reason"] = reason.gather(fits.astype(np.uint32))
    table = polars.DataFrame(columns)
    exact = polars.DataFrame(rows, infer_schema_length=None)
    if exact.is_empty():
        return table
    exact = exact.with_columns(steps=polars.Series(columns["steps"][exact["index"].to_numpy()]))
    rest = table.filter(~polars.col("index").is_in(exact["index"].implode()))
    both = polars.concat([rest, exact.select(table.columns)], how="vertical_relaxed")
    return both.sort("index")
