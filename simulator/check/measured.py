"""Latencies measured on silicon, as queries with their answers; some held back from every fit.

Reads the calibration tables (operators.parquet: the median over frameworks with its band;
by_framework.parquet: one row per framework). Knows files and columns. Never touches formulas.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.costs.families.model import Floats, Query
from simulator.errors import InputError
from simulator.tables.queries import NAMES, SIZES, queries

HELD_OF = 5
"""One shape in this many is held back from every fit, by a hash of its sizes: the same shapes on
every device, so that no twin device gives an answer away."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """Answers to one query on one device, microseconds."""

    device: str
    query: Query
    latency: Floats
    lower: Floats
    upper: Floats
    held: NDArray[np.bool_]
    rows: NDArray[np.int64]
    """Row numbers in the table that it came from."""

    def take(self, chosen: NDArray[Any]) -> Measured:
        """The rows that ``chosen`` picks."""
        return Measured(
            device=self.device,
            query=self.query.take(chosen),
            latency=self.latency[chosen],
            lower=self.lower[chosen],
            upper=self.upper[chosen],
            held=self.held[chosen],
            rows=self.rows[chosen],
        )


def data_folder(folder: str | Path | None = None) -> Path:
    """The folder of the calibration tables: as given, TILECAST_DATA, or beside the checkout.

    Raises InputError where it does not hold them.
    """
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    found = Path(folder or os.environ.get("TILECAST_DATA") or beside)
    if not (found / "operators.parquet").is_file():
        raise InputError(
            f"{found} holds no operators.parquet; name the folder of the measured data"
        )
    return found


def medians(
    folder: str | Path | None = None, *, ops: tuple[str, ...] | None = None
) -> list[Measured]:
    """Medians over frameworks, by device and query; ``framework`` names those behind each row."""
    return _read(data_folder(folder) / "operators.parquet", ops)


def by_framework(
    folder: str | Path | None = None, *, ops: tuple[str, ...] | None = None
) -> list[Measured]:
    """One answer per framework and kernel, by device and query: what libraries are fitted to.

    Runs without a graph where the others of their operator have one are left out.
    """
    return _read(data_folder(folder) / "by_framework.parquet", ops)


def _read(path: Path, ops: tuple[str, ...] | None) -> list[Measured]:
    import polars as pl

    frame = pl.scan_parquet(path)
    if ops is not None:
        frame = frame.filter(pl.col("op").cast(pl.String).is_in(ops))
    data = frame.collect()
    if "exec_mode" in data.columns:
        data = data.filter(
            ~(
                (pl.col("exec_mode").cast(pl.String) == "eager")
                & (pl.col("source").cast(pl.String) == "aiconfigurator")
            )
        )
    names = [name for name in NAMES if name in data.columns]
    table = {
        name: data[name].cast(pl.String).fill_null("").to_numpy() for name in (*names, "device")
    }
    table |= {name: data[name].to_numpy() for name in SIZES}
    latency = data["latency_us"].to_numpy().astype(np.float64)
    band = "latency_min_us" in data.columns
    lower = data["latency_min_us"].to_numpy().astype(np.float64) if band else latency
    upper = data["latency_max_us"].to_numpy().astype(np.float64) if band else latency
    held = held_back(table)
    found = []
    for device in np.unique(table["device"]):
        here = np.flatnonzero(table["device"] == device)
        part = {name: column[here] for name, column in table.items() if name != "device"}
        for rows, query in queries(part, SIZES):
            chosen = here[rows]
            found.append(
                Measured(
                    device=str(device),
                    query=query,
                    latency=latency[chosen],
                    lower=lower[chosen],
                    upper=upper[chosen],
                    held=held[chosen],
                    rows=chosen,
                )
            )
    return found


def held_back(table: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Which rows no fit may see: a hash of the sizes alone, alike on every device and format."""
    mixed = np.zeros(len(table["m"]), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for name in SIZES:
            mixed = (mixed ^ table[name].astype(np.int64).astype(np.uint64)) * np.uint64(
                0x9E3779B97F4A7C15
            )
            mixed ^= mixed >> np.uint64(29)
    return np.asarray(mixed % np.uint64(HELD_OF) == 0)
