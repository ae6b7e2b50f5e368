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
    "training": "run llama-3.1-405b --on mi300x --system mesh-8 --phase train --tp 8 --pp 8 --dp 8"
    " --sequence 8192 --global-batch 512 --zero 1 --recompute selective",
}
"""Runs by the directory of their report."""
COMPARED = "compare deepseek-v3 --on h200,mi355x,mi455x --phase decode --batch 128 --ep 8"

STUDY = """\
# Does more HBM bandwidth still pay, and at which batch? The device is sold with 23.3 TB/s.
base: llama-3.1-70b decode context=4096 on mi455x
vary:
  batch: [1, 2, 4, 8, 16, 32, 64, 128, 256]
  hardware.memory.hbm.bandwidth:
    [6.4 TB/s, 8 TB/s, 12 TB/s, 16 TB/s, 19.6 TB/s, 23.3 TB/s, 26 TB/s, 30 TB/s]
"""
"""The study of ``reports/sweep``."""


def main(arguments: Sequence[str]) -> None:
    """Write every report into the directory of that name."""
    if len(arguments) != 1:
        sys.exit("usage: python -m simulator.examples.gallery DIRECTORY")
    root = Path(arguments[0])
    for name, command in COMMANDS.items():
        app([*shlex.split(command), "--report", str(root / name)], standalone_mode=False)
    words = [*shlex.split(COMPARED), "--batches", "all", "--report", str(root / "compare")]
    app(words, standalone_mode=False)
    sweep(root / "sweep")
    if (root / "articles").is_dir():
        write_articles([str(root / "articles")])


def sweep(target: Path) -> None:
    """Write the report of the study into ``target``."""
    target.mkdir(parents=True, exist_ok=True)
    study = target / "study.yaml"
    study.write_text(STUDY, encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        words = ["sweep", str(study), "-o", f"{folder}/rows.csv", "--report", str(target)]
        app(words, standalone_mode=False)


if __name__ == "__main__":
    main(sys.argv[1:])
