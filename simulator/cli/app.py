"""The commands, one function each."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    name="tilecast",
    help="Estimate what an AI accelerator will do with a model before you buy it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


def _print_version(wanted: bool) -> None:
    from simulator.version import __version__

    if wanted:
        typer.echo(f"tilecast {__version__}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    """Estimate what an AI accelerator will do with a model before you buy it."""


@app.command("list")
def list_(
    kind: Annotated[Kind | None, typer.Argument(help="What to list; all by default.")] = None,
    json: Json = None,
) -> None:
    """List the accelerators, workloads, stacks, systems, fits and memories of the catalogue."""
    from simulator.cli.catalogue import listing, print_listing

    kinds = [kind.value] if kind else [entry.value for entry in Kind]
    tables = {name: listing(name) for name in kinds}
    if json is not None:
        _write_json(tables, json)
    if json != "-":
        print_listing(tables)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A name, a YAML file or a config.json.")],
    context: Annotated[
        list[int] | None,
        typer.Option("--context", min=1, help="Cache size at this length; repeatable."),
    ] = None,
    overrides: Overrides = None,
    json: Json = None,
) -> None:
    """Show a spec with the source of each number, or the arithmetic of a model."""
    from simulator.cli.catalogue import describe, print_description

    description = describe(name, context or (), tuple(overrides or ()))
    if json is not None:
        _write_json(description.data, json)
    if json != "-":
        print_description(description)


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="YAML or config.json.")],
) -> None:
    """Validate spec files and print every fault."""
    from simulator.cli.catalogue import check_files

    raise typer.Exit(check_files(files))


@app.command()
def schema(kind: Annotated[Kind, typer.Argument(help="Kind of spec.")], json: Json = "-") -> None:
    """Write the JSON schema of a kind of spec, for editors."""
    from simulator.specs.schema import schema as schema_of

    _write_json(schema_of(kind.value), json or "-")


@app.command()
def run(
    workload: Workload,
    on: On,
    phase: PhaseOption = None,
    batch: Batch = 1,
    input: Input = None,
    output: Output = None,
    context: Context = None,
    dtype: Dtype = None,
    stack: StackName = None,
    system: Annotated[
        str | None, typer.Option("--system", help="What is around it; the device's own.")
    ] = None,
    tp: Annotated[int | None, typer.Option("--tp", help="Tensor-parallel ranks.")] = None,
    pp: Annotated[int | None, typer.Option("--pp", help="Pipeline stages.")] = None,
    dp: Annotated[int | None, typer.Option("--dp", help="Data-parallel replicas.")] = None,
    ep: Annotated[int | None, typer.Option("--ep", help="Expert-parallel ranks.")] = None,
    cp: Annotated[int | None, typer.Option("--cp", help="Context-parallel ranks.")] = None,
    sequence: Annotated[
        int | None, typer.Option("--sequence", help="Tokens of a training sequence.")
    ] = None,
    global_batch: Annotated[
        int | None, typer.Option("--global-batch", help="Sequences of a training step.")
    ] = None,
    micro_batch: Annotated[
        int | None, typer.Option("--micro-batch", help="Sequences of a micro-batch.")
    ] = None,
    zero: Annotated[int | None, typer.Option("--zero", help="ZeRO stage, 0 to 3.")] = None,
    recompute: Annotated[
        str | None, typer.Option("--recompute", help="none, selective or full.")
    ] = None,
    fidelity: FidelityOption = FidelityChoice.cohort,
    seed: Seed = 0,
    overrides: Overrides = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Write a page, roofline and data to DIR."),
    ] = None,
    json: Json = None,
) -> None:
    """Simulate a model on an accelerator and print what binds it."""
    import sys

    from simulator.api import make_scenario, simulate
    from simulator.cli.progress import counting

    scenario = make_scenario(
        workload,
        on,
        phase=phase.value if phase else None,
        batch=batch,
        input=input,
        output=output,
        context=context,
        dtype=dtype,
        stack=stack,
        system=system,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        cp=cp,
        sequence=sequence,
        global_batch=global_batch,
        micro_batch=micro_batch,
        zero=zero,
        recompute=recompute,
        fidelity=fidelity.value,
        seed=seed,
        overrides=tuple(overrides or ()),
    )
    with counting() as told:
        result = simulate(scenario, told)
    if json is not None:
        _write_json(result.to_dict(), json)
    if json != "-":
        from simulator.report.table import print_table

        print_table(result, sys.stdout)
    if report is not None:
        from simulator.report.page import write_report

        written = write_report(result, report)
        sys.stderr.write(f"report: {', '.join(str(path) for path in written)}\n")


@app.command()
def roofline(
    workload: Workload,
    on: Annotated[str, typer.Option("--on", metavar="HW,HW", help="Accelerators, comma between.")],
    out: Annotated[Path, typer.Option("-o", metavar="FILE", help="Picture: .svg or .png.")],
    phase: PhaseOption = None,
    batch: Batch = 1,
    input: Input = None,
    context: Context = None,
    dtype: Dtype = None,
    overrides: Overrides = None,
) -> None:
    """Draw a model's operators under the rooflines of one or several accelerators."""
    import sys

    from simulator.api import make_scenario, simulate
    from simulator.errors import CapacityError
    from simulator.report.roofline import write_roofline

    results, refused = [], []
    for name in on.split(","):
        scenario = make_scenario(
            workload,
            name.strip(),
            phase=phase.value if phase else None,
            batch=batch,
            input=input,
            context=context,
            dtype=dtype,
            overrides=tuple(overrides or ()),
        )
        try:
            results.append(simulate(scenario))
        except CapacityError as error:
            refused.append(str(error))
    if not results:
        raise CapacityError("\n".join(refused))
    for reason in refused:
        sys.stderr.write(f"not drawn: {reason}\n")
    sys.stderr.write(f"roofline: {write_roofline(results, out)}\n")


