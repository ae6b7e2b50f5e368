"""Speed as a user sees it: whole commands in fresh processes, and whole models in one.

Run with ``pytest -m benchmark tests/benchmarks -s``. Times are shown beside the yardstick, a bare
SimPy timeout loop of the same run, since machines differ.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest
import simpy

from simulator import load_scenario, make_scenario, simulate
from simulator.report.page import write_report
from simulator.report.sweep import Swept
from simulator.report.sweep_page import write_sweep

pytestmark = pytest.mark.benchmark
EVENTS = 100_000


def yardstick() -> float:
    """Seconds of a bare timeout loop of EVENTS events."""

    def loop(env: simpy.Environment):  # type: ignore[no-untyped-def]
        for _ in range(EVENTS):
            yield env.timeout(1)

    env = simpy.Environment()
    env.process(loop(env))
    start = time.perf_counter()
    env.run()
    return time.perf_counter() - start


def measured(name: str, run: Callable[[], object], rounds: int = 5) -> None:
    """Print the median time of ``run`` and what the yardstick does in that time."""
    run()
    times, events = [], []
    for _ in range(rounds):
        per_event = yardstick() / EVENTS
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
        events.append(times[-1] / per_event)
    sys.stdout.write(f"\n{name}: {median(times) * 1e3:.1f} ms = {median(events):,.0f} events\n")


def command(text: str) -> Callable[[], object]:
    code = f"import sys; sys.argv[1:] = {text.split()!r}; from simulator.cli import main; main()"
    return lambda: subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_help() -> None:
    measured("tilecast --help", command("--help"))


def test_first_command_with_its_report(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("first")
    first = "run llama-3.1-70b --on mi455x --phase decode --batch 32 --context 4096 --report"
    measured("first command, cold", command(f"{first} {folder}"), rounds=3)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    sys.stdout.write(f"peak memory of a command: {peak:.0f} MiB\n")


def test_whole_models() -> None:
    for model, options in (
        ("llama-3.1-405b", {"phase": "prefill", "input": 8192}),
        ("llama-3.1-70b", {"phase": "decode", "batch": 32, "context": 4096}),
        ("deepseek-v3", {"phase": "decode", "batch": 128, "context": 4096}),
    ):
        scenario = make_scenario(
            model, "mi455x", overrides=["memory.hbm4.capacity=10 TB"], **options
        )
        measured(f"{model} {options}", lambda scenario=scenario: simulate(scenario))


@pytest.mark.parametrize(
    "words",
    [
        "llama-3.1-70b decode batch=32 context=4096 on mi455x",
        "deepseek-v3 decode batch=128 context=4096 ep=8 on mi455x",
    ],
)
def test_a_report_is_small(words: str, tmp_path: Path) -> None:
    result = simulate(load_scenario(words))
    measured(f"report of {words}", lambda: write_report(result, tmp_path), rounds=3)
    weighed(tmp_path)


def test_a_report_of_a_study_is_small(tmp_path: Path) -> None:
    """A large one: a map of 60 by 60, 3,000 grey marks, 500 rows of 4,000."""
    rows = [row_of(index, index // 63 + 1, index % 63 + 1) for index in range(63 * 63)]
    found = Swept(
        rows=tuple(rows), paths=("batch", "rate"), front=(rows[0], rows[-1]), base="", about="m",
        unit="tok/s", name="study.yaml", text="", version="",
    )  # fmt: skip
    measured("report of a study", lambda: write_sweep(found, tmp_path), rounds=3)
    weighed(tmp_path)


def row_of(index: int, batch: int, rate: int) -> dict[str, object]:
    time_ = 1e-3 + batch * 1e-4 + 1e-1 / rate
    return {
        "index": index, "batch": str(batch), "rate": str(rate), "latency": time_,
        "latency_lower": 0.8 * time_, "latency_upper": 1.3 * time_, "throughput": batch / time_,
        "bound_by": "memory" if batch < rate else "compute", "mfu": 0.5, "mbu": 0.5,
        "memory_bytes": 1e9, "devices": 1, "energy": 1.0, "cost": None, "status": "ok",
        "reason": None,
    }  # fmt: skip


def weighed(folder: Path) -> None:
    size = (folder / "index.html").stat().st_size
    sys.stdout.write(f"index.html: {size / 1e3:,.0f} kB\n")
    assert size < 5e6
