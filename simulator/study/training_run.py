"""Training on a number of tokens: steps, time, device-hours, energy and money.

Multiplies one simulated step; knows a Result and a count of tokens. Restarts, checkpoints,
evaluation and devices that fail are not in it.
"""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import replace

from simulator.errors import Fault, SpecError
from simulator.result import Result
from simulator.training_use import TrainingBudget

MOST = 1e18
"""Most tokens: a thousand times what anybody has trained on, and more."""
_SIZES = {"": 1.0, "k": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12, "P": 1e15}
_COUNT = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE]\+?[0-9]{1,2})?)\s*([kMBGTP]?)\s*")
_OPTION = "--train-tokens"


def token_count(text: str) -> float:
    """A count of tokens as a user writes it; raises SpecError for anything else.

    >>> token_count("15.6T"), token_count("300B"), token_count("2e12")
    (15600000000000.0, 300000000000.0, 2000000000000.0)
    """
    found = _COUNT.fullmatch(text)
    count = float(found[1]) * _SIZES[found[2]] if found else 0.0
    if not 1 <= count <= MOST:
        fix = f"a count from 1 to {MOST:.0e}, like 15.6T, 300B or 2e12"
        raise SpecError([Fault("scenario", None, _OPTION, f"{text[:40]!r}", fix)])
    return count


def train_for(result: Result, tokens: float | str) -> Result:
    """The same step, with what training on so many tokens takes, in ``training.budget``.

    Steps are whole: ceil(tokens / tokens of a step), all like the one that was simulated. Energy is
    that of the accelerators, cost their rent, each None where a step's is not known. ``tokens`` is
    a count or a text such as ``15.6T``.

    Raises SpecError where the run trains nothing, or trains on images.
    """
    count = tokens if isinstance(tokens, int | float) else token_count(tokens)
    if result.training is None or result.unit != "tokens":
        what = f"a {result.phase} run" if result.training is None else f"training on {result.unit}"
        fix = "leave it out, or train a language model: --phase train"
        raise SpecError([Fault("scenario", None, _OPTION, f"has no say in {what}", fix)])
    if not 1 <= count <= MOST:
        fix = f"a count from 1 to {MOST:.0e}"
        raise SpecError([Fault("scenario", None, _OPTION, f"{count!r:.40}", fix)])
    steps = math.ceil(count / result.work)
    time = steps * result.latency
    budget = TrainingBudget(
        tokens=float(count),
        steps=steps,
        time=time,
        device_hours=time / 3600 * result.devices,
        energy=None if result.energy is None else steps * result.energy,
        cost=None if result.cost is None else steps * result.cost,
    )
    command = result.provenance.command
    if command:
        command += f" {_OPTION} {shlex.quote(str(tokens))}"
    return replace(
        result,
        training=replace(result.training, budget=budget),
        provenance=replace(result.provenance, command=command),
    )
