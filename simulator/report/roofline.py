"""The roofline of results: where each operator lies under its roof, and how much that matters.

After Williams, Waterman and Patterson (2009): attainable FLOP/s = min(peak, intensity x bandwidth).
Size says time, colour what binds, shape the number format. A decade has one length on both axes,
so that a bandwidth is a line at 45 degrees. Pure layout; the pen draws it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from simulator.errors import BoundsError, Fault, SpecError
from simulator.report import numbers
from simulator.report.layout import DRAWN, Layout
from simulator.report.picture import Picture
from simulator.report.points import points
from simulator.report.ranking import of_roof, ranked
from simulator.result import Bound, Result

WIDE, NARROW = 960.0, 336.0
_SLACK = 1e-6


def picture(results: Sequence[Result], width: float = WIDE, *, bare: bool = False) -> Picture:
    """Lay out the roofline of one result, or of several with the first in front.

    ``width`` is in points; under 700 the legend goes below. ``bare`` leaves out title and caption,
    for a page that has them as text. Raises BoundsError where an operator is above its roof: the
    run is wrong.
    """
    assert results, "a roofline needs a result"
    for result in results:
        _check(result)
    text = caption(results[0])
    if len(results) > 1:
        text = f"{numbers.plain(results[0].hardware)}: {text}"
    return Layout(results, width, text, bare=bare).picture()


def finding(result: Result) -> str:
    """What the picture shows, as sentences."""
    ops = [op for op in ranked(result) if op.time > 0]
    if not ops:
        return "No operator takes any time."
    whole = math.fsum(op.time for op in ops)
    seconds: dict[Bound, float] = {}
    for op in ops:
        seconds[op.bound_by] = seconds.get(op.bound_by, 0.0) + op.time
    most = max(seconds, key=lambda bound: seconds[bound])
    share = numbers.percent(seconds[most] / whole)
    text = f"{_BINDS[most]}: {share} of the operator time is in {_KIND[most]} operators."
    first = ops[0]
    reached = of_roof(first, result.roof)
    if reached is not None:
        name = numbers.cut(numbers.plain(first.name), 40)
        text += (
            f" The longest, {name} ({numbers.percent(first.time / whole)}), reaches"
            f" {numbers.percent(reached)} of its roof."
        )
    return text


_BINDS: dict[Bound, str] = {
    "compute": "Compute binds",
    "memory": "Memory binds",
    "cache": "The shared cache binds",
    "link": "Links bind",
    "latency": "Launch and fill latency binds",
    "waiting": "Waiting binds",
}
_KIND: dict[Bound, str] = {
    "compute": "compute-bound",
    "memory": "memory-bound",
    "cache": "cache-bound",
    "link": "link-bound",
    "latency": "latency-bound",
    "waiting": "waiting",
}


def caption(result: Result, *, warnings: bool = True) -> str:
    """The finding, what is not drawn, and the warnings."""
    sentences = [finding(result)]
    hidden = [numbers.plain(op.name) for op in ranked(result) if op.time <= 0 or op.bytes <= 0]
    if hidden:
        names = ", ".join(hidden) if len(hidden) <= 3 else numbers.count(len(hidden)) + " operators"
        sentences.append(f"Not drawn, as nothing is moved or no time passes: {names}.")
    if inner := [numbers.plain(level.name) for level in result.roof.levels]:
        sentences.append(
            f"The thin roofs ({', '.join(inner)}) are for the bytes of their own level; operators"
            " stand at those of the device memory."
        )
    if len(result.ops) > DRAWN:
        sentences.append(f"The longest {DRAWN} of {numbers.count(len(result.ops))} are drawn.")
    if warnings:
        sentences += [f"Warning: {numbers.plain(text).rstrip('.')}." for text in result.warnings]
    return " ".join(sentences)


def write_roofline(results: Result | Sequence[Result], path: str | Path) -> Path:
    """Write the picture as .svg or .png, or its points as .csv, whole or not at all.

    The first result is drawn in front, others hollow with grey roofs. Raises SpecError where the
    name ends otherwise or cannot be written, BoundsError where a point is above its roof.
    """
    shown = [results] if isinstance(results, Result) else list(results)
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in {".svg", ".png", ".csv"}:
        found = f"ends in {suffix!r}" if suffix else "has no ending"
        raise SpecError([Fault(str(path), None, "", found, "end it in .svg, .png or .csv")])
    if suffix == ".csv":
        data = points(shown).encode()
    else:
        from simulator.report import pen

        layout = picture(shown)
        figure = pen.draw(layout)
        data = pen.svg(figure, layout).encode() if suffix == ".svg" else pen.png(figure, layout)
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(data)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise SpecError(
            [Fault(str(path), None, "", error.strerror or str(error), "name a file to write")]
        ) from None
    return target


def _check(result: Result) -> None:
    for op in result.ops:
        reached = of_roof(op, result.roof)
        if reached is not None and reached > 1 + _SLACK:
            raise BoundsError(
                f"{result.workload} on {result.hardware}: operator {op.name!r} reaches "
                f"{reached:.6g} of its roof; nothing can pass its roof"
            )
