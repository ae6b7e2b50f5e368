"""The pipeline stages of one replica over a training step, and its start and end enlarged.

Each stage has a row of what its units do, hatched where they idle, and a thin row of what its links
do. Pure layout; the pen draws it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulator.report import numbers, palette
from simulator.report.experts_picture import LINE, Drawing, Rect, Scale, Sketch, Swatch
from simulator.report.placement import text_width
from simulator.report.training import timeline_finding
from simulator.training_use import StageSpan, TrainingUse

STAGES = 16
"""Stages at most: the first half and the last half of them."""
UNITS, LINKS = 15.0, 5.0
"""Heights of the rows of a stage."""
SLIM = 2.5
"""Width below which spans are drawn as shares of columns that wide."""
ENLARGED = 0.6
"""Share of the step up to which its two ends are shown enlarged."""

KINDS = {
    "forward": ("forward", palette.SERIES[0]),
    "backward": ("backward", palette.SERIES[1]),
    "input": ("backward, input gradients", palette.SERIES[1]),
    "weight": ("backward, weight gradients", palette.SERIES[4]),
    "optimizer": ("optimizer", palette.SERIES[7]),
    "send": ("send to a neighbour", palette.SERIES[5]),
    "gather": ("gather weights", palette.SERIES[3]),
    "reduce": ("reduce gradients", palette.SERIES[2]),
}
"""What a kind of span is called, and its colour."""
_ELSE = palette.SERIES[6]
ON_UNITS = ("forward", "backward", "input", "weight", "optimizer")
_LETTERS = {"forward": "F", "backward": "B", "input": "B", "weight": "W"}


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a stage in one panel."""

    spans: Sequence[StageSpan]
    bottom: float
    height: float


def edges(use: TrainingUse) -> float:
    """How long the enlarged ends of the step are; 0 where it is large enough as it is."""
    end = max((span.end for span in use.spans), default=0.0)
    if use.folded is not None:
        return use.folded[0]
    stages = len({span.stage for span in use.spans})
    edge = end * (stages + 2) / max(1, use.micro_batches)
    return edge if stages > 1 and 0 < 2 * edge <= ENLARGED * end else 0.0


def picture(use: TrainingUse, width: float) -> Drawing:
    """Lay out the stages; needs spans."""
    sketch = Sketch(width)
    end = max(span.end for span in use.spans)
    y = sketch.legend(_legend(use)) - 14
    edge = edges(use)
    panels = [("the whole step", 0.0, end)]
    if edge:
        panels += [("its start", 0.0, edge), ("its end", end - edge, end)]
    for place, (name, start, stop) in enumerate(panels):
        if len(panels) > 1:
            of = numbers.quantity(stop - start, "s")
            by = "" if width >= 700 else ", by stage"
            sketch.write(f"{name}, {of}{by}", 0.0, y - LINE / 2, bold=True)
        if place == 0:
            sketch.write("idle", width - 4, y - LINE / 2, "right", colour=palette.FAINT)
        y = _panel(sketch, use, (start, stop), y - LINE - 4, idle=place == 0, gid=f"panel-{place}")
        y -= 34
    caption = timeline_finding(use)
    return sketch.finish(8 - y, "Pipeline stages of one replica", caption)


def _panel(
    sketch: Sketch,
    use: TrainingUse,
    window: tuple[float, float],
    top: float,
    *,
    idle: bool,
    gid: str,
) -> float:
    """The stages from the start to the end of a window; returns where the panel ends."""
    width, (start, stop) = sketch.width, window
    wide = width >= 700
    left = 66.0 if wide else 30.0
    x = Scale(
        low=start, high=stop, start=left, length=math.floor(width - left - (56.0 if wide else 54.0))
    )
    stages = sorted({span.stage for span in use.spans})
    half = STAGES // 2
    cut = len(stages) > STAGES
    shown = [*stages[:half], *stages[-half:]] if cut else stages
    y = top
    for place, stage in enumerate(shown):
        if cut and place == half:
            text = f"{len(stages) - STAGES} stages between"
            sketch.write(text, x.start + x.length / 2, y - 10, "center", colour=palette.FAINT)
            y -= 22
        own = [span for span in use.spans if span.stage == stage]
        seen = [span for span in own if span.end > start and span.start < stop]
        units = [span for span in seen if span.kind in ON_UNITS]
        links = [span for span in seen if span.kind not in ON_UNITS]
        row = _Row(units, y - UNITS, UNITS)
        under = Rect(x.start, row.bottom, x.length, UNITS)
        sketch.fill([under], palette.OTHER, hatched=True, gid=f"{gid}-stage-{stage}-idle")
        _row(sketch, row, x, f"{gid}-stage-{stage}-units", named=True)
        y -= UNITS + 1
        if links:
            _row(
                sketch,
                _Row(links, y - LINKS, LINKS),
                x,
                f"{gid}-stage-{stage}-links",
                named=False,
            )
        y -= LINKS
        name = f"stage {stage}" if wide else str(stage)
        sketch.write(name, x.start - 8, row.bottom + UNITS / 2, "right", bold=True)
        if idle:
            busy = math.fsum(
                (span.end - span.start) * span.share for span in own if span.kind in ON_UNITS
            )
            share = numbers.points(1 - busy / (stop - start))
            sketch.write(f"{share} %", width - 4, row.bottom + UNITS / 2, "right")
        y -= 3
    values = x.ticks(70.0 if wide else 52.0)
    unit, texts, _ = numbers.ticks(values, "s")
    for at, text in zip(map(x.at, values), texts, strict=True):
        sketch.line((at, top), (at, y), colour=palette.RULE, weight=0.7, under=True)
        sketch.line((at, y), (at, y - 4), colour=palette.FAINT, weight=0.8)
        sketch.write(text, at, y - 13, "center", colour=palette.FAINT)
    sketch.line((x.start, y), (x.start + x.length, y), colour=palette.FAINT, weight=0.8)
    sketch.write(unit, width - 4, y - 13, "right")
    return y


