"""The page that sets claimed ratios beside simulated ones: Markdown, its picture and its data.

Rounds through ``numbers`` alone. Knows comparisons. Never touches specs or models.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from simulator.errors import Fault, SpecError
from simulator.report import numbers
from simulator.report.articles import Comparison, Ratio, Report, Verdict
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
         "step, both", "MFU, both", "MFU that the claim asks for"),
        map(_same, rows), left=3,
    )  # fmt: skip
    lines += [
        "The claim asks for: the share of its dense BF16 peak at which the device would be no "
        "faster than claimed.",
        "",
        "## Each under its own best plan",
        "",
    ]
    lines += _table(
        ("workload", "device", "against", "claimed", "simulated [80 %]", "verdict", "plans"),
        map(_best, rows), left=3,
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
        lines += _table(("", "it says", "what is known", "verdict"), numbered, left=4)[:-1]
    lines += ["", "## How it was made", "", *_made(report)]
    return "\n".join(lines).rstrip() + "\n"


def _summary(report: Report) -> Iterator[str]:
    for group in report.comparisons:
        said = [one for one in group if one.claim is not None]
        assert said, "a workload has a claim"
        claim = said[0].claim
        assert claim is not None
        parts = [
            f"{one.same.new.label} {times(one.same)}: {SAID[one.same.against(claim.speed)]}"
            for one in said
        ]
        yield f"- **{said[0].workload}**, claimed {_plain(claim.speed)}: {'; '.join(parts)}."
    ratios = [
        ratio.against(one.claim.speed)
        for group in report.comparisons
        for one in group
        if one.claim is not None
        for ratio in (one.same, one.best)
    ]
    counts = [ratios.count(side) for side in SAID]
    yield (
        f"- Of {len(ratios)} simulated ratios, under one plan and under the best ones, {counts[0]} "
        f"are more than claimed, {counts[1]} less, and {counts[2]} cannot be told from the claim."
    )


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
        asked,
    )


def _best(one: Comparison) -> tuple[str, ...]:
    new, base = one.best.new.plan, one.best.base.plan
    return (*_head(one, one.best), new if new == base else f"{new}; {base}")


def _head(one: Comparison, ratio: Ratio) -> tuple[str, ...]:
    claimed, verdict = "-", _faster(ratio)
    if one.claim is not None:
        claimed = _plain(one.claim.speed)
        verdict = SAID[ratio.against(one.claim.speed)]
    return one.workload, ratio.new.label, ratio.base.label, claimed, times(ratio), verdict


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
    return _table(heads, rows, left=1)


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
                ends = [_change(end * gain - 1) for end in one.same.ends]
                cells.append(f"{_change(one.same.value * gain - 1)} [{ends[0]}, {ends[1]}]")
            head = (one.workload, one.same.new.label, _change(one.claim.efficiency))
            rows.append((*head, *cells))
    base = report.comparisons[0][0].same.base.label
    known = f"{base} is taken at its {numbers.quantity(report.base_power, 'W')} board power."
    return [*_table(heads, rows, left=2), f"Change of work per joule. {known}", ""]


def _made(report: Report) -> Iterator[str]:
    yield (
        "- Ratios are of step times at equal work on equally many devices. The interval takes the "
        "errors of both sides as independent; where it covers the claim, or 1 where nothing is "
        "claimed, the verdict is *cannot tell*."
    )
    notes: dict[str, None] = {}
    for group in report.comparisons:
        for one in group:
            for run in (one.same.new, one.same.base):
                notes |= dict.fromkeys(run.result.warnings)
    yield from (f"- {numbers.plain(note)}." for note in notes)
    yield f"- Again: `{report.command}`. Single runs under one plan:"
    yield ""
    yield "```"
    commands: dict[str, None] = {}
    for group in report.comparisons:
        for one in group:
            for run in (one.same.new, one.same.base):
                commands[run.result.provenance.command] = None
    yield from commands
    yield "```"


def data(report: Report) -> str:
    """Every ratio at full precision, as CSV."""
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(
        ("workload", "device", "against", "plans", "ratio", "lower", "upper", "claimed", "plan",
         "plan against", "seconds", "seconds against", "devices")
    )  # fmt: skip
    for group in report.comparisons:
        for one in group:
            for kind, ratio in (("one", one.same), ("best", one.best)):
                new, base = ratio.new, ratio.base
                claimed = "" if one.claim is None else one.claim.speed
                writer.writerow(
                    (one.workload, new.label, base.label, kind, ratio.value, *ratio.ends, claimed,
                     new.plan, base.plan, new.result.latency, base.result.latency,
                     new.result.devices)
                )  # fmt: skip
    return sheet.getvalue()


def times(ratio: Ratio) -> str:
    """A ratio with its interval: ``4.6x [3.2, 5.8]``."""
    return numbers.interval(ratio.value, *ratio.ends, "x").replace(" x", "x")


def _plain(ratio: float) -> str:
    return f"{numbers.digits(ratio)}x"


def _watts(power: Watts) -> str:
    """Watts in full, so that a column has one unit."""
    return f"{numbers.digits(power)} W"


def _change(share: float) -> str:
    sign = "-" if share < 0 else "+"
    return f"{sign}{numbers.percent(abs(share))}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, left: int) -> list[str]:
    rule = ["---" if place < left else "---:" for place in range(len(heads))]
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
    for name, content in contents.items():
        part = directory / f".{name}.part"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            part.write_bytes(content)
            part.replace(directory / name)
        except OSError as error:
            found = error.strerror or str(error)
            raise SpecError([Fault(str(directory / name), None, "", found)]) from None
        finally:
            part.unlink(missing_ok=True)
    return [directory / name for name in contents]
