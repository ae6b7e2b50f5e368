"""Check what two articles claim: ``python -m simulator.examples.articles reports/articles``.

Reads ``study.yaml`` in that directory, runs it, and writes the page, its picture and its data.
"""

from __future__ import annotations

import sys
from pathlib import Path

from simulator.errors import SimulatorError
from simulator.report.articles_page import write_articles
from simulator.study.articles import NAME, read_study, run_study

COMMAND = "python -m simulator.examples.articles reports/articles"


def main(arguments: list[str]) -> int:
    """Write the report; returns the exit status."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m simulator.examples.articles DIRECTORY\n")
        return 2
    directory = Path(arguments[0])
    try:
        report = run_study(read_study(directory / NAME), COMMAND)
        for path in write_articles(report, directory):
            sys.stdout.write(f"{path}\n")
    except SimulatorError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
