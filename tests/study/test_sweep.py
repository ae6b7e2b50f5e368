"""A study is answered once for each point, whoever runs it and however often it is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars
import pytest

from simulator import load_scenario, simulate
from simulator.errors import InputError, SpecError
from simulator.study.change import changed
from simulator.study.closed_form_sweep import screen
from simulator.study.journal import Journal
from simulator.study.study_file import Study, make_study, read_study
from simulator.study.sweep import METRICS, front, marks_of, sweep

LINE = "llama-3.1-8b decode batch=8 context=1024 on h200"
AXES = {
    "hardware.memory.hbm.bandwidth": ["3 TB/s", "4.8 TB/s", "6 TB/s"],
    "batch": ["1", "8", "1000000"],
    "tp": ["1", "3"],
}


def study() -> Study:
    return make_study(load_scenario(LINE), AXES)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    out = tmp_path_factory.mktemp("whole") / "rows.csv"
    sweep(study(), out)
    return out.read_bytes()


def test_a_row_is_what_the_point_alone_gives(tmp_path: Path) -> None:
    rows = sweep(study(), tmp_path / "rows.csv")
    assert [row["index"] for row in rows] == list(range(18))
    for row, point in zip(rows, study().points, strict=True):
        if row["status"] == "ok":
            alone = simulate(changed(load_scenario(LINE), point))
            assert row["latency"] == alone.latency
            assert row["throughput"] == alone.throughput
            assert row["energy"] == alone.energy
        else:
            assert row["reason"]
            assert all(row[name] is None for name in METRICS)
    states = {row["status"] for row in rows}
    assert states == {"ok", "refused", "does not fit"}
    assert sum(row["status"] == "ok" for row in rows) == 6


def test_processes_write_the_same_table(tmp_path: Path, whole: bytes) -> None:
    sweep(study(), tmp_path / "rows.csv", workers=2)
    assert (tmp_path / "rows.csv").read_bytes() == whole


def test_parquet_has_the_same_rows(tmp_path: Path, whole: bytes) -> None:
    sweep(study(), tmp_path / "rows.parquet")
    told = polars.read_parquet(tmp_path / "rows.parquet").write_csv().encode()
    assert told == whole


@pytest.mark.parametrize("cut", [0, 1, 40, 80, 200, 1000, 2000, -1])
def test_a_journal_cut_at_any_byte_is_gone_on_with(
    tmp_path: Path, whole: bytes, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "rows.csv"
    journal = tmp_path / "rows.csv.partial"
    monkeypatch.setattr("simulator.study.journal.Journal.close", lambda *_: None)
    sweep(study(), out)
    monkeypatch.undo()
    written = journal.read_bytes()
    journal.write_bytes(written[:cut])
    done = max(0, written[:cut].count(b"\n") - 1)
    counts: list[int] = []
    sweep(study(), out, resume=True, told=lambda done, of, bad: counts.append(done))
    assert out.read_bytes() == whole
    assert not journal.exists()
    assert not counts or counts[0] > done


def test_a_run_that_is_killed_and_resumed_is_the_uninterrupted_one(
    tmp_path: Path, whole: bytes
) -> None:
    text = "\n".join(
        [f"base: {LINE}", "vary:"]
        + [f"  {path}: {json.dumps(values)}" for path, values in AXES.items()]
    )
    (tmp_path / "study.yaml").write_text(text)
    words = [
        sys.executable,
        "-c",
        "from simulator.cli import main; main()",
        "sweep",
        "study.yaml",
        "-o",
        "rows.csv",
    ]
    out, journal = tmp_path / "rows.csv", tmp_path / "rows.csv.partial"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    killed = 0
    for lines in (1, 5, 10):
        child = subprocess.Popen(
            [*words, "--resume"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        while child.poll() is None and not (
            journal.exists() and journal.read_bytes().count(b"\n") > lines
        ):
            time.sleep(0.002)
        child.send_signal(signal.SIGKILL)
        child.wait()
        killed += not out.exists()
    assert killed
    if not out.exists():
        subprocess.run([*words, "--resume"], cwd=tmp_path, env=environment, check=True)
    assert out.read_bytes() == whole


def test_a_cluster_that_loses_a_worker_gives_the_same_table(tmp_path: Path, whole: bytes) -> None:
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    )
    try:
        pid = next(iter(cluster.workers.values())).pid
        out = tmp_path / "rows.csv"
        lost: list[int] = []

        def told(done: int, of: int, bad: int) -> None:
            if not lost:
                os.kill(pid, signal.SIGKILL)
                lost.append(pid)

        sweep(study(), out, dask=cluster.scheduler_address, told=told)
        assert lost
        assert out.read_bytes() == whole
    finally:
        cluster.close()


def test_a_complete_study_is_not_run_again(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    rows = sweep(study(), out)
    told: list[Any] = []
    assert sweep(study(), out, resume=True, told=lambda *counts: told.append(counts)) == rows
    assert not told


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_a_complete_screened_study_gives_the_rows_that_were_run(tmp_path: Path, name: str) -> None:
    asked, out = make_study(load_scenario(LINE), RATES), tmp_path / name
    rows = sweep(asked, out, screened=True)
    assert sweep(asked, out, screened=True, resume=True) == rows


@pytest.mark.parametrize(
    "change",
    [{"batch": 16}, {"hardware.memory.hbm.achieved": 0.5}, {}],
    ids=["base", "number", "values"],
)
def test_a_complete_table_of_another_study_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    base, axes = load_scenario(LINE), {"context": ["64", "128"]}
    sweep(make_study(base, axes), tmp_path / "rows.csv")
    before = (tmp_path / "rows.csv").read_bytes()
    other = make_study(changed(base, change), axes if change else {"context": ["64", "256"]})
    with pytest.raises(SpecError, match="is of another study"):
        sweep(other, tmp_path / "rows.csv", resume=True)
    assert (tmp_path / "rows.csv").read_bytes() == before


def test_files_of_other_studies_are_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    out.write_text("mine")
    with pytest.raises(SpecError, match="is there already"):
        sweep(study(), out)
    assert out.read_text() == "mine"
    other = tmp_path / "other.csv"
    journal = tmp_path / "other.csv.partial"
    journal.write_text('{"study":"another"}\n')
    with pytest.raises(SpecError, match="--resume"):
        sweep(study(), other)
    with pytest.raises(SpecError, match="another study"):
        sweep(study(), other, resume=True)
    assert journal.read_text() == '{"study":"another"}\n'


@pytest.mark.parametrize("name", ["absent/rows.csv", "rows.xlsx", ".", "file/rows.csv"])
def test_a_place_for_no_table_is_refused_before_anything_runs(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SpecError):
        sweep(study(), tmp_path / name, told=lambda *counts: pytest.fail("ran"))


def test_a_cluster_that_is_not_there_is_said(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        sweep(study(), tmp_path / "rows.csv", dask="not an address")
    assert not list(tmp_path.iterdir())


def test_the_front_has_no_row_that_another_beats(tmp_path: Path) -> None:
    rows = sweep(study(), tmp_path / "rows.csv")
    best = front(rows)
    known = [row for row in rows if row["status"] == "ok"]
    assert best
    for row in known:
        beaten = any(
            other["latency"] <= row["latency"]
            and other["throughput"] >= row["throughput"]
            and (other["latency"], other["throughput"]) != (row["latency"], row["throughput"])
            for other in known
        )
        # No two runs here have both goals alike.
        assert beaten == (row not in best)


def test_a_latin_hypercube_draws_from_every_part_of_each_axis_once() -> None:
    values = [str(batch) for batch in range(1, 11)]
    found = make_study(
        load_scenario(LINE), {"batch": values, "context": values}, how="latin_hypercube",
        points=10, seed=3,
    )  # fmt: skip
    for path in found.paths:
        assert sorted(str(point[path]) for point in found.points) == sorted(values)
    again = make_study(
        load_scenario(LINE), {"batch": values, "context": values}, how="latin_hypercube",
        points=10, seed=3,
    )  # fmt: skip
    assert again == found


def write(folder: Path, text: str) -> Path:
    path = folder / "study.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def ranges(tmp_path: Path) -> Study:
    return read_study(
        write(
            tmp_path,
            f"base: {LINE}\nvary:\n"
            "  hardware.memory.hbm.bandwidth: {from: 2 TB/s, to: 8 TB/s, steps: 3, scale: log}\n"
            "  batch: {from: 1, to: 9, steps: 5}\nhow: grid\n",
        )
    )


def test_a_range_has_both_ends_and_even_steps_or_ratios(ranges: Study) -> None:
    rates = dict.fromkeys(str(point["hardware.memory.hbm.bandwidth"]) for point in ranges.points)
    assert list(rates) == ["2 TB/s", "4 TB/s", "8 TB/s"]
    batches = dict.fromkeys(str(point["batch"]) for point in ranges.points)
    assert list(batches) == ["1", "3", "5", "7", "9"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("base: {line}\n", ["vary", "missing"]),
        ("base: {line}\nvary: {{}}\n", ["vary"]),
        ("vary:\n  batch: [1]\n", ["base", "missing"]),
        ("base: {line}\nvary:\n  batch: []\n", ["study.yaml:3", "no values"]),
        ("base: {line}\nvary:\n  batchh: [1]\n", ["study.yaml:3", "batchh"]),
        ("base: {line}\nvary:\n  memory.hbm.bandwith: [1 TB/s]\n", ["bandwidth"]),
        ("base: {line}\nvary:\n  memory.hbm.bandwidth: [5 GB]\n", ["study.yaml:3", "TB/s"]),
        ("base: {line}\nvary:\n  hardware: [h20o, mi300x]\n", ["h200"]),
        ("base: {line}\nvary:\n  batch: {{from: 1, to: 9}}\n", ["steps"]),
        ("base: {line}\nvary:\n  batch: {{from: 0, to: 9, steps: 3, scale: log}}\n", ["zero"]),
        (
            "base: {line}\nvary:\n  memory.hbm.bandwidth: {{from: 1 TB/s, to: 9 GB/s, steps: 3}}\n",
            ["one unit"],
        ),
        ("base: {line}\nhow: all\nvary:\n  batch: [1]\n", ["grid"]),
        ("base: {line}\nhow: [zip]\nvary:\n  batch: [1]\n", ["study.yaml:2", "single value"]),
        ("base: {line}\npoints: [3]\nvary:\n  batch: [1]\n", ["study.yaml:2", "single value"]),
        (
            "base: {line}\nvary:\n  memory.hbm.bandwidth: [4 TB/s]\n"
            "  memory.hbm3e.bandwidth: [5 TB/s]\n",
            ["study.yaml:2", "twice"],
        ),
        ("base: {line}\nhow: latin_hypercube\nvary:\n  batch: [1]\n", ["points"]),
        ("base: {line}\nhow: zip\nvary:\n  batch: [1, 2]\n  context: [64]\n", ["as many values"]),
        ("base: llama decode on h2\nvary:\n  batch: [1]\n", ["study.yaml:1", "llama"]),
        ("base: {line}\nvary:\n  batch: {{from: 1.2.3, to: 9, steps: 3}}\n", ["1.2.3"]),
        (
            "base: {line}\nvary:\n  compute.clock: {{from: 1 GHz, to: 1e999 GHz, steps: 3}}\n",
            ["study.yaml:3", "clock.to: found", "1e999"],
        ),
        (
            "base: {line}\nvary:\n  batch: {{from: 1, to: nan, steps: 3}}\n",
            ["batch.to: found", "nan"],
        ),
        ("base: {line}\nvary:\n  batch: {{from: 1, to: 9, steps: {many}}}\n", ["1,048,576"]),
        ("base: {line}\nvary:\n  memory.hbm.bandwidth: [inf TB/s]\n", ["inf TB/s"]),
        ("base: {line}\nvary:\n  memory.hbm.achieved: [.nan]\n", [".nan is not finite"]),
        ("base: {line}\nvary:\n  memory.hbm.bandwidth: [-1 TB/s]\n", ["negative"]),
        ("base: {line}\nvary:\n  memory:\n    hbm: [1 TB/s]\n", ["study.yaml:3", "whole path"]),
        ("base: {line}\nvary:\n  batch: [[1, 2], [3]]\n", ["study.yaml:3", "values that are none"]),
        ("base: {line}\nvary:\n  batch: [{{a: 1}}]\n", ["study.yaml:3", "values that are none"]),
        ("base: {line}\nvary:\n  batch: [1]\n  batch: [2]\n", ["study.yaml:4", "stands twice"]),
        (
            "base: {line}\nvary:\n  batch: {{from: 1, to: 2000, steps: 2000}}\n"
            "  context: {{from: 1, to: 2000, steps: 2000}}\n",
            ["study.yaml", "4,000,000 points", "1,048,576"],
        ),
        ("base: {line}\nvarry:\n  batch: [1]\n", ["did you mean vary"]),
        ("- 1\n", ["mapping"]),
        ("", ["empty"]),
    ],
)
def test_a_study_that_is_none_is_refused_with_its_line(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    with pytest.raises(InputError) as told:
        read_study(write(tmp_path, text.format(line=LINE, many="9" * 5000)))
    for word in words:
        assert word in str(told.value)


def test_every_fault_of_a_study_is_said_at_once(tmp_path: Path) -> None:
    text = f"base: {LINE}\nhow: all\nvary:\n  batchh: [1]\n  memory.hbm.bandwidth: [5 GB]\n"
    with pytest.raises(SpecError) as told:
        read_study(write(tmp_path, text))
    assert {fault.line for fault in told.value.faults} == {2, 4, 5}


def test_a_range_in_a_wrong_unit_is_not_said_at_each_of_its_steps(tmp_path: Path) -> None:
    text = f"base: {LINE}\nvary:\n  memory.hbm.bandwidth: {{from: 1 GB, to: 9 GB, steps: 100}}\n"
    with pytest.raises(SpecError) as told:
        read_study(write(tmp_path, text))
    assert 1 < len(told.value.faults) < 10


def test_a_base_may_be_written_as_keys(tmp_path: Path) -> None:
    keys = ("workload: llama-3.1-8b", "on: h200", "phase: decode", "batch: 8", "context: 1024")
    text = "base:\n" + "".join(f"  {key}\n" for key in keys)
    found = read_study(
        write(tmp_path, text + "vary:\n  memory.hbm.achieved: {from: 0.5, to: 1, steps: 3}\n")
    )
    assert found.base == load_scenario(LINE)
    assert [point["memory.hbm.achieved"] for point in found.points] == ["0.5", "0.75", "1"]


def test_damage_inside_a_journal_is_said_and_nothing_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, journal = tmp_path / "rows.csv", tmp_path / "rows.csv.partial"
    monkeypatch.setattr("simulator.study.journal.Journal.close", lambda *_: None)
    sweep(study(), out)
    monkeypatch.undo()
    lines = journal.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*lines[:3], b"{\n", *lines[3:]])
    journal.write_bytes(damaged)
    with pytest.raises(SpecError, match="line 4 is no row"):
        sweep(study(), out, resume=True)
    assert journal.read_bytes() == damaged


def test_a_point_that_breaks_is_a_row_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(scenario: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("simulator.study.sweep._runner", broken)
    rows = sweep(make_study(load_scenario(LINE), {"batch": ["1", "2"]}), tmp_path / "rows.csv")
    assert [row["status"] for row in rows] == ["failed", "failed"]
    assert rows[0]["reason"] == "ZeroDivisionError: division by zero"


def test_workers_end_with_the_process_that_began_them(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(
        "base: deepseek-v3 decode batch=64 ep=8 on h200\n"
        "vary:\n  seed: {from: 1, to: 64, steps: 64}\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    child = subprocess.Popen(
        [sys.executable, "-c", "from simulator.cli import main; main()", "sweep", "study.yaml",
         "--workers", "2"],
        cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
    if not children.exists():
        child.kill()
        child.wait()
        pytest.skip("this system does not list children")
    deadline = time.monotonic() + 30
    while len(pids := children.read_text().split()) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(2)  # Until both are up: those that were not yet cannot begin without their parent.
    child.kill()
    child.wait()
    deadline = time.monotonic() + 20
    left = pids
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if Path(f"/proc/{pid}").exists()
                and "(zombie)" not in Path(f"/proc/{pid}/status").read_text()]  # fmt: skip
        time.sleep(0.1)
    assert pids
    assert not left


RATES = {
    "hardware.memory.hbm.bandwidth": ["3 TB/s", "4.8 TB/s", "6 TB/s", "8 TB/s"],
    "compute.clock": ["1.2 GHz", "1.6 GHz", "1.83 GHz"],
}


def test_a_screened_study_runs_the_points_that_no_other_beats(tmp_path: Path) -> None:
    base = load_scenario(LINE)
    rows = sweep(make_study(base, RATES), tmp_path / "rows.csv", screened=True)
    table = polars.read_csv(tmp_path / "rows.csv").to_dicts()
    assert [row["index"] for row in table] == list(range(12))
    screened = screen(base, RATES)
    goals = [(screened.latency[at], at // 3 + at % 3) for at in range(12)]
    best = {
        at
        for at, (time, up) in enumerate(goals)
        if not any(t <= time and u <= up and (t, u) != (time, up) for t, u in goals)
    }
    assert {row["index"] for row in rows} == best
    assert 0 < len(best) < 12
    for row, (alone, up) in zip(table, goals, strict=True):
        assert row["steps"] == up
        if row["index"] in best:
            change = {path: row[path] for path in RATES}
            assert row["status"] == "ok"
            assert row["latency"] == simulate(changed(base, change)).latency
        else:
            assert row["status"] == "screened"
            assert row["latency"] == alone
            assert row["energy"] is None


def test_a_screened_study_that_was_stopped_is_gone_on_with(tmp_path: Path) -> None:
    asked, out = make_study(load_scenario(LINE), RATES), tmp_path / "rows.parquet"
    sweep(asked, tmp_path / "whole.parquet", screened=True)

    def stop(done: int, of: int, bad: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(asked, out, screened=True, told=stop)
    assert not out.exists()
    with pytest.raises(SpecError, match="other screen"):
        sweep(asked, out, resume=True)
    sweep(asked, out, screened=True, resume=True)
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()


@pytest.mark.parametrize(
    ("axes", "how", "found"),
    [
        ({"batch": ["1", "2"]}, "grid", "is no number of the accelerator"),
        (RATES, "latin_hypercube", "only a grid is screened"),
    ],
)
def test_what_no_closed_form_answers_is_not_screened(
    tmp_path: Path, axes: dict[str, list[str]], how: str, found: str
) -> None:
    asked = make_study(load_scenario(LINE), axes, how=how, points=4)
    with pytest.raises(SpecError, match=found):
        sweep(asked, tmp_path / "rows.csv", screened=True)


def test_points_that_memory_cannot_hold_have_no_latency(tmp_path: Path) -> None:
    axes = {"hardware.memory.hbm.capacity": ["8 GB", "141 GB"], **RATES}
    sweep(make_study(load_scenario(LINE), axes), tmp_path / "rows.csv", screened=True)
    table = polars.read_csv(tmp_path / "rows.csv").to_dicts()
    assert {row["status"] for row in table[:12]} == {"does not fit"}
    assert all(row["latency"] is None and row["reason"] for row in table[:12])
    assert {row["status"] for row in table[12:]} == {"screened", "ok"}


def test_a_table_is_written_by_one_sweep_at_a_time(tmp_path: Path) -> None:
    out, asked = tmp_path / "rows.csv", study()
    with Journal(out, marks_of(asked)) as journal:
        journal.add([])
        with pytest.raises(SpecError, match="is being written by another sweep"):
            sweep(asked, out, resume=True)
    assert len(sweep(asked, out, resume=True)) == 18


HOLD = """
import sys, time
from simulator.study.journal import Journal
with Journal(sys.argv[1], {"a": "b"}):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_table_of_a_sweep_that_was_killed_is_free(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(out)], env=environment, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    with child.stdout as stream:
        assert stream.readline() == b"held\n"
        with pytest.raises(SpecError, match="is being written by another sweep"):
            Journal(out, {"a": "b"}, resume=True)
        child.kill()
        child.wait()
    with Journal(out, {"a": "b"}, resume=True) as journal:
        assert journal.rows == {}


