"""The options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Kind(StrEnum):
    """What the catalogue holds."""

    hardware = "hardware"
    workloads = "workloads"
    stacks = "stacks"
    systems = "systems"
    fits = "fits"
    memories = "memories"


class PhaseChoice(StrEnum):
    """What a run does."""

    prefill = "prefill"
    decode = "decode"
    generate = "generate"
    train = "train"
    denoise = "denoise"


class FidelityChoice(StrEnum):
    """How a run is computed."""

    roofline = "roofline"
    cohort = "cohort"
    tile = "tile"


Json = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write JSON to FILE, - for stdout.")
]
On = Annotated[str, typer.Option("--on", metavar="HW", help="Accelerator: a name or a YAML file.")]
Devices = Annotated[str, typer.Option("--on", metavar="HW,HW", help="Accelerators, comma between.")]
Workload = Annotated[
    str, typer.Argument(metavar="WORKLOAD", help="Model: a name, a YAML file or a config.json.")
]
Batch = Annotated[
    int, typer.Option("--batch", help="Sequences (or images) at once, over all devices.")
]
Input = Annotated[
    int | None, typer.Option("--input", help="Prompt tokens per sequence; 2,048 by default.")
]
Output = Annotated[int | None, typer.Option("--output", help="Generated tokens per sequence.")]
Context = Annotated[
    int | None,
    typer.Option("--context", help="Tokens in the cache of a decode step; 4,096 by default."),
]
Dtype = Annotated[str | None, typer.Option("--dtype", help="Weights in this number format.")]
StackName = Annotated[
    str | None, typer.Option("--stack", help="Software stack; the device's own by default.")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the expert routing.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change one number of a spec; repeatable."),
]
PhaseOption = Annotated[
    PhaseChoice | None, typer.Option("--phase", help="What to run; follows from the lengths.")
]
FidelityOption = Annotated[
    FidelityChoice,
    typer.Option("--fidelity", help="Closed form, cohorts of equal tiles, or every tile."),
]
SystemName = Annotated[
    str | None, typer.Option("--system", help="What is around it; the device's own.")
]
Sequence = Annotated[int | None, typer.Option("--sequence", help="Tokens of a training sequence.")]
GlobalBatch = Annotated[
    int | None, typer.Option("--global-batch", help="Sequences of a training step.")
]
TrainTokens = Annotated[
    str | None,
    typer.Option("--train-tokens", metavar="N", help="Tokens to train on, like 15.6T: days, cost."),
]
Tp = Annotated[int | None, typer.Option("--tp", help="Tensor-parallel ranks.")]
Pp = Annotated[int | None, typer.Option("--pp", help="Pipeline stages.")]
Dp = Annotated[int | None, typer.Option("--dp", help="Data-parallel replicas.")]
Ep = Annotated[int | None, typer.Option("--ep", help="Expert-parallel ranks.")]
Cp = Annotated[int | None, typer.Option("--cp", help="Context-parallel ranks.")]
MicroBatch = Annotated[
    int | None, typer.Option("--micro-batch", help="Sequences of a micro-batch.")
]
Zero = Annotated[int | None, typer.Option("--zero", help="ZeRO stage, 0 to 3.")]
Recompute = Annotated[str | None, typer.Option("--recompute", help="none, selective or full.")]
