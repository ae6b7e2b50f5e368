"""What a cost model of one family of operators is: its columns, its constants, its formula.

A model is a pure function from shapes, a device and constants to seconds. The constants that no
data sheet has lie in a fit of the same name; which library's constants hold, the stack says.
Never touches files, measurements or a clock.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simulator.costs.target import Target
from simulator.result import Bound
from simulator.specs.precision import number_format

Floats = NDArray[np.float64]
Values = Mapping[str, float]
"""Constants by name: the shared ones, and those of the library that runs."""


REPLAYED = frozenset({"aiconfigurator"})
"""Campaigns that replay the same tensors, so that what fits the cache is found there, and whose
products below bf16 begin with quantising the activation."""
WAITED = frozenset({"llmcompass"})
"""Campaigns that timed one eager call that the host waits for; no fit sees them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Shapes of one operator that one kernel library runs: what is alike, and a column per size."""

    op: str
    dtype: str
    kv_dtype: str = ""
    distribution: str = ""
    source: str = ""
    """Timing convention: the measurement campaign that an answer is compared with, or empty for
    the operator alone, as it runs inside a captured graph."""
    framework: str = ""
    sizes: Mapping[str, Floats]

    @property
    def rows(self) -> int:
        """How many shapes."""
        return len(next(iter(self.sizes.values())))

    def __getitem__(self, column: str) -> Floats:
        """A column of sizes, or what rules ask of them: ``group``, the query heads of each
        key-value head, and ``cache_bits``, those of an element of the cache."""
        if column == "group":
            return self.sizes["heads"] / self.sizes["kv_heads"]
        if column == "cache_bits":
            return np.full(self.rows, float(number_format(self.kv_dtype or self.dtype).bits))
        return self.sizes[column]

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.int64] | slice) -> Query:
        """The rows that ``chosen`` picks."""
        sizes = {name: column[chosen] for name, column in self.sizes.items()}
        return Query(
            op=self.op, dtype=self.dtype, kv_dtype=self.kv_dtype, distribution=self.distribution,
            source=self.source, framework=self.framework, sizes=sizes,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Predicted seconds, with what each resource alone would take: the largest is what binds."""

    seconds: Floats
    parts: Mapping[Bound, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is believed of a constant before any measurement; all constants are positive."""

    value: float
    spread: float = 0.5
    """Standard deviation of its logarithm about ``value``."""
    by_generation: float = 0.0
    """Standard deviation of the logarithm between generations; 0 where it is one for all."""
    low: float = 1e-12
    high: float = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column that a shape needs, with the least value that makes sense."""

    name: str
    least: float = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The cost model of some operators of a family."""

    name: str
    """Also the name of its fit, and of its part of a stack's libraries."""
    family: str
    columns: Mapping[str, tuple[Column, ...]]
    """By operator."""
    shared: Mapping[str, Prior]
    own: Mapping[str, Prior]
    """Constants that each kernel library has its own value of."""
    seconds: Callable[[Query, Target, Values], Terms]
    features: Callable[[Query], Mapping[str, Floats]] | None = None
    """What a learned residual may look at: shapes alone, never the device, so that a faster device
    never gets a longer time from it."""
    unlearned: frozenset[str] = frozenset()
    """Campaigns whose rows no learned residual knows anything about."""
    dtypes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Number formats by operator; empty where the formula takes any that the catalogue knows."""


@lru_cache(maxsize=1)
def models() -> dict[str, Model]:
    """Every model of this folder by name; a module defines ``MODEL``, or several ``MODELS``."""
    found: dict[str, Model] = {}
    for entry in pkgutil.iter_modules([str(Path(__file__).parent)]):
        module = import_module(f"{__package__}.{entry.name}")
        for model in (
            *getattr(module, "MODELS", ()),
            *filter(None, [getattr(module, "MODEL", None)]),
        ):
            found[model.name] = model
    return found


def model_of(op: str) -> Model:
    """The model that prices an operator; raises KeyError where none does."""
    for model in models().values():
        if op in model.columns:
            return model
    raise KeyError(op)
