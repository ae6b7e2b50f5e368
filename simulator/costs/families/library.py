"""Which kernel library runs, and the constants that hold for it on a device.

Knows stacks and fits. Never touches formulas or measurements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulator.costs.families.model import Query, Values
from simulator.costs.target import Target
from simulator.specs.fit import Fit, FittedLibrary
from simulator.specs.hardware import Accelerator
from simulator.specs.stack import LibraryRule, Stack

REFERENCE = "operator"
"""Framework of a stack under which the operator alone stands, without a serving framework's
quantisation or launch; what runs inside a captured graph of the product's own models."""

ALONE = " alone"
"""Suffix of an operator's intervals where no learned residual corrects the formula."""

UNKNOWN = "default"
"""The library of a fit that stands for one that was never measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows of a query that one library runs."""

    library: str
    rows: NDArray[np.int64]


def rules_of(stack: Stack, model: str, query: Query) -> tuple[LibraryRule, ...]:
    """The rules of a stack for an operator, most particular key first; empty where it has none."""
    frameworks = stack.libraries.get(model)
    table = None if frameworks is None else frameworks.get(query.framework)
    if table is None:
        return ()
    for key in (f"{query.op}.{query.dtype}", query.op, query.dtype, "default"):
        if key in table:
            return tuple(table[key])
    return ()


def frameworks_of(stack: Stack, model: str, query: Query) -> tuple[str, ...]:
    """Frameworks of a stack that have a library for the operator and format."""
    return tuple(
        name
        for name in stack.libraries.get(model, {})
        if name != REFERENCE and rules_of(stack, model, replace(query, framework=name))
    )


def split(stack: Stack, model: str, query: Query) -> Iterator[Part]:
    """The rows by the library that runs them; rows that no rule takes are left out."""
    left = np.ones(query.rows, dtype=bool)
    for rule in rules_of(stack, model, query):
        fits = left.copy()
        for column, (low, high) in rule.where.items():
            fits &= (query[column] >= low) & (query[column] <= high)
        if fits.any():
            yield Part(library=rule.use, rows=np.flatnonzero(fits))
            left &= ~fits
        if not left.any():
            return


def values_for(fit: Fit, library: str, stack: Stack) -> Values:
    """The constants of a library on the stack's generation, of the nearest kin, or in general."""
    known = fit.libraries.get(library) or fit.libraries[UNKNOWN]
    generation = nearest(known, stack)
    special = known.by_generation[generation] if generation else known.values
    return {**fit.shared, **known.values, **special}


def nearest(library: FittedLibrary, stack: Stack) -> str | None:
    """The measured generation whose constants stand for the stack's, or None where none does."""
    for name in (stack.generation, *(stack.kin if library.kin else ())):
        if name in library.by_generation:
            return name
    return None


def distance(fit: Fit, library: str, target: Target) -> str:
    """``same``, ``sibling`` or ``new``: how far the device is from those that were measured."""
    known = fit.libraries.get(library) or fit.libraries[UNKNOWN]
    hardware = target.accelerator
    if hardware.name in known.devices and not altered(hardware):
        return "same"
    return "sibling" if target.stack.generation in known.by_generation else "new"


def altered(hardware: Accelerator) -> bool:
    """Whether a number was set, so that the device is no longer what was measured. Its price has
    no say in that, nor its power, whose cap has an interval of its own."""
    return any(
        entry.source == "--set" and not entry.path.startswith(("power.", "price."))
        for entry in hardware.provenance
    )