def test_a_refused_screen_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no number of the accelerator"):
        sweep(study(), tmp_path / "rows.csv", screened=True)
    assert not list(tmp_path.iterdir())


def test_what_sets_another_study_apart_is_named(tmp_path: Path) -> None:
    out, base = tmp_path / "rows.csv", load_scenario(LINE)
    with Journal(out, marks_of(make_study(base, RATES))):
        pass
    other = changed(base, {"batch": 16})
    with pytest.raises(SpecError, match=r"other base, numbers behind the base$"):
        sweep(make_study(other, RATES), out, resume=True)
    with pytest.raises(SpecError, match=r"other values$"):
        sweep(make_study(base, {"batch": ["1"]}), out, resume=True)


@pytest.mark.parametrize("name", ["", ".", "rows", "rows.txt", ".csv"])
def test_what_is_no_table_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError, match="is no table"):
        sweep(study(), f"{tmp_path}/{name}" if name else name)


def test_a_range_of_what_is_counted_is_rounded(tmp_path: Path) -> None:
    text = f"base: {LINE}\nvary:\n  compute.units: {{from: 60, to: 132, steps: 4}}\n"
    found = read_study(
        write(tmp_path, text + "  memory.hbm.achieved: {from: 0.25, to: 1, steps: 4}\n")
    )
    assert found.axes["compute.units"] == ["60", "84", "108", "132"]
    assert found.axes["memory.hbm.achieved"] == ["0.25", "0.5", "0.75", "1"]


@pytest.mark.parametrize("address", ["nonsense", "", "localhost:1", "tcp://127.0.0.1:9"])
def test_an_address_where_nothing_listens_is_refused_and_leaves_no_journal(
    tmp_path: Path, address: str
) -> None:
    pytest.importorskip("distributed")
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        sweep(study(), tmp_path / "rows.csv", dask=address)
    assert list(tmp_path.iterdir()) == []
