"""A training step on its page and among its files: pictures, what they say, and tables.

Lays out nothing itself. A result of another phase has no section and no files.
"""

from __future__ import annotations

from collections.abc import Callable

from simulator.report import numbers, training, training_memory, training_parts, training_timeline
from simulator.report.experts_page import Plate, Section, Table
from simulator.report.experts_picture import Drawing, stacked
from simulator.report.facts import title
from simulator.report.roofline import NARROW, WIDE
from simulator.result import Result
from simulator.training_use import TrainingUse

FILES = ("training.csv", "training.svg", "training.png")
"""What training adds to a report."""

Layout = Callable[[TrainingUse, float], Drawing]


def sections(result: Result) -> list[Section]:
    """What the page shows of a training step."""
    use = result.training
    if use is None:
        return []
    return [
        Section(
            phase="train",
            setting=training.setting(use),
            plates=_plates(use),
            tables=[_plan(use), *_stages(use)],
        )
    ]


def files(result: Result) -> dict[str, bytes]:
    """The files of a training step and their contents."""
    use = result.training
    if use is None:
        return {}
    from simulator.report import experts_pen, pen

    drawings = [(heading, layout(use, WIDE)) for _, heading, layout in _layouts(use)]
    contents = {FILES[0]: training.data(result).encode()}
    if drawings:
        sheet = stacked(drawings, "Training step: " + ", ".join(title(result)), WIDE + 28)
        figure = experts_pen.draw(sheet)
        contents |= {FILES[1]: pen.svg(figure, sheet).encode(), FILES[2]: pen.png(figure, sheet)}
    return contents


def _layouts(use: TrainingUse) -> list[tuple[str, str, Layout]]:
    """Keys, headings and layouts of the pictures that the result has data for."""
    found: list[tuple[str, str, Layout]] = []
    if use.spans:
        heading = "Pipeline stages of one replica"
        found.append(("timeline", heading, training_timeline.picture))
    if use.parts:
        heading = "Where the time of the busiest stage goes"
        found.append(("parts", heading, training_parts.picture))
    if use.memory:
        found.append(("memory", "Memory of a rank of each stage", training_memory.picture))
    return found


def _plates(use: TrainingUse) -> list[Plate]:
    from simulator.report import experts_pen, pen

    found = []
    for key, heading, layout in _layouts(use):
        wide, narrow = layout(use, WIDE), layout(use, NARROW)
        found.append(
            Plate(
                heading=heading,
                caption=wide.caption,
                wide=pen.element(experts_pen.draw(wide), wide, "wide", f"wide-training-{key}"),
                narrow=pen.element(
                    experts_pen.draw(narrow), narrow, "narrow", f"narrow-training-{key}"
                ),
            )
        )
    return found


def _plan(use: TrainingUse) -> Table:
    """The degrees of the plan, what each splits, and what it sends."""
    plan, sent = dict(use.plan), {entry.name: entry for entry in use.traffic}
    total = [sum(getattr(entry, way) for entry in use.traffic) for way in ("near", "far")]
    ways: list[tuple[str, list[str]]] = []
    for way, whole in zip(("near", "far"), total, strict=True):
        sizes = [getattr(sent[name], way) if name in sent else 0.0 for name in training.DEGREES]
        unit, cells = numbers.column([*sizes, whole], "B")
        ways.append((unit, numbers.align(cells, numbers.FIGURE_SPACE, numbers.POINT_SPACE)))
    rows = [
        [words[0], plan.get(name, "1"), words[1], ways[0][1][place], ways[1][1][place]]
        for place, (name, words) in enumerate(training.DEGREES.items())
    ]
    return Table(
        title="The plan, and what a device sends in a step",
        head=[
            ("degree", ""),
            ("ranks", ""),
            ("splits", ""),
            ("inside the domain", ways[0][0]),
            ("out of the domain", ways[1][0]),
        ],
        rows=rows,
        foot=["together", "", "", ways[0][1][-1], ways[1][1][-1]],
        note="Of a device of the busiest stage. Inside: over scale-up links to devices of its own"
        " domain. Out: over the network; rings leave a domain once, so that its devices share what"
        " goes out.",
    )


def _stages(use: TrainingUse) -> list[Table]:
    """Memory by part, stage by stage."""
    if not use.memory:
        return []
    bars, parts = training_memory.bars(use), training_memory.parts(use)
    unit, cells = numbers.column([bar.use.total for bar in bars], "B")
    columns = []
    for name in parts:
        sizes = [sum(part.bytes for part in bar.use.parts if part.name == name) for bar in bars]
        columns.append((name, *numbers.column(sizes, "B")))
    rows = [
        [training.stage_names(bar.stages), cells[place], *(column[2][place] for column in columns)]
        for place, bar in enumerate(bars)
    ]
    return [
        Table(
            title="Memory stage by stage",
            head=[("ranks of", ""), ("total", unit), *((name, size) for name, size, _ in columns)],
            rows=rows,
            foot=[],
            folded=True,
        )
    ]
