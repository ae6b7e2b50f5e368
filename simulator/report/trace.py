"""A run as a Perfetto trace, for ui.perfetto.dev: what each device, rank or stage does when.

Reads a Result alone. Timestamps are whole nanoseconds, which is what the format has; each slice
has its exact seconds as an argument.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.errors import Fault, InputError, SpecError
from simulator.report.timeline import uses
from simulator.result import OpUse, Result, Stream
from simulator.units import Seconds

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor

NO_PERFETTO = "a trace needs the package perfetto; install it with pip install 'tilecast[trace]'"
_SEQUENCE = 1
"""All packets are of one writer."""
LANES = {"forward": "computes", "backward": "computes", "input": "computes", "weight": "computes",
         "optimizer": "computes"}  # fmt: skip
"""The lane of what a pipeline stage does; all else goes over links."""


LONGEST = 1e9
"""Seconds of which the nanoseconds fit in the format."""


def write_trace(result: Result, path: str | Path) -> Path:
    """Write the trace of ``result`` to ``path``; raises SpecError where it cannot be written, and
    InputError where the package that encodes it is not installed."""
    data = trace(result)
    target = Path(path)
    try:
        target.write_bytes(data)
    except OSError as error:
        fix = "name a file in a directory that can be written"
        raise SpecError([Fault(str(path), None, "", error.strerror or str(error), fix)]) from None
    return target


def trace(result: Result) -> bytes:
    """The trace as bytes; the same for the same result.

    Of inference: each pass in stream order, with what it keeps busy as counters in percent, and
    one MoE layer on every rank. Of training: each stage of the pipeline. Raises SpecError for a run
    of more than ``LONGEST`` seconds.
    """
    if result.latency > LONGEST:
        fix = f"at most {LONGEST:g} s: time stamps are whole nanoseconds"
        raise SpecError([Fault("trace", None, "", f"a run of {result.latency:.3g} s", fix)])
    try:
        from perfetto.trace_builder.proto_builder import TraceProtoBuilder
    except ImportError:
        raise InputError(NO_PERFETTO) from None
    pen = _Pen(TraceProtoBuilder())
    for stream in result.stream:
        _pass(pen, result, stream)
    for use in result.experts:
        for rank in sorted({span.rank for span in use.spans}):
            process = pen.process(f"one MoE layer, {use.phase}, rank {rank}")
            for lane in ("units", "links", "wait"):
                spans = [s for s in use.spans if s.rank == rank and s.lane == lane]
                track = pen.track(lane, process) if spans else 0
                for span in spans:
                    pen.slice(track, span.name, span.start, span.end)
    if result.training is not None:
        for stage in sorted({span.stage for span in result.training.spans}):
            process = pen.process(f"pipeline stage {stage}")
            lanes: dict[str, int] = {}
            for part in (s for s in result.training.spans if s.stage == stage):
                lane = LANES.get(part.kind, part.kind)
                if lane not in lanes:
                    lanes[lane] = pen.track(lane, process)
                name = part.kind if part.micro_batch < 0 else f"{part.kind} {part.micro_batch + 1}"
                pen.slice(lanes[lane], name, part.start, part.end, {"busy share": part.share})
    return pen.bytes()


def _pass(pen: _Pen, result: Result, stream: Stream) -> None:
    """One pass: a lane of operators, and counters of what each of them keeps busy."""
    times = "" if stream.weight == 1 else f", made {stream.weight:g} times"
    process = pen.process(f"{result.workload} {stream.phase} on {result.hardware}{times}")
    lane = pen.track("operators", process)
    counters = {
        name: pen.counter(f"{name} busy", process)
        for name in ("compute", "memory", "link")
        if any(getattr(op, name) for op in result.ops)
    }
    known = uses(result, stream)
    now, before = 0.0, dict.fromkeys(counters, -1.0)
    for part in stream.parts:
        for _ in range(part.repeat):
            for name, time in part.steps:
                now += stream.gap
                use = known.get(name)
                pen.slice(lane, name, now, now + time, _details(use))
                for kind, counter in counters.items():
                    busy = getattr(use, kind) / use.time if use and use.time else 0.0
                    level = 100 * min(1.0, busy)
                    if level != before[kind]:
                        pen.count(counter, now, level)
                        before[kind] = level
                now += time
    for counter in counters.values():
        pen.count(counter, now, 0.0)
    if stream.latency > now:
        pen.slice(lane, "waits", now, stream.latency)


def _details(use: OpUse | None) -> dict[str, str | float]:
    """What a slice says of its operator, one execution on average."""
    if use is None:
        return {}
    return {
        "bound by": use.bound_by,
        "bytes": use.bytes / use.count,
        "FLOP": use.flops / use.count,
        "format": use.format,
        "tile": use.tile,
    }


class _Pen:
    """Tracks, slices and counters as packets."""

    def __init__(self, builder: Any) -> None:
        self._builder, self._tracks = builder, 0
        first = builder.add_packet()
        first.trusted_packet_sequence_id = _SEQUENCE
        first.sequence_flags = 1  # SEQ_INCREMENTAL_STATE_CLEARED

    def bytes(self) -> bytes:
        return bytes(self._builder.serialize())

    def process(self, name: str) -> int:
        track = self._track()
        track.process.pid = track.uuid
        track.process.process_name = name
        track.child_ordering = 3  # EXPLICIT: lanes, then counters, as they are made
        return int(track.uuid)

    def track(self, name: str, parent: int) -> int:
        track = self._track()
        track.name, track.parent_uuid = name, parent
        track.sibling_order_rank = track.uuid
        return int(track.uuid)

    def counter(self, name: str, parent: int) -> int:
        track = self._track()
        track.name, track.parent_uuid = name, parent
        track.sibling_order_rank = track.uuid
        track.counter.unit_name = "%"
        return int(track.uuid)

    def slice(
        self,
        track: int,
        name: str,
        start: Seconds,
        end: Seconds,
        details: dict[str, str | float] | None = None,
    ) -> None:
        event = self._event(track, start, 1)  # TYPE_SLICE_BEGIN
        event.name = name
        for key, value in ({"seconds": end - start} | (details or {})).items():
            note = event.debug_annotations.add()
            note.name = key
            if isinstance(value, str):
                note.string_value = value
            else:
                note.double_value = value
        self._event(track, end, 2)  # TYPE_SLICE_END

    def count(self, track: int, when: Seconds, value: float) -> None:
        self._event(track, when, 4).double_counter_value = value  # TYPE_COUNTER

    def _track(self) -> TrackDescriptor:
        self._tracks += 1
        packet = self._builder.add_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.track_descriptor.uuid = self._tracks
        return packet.track_descriptor

    def _event(self, track: int, when: Seconds, kind: int) -> Any:
        packet = self._builder.add_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.timestamp = round(1e9 * when)
        packet.track_event.type = kind
        packet.track_event.track_uuid = track
        return packet.track_event
