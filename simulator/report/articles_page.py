"""The page that sets claimed ratios beside simulated ones: Markdown, its picture and its data.

Rounds through ``numbers`` alone. Knows comparisons. Never touches specs or models.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from simulator.report import numbers
from simulator.report import ratio as ratios
from simulator.report.articles import Claim, Comparison, Ratio, Report
from simulator.report.files import write_files
from simulator.report.ratio import Verdict
from simulator.units import Watts

PAGE, PICTURE, DATA = "articles.md", "ratios.png", "ratios.csv"

SAID: dict[Verdict, str] = {
    "above": "more than claimed",
    "below": "less than claimed",
    "cannot tell": "cannot tell",
}


def page(report: Report) -> str:
    """The Markdown page."""
    rows = [one for group in report.comparisons for one in group]
    lines = [f"# {report.title}", "", report.opening, "", *_summary(report), ""]
    caption = (
        "How many times as fast as the other device, with 80 % intervals. Filled marks: both under "
        "one plan in BF16. Hollow marks: each under its own best plan. Diamonds: what the article "
        "claims."
    )
    lines += [f"![{caption}]({PICTURE})", "", f"*{caption} Data: [{DATA}]({DATA}).*", ""]
    lines += ["## One plan on both sides", ""]
    lines += _table(
        ("workload", "device", "against", "claimed", "simulated [80 %]", "verdict",
         "step, both", "MFU, both", "binds, both", "MFU that the claim asks for"),
        map(_same, rows), "lllrrlrrlr",
    )  # fmt: skip
    lines += [
        "Values of both devices stand in the order of their names. MFU: the model's FLOP/s over "
        "the dense peak. The claim asks for that MFU at which the device would be no faster than "
        "claimed.",
        "",
        "## Each under its own best plan",
        "",
    ]
    lines += _table(
        ("workload", "device", "against", "claimed", "simulated [80 %]", "verdict", "plans"),
        map(_best, rows), "lllrrll",
    )  # fmt: skip
    lines += report.tried
    lines += ["", "## What the specifications imply", ""]
    lines += [f"- {text}" for text in report.implied]
    lines += ["", *_specs(report)]
    lines += ["## Efficiency, under stated power", "", *_efficiency(report)]
    lines += ["## What nobody can know", ""]
    lines += [f"- {text}" for text in report.unknown]
    for some in report.statements:
        lines += ["", f"## {some.title}", ""]
        numbered = [(str(place), *row) for place, row in enumerate(some.rows, start=1)]
        lines += _table(("", "it says", "what is known", "verdict"), numbered, "rlll")[:-1]
    lines += ["", "## How it was made", "", *_made(report)]
    return "\n".join(lines).rstrip() + "\n"


def _summary(report: Report) -> Iterator[str]:
    told = [
        ratio.against(one.claim.speed)
        for group in report.comparisons
        for one in group
        if one.claim is not None
        for ratio in (one.same, one.best)
    ]
    above, below, neither = (told.count(side) for side in SAID)
    yield (
        f"- Of {len(told)} simulated ratios, under one plan and under the best ones, {above} are "
        f"more than claimed, {below} less, and {neither} cannot be told from the claim."
    )
    for group in report.comparisons:
        parts = [
            f"{one.same.new.label} {times(one.same)}, {SAID[one.same.against(one.claim.speed)]}"
            for one in group
            if one.claim is not None
        ]
        said = "".join(dict.fromkeys(claimed(one.claim) for one in group if one.claim is not None))
        yield f"- **{group[0].workload}**, claimed {said}: {'; '.join(parts)}."


def _same(one: Comparison) -> tuple[str, ...]:
    new, base = one.same.new.result, one.same.base.result
    asked = "-"
    if one.claim is not None and new.mfu is not None:
        asked = numbers.utilisation(new.mfu * one.claim.speed / one.same.value)
    prefixed, (own, other) = numbers.column([new.latency, base.latency], "s")
    return (
        *_head(one, one.same),
        f"{own}, {other} {prefixed}",
        f"{numbers.utilisation(new.mfu)}, {numbers.utilisation(base.mfu)}",
        new.bound_by if new.bound_by == base.bound_by else f"{new.bound_by}, {base.bound_by}",
        asked,
    )


def _best(one: Comparison) -> tuple[str, ...]:
    new, base = one.best.new.plan, one.best.base.plan
    return (*_head(one, one.best), new if new == base else f"{new}; {base}")


def _head(one: Comparison, ratio: Ratio) -> tuple[str, ...]:
    if one.claim is None:
        said, verdict = "-", _faster(ratio)
    else:
        said, verdict = claimed(one.claim), SAID[ratio.against(one.claim.speed)]
    return one.workload, ratio.new.label, ratio.base.label, said, times(ratio), verdict


def _faster(ratio: Ratio) -> str:
    said: dict[Verdict, str] = {"above": "faster", "below": "slower", "cannot tell": "cannot tell"}
    return said[ratio.against(1.0)]


def _specs(report: Report) -> list[str]:
    """Ratios of the data sheets beside those of the runs."""
    first = report.comparisons[0]
    heads = ["", *(f"{one.same.new.label} / {one.same.base.label}" for one in first)]
    rows = [
        (spec.name, *("-" if ratio is None else _plain(ratio) for ratio in spec.ratios))
        for spec in report.specs
    ]
    rows += [
        (f"**{group[0].workload}, one plan**", *(times(one.same) for one in group))
        for group in report.comparisons
    ]
    return _table(heads, rows, "l" + "r" * len(first))


def _efficiency(report: Report) -> list[str]:
    """What claims imply, and what runs give under each assumed power."""
    heads = [
        "workload", "device", "claimed", "power that the claim implies",
        "power at which the run gives the claim",
        *(f"at {numbers.quantity(p.watts, 'W')} ({p.label})" for p in report.powers),
    ]  # fmt: skip
    rows = []
    for group in report.comparisons:
        for one in group:
            if one.claim is None:
                continue
            more = 1 + one.claim.efficiency
            cells = [_watts(one.claim.speed / more * report.base_power)]
            cells.append(_watts(one.same.value / more * report.base_power))
            for power in report.powers:
                gain = report.base_power / power.watts
                low, high = (_change(end * gain - 1) for end in one.same.ends)
                verdict = SAID[one.same.against(more / gain)]
                cells.append(f"{_change(one.same.value * gain - 1)} [{low}, {high}], {verdict}")
            head = (one.workload, one.same.new.label, _change(one.claim.efficiency))
            rows.append((*head, *cells))
    base = report.comparisons[0][0].same.base.label
    known = f"{base} is taken at its {numbers.quantity(report.base_power, 'W')} board power."
    table = _table(heads, rows, "llrrr" + "l" * len(report.powers))
    return [*table, f"Change of work per joule, with 80 % intervals. {known}", ""]


def _made(report: Report) -> Iterator[str]:
    yield (
        "- Ratios are of step times at equal work on equally many devices. The interval takes the "
        "errors of both sides as independent; where it covers the claim, or 1 where nothing is "
        "claimed, the verdict is *cannot tell*. Of plans, tp, pp, dp and ep are the tensor-, "
        "pipeline-, data- and expert-parallel degrees."
    )
    notes: dict[str, dict[str, None]] = {}
    for group in report.comparisons:
        for one in group:
            for result in (one.same.new.result, one.same.base.result):
                for note in result.warnings:
                    notes.setdefault(note, {})[result.workload] = None
    yield from (f"- {', '.join(of)}: {numbers.plain(note)}." for note, of in notes.items())
    yield f"- Again: `{report.command}`. [{DATA}]({DATA}) has the command of every single run."


def data(report: Report) -> str:
    """Every ratio at full precision, as CSV."""
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(
        ("workload", "device", "against", "plans", "ratio", "lower", "upper", "claimed", "plan",
         "plan against", "seconds", "seconds against", "devices", "command", "command against")
    )  # fmt: skip
    for group in report.comparisons:
        for one in group:
            for kind, ratio in (("one", one.same), ("best", one.best)):
                new, base = ratio.new, ratio.base
                said = "" if one.claim is None else one.claim.speed
                sides = new.result, base.result
                writer.writerow(
                    (one.workload, new.label, base.label, kind, ratio.value, *ratio.ends, said,
                     new.plan, base.plan, *(side.latency for side in sides), sides[0].devices,
                     *(side.provenance.command for side in sides))
                )  # fmt: skip
    return sheet.getvalue()


def times(ratio: Ratio) -> str:
    """A ratio with its interval: ``4.6x [3.2, 5.8]``."""
    return ratios.times(ratio.value, ratio.ends)


def claimed(claim: Claim) -> str:
    """A claimed ratio as it was printed: ``2.1x``."""
    return f"{numbers.digits(claim.speed).rstrip('0').rstrip('.')}x"


def _plain(ratio: float) -> str:
    return f"{numbers.digits(ratio)}x"


def _watts(power: Watts) -> str:
    """Watts in full, so that a column has one unit."""
    return f"{numbers.digits(power)} W"


def _change(share: float) -> str:
    sign = "-" if share < 0 else "+"
    return f"{sign}{numbers.percent(abs(share))}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], sides: str) -> list[str]:
    """``sides`` has l or r for each column."""
    rule = ["---" if side == "l" else "---:" for side in sides]
    return [f"| {' | '.join(row)} |" for row in (heads, rule, *rows)] + [""]


def write_articles(report: Report, directory: Path) -> list[Path]:
    """Write the page, its picture and its data; returns the files.

    Everything is made before anything is written. Raises SpecError where it cannot be written.
    """
    from simulator.report.articles_picture import draw

    contents = {
        PAGE: page(report).encode(),
        PICTURE: draw(report.comparisons),
        DATA: data(report).encode(),
    }
    return write_files(contents, directory)
