"""Writes a fit as the YAML file that the catalogue reads.

Knows fits. Never touches measurements or formulas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from simulator.specs.fit import Fit


def write_fit(fit: Fit, path: Path) -> None:
    """Write ``fit``; the file says that it is written by a command and from what."""
    path.write_text("\n".join(_lines(fit)) + "\n")


def _lines(fit: Fit) -> Iterator[str]:
    yield f"# Written by tilecast validate --refit {fit.name}; edit the model, not this file."
    yield f"name: {fit.name}"
    if fit.description:
        yield f"description: {_text(fit.description)}"
    yield f"date: {fit.date}"
    yield f"data: {_text(fit.data)}"
    yield f"source: {_text(fit.data)}"
    yield "basis: measured"
    yield f"rows: {fit.rows}"
    yield ""
    yield from _flow("shared", fit.shared)
    yield ""
    yield "libraries:"
    for name, library in sorted(fit.libraries.items()):
        yield f"  {name}:"
        if library.description:
            yield f"    description: {_text(library.description)}"
        if not library.tuned:
            yield "    tuned: false"
        if not library.kin:
            yield "    kin: false"
        if library.devices:
            yield f"    devices: [{', '.join(library.devices)}]"
        yield from _flow("    values", library.values)
        if library.by_generation:
            yield "    by_generation:"
            for generation, values in sorted(library.by_generation.items()):
                yield from _flow(f"      {generation}", values)
    if fit.intervals:
        yield ""
        yield "intervals:   # 80 %, as factors of the prediction"
        for op, classes in sorted(fit.intervals.items()):
            yield f"  {op}:"
            for far, entry in classes.items():
                yield (
                    f"    {far}: {{lower: {entry.lower:g}, upper: {entry.upper:g}, "
                    f"rows: {entry.rows}}}"
                )
    if fit.scores:
        yield ""
        yield "scores:   # of held-back shapes, percent"
        for score in fit.scores:
            band = "" if score.band is None else f", band: {score.band:.1f}"
            yield (
                f"  - {{op: {score.op}, dtype: {score.dtype}, device: {score.device}, "
                f"distance: {score.distance}, rows: {score.rows}, mean: {score.mean:.1f}, "
                f"median: {score.median:.1f}{band}}}"
            )


def _text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _flow(head: str, values: Mapping[str, float], width: int = 98) -> Iterator[str]:
    """A mapping on one line, or over several where it is long."""
    indent = " " * (len(head) - len(head.lstrip()) + 2)
    pairs = [f"{name}: {value:g}" for name, value in values.items()]
    line = f"{head}: {{{', '.join(pairs)}}}"
    if len(line) <= width:
        yield line
        return
    yield f"{head}: {{"
    yield from _wrapped(pairs, indent, width)
    yield f"{indent[2:]}}}"


def _wrapped(pairs: Iterable[str], indent: str, width: int) -> Iterator[str]:
    line = indent
    for pair in pairs:
        if len(line) + len(pair) + 2 > width:
            yield line.rstrip()
            line = indent
        line += pair + ", "
    yield line.rstrip()
