"""A model whose answer is arithmetic, in place of the fitted ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from simulator.costs.families.model import Column, Model, Query, Terms
from simulator.costs.target import Target
from simulator.specs.fit import Fit, FittedLibrary, Spread
from simulator.specs.frozen import FrozenMap
from simulator.specs.load import default_stack, load_hardware
from simulator.specs.stack import LibraryRule, Stack


def seconds(query: Query, target: Target, values: Mapping[str, float]) -> Terms:
    """m x n x k picoseconds, and twice that for bmm; the memory takes k nanoseconds."""
    time = query["m"] * query["n"] * query["k"] * 1e-12 * (2 if query.op == "bmm" else 1)
    memory = query["k"] * 1e-9
    return Terms(seconds=time * values["slow"], parts={"compute": time, "memory": memory})


SHAPE = tuple(Column(name=name) for name in "mnk")
MODEL = Model(
    name="stub",
    family="gemm",
    columns={"gemm": SHAPE, "bmm": (Column(name="batch"), *SHAPE)},
    dtypes={"gemm": ("bf16", "fp8"), "bmm": ("bf16",)},
    shared={},
    own={},
    seconds=seconds,
)
FIT = Fit(
    name="stub",
    date="2026-01-01",
    data="none",
    rows=1,
    shared=FrozenMap({}),
    libraries=FrozenMap(
        {
            name: FittedLibrary(
                values=FrozenMap({"slow": slow}),
                by_generation=FrozenMap({"hopper": FrozenMap({})}),
                devices=("h200",),
            )
            for name, slow in (("quick", 1.0), ("slow", 3.0), ("default", 1.0))
        }
    ),
    intervals=FrozenMap(
        {
            "gemm": FrozenMap(
                {
                    "same": Spread(lower=0.9, upper=1.2),
                    "sibling": Spread(lower=0.8, upper=1.25),
                    "new": Spread(lower=0.5, upper=2.0),
                }
            )
        }
    ),
)


def with_stub(stack: Stack) -> Stack:
    """The stack with the stub's libraries: two frameworks, and none for bmm in one of them."""
    quick, slow = ((LibraryRule(use=name),) for name in ("quick", "slow"))
    frameworks = {
        "operator": FrozenMap({"default": quick}),
        "vllm": FrozenMap({"default": quick}),
        "sglang": FrozenMap({"gemm": slow}),
    }
    return replace(stack, libraries=FrozenMap({"stub": FrozenMap(frameworks)}))


def target(name: str) -> Target:
    hardware = load_hardware(name)
    return Target(accelerator=hardware, stack=with_stub(default_stack(hardware)))


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    for home in ("simulator.costs.families.model", "simulator.tables.shapes"):
        monkeypatch.setattr(f"{home}.models", lambda: {"stub": MODEL})
    monkeypatch.setattr("simulator.tables.predict.shipped_fit", lambda name: FIT)
    monkeypatch.setattr("simulator.tables.predict.residual_of", lambda name: None)


@pytest.fixture
def target_on(stub: None) -> Callable[[str], Target]:
    return target


@pytest.fixture
def h200(stub: None) -> Target:
    return target("h200")