@app.command()
def verify(
    workload: Workload,
    on: On = "mi455x",
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Run each kind of operator block by block on real numbers, numpy and torch."""
    from simulator.check.functional import require_ok
    from simulator.cli.functional import as_data, print_checks, verify_workload

    checks = verify_workload(workload, on, seed)
    if json is not None:
        _write_json(as_data(checks), json)
    if json != "-":
        print_checks(checks)
    require_ok(checks)


@app.command()
def predict(
    family: Annotated[
        str,
        typer.Argument(
            metavar="FAMILY", help="gemm, attention, moe, collective, moe_comm or elementwise."
        ),
    ],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="Shapes: CSV or parquet.")],
    on: On,
    out: Annotated[
        Path | None,
        typer.Option("-o", metavar="OUT", help="Write .csv or .parquet; printed by default."),
    ] = None,
    stack: StackName = None,
    overrides: Overrides = None,
    json: Json = None,
) -> None:
    """Predict the latency of operator shapes, with intervals and what binds."""
    import sys

    from simulator.cli.predict import as_data, predict_file, print_answer

    found = predict_file(family, table, on, out, stack, tuple(overrides or ()))
    if json is not None:
        _write_json(as_data(found), json)
    if out is None and json != "-":
        print_answer(found, sys.stdout)
    for note in found.notes:
        sys.stderr.write(f"note: {note}\n")


@app.command()
def validate(
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Measured tables; TILECAST_DATA by default."),
    ] = None,
    family: Annotated[
        str | None, typer.Option("--family", help="Only this family; all by default.")
    ] = None,
    without_device: Annotated[
        bool,
        typer.Option("--leave-one-device-out", help="Also refit without each device. Slow."),
    ] = False,
    without_generation: Annotated[
        bool,
        typer.Option("--leave-one-generation-out", help="Also refit without each generation."),
    ] = False,
    refit: Annotated[
        str | None,
        typer.Option("--refit", metavar="MODEL", help="First fit a model anew and write its fit."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Write Markdown and pictures to DIR."),
    ] = None,
    json: Json = None,
) -> None:
    """Hold the predictions against measured data that no fit saw."""
    import sys

    from simulator.cli.validate import as_data, fit_again, print_studies, studies, write_page

    if refit is not None:
        fit_again(refit, data)
    ways = [
        way
        for way, asked in (("device", without_device), ("generation", without_generation))
        if asked
    ]
    found = studies(data, family, ways, report)
    if json is not None:
        _write_json(as_data(found), json)
    written = write_page(found, report) if report is not None else []
    if json != "-":
        print_studies(found, sys.stdout)
    if written:
        sys.stderr.write(f"report: {', '.join(str(path) for path in written)}\n")


def _write_json(data: Any, target: str) -> None:
    """Write ``data`` whole or not at all; ``-`` is standard output.

    A device, a pipe or a link is written through, never put aside for a file.
    """
    import json
    import sys

    from simulator.errors import Fault, SpecError

    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    path = Path(target)
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_text(text, encoding="utf-8")
            return
        part = path.with_name(f".{path.name}.part")
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        fix = "name a file in a folder that can be written"
        raise SpecError([Fault(target, None, "", error.strerror or str(error), fix)]) from None
