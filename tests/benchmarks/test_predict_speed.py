"""Rows per second of predict, from a file to a file, beside a yardstick of the same rounds.

The yardstick is numpy's square root over a column that fits the cache, in elements per second:
what the machine can do for one row and one operation. Seconds are those of the processor, on one
core, so that what else runs has no say. Run with ``pytest -m benchmark -s``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl
import pytest

import simulator
from simulator.cli.predict import predict_file

pytestmark = pytest.mark.benchmark
ELEMENTS, TIMES = 10_000, 200


def yardstick() -> float:
    """Square roots per second."""
    column = np.linspace(1, 2, ELEMENTS)
    start = time.process_time()
    for _ in range(TIMES):
        np.sqrt(column, out=column)
    return ELEMENTS * TIMES / (time.process_time() - start)


def measured(name: str, rows: int, work: Callable[[], object], rounds: int = 5) -> float:
    """Print rows per second, and return square roots that the machine does per row."""
    work()
    rates, ratios = [], []
    for _ in range(rounds):
        root = yardstick()
        start = time.process_time()
        work()
        rates.append(rows / (time.process_time() - start))
        ratios.append(root / rates[-1])
    text = f"{name}: {median(rates):,.0f} rows/s, {median(ratios):,.0f} square roots a row"
    sys.stdout.write(f"\n{text}\n")
    return median(ratios)


def gemms(rows: int) -> pl.DataFrame:
    draw = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "op": "gemm",
            "dtype": draw.choice(["bf16", "fp8"], rows),
            "m": 2 ** draw.integers(0, 14, rows),
            "n": 64 * draw.integers(1, 250, rows),
            "k": 64 * draw.integers(1, 250, rows),
        }
    )


def attention(rows: int) -> pl.DataFrame:
    draw = np.random.default_rng(0)
    heads = 2 ** draw.integers(3, 7, rows)
    return pl.DataFrame(
        {
            "op": draw.choice(["attention_context", "attention_generation"], rows),
            "dtype": "bf16",
            "batch": 2 ** draw.integers(0, 7, rows),
            "seq_kv": draw.integers(1, 20_000, rows),
            "heads": heads,
            "kv_heads": heads // 8,
            "head_dim": 128,
        }
    )


CASES = pytest.mark.parametrize(
    ("family", "make", "rows", "goal"),
    [("gemm", gemms, 200_000, 200_000), ("attention", attention, 400_000, 1_000_000)],
    ids=["gemm", "attention"],
)
ROOTS = 1.5e9
"""Square roots per second of the machine that the goals are stated for."""


@CASES
def test_rows_per_second_inside_predict(
    family: str, make: Callable[[int], pl.DataFrame], rows: int, goal: int
) -> None:
    frame = make(rows)
    roots = measured(family, rows, lambda: simulator.predict(family, frame, "h200"))
    assert roots <= ROOTS / goal


@CASES
def test_rows_per_second_from_file_to_file(
    family: str, make: Callable[[int], pl.DataFrame], rows: int, goal: int, tmp_path: Path
) -> None:
    table, out = tmp_path / "shapes.csv", tmp_path / "out.csv"
    make(rows).write_csv(table)
    name = f"{family} from file to file"
    measured(name, rows, lambda: predict_file(family, table, "h200", out, None, ()), rounds=3)


def test_one_prediction_through_python() -> None:
    row = {"dtype": ["bf16"], "m": [64], "n": [4096], "k": [4096]}
    device = simulator.load_hardware("h200")
    from simulator.specs.load import default_stack

    stack = default_stack(device)
    measured("one gemm", 1, lambda: simulator.predict("gemm", row, device, stack=stack), rounds=50)
