"""Make the reports that the README shows: ``python -m simulator.examples.gallery reports``.

Each is what one command line writes; the scores of ``reports/validation`` need measured tables and
are made by ``tilecast validate --report``.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from simulator.cli.app import app
from simulator.examples.articles import main as write_articles

COMMANDS = {
    "first": "run llama-3.1-70b --on mi455x --phase decode --batch 32 --context 4096",
    "moe": "run deepseek-v3 --on mi455x --phase decode --batch 128 --ep 8"
    " --set moe.routing='zipf 1.2'",
    "training": "run llama-3.1-405b --on mi300x --phase train --tp 8 --pp 8 --dp 8"
    " --sequence 8192 --global-batch 512 --zero 1 --recompute selective",
}
"""Runs by the directory of their report."""
COMPARED = "compare deepseek-v3 --on h200,mi355x,mi455x --phase decode --batch 128 --ep 8"


def main(arguments: Sequence[str]) -> None:
    """Write every report into the directory of that name."""
    if len(arguments) != 1:
        sys.exit("usage: python -m simulator.examples.gallery DIRECTORY")
    root = Path(arguments[0])
    for name, command in COMMANDS.items():
        app([*shlex.split(command), "--report", str(root / name)], standalone_mode=False)
    words = [*shlex.split(COMPARED), "--batches", "all", "--report", str(root / "compare")]
    app(words, standalone_mode=False)
    if (study := root / "sweep" / "study.yaml").exists():
        with tempfile.TemporaryDirectory() as folder:
            rows = ["-o", f"{folder}/rows.csv"]
            words = ["sweep", str(study), *rows, "--report", str(study.parent)]
            app(words, standalone_mode=False)
    if (root / "articles").is_dir():
        write_articles([str(root / "articles")])


if __name__ == "__main__":
    main(sys.argv[1:])
