"""The layers of a run on its page and among its files. Lays out nothing itself."""

from __future__ import annotations

from simulator.report import numbers, timeline
from simulator.report.experts_page import Plate, Section
from simulator.report.roofline import NARROW, WIDE
from simulator.result import Result

FILES = ("timeline.csv",)
"""What layers add to a report."""


def sections(result: Result) -> list[Section]:
    """One picture for each phase whose layers repeat."""
    from simulator.report import experts_pen, pen

    found = []
    for layer in timeline.layers(result):
        phase = numbers.plain(layer.phase)
        wide, narrow = timeline.picture(layer, WIDE), timeline.picture(layer, NARROW)
        plate = Plate(
            heading=f"One layer of {phase} in stream order",
            caption=wide.caption,
            wide=pen.element(experts_pen.draw(wide), wide, "wide", f"wide-layer-{phase}"),
            narrow=pen.element(experts_pen.draw(narrow), narrow, "narrow", f"narrow-layer-{phase}"),
        )
        found.append(Section(phase=phase, setting="", plates=[plate], tables=[]))
    return found


def files(result: Result) -> dict[str, bytes]:
    """The file of the layers and its contents."""
    return {FILES[0]: timeline.data(result).encode()} if timeline.layers(result) else {}
