"""The commands, one function each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from simulator.cli.options import (
    Batch,
    Context,
    Devices,
    Dtype,
    GlobalBatch,
    Input,
    Json,
    Kind,
    On,
    Output,
    Overrides,
    PhaseOption,
    Seed,
    Sequence,
    StackName,
    SystemName,
    TrainTokens,
    Workload,
)
from simulator.cli.question import asks
from simulator.cli.write import say_written, write_json

app = typer.Typer(
    name="tilecast",
    help="Estimate what an AI accelerator will do with a model before you buy it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
        write_json(tables, json)
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
        write_json(description.data, json)
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

    write_json(schema_of(kind.value), json or "-")


@app.command()
@asks
def run(
    workload: Workload,
    on: On,
    asked: dict[str, Any],
    train_tokens: TrainTokens = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Write a page, roofline and data to DIR."),
    ] = None,
    sensitive: Annotated[
        bool,
        typer.Option("--sensitivity", help="With --report: what each number of the device buys."),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Write a trace for ui.perfetto.dev."),
    ] = None,
    json: Json = None,
) -> None:
    """Simulate a model on an accelerator and print what binds it."""
    from simulator.cli.run import run_scenario

    run_scenario(
        workload, on, asked, train_tokens=train_tokens, report=report, sensitive=sensitive,
        trace=trace, json=json,
    )  # fmt: skip


@app.command()
def plan(
    workload: Workload,
    on: Devices,
    phase: PhaseOption = None,
    batch: Batch = 1,
    input: Input = None,
    output: Output = None,
    context: Context = None,
    sequence: Sequence = None,
    global_batch: GlobalBatch = None,
    dtype: Dtype = None,
    stack: StackName = None,
    system: SystemName = None,
    devices: Annotated[
        str | None,
        typer.Option(metavar="N,N", help="How many devices; 1, 2, 4, ... 64 by default."),
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="time, cost or throughput; time and cost by default.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Plans to show in each order.")] = 10,
    exact: Annotated[int, typer.Option(min=0, help="Best plans of each device to simulate.")] = 5,
    seed: Seed = 0,
    overrides: Overrides = None,
    json: Json = None,
) -> None:
    """List the parallel plans that are legal and fit, ranked by time and by cost."""
    import sys

    from simulator.cli.plan import as_data, found_plans, print_plans

    found = found_plans(
        workload,
        on,
        devices,
        phase=phase.value if phase else None,
        batch=batch,
        input=input,
        output=output,
        context=context,
        sequence=sequence,
        global_batch=global_batch,
        dtype=dtype,
        stack=stack,
        system=system,
        by=by,
        exact=exact,
        seed=seed,
        overrides=tuple(overrides or ()),
    )
    if json is not None:
        write_json(as_data(found, top), json)
    if json != "-":
        print_plans(found, sys.stdout, top)


@app.command()
@asks
def compare(
    workload: Workload,
    on: Devices,
    asked: dict[str, Any],
    fit: Annotated[
        bool,
        typer.Option("--fit", help="On the fewest devices that hold it where it does not fit."),
    ] = False,
    batches: Annotated[
        str | None,
        typer.Option(metavar="N,N", help="Batches of a curve; all: 1, 2, 4, ... until it is full."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Write a page, pictures and data to DIR."),
    ] = None,
    json: Json = None,
) -> None:
    """Set accelerators side by side at equal work, with what cannot be told apart."""
    import sys

    from simulator.cli.compare import found_comparison, print_comparison

    found = found_comparison(workload, on, fit=fit, batches=batches, **asked)
    if json is not None:
        write_json(found.to_dict(), json)
    if json != "-":
        print_comparison(found, sys.stdout)
    if report is not None:
        from simulator.report.compare_page import write_comparison

        say_written(write_comparison(found, report))


@app.command()
@asks
def sensitivity(
    workload: Workload,
    on: On,
    asked: dict[str, Any],
    step: Annotated[float, typer.Option(help="Share by which each number is varied.")] = 0.1,
    top: Annotated[int, typer.Option(min=1, help="Numbers to show.")] = 12,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Write a page, a tornado and data to DIR."),
    ] = None,
    json: Json = None,
) -> None:
    """Show what each number of an accelerator buys: percent of throughput per percent of it."""
    import sys

    from simulator.api import make_scenario
    from simulator.cli.sensitivity import found_sensitivity, print_sensitivity

    base = make_scenario(workload, on, **asked)
    found = found_sensitivity(base, step)
    if json is not None:
        write_json(found.to_dict(), json)
    if json != "-":
        print_sensitivity(found, sys.stdout, top)
    if report is not None:
        from simulator.report.sensitivity_page import write_sensitivity

        say_written(write_sensitivity(found, report))


@app.command()
def sweep(
    study: Annotated[Path, typer.Argument(metavar="STUDY.yaml", help="A base and what varies.")],
    out: Annotated[
        Path | None,
        typer.Option("-o", metavar="FILE", help="Rows: .csv or .parquet; STUDY.csv by default."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that run points.")] = 1,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Scheduler of a Dask cluster.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a run stopped.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Run also a large study.")] = False,
    screened: Annotated[
        bool,
        typer.Option("--screen", help="Answer all in closed form, and run the points none beats."),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Write a page, pictures and the rows here."),
    ] = None,
) -> None:
    """Run every point of a study and write a table, row by row."""
    from simulator.cli.sweep import run_sweep

    run_sweep(
        study, out, workers=workers, dask=dask, resume=resume, yes=yes, screened=screened,
        report=report,
    )  # fmt: skip


@app.command()
def roofline(
    workload: Workload,
    on: Devices,
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
        write_json(as_data(checks), json)
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
        write_json(as_data(found), json)
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
        write_json(as_data(found), json)
    written = write_page(found, report) if report is not None else []
    if json != "-":
        print_studies(found, sys.stdout)
    if written:
        sys.stderr.write(f"report: {', '.join(str(path) for path in written)}\n")
