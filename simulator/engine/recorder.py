"""Spans of a run, as columns: what was occupied, by what, from when to when, how many times.

Knows names and times. Never touches the clock or what a span means.
"""

from __future__ import annotations

from simulator.units import Seconds


class Recorder:
    """Rows of (resource, task, start, end, multiplicity), appended as spans end.

    ``resource`` is ``"units"`` for compute, ``"pipe"`` for loads and ``"device"`` for whole
    kernels of a stream. A row stands for ``multiplicity`` equal spans, those of a cohort, so the
    sum of (end - start) x multiplicity is the same in cohort and tile mode up to rounding.
    """

    __slots__ = ("end", "multiplicity", "resource", "start", "task")

    def __init__(self) -> None:
        self.resource: list[str] = []
        self.task: list[str] = []
        self.start: list[Seconds] = []
        self.end: list[Seconds] = []
        self.multiplicity: list[int] = []

    def __len__(self) -> int:
        return len(self.resource)

    def add(
        self, resource: str, task: str, start: Seconds, end: Seconds, multiplicity: int = 1
    ) -> None:
        """Append one row."""
        self.resource.append(resource)
        self.task.append(task)
        self.start.append(start)
        self.end.append(end)
        self.multiplicity.append(multiplicity)

    def extend(self, spans: Recorder, delay: Seconds = 0.0, *, pace: float = 1.0) -> None:
        """Append the rows of ``spans``, times ``pace`` and ``delay`` seconds later."""
        self.resource += spans.resource
        self.task += spans.task
        self.start += [time * pace + delay for time in spans.start]
        self.end += [time * pace + delay for time in spans.end]
        self.multiplicity += spans.multiplicity

    def columns(self) -> dict[str, list[str] | list[float] | list[int]]:
        """The columns by name, all of one length."""
        return {
            "resource": self.resource,
            "task": self.task,
            "start": self.start,
            "end": self.end,
            "multiplicity": self.multiplicity,
        }
