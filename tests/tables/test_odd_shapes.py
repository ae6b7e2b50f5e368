"""Whatever stands in a table of shapes, its rows are answered with sound numbers or refused."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from simulator.api import make_target
from simulator.costs.target import Target
from simulator.tables.answer import answer
from simulator.tables.faults import TableError
from simulator.tables.queries import NAMES
from simulator.tables.shapes import FAMILIES, LEAST, LIMITS, SOURCES, defaults, formats, models_of

ODD = (1, 2, 3, 7, 127, 129, 4097, 65537, 10**9, 2**31, 2**40)
NARROW = {"topk": (1, 2, 8), "ep": (1, 2, 3), "n_gpus": (2, 3, 8, 9, 1000), "nodes": (1, 2)}
ROWS = 40
ATTENTION = {"op": "attention_generation", "dtype": "bf16", "batch": 1, "seq_kv": 9} | {
    "heads": 4, "head_dim": 64,
}  # fmt: skip


def odd_rows(family: str, target: Target, seed: int) -> pl.DataFrame:
    """Rows of every operator of a family in every format, source and framework, of odd sizes."""
    chance = np.random.default_rng(seed)
    rows = []
    for op, model in models_of(family).items():
        columns = [column.name for column in model.columns[op]] + list(defaults(op, family))
        names = {
            "op": [op],
            "dtype": sorted(formats(model, op)),
            "source": ["", *SOURCES],
            "framework": ["", *target.stack.libraries.get(model.name, {})],
        }
        for _ in range(ROWS):
            row: dict[str, object] = {
                name: str(chance.choice(held)) for name, held in names.items()
            }
            for column in dict.fromkeys(columns):
                most, least = LIMITS.get(column, ODD[-1]), int(LEAST.get(column, 1))
                sizes = NARROW.get(column, (least, *(size for size in ODD if size <= most)))
                row[column] = int(chance.choice(sizes))
            rows.append(row)
    return pl.DataFrame(rows, schema_overrides=dict.fromkeys(NAMES, pl.String))


@pytest.mark.parametrize("device", ["h200", "mi355x", "b60", "epyc-9575f"])
@pytest.mark.parametrize("family", FAMILIES)
def test_odd_shapes_get_sound_numbers_or_a_reason(family: str, device: str) -> None:
    target = make_target(device)
    frame = odd_rows(family, target, seed=len(family))
    try:
        answer(family, frame, target)
    except TableError as error:
        wrong = np.unique(np.concatenate([fault.rows for fault in error.faults]))
        frame = frame.filter(~pl.int_range(pl.len()).is_in(wrong.tolist()))
    if not frame.height:
        return
    found = answer(family, frame, target).columns
    assert (found["lower_us"] > 0).all()
    assert (found["lower_us"] <= found["latency_us"]).all()
    assert (found["latency_us"] <= found["upper_us"]).all()
    assert np.isfinite(found["upper_us"]).all()
    turned = answer(family, frame.reverse(), target).columns
    assert turned["latency_us"][::-1] == pytest.approx(found["latency_us"], rel=1e-12)


@pytest.mark.parametrize(
    ("family", "row", "found"),
    [
        ("elementwise", {"op": "add", "dtype": "w4a16_int4", "m": 1, "k": 1}, "no number format"),
        ("elementwise", {"op": "add", "dtype": "default", "m": 1, "k": 1}, "no number format"),
        (
            "moe",
            {"dtype": "bf16", "tokens": 1, "hidden": 1, "inter": 1, "experts": 8192, "topk": 1},
            "is more than 4,096",
        ),
        (
            "moe",
            {"dtype": "bf16", "tokens": 1, "hidden": 1, "inter": 1, "experts": 8, "topk": 1}
            | {"distribution": "power_law_1.0"},
            "is no distribution; did you mean power_law_1.01",
        ),
        ("attention", ATTENTION | {"seq_q": 2}, "'2' is more than 1"),
        (
            "attention",
            ATTENTION | {"op": "attention_context", "seq_q": 10},
            "seq_q: is more than seq_kv",
        ),
    ],
)
def test_what_no_formula_takes_is_refused(family: str, row: dict[str, object], found: str) -> None:
    with pytest.raises(TableError, match=found):
        answer(family, pl.DataFrame([row]), make_target("h200"))


@pytest.mark.parametrize("kind", [pl.Int8, pl.UInt16, pl.Int128, pl.Float32, pl.Decimal(9, 2)])
def test_any_type_of_number_is_a_size(kind: pl.DataType) -> None:
    frame = pl.DataFrame({"dtype": ["bf16"] * 2, "m": [1, 100], "n": [64, 64], "k": [8, 9]})
    target = make_target("h200")
    plain, other = (
        answer("gemm", one, target).columns["latency_us"]
        for one in (frame, frame.with_columns(pl.col("m").cast(kind)))
    )
    assert other.tolist() == plain.tolist()


@pytest.mark.parametrize("value", [b"\xff16", ["vllm"], {"name": "vllm"}])
@pytest.mark.parametrize("column", ["dtype", "framework"])
def test_a_cell_of_no_plain_type_is_judged_as_a_name(column: str, value: object) -> None:
    row = {"dtype": "bf16", "framework": "vllm", "m": 1, "n": 1, "k": 1} | {column: value}
    with pytest.raises(TableError, match=f"row 1: {column}: .* is no "):
        answer("gemm", pl.DataFrame([row]), make_target("h200"))
