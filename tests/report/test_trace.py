"""A trace read back has the times, names and order of its Result."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from simulator import Result, load_scenario, simulate
from simulator.errors import SpecError
from simulator.report.trace import trace, write_trace

messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

BEGIN, END, COUNTER = 1, 2, 4


def read(result: Result) -> tuple[dict[int, Any], dict[int, list[tuple[str, int, int]]], list[Any]]:
    """Tracks by id; name, begin and end in ns of the slices of each; the counter events."""
    whole = messages.Trace()
    whole.ParseFromString(trace(result))
    tracks, slices, counters = {}, defaultdict(list), []
    open_: dict[int, tuple[str, int]] = {}
    for packet in whole.packet:
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        elif packet.HasField("track_event"):
            event = packet.track_event
            if event.type == BEGIN:
                assert event.track_uuid not in open_, "slices of a lane follow one another"
                open_[event.track_uuid] = event.name, packet.timestamp
            elif event.type == END:
                name, begin = open_.pop(event.track_uuid)
                slices[event.track_uuid].append((name, begin, packet.timestamp))
            else:
                counters.append((event.track_uuid, packet.timestamp, event.double_counter_value))
    assert not open_
    return tracks, slices, counters


def run(line: str) -> Result:
    return simulate(load_scenario(line))


@pytest.mark.parametrize(
    "line",
    [
        "llama-3.1-8b decode batch=8 context=2048 on h200",
        "llama-3.1-8b prefill batch=2 input=256 tp=2 on mi300x",
        "deepseek-v3 decode batch=64 context=1024 ep=8 on mi455x",
        "llama-3.1-8b generate batch=4 input=128 output=8 on h200",
    ],
)
def test_slices_add_up_to_the_operators_of_the_result(line: str) -> None:
    result = run(line)
    tracks, slices, _ = read(result)
    lanes = [uuid for uuid, track in tracks.items() if track.name == "operators"]
    assert len(lanes) == len(result.stream)
    for lane, stream in zip(lanes, result.stream, strict=True):
        count = len(slices[lane])
        # Each end is rounded to a nanosecond on its own.
        assert slices[lane][-1][2] == pytest.approx(1e9 * stream.latency, abs=1)
        assert count >= sum(part.repeat * len(part.steps) for part in stream.parts)
    for use in result.ops:
        if use.kind in ("launch", "wait"):
            continue
        told = sum(
            stream.weight
            * sum(
                end - begin
                for name, begin, end in slices[lane]
                if use.name in (name, f"{stream.phase} {name}")
            )
            for lane, stream in zip(lanes, result.stream, strict=True)
        )
        assert told == pytest.approx(1e9 * use.time, abs=use.count)


def test_layers_come_in_stream_order() -> None:
    tracks, slices, _ = read(run("llama-3.1-8b decode batch=8 context=2048 on h200"))
    (lane,) = (uuid for uuid, track in tracks.items() if track.name == "operators")
    names = [name for name, _, _ in slices[lane]]
    assert names[0] == "embedding"
    assert names[-1] == "sample"
    layer = names[1:10]
    assert layer[0] == "attn.norm"
    assert names[1:-3] == 32 * layer


def test_counters_are_percent_and_end_at_zero() -> None:
    tracks, _, counters = read(run("llama-3.1-8b decode batch=8 context=2048 on h200"))
    last = {}
    for track, _, value in counters:
        assert tracks[track].counter.unit_name == "%"
        assert 0 <= value <= 100
        last[track] = value
    assert set(last.values()) == {0.0}


def test_ranks_and_stages_have_processes_of_their_own() -> None:
    tracks, _, _ = read(run("mixtral-8x7b decode batch=32 context=512 ep=4 on mi300x"))
    names = [track.process.process_name for track in tracks.values()]
    assert any("rank 3" in name for name in names)
    trained = run("llama-3.1-8b train sequence=1024 global_batch=8 pp=2 tp=2 on h200")
    tracks, slices, _ = read(trained)
    stages = [t.process.process_name for t in tracks.values() if t.process.process_name]
    assert stages == ["pipeline stage 0", "pipeline stage 1"]
    assert trained.training is not None
    assert sum(map(len, slices.values())) == len(trained.training.spans)


def test_a_result_that_was_saved_gives_the_same_bytes(tmp_path: Path) -> None:
    result = run("llama-3.1-8b decode batch=8 context=2048 on h200")
    result.save(tmp_path / "result.json")
    assert trace(Result.load(tmp_path / "result.json")) == trace(result)


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    result = run("llama-3.1-8b decode batch=8 context=2048 on h200")
    with pytest.raises(SpecError, match="can be written"):
        write_trace(result, tmp_path / "absent" / "run.pftrace")
    assert write_trace(result, tmp_path / "run.pftrace").stat().st_size > 1000


def test_a_run_whose_nanoseconds_do_not_fit_is_refused() -> None:
    slow = load_scenario("llama-3.1-8b prefill input=2048 memory.hbm.bandwidth='1 B/s' on h200")
    with pytest.raises(SpecError, match="time stamps are whole nanoseconds"):
        trace(simulate(slow))
