"""tilecast: a hardware simulator and performance model for AI accelerators.

    >>> from simulator import make_scenario, simulate
    >>> result = simulate(make_scenario("llama-3.1-8b", "h200", batch=8, context=2048))
    >>> result.bound_by
    'memory'

Names are loaded when they are asked for, so that the command line starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from simulator.version import __version__

if TYPE_CHECKING:
    from simulator.api import (
        load_hardware,
        load_stack,
        load_workload,
        make_scenario,
        predict,
        simulate,
    )
    from simulator.fronts import pareto
    from simulator.result import Result
    from simulator.scenario_text import load_scenario
    from simulator.specs.scenario import Scenario
    from simulator.study.change import changed
    from simulator.study.closed_form_sweep import screen
    from simulator.study.compare import compare
    from simulator.study.plans import search_plans
    from simulator.study.sensitivity import sensitivity
    from simulator.study.study_file import make_study, read_study
    from simulator.study.sweep import sweep
    from simulator.study.training_run import train_for
    from simulator.study.what_if import what_if

__all__ = [
    "Result",
    "Scenario",
    "__version__",
    "changed",
    "compare",
    "load_hardware",
    "load_scenario",
    "load_stack",
    "load_workload",
    "make_scenario",
    "make_study",
    "pareto",
    "predict",
    "read_study",
    "screen",
    "search_plans",
    "sensitivity",
    "simulate",
    "sweep",
    "train_for",
    "what_if",
]

_HOMES = {
    "changed": "simulator.study.change",
    "compare": "simulator.study.compare",
    "load_scenario": "simulator.scenario_text",
    "make_study": "simulator.study.study_file",
    "pareto": "simulator.fronts",
    "read_study": "simulator.study.study_file",
    "Result": "simulator.result",
    "Scenario": "simulator.specs.scenario",
    "screen": "simulator.study.closed_form_sweep",
    "search_plans": "simulator.study.plans",
    "sensitivity": "simulator.study.sensitivity",
    "sweep": "simulator.study.sweep",
    "train_for": "simulator.study.training_run",
    "what_if": "simulator.study.what_if",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "simulator.api")), name)


def __dir__() -> list[str]:
    return __all__
