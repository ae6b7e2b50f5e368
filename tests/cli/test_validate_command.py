"""Data that is no measurement is refused in words."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from simulator.cli.validate import MEASURED, fit_again, studies
from simulator.errors import InputError


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "operators.parquet").write_text("junk")
    with pytest.raises(InputError, match="cannot be read as parquet"):
        studies(tmp_path, "elementwise", (), None)


def test_missing_columns_are_named(tmp_path: Path) -> None:
    held = [name for name in MEASURED if name not in ("device", "latency_us")]
    pl.DataFrame({name: [1] for name in held}).write_parquet(tmp_path / "operators.parquet")
    with pytest.raises(InputError, match="has no column device, latency_us"):
        studies(tmp_path, "elementwise", (), None)


def test_a_refit_without_a_row_per_framework_is_refused(tmp_path: Path) -> None:
    pl.DataFrame({name: [1] for name in MEASURED}).write_parquet(tmp_path / "operators.parquet")
    with pytest.raises(InputError, match=r"by_framework.parquet cannot be read"):
        studies(tmp_path, "elementwise", ("device",), None)
    with pytest.raises(InputError, match=r"by_framework.parquet cannot be read"):
        fit_again("pointwise", tmp_path)
