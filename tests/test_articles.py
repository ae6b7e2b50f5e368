"""The report on two articles: its ratios are runs, its verdicts follow, its bytes do not change."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulator import make_scenario, simulate
from simulator.errors import InputError, SpecError
from simulator.examples.articles import COMMAND, main
from simulator.report.articles import Ratio, Report, Run
from simulator.report.articles_page import DATA, PAGE, PICTURE, page, write_articles
from simulator.report.articles_picture import draw
from simulator.result import Interval, Result
from simulator.study.articles import NAME, read_study, run_study

COMMITTED = Path(__file__).parent.parent / "reports" / "articles"


@pytest.fixture(scope="module")
def report() -> Report:
    return run_study(read_study(COMMITTED / NAME), COMMAND)


FIGURES = ("ratio", "lower", "upper", "seconds", "seconds against")


def rows(text: str) -> list[dict[str, Any]]:
    return [
        {name: float(cell) if name in FIGURES else cell for name, cell in row.items()}
        for row in csv.DictReader(text.splitlines())
    ]


def test_the_committed_report_is_what_the_study_gives(report: Report, tmp_path: Path) -> None:
    """Where this fails because runs have changed: run the command of the example, look, commit."""
    write_articles(report, tmp_path)
    again = f"{COMMAND} makes it anew"
    assert (tmp_path / PAGE).read_text() == (COMMITTED / PAGE).read_text(), again
    made, kept = (rows((where / DATA).read_text()) for where in (tmp_path, COMMITTED))
    for new, old in zip(made, kept, strict=True):
        for name in FIGURES:
            assert new.pop(name) == pytest.approx(old.pop(name), rel=1e-9), again
        assert new == old, again
    assert (tmp_path / PICTURE).read_bytes() == draw(report.comparisons)
    assert sorted(path.name for path in tmp_path.iterdir()) == [PAGE, DATA, PICTURE]


def test_the_numbers_are_those_of_simulate() -> None:
    options: dict[str, Any] = {
        "phase": "train", "dtype": "bf16", "global_batch": 2048, "dp": 64, "micro_batch": 8,
        "zero": 0,
    }  # fmt: skip
    new, base = (simulate(make_scenario("sdxl", name, **options)) for name in ("mi455x", "mi300x"))
    row = next(
        row
        for row in rows((COMMITTED / DATA).read_text())
        if row["workload"] == "SDXL" and row["plans"] == "one"
    )
    assert row["seconds"] == pytest.approx(new.latency, rel=1e-9)
    assert row["ratio"] == pytest.approx(base.latency / new.latency, rel=1e-9)
    assert row["command"] == new.provenance.command


def test_sides_do_the_same_work_on_as_many_devices_and_fit(report: Report) -> None:
    for group in report.comparisons:
        for one in group:
            for ratio in (one.same, one.best):
                new, base = ratio.new.result, ratio.base.result
                assert (new.work, new.devices) == (base.work, base.devices)
                assert new.memory.total <= new.memory.capacity
                assert base.memory.total <= base.memory.capacity
            assert one.same.new.plan == one.same.base.plan
            assert one.best.new.result.latency <= one.same.new.result.latency


def test_data_sheets_stand_in_the_ratios_that_they_print(report: Report) -> None:
    """23.3, 19.6, 6.4 TB/s against 5.3; 5.03 against 1.31 PF of BF16, 20.13 against 2.61 of FP8."""
    found = {spec.name: spec.ratios for spec in report.specs}
    launched, _, before, article, _, _ = found["memory bandwidth"]
    assert (launched, before, article) == pytest.approx((23.3 / 5.3, 19.6 / 5.3, 6.4 / 5.3))
    assert found["BF16, dense FLOP/s"][0] == pytest.approx(5.03 / 1.307, rel=2e-3)
    assert found["FP8, dense FLOP/s"][0] == pytest.approx(20.13 / 2.615, rel=2e-3)


def test_claims_imply_the_power_of_their_own_arithmetic(report: Report) -> None:
    """2.1 times as fast at 35 % more work per joule is 2.1 / 1.35 of 750 W: 1,167 W."""
    text = page(report)
    for speed, more, shown in ((2.1, 0.35, "1,170"), (2.3, 0.40, "1,230"), (1.8, 0.30, "1,040")):
        assert float(shown.replace(",", "")) == pytest.approx(750 * speed / (1 + more), rel=5e-3)
        assert f"| {shown} W |" in text


def test_every_claim_has_a_verdict(report: Report) -> None:
    assert [len(some.rows) for some in report.statements] == [14, 8]
    for some in report.statements:
        for row in some.rows:
            assert all(cell.strip() for cell in row)
            assert "|" not in "".join(row)
    verdicts = {claim: verdict for some in report.statements for claim, _, verdict in some.rows}
    assert verdicts["6.4 TB/s"].startswith("wrong")
    assert verdicts["1024 x 1024 in blocks of 256 gives 16 blocks"] == "right"


def ratio(report: Report, latency: float, ends: tuple[float, float] | None) -> Ratio:
    """Of a run that takes a second, with the interval 0.8 to 1.25."""
    some = report.comparisons[-1][0].same.base.result
    limits = replace(some.bounds, lower=0.0, upper=100.0)

    def run(seconds: float, known: tuple[float, float] | None) -> Run:
        interval = None if known is None else Interval(lower=known[0], upper=known[1])
        result: Result = replace(some, latency=seconds, interval=interval, bounds=limits)
        return Run(label="it", plan="", result=result)

    return Ratio(new=run(latency, ends), base=run(1.0, (0.8, 1.25)))


def test_errors_of_both_sides_add_as_squares_of_logarithms(report: Report) -> None:
    alone = ratio(report, 0.5, None)
    assert alone.value == 2
    assert alone.ends == pytest.approx((2 * 0.8, 2 * 1.25))
    both = ratio(report, 0.5, (0.5 * 0.8, 0.5 * 1.25))
    wide = math.exp(math.sqrt(2) * math.log(1.25))
    assert both.ends == pytest.approx((2 / wide, 2 * wide))


def test_no_side_is_taken_where_the_interval_covers_a_figure(report: Report) -> None:
    found = ratio(report, 0.5, None)
    assert [found.against(at) for at in (1.0, 1.59, 1.61, 2.49, 2.51)] == [
        "above", "above", "cannot tell", "cannot tell", "below",
    ]  # fmt: skip


def test_a_study_that_does_not_hold_says_all_that_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (COMMITTED / NAME).read_text()
    (tmp_path / NAME).write_text(
        text.replace("base: 750 W", "base: 750 kg").replace("rival: {device", "rivals: {device")
    )
    with pytest.raises(SpecError) as caught:
        read_study(tmp_path / NAME)
    assert {fault.path for fault in caught.value.faults} >= {"powers.base", "rival", "rivals"}
    assert main([str(tmp_path)]) == 2
    assert main([str(tmp_path / "none")]) == 2
    assert main([]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert "usage" in said


def test_plans_that_differ_in_devices_are_not_compared() -> None:
    study = read_study(COMMITTED / NAME)
    work = study.workloads[-1]
    plans = ({"micro_batch": 8, "dp": 32}, {"micro_batch": 8, "dp": 64})
    run = {name: value for name, value in work.run.items() if name != "dp"}
    mixed = replace(work, run=run, plans=plans)
    with pytest.raises(InputError, match="on 32 devices; 2,048 on 64 devices"):
        run_study(replace(study, workloads=(mixed,), devices=study.devices[:1]), COMMAND)
