"""The options that state a scenario, once for every command that runs one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

from simulator.cli.options import (
    Batch,
    Context,
    Cp,
    Dp,
    Dtype,
    Ep,
    FidelityChoice,
    FidelityOption,
    GlobalBatch,
    Input,
    MicroBatch,
    Output,
    Overrides,
    PhaseOption,
    Pp,
    Recompute,
    Seed,
    Sequence,
    StackName,
    SystemName,
    Tp,
    Zero,
)


def _question(
    phase: PhaseOption = None,
    batch: Batch = 1,
    input: Input = None,
    output: Output = None,
    context: Context = None,
    dtype: Dtype = None,
    stack: StackName = None,
    system: SystemName = None,
    tp: Tp = None,
    pp: Pp = None,
    dp: Dp = None,
    ep: Ep = None,
    cp: Cp = None,
    sequence: Sequence = None,
    global_batch: GlobalBatch = None,
    micro_batch: MicroBatch = None,
    zero: Zero = None,
    recompute: Recompute = None,
    fidelity: FidelityOption = FidelityChoice.cohort,
    seed: Seed = 0,
    overrides: Overrides = None,
) -> dict[str, Any]:
    """The arguments of ``make_scenario`` but for the model and the device."""
    return locals() | {
        "phase": phase.value if phase else None,
        "fidelity": fidelity.value,
        "overrides": tuple(overrides or ()),
    }


def asks(command: Callable[..., None]) -> Callable[..., None]:
    """A command with these options in place of its parameter ``asked``, which gets what they say
    as arguments of ``make_scenario``."""
    own, options = (signature(one, eval_str=True) for one in (command, _question))

    @wraps(command)
    def run(**given: Any) -> None:
        command(asked=_question(**{name: given.pop(name) for name in options.parameters}), **given)

    parameters = list(own.parameters.values())
    at = list(own.parameters).index("asked")
    parameters[at : at + 1] = options.parameters.values()
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run
