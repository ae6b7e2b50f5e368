"""The operators of results as CSV: every plotted point as data, in base units."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from simulator.report import numbers
from simulator.report.ranking import of_roof, ranked
from simulator.result import Result

COLUMNS = (
    *("hardware", "rank", "operator", "kind", "count", "format", "bound_by", "time_s", "share"),
    *("flops", "bytes", "flop_per_byte", "flop_per_s", "byte_per_s", "roof_flop_per_s"),
    *("roof_byte_per_s", "of_roof", "tile", "warnings"),
)


def points(results: Sequence[Result]) -> str:
    """The plotted points as CSV, in base units; warnings travel with each row."""
    sheet = io.StringIO()
    writer = csv.writer(sheet, lineterminator="\n")
    writer.writerow(COLUMNS)
    for result in results:
        for rank, op in enumerate(ranked(result), start=1):
            writer.writerow(
                [
                    numbers.plain(result.hardware),
                    rank,
                    numbers.plain(op.name),
                    numbers.plain(op.kind),
                    op.count,
                    numbers.plain(op.format),
                    op.bound_by,
                    op.time,
                    op.time / result.latency if result.latency > 0 else "",
                    op.flops,
                    op.bytes,
                    op.intensity if op.intensity is not None else "",
                    op.rate if op.rate is not None else "",
                    op.bytes / op.time if op.time > 0 else "",
                    op.roof,
                    result.roof.bandwidth,
                    reached if (reached := of_roof(op, result.roof)) is not None else "",
                    numbers.plain(op.tile),
                    numbers.plain("; ".join(result.warnings)),
                ]
            )
    return sheet.getvalue()
