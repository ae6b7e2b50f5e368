"""A training step in sentences, tables and as data.

Reads a ``TrainingUse``. Draws nothing.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence

from simulator.report import numbers
from simulator.report.training_facts import exposed
from simulator.result import Result
from simulator.training_use import TrainingUse

DEGREES = {
    "tp": ("tensor parallel", "heads, widths, vocabulary"),
    "cp": ("context parallel", "tokens of a sequence"),
    "ep": ("expert parallel", "experts"),
    "pp": ("pipeline parallel", "layers"),
    "dp": ("data parallel", "sequences of a batch"),
}
"""Degrees of a plan: what they are called, and what they split."""


def setting(use: TrainingUse) -> str:
    """The plan in words."""
    plan = dict(use.plan)
    pieces = int(plan.get("virtual_stages", "1"))
    over = f" of {pieces} pieces each" if pieces > 1 else ""
    parts = [
        f"{plan['pp']} pipeline {'stage' if plan['pp'] == '1' else 'stages'}{over}",
        f"{numbers.count(use.micro_batches)} micro-batches of {plan['micro_batch']}"
        f" {'sequence' if plan['micro_batch'] == '1' else 'sequences'}",
        f"schedule {plan['schedule']}"
        + (" with exchanges of experts behind it" if plan["schedule"] == "merged" else ""),
        f"ZeRO {plan['zero']}",
        f"recompute {plan['recompute']}",
        f"gradients in {plan['gradients']}",
    ]
    return numbers.plain(f"{', '.join(parts)}.")


def stage_names(stages: Sequence[int]) -> str:
    """One stage, or from the first to the last of several neighbours."""
    if len(stages) == 1:
        return f"stage {stages[0]}"
    return f"stages {stages[0]}-{stages[-1]}"


def timeline_finding(use: TrainingUse) -> str:
    """What the stages do, and how to read the picture."""
    end = max(span.end for span in use.spans)
    stages = len({span.stage for span in use.spans})
    text = f"One replica, {numbers.quantity(end, 's')}"
    if stages > 1:
        idle = _idle(use)
        text += (
            f": its {stages} stages idle {numbers.points(math.fsum(idle.values()) / stages)} % on"
            f" average, {numbers.points(min(idle.values()))} % at least"
        )
    weights = ", W gradients of weights" if any(s.kind == "weight" for s in use.spans) else ""
    text += (
        f". Numbers are micro-batches, after F for forward, B for backward{weights}, where there"
    )
    text += " is room; thin rows below are what the links do"
    text += "; where passes are too narrow to tell apart, heights are shares of the time"
    return f"{text}."


def parts_finding(use: TrainingUse) -> str:
    """What takes longest, and what of communication is not hidden."""
    whole = math.fsum(part.time for part in use.parts) or 1.0
    compute = math.fsum(part.time for part in use.parts if part.bound == "compute")
    text = f"The busiest stage computes {numbers.points(compute / whole)} % of the step"
    links = exposed(use)
    if links:
        share = math.fsum(time for _, time in links) / whole
        text += f"; links hold it up {numbers.points(share)} %, most of it {links[0][0]}"
    bubble = math.fsum(part.time for part in use.parts if part.bound == "waiting")
    if bubble > 0:
        text += f"; it waits for other stages {numbers.points(bubble / whole)} %"
    return numbers.plain(f"{text}. What runs hidden behind computation is in none of the bars.")


def memory_finding(use: TrainingUse) -> str:
    """Who holds most, and how much is free there."""
    fullest = max(range(len(use.memory)), key=lambda stage: use.memory[stage].total)
    memory = use.memory[fullest]
    spare = memory.capacity - memory.total
    size = numbers.quantity(abs(spare), "B")
    ends = f"{size} are free" if spare >= 0 else f"{size} too much"
    most = max(memory.parts, key=lambda part: part.bytes)
    where = f"A rank of stage {fullest} holds most" if len(use.memory) > 1 else "Each rank holds"
    return numbers.plain(
        f"{where}: {numbers.quantity(memory.total, 'B')} of"
        f" {numbers.quantity(memory.capacity, 'B')}, {ends}. The largest part is {most.name},"
        f" {numbers.quantity(most.bytes, 'B')}."
    )


def _idle(use: TrainingUse) -> dict[int, float]:
    """Share of the step in which each stage computes nothing."""
    end = max(span.end for span in use.spans)
    busy: dict[int, float] = {}
    for span in use.spans:
        busy.setdefault(span.stage, 0.0)
        if span.kind in ("forward", "backward", "input", "weight", "optimizer"):
            busy[span.stage] += (span.end - span.start) * span.share
    return {stage: max(0.0, 1 - time / end) for stage, time in busy.items()}


COLUMNS = (
    "figure",
    "stage",
    "item",
    "micro_batch",
    "start_s",
    "end_s",
    "value",
    "unit",
    "warnings",
)


def data(result: Result) -> str:
    """Everything that the pictures show as CSV, in base units; warnings travel with each row."""
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(COLUMNS)
    warnings = numbers.plain("; ".join(result.warnings))
    if result.training is not None:
        for row in _rows(result.training):
            writer.writerow([*row, warnings])
    return sheet.getvalue()


def _rows(use: TrainingUse) -> Iterator[tuple[object, ...]]:
    for name, value in use.plan:
        yield "plan", "", numbers.plain(name), "", "", "", numbers.plain(value), ""
    for part in use.parts:
        yield "parts", "", numbers.plain(f"{part.group}: {part.name}"), "", "", "", part.time, "s"
    for stage, memory in enumerate(use.memory):
        for held in memory.parts:
            yield "memory", stage, numbers.plain(held.name), "", "", "", held.bytes, "B"
    for sent in use.traffic:
        yield "traffic", "", f"{sent.name} inside the domain", "", "", "", sent.near, "B"
        yield "traffic", "", f"{sent.name} out of the domain", "", "", "", sent.far, "B"
    for span in use.spans:
        batch = "" if span.micro_batch < 0 else span.micro_batch + 1
        kind = numbers.plain(span.kind)
        yield "timeline", span.stage, kind, batch, span.start, span.end, span.share, "share"
