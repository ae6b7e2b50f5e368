"""Order, folding and share of the roof."""

from __future__ import annotations

import math

from simulator.report.ranking import lines, of_roof, ranked
from simulator.result import Result


def test_operators_come_longest_first(many: Result) -> None:
    times = [op.time for op in ranked(many)]
    assert times == sorted(times, reverse=True)


def test_lines_add_up_to_the_latency(
    decode: Result, prefill: Result, experts: Result, many: Result, single: Result
) -> None:
    for result in (decode, prefill, experts, many, single):
        found = lines(result)
        assert math.isclose(math.fsum(line.total for line in found), result.latency)
        assert sum(round(10 * float(line.share)) for line in found) == 1000
        assert len(found) <= 12


def test_one_small_operator_is_shown_under_its_own_name(decode: Result) -> None:
    names = [line.name for line in lines(decode, keep=10, least=0.0)]
    assert names[-1] == "embed"


def test_share_of_the_roof_is_time_allowed_over_time_taken(decode: Result) -> None:
    roof = decode.roof
    for op in decode.ops:
        reached = of_roof(op, roof)
        assert reached is not None
        if op.flops:
            assert op.rate is not None
            assert op.intensity is not None
            attainable = min(op.roof, op.intensity * roof.bandwidth)
            assert math.isclose(reached, op.rate / attainable)
        else:
            assert math.isclose(reached, op.bytes / op.time / roof.bandwidth)
