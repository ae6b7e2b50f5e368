"""The examples run, are short, and print what their first lines promise."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1] / "simulator" / "examples"


@pytest.mark.parametrize("path", sorted(HOME.glob("[!_]*.py")), ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 60


def printed(name: str, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    import_module(f"simulator.examples.{name}").main(arguments)
    return capsys.readouterr().out


def test_fewer_large_memories_serve_as_many_users(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("estimate_before_buying", ["h200", "mi455x", "h100_sxm"], capsys)
    counts = {line.split()[0]: re.search(r"(\d+) devices", line) for line in out.splitlines()}
    assert counts["h100_sxm"] is None
    assert "does not fit" in out
    large, small = counts["mi455x"], counts["h200"]
    assert large is not None
    assert small is not None
    assert int(large[1]) < int(small[1])


def test_a_roofline_is_drawn_of_each_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed("roofline_report", [str(tmp_path / "roofs.svg"), "h200", "mi300x"], capsys)
    assert out.count("bound by") > 4
    drawing = (tmp_path / "roofs.svg").read_text()
    assert "h200" in drawing
    assert "mi300x" in drawing


def test_placement_by_load_and_copies_bring_time_back(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("moe_imbalance", [], capsys)
    times = [float(value) for value in re.findall(r"([\d.]+) ms", out)]
    even, skewed, packed, copied = times
    assert even < copied < packed < skewed


def test_the_best_plan_trains_so_many_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("training_plan", [], capsys)
    steps = [float(value) for value in re.findall(r"([\d.]+) s a step", out)]
    assert steps == sorted(steps)
    assert len(steps) == 5
    days = re.search(r"100B tokens take ([\d,]+) days", out)
    assert days is not None
    tokens = 512 * 8192
    assert float(days[1].replace(",", "")) == pytest.approx(
        100e9 / tokens * steps[0] / 86400, abs=0.6
    )


def test_more_bandwidth_is_faster_and_buys_ever_less(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("bandwidth_what_if", [], capsys)
    rates = [float(value.replace(",", "")) for value in re.findall(r"([\d,]+) tok/s", out)]
    shares = [int(value) for value in re.findall(r"(\d+)% of what", out)]
    assert rates == sorted(rates)
    assert shares == sorted(shares, reverse=True)
