"""Scores against arithmetic, the page against the scores, and held-back rows alone judged."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from simulator.check.measured import data_folder
from simulator.check.plain import plain_seconds
from simulator.check.targets import target_of
from simulator.check.validate import as_shipped, chosen, left_out
from simulator.cli import main
from simulator.costs.families.model import Query
from simulator.errors import InputError, SpecError, UnknownNameError
from simulator.report.validation import Case, grouped, score
from simulator.report.validation_page import Study, page, write_validation

try:
    data_folder()
    DATA = True
except InputError:
    DATA = False

needs_data = pytest.mark.skipif(not DATA, reason="no measured data here")


def case(predicted: list[float], measured: list[float], **more: object) -> Case:
    found, truth = np.array(predicted), np.array(measured)
    entries: dict[str, object] = {
        "family": "gemm", "op": "gemm", "dtype": "bf16", "device": "h200", "source": "",
        "distance": "same", "predicted": found, "lower": 0.8 * found, "upper": 1.25 * found,
        "measured": truth, "fastest": truth, "slowest": truth, "plain": truth / 2,
        "sizes": {"m": np.arange(1.0, len(found) + 1)},
    }  # fmt: skip
    return Case(**(entries | more))  # type: ignore[arg-type]


def test_a_score_is_what_its_words_say() -> None:
    found = score([case([1.0, 3.0], [2.0, 2.0]), case([2.0], [2.0])])
    assert found.rows == 3
    assert found.mean == pytest.approx(1 / 3)
    assert found.median == pytest.approx(0.5)
    assert found.ratio == pytest.approx((0.5 * 1.5 * 1.0) ** (1 / 3))
    assert found.covered == pytest.approx(1 / 3)
    assert found.plain == pytest.approx(0.5)


def test_an_answer_between_the_frameworks_is_not_wrong() -> None:
    band = {"fastest": np.array([1.0, 1.0, 1.0]), "slowest": np.array([4.0, 4.0, 4.0])}
    found = score([case([0.5, 3.0, 6.0], [2.0, 2.0, 2.0], **band)])
    assert found.band == pytest.approx((0.5 + 0 + 0.5) / 3)


def test_a_plain_roofline_without_a_figure_is_absent() -> None:
    assert score([case([1.0], [1.0], plain=np.array([np.nan]))]).plain is None


def test_cases_are_grouped_in_the_order_they_came() -> None:
    cases = [case([1.0], [1.0], op=op) for op in ("b", "a", "b")]
    assert [(key, len(pool)) for key, pool in grouped(cases, "op")] == [(("b",), 2), (("a",), 1)]


def test_the_page_states_the_scores_and_the_rows_furthest_off(tmp_path: Path) -> None:
    cases = [case([10.0, 11.0, 40.0], [10.0, 10.0, 10.0])]
    study = Study(name="shipped", title="Shapes", protocol="How.", cases=cases)
    text = page([study], date="2026-01-02", data="measured", pictures={"x.png": "A picture"})
    assert "Date: 2026-01-02. Data: measured." in text
    assert "![A picture](x.png)" in text
    assert "| gemm | same | 3 | 103 | 10.0 |" in text
    worst = next(line for line in text.splitlines() if "m 3" in line)
    assert worst == "| gemm | bf16 | h200 | m 3 | 40.0 | 10.0 | 4.00x |"
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(re.fullmatch(r"\| .* \|", line) for line in tables)


def test_a_report_is_a_page_and_its_pictures_and_the_same_every_time(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    cases = [
        case(list(measured * draw.lognormal(0, 0.1, 60)), list(measured), op=op, family=family)
        for family, op in (("gemm", "gemm"), ("gemm", "bmm"), ("moe", "moe"))
        for measured in [draw.lognormal(3, 2, 60)]
    ]
    study = Study(name="shipped", title="Shapes", protocol="How.", cases=cases)
    written = [
        write_validation([study], tmp_path / name, date="2026-01-02", data="x") for name in "ab"
    ]
    assert [path.name for path in written[0]] == [
        "shipped-predicted.png", "shipped-by-size.png", "validation.md",
    ]  # fmt: skip
    for one, other in zip(*written, strict=True):
        assert one.read_bytes() == other.read_bytes()
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError):
        write_validation([study], tmp_path / "file", date="2026-01-02", data="x")


def test_the_plain_roofline_is_the_data_sheet() -> None:
    """H100 SXM: 989.5 TFLOP/s in bf16 and 3.35 TB/s, by NVIDIA's data sheet."""
    h100 = target_of("h100")
    big = {name: np.array([8192.0]) for name in "mnk"}
    product = Query(op="gemm", dtype="bf16", sizes=big)
    assert plain_seconds(product, h100) == pytest.approx(2 * 8192**3 / 989.5e12, rel=1e-3)
    small = Query(op="gemm", dtype="bf16", sizes=big | {"m": np.array([1.0])})
    moved = 2 * (8192**2 + 2 * 8192)
    assert plain_seconds(small, h100) == pytest.approx(moved / 3.35e12, rel=1e-3)
    decode = {"batch": 4, "seq_q": 1, "seq_kv": 1000, "heads": 32, "kv_heads": 8, "head_dim": 128}
    step = Query(
        op="attention_generation", dtype="bf16", kv_dtype="fp8",
        sizes={name: np.array([float(value)]) for name, value in decode.items()},
    )  # fmt: skip
    cache = 4 * 1000 * 8 * 2 * 128
    assert plain_seconds(step, h100) == pytest.approx(cache / 3.35e12, rel=0.03)


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean gemm"):
        chosen("gem")


@needs_data
@pytest.mark.data
def test_only_rows_that_no_fit_saw_are_judged() -> None:
    from simulator.check.measured import medians

    model = next(model for model in chosen("collective"))
    measured = medians(ops=tuple(model.columns))
    held = sum(int(one.held.sum()) for one in measured)
    everything = sum(len(one.held) for one in measured)
    judged = as_shipped([model])
    assert 0.95 * held <= score(judged).rows <= held < 0.3 * everything
    assert {name for name, _ in left_out(model, measured, "device")} == {
        one.device for one in measured
    }


@needs_data
@pytest.mark.data
def test_the_command_prints_and_writes_its_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "scores.json"
    words = f"tilecast validate --family collective --json {target} --report {tmp_path / 'out'}"
    monkeypatch.setattr(sys, "argv", words.split())
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    out, _ = capsys.readouterr()
    assert max(map(len, out.splitlines())) <= 80
    (whole,) = [entry for entry in json.loads(target.read_text())["shipped"] if "op" not in entry]
    assert whole["family"] == "collective"
    assert whole["mean"] < whole["plain"]
    assert (tmp_path / "out" / "validation.md").is_file()
