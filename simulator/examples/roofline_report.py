"""Draw the operators of one model under the rooflines of several devices.

python -m simulator.examples.roofline_report roofline.svg h200 mi455x
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from simulator import make_scenario, simulate
from simulator.report.roofline import write_roofline


def main(arguments: Sequence[str]) -> None:
    """Write the picture and say of each operator that takes a tenth or more what binds it."""
    out, *devices = arguments or ("roofline.svg",)
    results = [
        simulate(make_scenario("llama-3.1-8b", device, batch=32, context=4096))
        for device in devices or ("h200", "mi455x")
    ]
    for result in results:
        print(f"{result.hardware}: {1e3 * result.latency:.2f} ms, bound by {result.bound_by}")
        for op in sorted(result.ops, key=lambda op: -op.time):
            if op.time > 0.1 * result.latency:
                share = op.time / result.latency
                print(f"  {op.name:16} {share:5.1%} of the time, bound by {op.bound_by}")
    print(f"wrote {write_roofline(results, out)}")


if __name__ == "__main__":
    main(sys.argv[1:])
