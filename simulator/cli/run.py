"""``run``: one scenario to its table, its data, its report and its trace."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from simulator.api import make_scenario, simulate
from simulator.cli.progress import counting
from simulator.cli.write import say_written, write_json
from simulator.errors import Fault, InputError, SpecError, together
from simulator.study.training_run import token_count, train_for


def run_scenario(
    workload: str,
    on: str,
    asked: dict[str, Any],
    *,
    train_tokens: str | None,
    report: Path | None,
    sensitive: bool,
    trace: Path | None,
    json: str | None,
) -> None:
    """Simulate ``asked`` of ``workload`` and write what is wanted of it.

    Raises InputError with all that is wrong, before anything is run.
    """
    wrong: list[InputError] = []
    if trace is not None and find_spec("perfetto") is None:
        from simulator.report.trace import NO_PERFETTO

        wrong.append(InputError(NO_PERFETTO))
    if sensitive and report is None:
        fix = "name the directory of the report"
        wrong.append(SpecError([Fault("run", None, "--sensitivity", "needs --report", fix)]))
    try:
        if train_tokens is not None:
            token_count(train_tokens)
    except InputError as error:
        wrong.append(error)
    try:
        scenario = make_scenario(workload, on, **asked)
    except InputError as error:
        wrong.append(error)
    if wrong:
        raise together(wrong)
    with counting() as told:
        result = simulate(scenario, told)
    if train_tokens is not None:
        result = train_for(result, train_tokens)
    if json is not None:
        write_json(result.to_dict(), json)
    if json != "-":
        from simulator.report.table import print_table

        print_table(result, sys.stdout)
    if report is not None:
        from simulator.report.page import write_report

        found = None
        if sensitive:
            from simulator.cli.sensitivity import found_sensitivity

            found = found_sensitivity(scenario)
        say_written(write_report(result, report, found))
    if trace is not None:
        from simulator.report.trace import write_trace

        sys.stderr.write(f"trace: {write_trace(result, trace)}\n")
