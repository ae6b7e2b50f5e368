"""A table is answered row by row, and what cannot be answered is said of every row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.costs.target import Target
from simulator.errors import UnknownNameError
from simulator.specs.frozen import FrozenMap
from simulator.tables.answer import ANSWERS, answer, with_answer
from simulator.tables.faults import TableError

shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)


def table(**columns: object) -> pl.DataFrame:
    return pl.DataFrame(columns, strict=False)


def faults(frame: pl.DataFrame, target: Target, family: str = "gemm") -> dict[str, list[int]]:
    """Rows, counted from 1, by column and what was found there."""
    with pytest.raises(TableError) as error:
        answer(family, frame, target)
    return {
        f"{fault.column}: {fault.found}": (fault.rows + 1).tolist() for fault in error.value.faults
    }


ROW = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["gemm", "bmm", " GEMM ", ""]),
        "framework": st.sampled_from(["", "vllm", "VLLM"]),
        "batch": st.sampled_from([1, 3]),
        "m": st.integers(1, 9999),
        "n": st.integers(1, 9999),
        "k": st.integers(1, 9999),
    }
)


@given(rows=st.lists(ROW, min_size=1, max_size=40))
@shared
def test_every_row_gets_its_own_answer_in_order(
    rows: list[dict[str, object]], h200: Target
) -> None:
    frame = pl.DataFrame(rows).with_columns(dtype=pl.lit("bf16"))
    found = answer("gemm", frame, h200).columns
    double = np.array([2.0 if row["op"] == "bmm" else 1.0 for row in rows])
    m, n, k = (np.array([row[name] for row in rows], dtype=float) for name in "mnk")
    assert found["latency_us"] == pytest.approx(m * n * k * double * 1e-6)
    compute = m * n * k * double * 1e-12 >= k * 1e-9
    assert (found["bound_by"] == np.where(compute, "compute", "memory")).all()
    assert (found["lower_us"] <= found["latency_us"]).all()
    assert (found["latency_us"] <= found["upper_us"]).all()


def test_text_and_numbers_and_floats_of_a_size_are_one(h200: Target) -> None:
    as_text = table(dtype=["bf16"] * 2, m=["7", " 8.0 "], n=["9", "1e3"], k=["1", "2"])
    as_numbers = table(dtype=["bf16"] * 2, m=[7, 8], n=[9.0, 1000.0], k=[1, 2])
    one, other = (answer("gemm", frame, h200).columns for frame in (as_text, as_numbers))
    assert one["latency_us"].tolist() == other["latency_us"].tolist()


def test_a_row_of_several_frameworks_is_their_median_and_one_without_a_kernel_has_no_say(
    h200: Target,
) -> None:
    names = ["vllm", "sglang", "sglang+vllm"]
    frame = table(framework=names, dtype=["bf16"] * 3, m=[1e6] * 3, n=[1] * 3, k=[1] * 3)
    assert answer("gemm", frame, h200).columns["latency_us"] == pytest.approx([1.0, 3.0, 2.0])
    both = frame.with_columns(op=pl.lit("bmm"), batch=pl.lit(1)).tail(1)
    assert answer("gemm", both, h200).columns["latency_us"] == pytest.approx([2.0])


def test_all_that_is_wrong_is_reported_with_its_rows(h200: Target) -> None:
    sizes = ["1", "0", "1.5", "x", "", "nan", "inf", "-1", "1e30", "4", "5", "-2"]
    frame = table(
        op=["gemm"] * 9 + ["gem", "bmm", "gemm"],
        dtype=["bf16"] * 8 + ["fp7", "bf16", "bf16", ""],
        framework=["jax"] + [""] * 11,
        m=sizes,
        n=[1] * 12,
        k=[1] * 12,
    )
    assert faults(frame, h200) == {
        "framework: 'jax' is no framework of gemm on cuda-sm90": [1],
        "m: '0' is less than 1": [2, 12],
        "m: '1.5' is not a whole number": [3],
        "m: 'x' is no number": [4],
        "m: has no value, which gemm needs": [5, 8],
        "m: 'nan' is not a number (NaN)": [6],
        "m: 'inf' is infinite": [7],
        "m: '1e30' is more than 1,099,511,627,776": [9],
        "dtype: 'fp7' is no number format of gemm": [9],
        "op: 'gem' is no operator of gemm": [10],
        "batch: the column is missing": [11],
        "dtype: has no value": [12],
    }


def test_a_kernel_that_the_stack_lacks_is_a_fault_of_its_rows(h200: Target) -> None:
    frame = table(
        op=["gemm", "bmm"], framework=["sglang"] * 2, dtype=["bf16"] * 2,
        batch=[1, 2], m=[1, 1], n=[1, 1], k=[1, 1],
    )  # fmt: skip
    assert faults(frame, h200) == {"dtype: no kernel of sglang runs bmm in bf16 on cuda-sm90": [2]}


def test_a_kernel_that_no_framework_of_a_row_has_is_a_fault_and_no_warning(h200: Target) -> None:
    both = h200.stack.libraries["stub"]
    only = {name: FrozenMap({"bmm": both["operator"]["default"]}) for name in ("vllm", "sglang")}
    stack = replace(h200.stack, libraries=FrozenMap({"stub": FrozenMap(only)}))
    frame = table(framework=["sglang+vllm"], dtype=["bf16"], m=[1], n=[1], k=[1])
    found = faults(frame, replace(h200, stack=stack))
    assert found == {"dtype: no kernel of sglang+vllm runs gemm in bf16 on cuda-sm90": [1]}


def test_a_missing_column_names_the_one_that_is_like_it(h200: Target) -> None:
    with pytest.raises(TableError, match=r"m: the column is missing; the table has 'M'"):
        answer("gemm", table(dtype=["bf16"], M=[1], n=[1], k=[1]), h200)


def test_thousands_of_faults_are_counted_and_the_first_rows_named(h200: Target) -> None:
    rows = 100_000
    odd = [f"junk{place}" if place % 2 else "bf16" for place in range(rows)]
    with pytest.raises(TableError) as error:
        answer("gemm", table(dtype=odd, m=[1] * rows, n=[1] * rows, k=[1] * rows), h200)
    text = str(error.value)
    assert len(text.splitlines()) < 50
    assert "row 2: dtype: 'junk1' is no number format of gemm" in text
    assert "49,988 more values are no number format of gemm" in text
    assert "50,000 of 100,000 rows cannot be answered" in text


def test_a_table_without_rows_is_refused(h200: Target) -> None:
    with pytest.raises(TableError, match="has no rows"):
        answer("gemm", table(dtype=[], m=[], n=[], k=[]), h200)


def test_an_unknown_family_offers_the_near_ones(h200: Target) -> None:
    with pytest.raises(UnknownNameError, match=r"'moe_com'.*moe_comm"):
        answer("moe_com", table(m=[1]), h200)


def test_columns_of_the_table_stay_and_those_called_like_the_answer_are_renamed(
    h200: Target,
) -> None:
    frame = table(id=["a"], dtype=["bf16"], m=[3], n=[1], k=[1], latency_us=[7.5])
    whole, notes = with_answer(frame, answer("gemm", frame, h200))
    assert whole.columns == ["id", "dtype", "m", "n", "k", "input_latency_us", *ANSWERS]
    assert whole["input_latency_us"].item() == 7.5
    assert whole["latency_us"].item() == pytest.approx(3e-6)
    assert notes == ["latency_us of the table is now input_latency_us"]


def test_what_is_taken_for_granted_is_said(h200: Target) -> None:
    frame = table(source=["mlperf"], dtype=["bf16"], m=[3], n=[1], k=[1])
    notes = answer("gemm", frame, h200).notes
    assert notes == [
        "1 row names no op: gemm is meant",
        "source 'mlperf' is not known: the operator alone is meant",
    ]


def test_an_interval_widens_with_distance_and_with_weak_numbers(
    target_on: Callable[[str], Target],
) -> None:
    frame = table(dtype=["bf16"], m=[4096], n=[4096], k=[4096])

    def half_width(name: str) -> float:
        found = answer("gemm", frame, target_on(name)).columns
        return float(np.log(found["upper_us"] / found["lower_us"])[0] / 2)

    assert half_width("h200") == pytest.approx(np.log(1.2 / 0.9) / 2)
    assert half_width("h200") < half_width("h100") < half_width("b300")
    # The number of units of a B300 is only assumed.
    assert half_width("b300") > np.log(4) / 2
