"""The roofs of a result are the bandwidths of the device's spec."""

from __future__ import annotations

import pytest

from simulator import load_scenario, simulate


def test_caches_and_links_of_a_device_are_what_its_spec_says() -> None:
    alone = simulate(load_scenario("llama-3.1-8b decode batch=8 context=512 on mi455x"))
    levels = {level.name: level for level in alone.roof.levels}
    # 512 bytes per clock of each of 256 units at 2.4 GHz; the links are of no use to one device.
    assert levels["LDS"].bandwidth == pytest.approx(512 * 256 * 2.4e9)
    assert levels["L2"].bandwidth == pytest.approx(54e12)
    assert levels["L2"].achieved is None
    assert list(levels) == ["LDS", "L2"]
    pair = simulate(load_scenario("llama-3.1-8b decode batch=8 context=512 tp=2 on mi455x"))
    link = pair.roof.levels[-1]
    assert (link.name, link.link, link.bandwidth) == ("ualink", True, 1.8e12)
    assert link.achieved == pytest.approx(0.91 * 1.8e12)
