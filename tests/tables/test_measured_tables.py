"""Tables of the kind that measurements come in are answered whole, on their devices and others."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.check.measured import data_folder
from simulator.check.targets import target_of
from simulator.costs.families.model import models
from simulator.errors import InputError
from simulator.specs.load import names
from simulator.tables.answer import answer

try:
    FOLDER = data_folder()
except InputError:
    FOLDER = None

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(FOLDER is None, reason="no measured data here"),
]
SAMPLE = 60
OTHERS = {"h100_sxm": ("l40s", "h20", "gb300", "rubin"), "mi300x": ("mi325x", "mi350x", "mi455x")}


def test_every_row_is_answered_on_its_device_and_on_devices_never_measured() -> None:
    import polars as pl

    fitted = {
        op for model in models().values() if model.name in names("fits") for op in model.columns
    }
    frame = pl.read_parquet(FOLDER / "operators.parquet")
    frame = frame.filter(pl.col("op").cast(pl.String).is_in(sorted(fitted)))
    for (family, device), rows in frame.group_by("family", "device"):
        part = rows.sample(min(SAMPLE, len(rows)), seed=1)
        for name in (device, *OTHERS.get(str(device), ())):
            found = answer(str(family), part, target_of(str(name))).columns
            assert np.isfinite(found["latency_us"]).all()
            assert (found["lower_us"] > 0).all()
            assert (found["lower_us"] <= found["latency_us"]).all()
            assert (found["latency_us"] <= found["upper_us"]).all()