def _row(sketch: Sketch, row: _Row, x: Scale, gid: str, *, named: bool) -> None:
    """Spans as boxes; what is slim, or joined, as shares of columns on top of each other."""
    right = x.start + x.length
    boxes: dict[str, list[Rect]] = {}
    columns: dict[str, list[Rect]] = {}
    filled: dict[tuple[float, float], float] = {}
    slim: dict[tuple[int, str], float] = {}
    for span in row.spans:
        low, high = max(x.start, x.at(span.start)), min(right, x.at(span.end))
        if span.share < 1:
            under = filled.get((low, high), 0.0)
            filled[low, high] = min(1.0, under + span.share)
            height = row.height * (filled[low, high] - under)
            box = Rect(low, row.bottom + row.height * under, high - low, height)
            columns.setdefault(span.kind, []).append(box)
        elif high - low >= SLIM:
            boxes.setdefault(span.kind, []).append(Rect(low, row.bottom, high - low, row.height))
            if named:
                _label(sketch, span, boxes[span.kind][-1])
        else:
            for place, part in _over(low, high):
                slim[place, span.kind] = slim.get((place, span.kind), 0.0) + part
    base: dict[int, float] = {}
    for (place, kind), part in sorted(slim.items(), key=lambda item: (item[0][0], item[0][1])):
        under = base.get(place, 0.0)
        part = min(part, 1.0 - under)
        base[place] = under + part
        box = Rect(SLIM * place, row.bottom + row.height * under, SLIM, row.height * part)
        columns.setdefault(kind, []).append(box)
    for kind, rects in columns.items():
        sketch.fill(rects, colour(kind), gid=f"{gid}-{_key(kind)}-joined")
    for kind, rects in boxes.items():
        roomy = [rect for rect in rects if rect.width >= 4]
        sketch.fill(roomy, colour(kind), edge=palette.PAPER, gid=f"{gid}-{_key(kind)}")
        close = [rect for rect in rects if rect.width < 4]
        sketch.fill(close, colour(kind), gid=f"{gid}-{_key(kind)}-slim")


def _over(low: float, high: float) -> Iterator[tuple[int, float]]:
    """Columns that a span covers, and how much of each."""
    place = math.floor(low / SLIM)
    while SLIM * place < high:
        covered = min(high, SLIM * (place + 1)) - max(low, SLIM * place)
        yield place, covered / SLIM
        place += 1


def _label(sketch: Sketch, span: StageSpan, rect: Rect) -> None:
    """F or B and the number of the micro-batch where there is room, else the number or nothing."""
    if span.micro_batch < 0:
        return
    number = str(span.micro_batch + 1)
    for text in (_LETTERS.get(span.kind, "") + number, number):
        if text_width(text, 12.0) + 2 <= rect.width:
            at = rect.left + rect.width / 2
            ink = palette.on(colour(span.kind))
            sketch.write(text, at, rect.bottom + rect.height / 2, "center", colour=ink)
            return


def colour(kind: str) -> str:
    """Fill of a kind of span."""
    return KINDS[kind][1] if kind in KINDS else _ELSE


def _key(kind: str) -> str:
    return kind if kind in KINDS else "else"


def _legend(use: TrainingUse) -> list[Swatch]:
    """What stages do, then what links do, which is drawn lower."""
    present = {span.kind for span in use.spans}
    named = [kind for kind in KINDS if kind in present] + sorted(present - KINDS.keys())
    units = [kind for kind in named if kind in ON_UNITS]
    entries = [
        Swatch(numbers.plain(KINDS.get(kind, (kind, ""))[0]), colour(kind),
               12.0 if kind in ON_UNITS else LINKS)
        for kind in named
    ]  # fmt: skip
    entries.insert(len(units), Swatch("idle", ""))
    return entries
