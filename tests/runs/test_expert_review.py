"""What whole runs with experts say of exchanges, links, movers and plans, against arithmetic."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import simulator
from simulator.api import make_scenario, simulate
from simulator.expert_use import ExpertPhase, ExpertUse
from simulator.mapping.descriptors import Layout
from simulator.mapping.dispatch import Dispatch
from simulator.mapping.expert_moves import expert_moves
from simulator.mapping.placement import memory_use
from simulator.ops.exchange import Exchange
from simulator.result import Result
from simulator.specs.load import load_hardware
from simulator.specs.plan import Plan
from simulator.specs.workload import MoE

MODEL = "qwen3-30b-a3b"
SKEWED = "moe.routing=zipf 1.2"


@cache
def run(*overrides: str, device: str = "h200", ep: int = 4, phase: str = "prefill") -> Result:
    """Three layers of a model with 128 experts over four ranks."""
    return simulate(
        make_scenario(
            MODEL, device, phase=phase, batch=8, ep=ep,
            input=48 if phase == "prefill" else None, context=64 if phase == "decode" else None,
            overrides=["groups.0.repeat=3", *overrides],
        )
    )  # fmt: skip


def use(result: Result) -> ExpertUse:
    (found,) = result.experts
    return found


def step(result: Result, name: str) -> ExpertPhase:
    (found,) = (phase for phase in use(result).phases if phase.name == name)
    return found


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("routing", ["moe.routing=balanced", SKEWED])
def test_bytes_over_links_are_the_copies_that_leave_their_rank(phase: str, routing: str) -> None:
    """In one domain: off the diagonal of the dispatch matrix, times the bytes of a copy."""
    result = run(routing, phase=phase)
    rows = np.array(use(result).rows)
    leaving = rows.sum() - np.trace(rows)
    assert step(result, "dispatch").bytes == leaving * use(result).dispatch_row
    assert step(result, "combine").bytes == leaving * use(result).combine_row


def test_an_even_exchange_sends_as_much_as_the_real_one_and_no_more() -> None:
    """All tokens go to the experts of one of four ranks: it gets four shares, others send one."""
    net = MoE(width=1, experts=8, top_k=2, routing="balanced")
    dispatch = Dispatch(Plan(ep=4), ((8,),) * 4, 0, domain=4, relayed=False, per_rank=False)
    routed = dispatch.routed(net, 0)
    pairs = np.zeros((4, 4), dtype=np.int64)
    pairs[:, 0] = 16
    routed.traffic.pairs[:] = pairs
    real, even = (routed.shares(how) for how in ("nothing", "volumes"))
    assert [share.volume.near for share in real if share.volume] == [64, 16, 16, 16]
    assert [share.volume.near for share in even if share.volume] == [16] * 4


@pytest.mark.parametrize("schedule", ["bulk", "pipelined"])
def test_gaps_between_kernels_shorten_no_exchange(schedule: str) -> None:
    """All time of an exchange that kernels do not hide is its own, whatever the launches cost."""
    short, long = (
        {op.name: op.time for op in run(f"plan.schedule={schedule}", gap).ops}
        for gap in ("stack.launch.gap=0 us", "stack.launch.gap=0.2 us")
    )
    assert long["launch gaps"] > short.get("launch gaps", 0.0)
    name = "moe.combine"
    assert long[name] == pytest.approx(short[name], rel=1e-9)


def test_shared_experts_behind_a_combine_are_those_of_the_layer_before() -> None:
    """The timeline of a layer ends with its combine, and begins behind that of the layer before."""
    short = ["groups.0.repeat=1", "groups.1.repeat=3"]
    result = simulate(
        make_scenario("deepseek-v3", "h200", batch=8, context=64, ep=4, overrides=short)
    )
    spans = sorted((span for span in use(result).spans if span.rank == 0), key=lambda s: s.start)
    names = [span.name for span in spans if span.lane != "wait"]
    assert names[:4] == ["shared, layer before", "attention", "router", "dispatch"]
    assert names[-1] == "combine"
    assert "shared" not in names


def test_a_dispatch_beside_kernels_is_on_the_timeline() -> None:
    """Its span is as long as that of the dispatch before the kernels; all layers are alike."""
    bulk, beside = (
        [
            span.end - span.start
            for span in use(run(f"plan.schedule={schedule}", "moe.routing=balanced")).spans
            if span.name == "dispatch"
        ]
        for schedule in ("bulk", "pipelined")
    )
    assert len(beside) == 4
    assert beside == pytest.approx(bulk, rel=1e-9)


def test_an_exchange_reads_and_writes_what_leaves_its_domain_too() -> None:
    op = Exchange(
        name="moe.dispatch", way="dispatch", form="ll", ranks=4, tokens=4, hidden=64, top_k=2,
        experts=8, format="bf16", row=128.0, near=3, crossing=3, far=5, handled=8, leaving=7,
    )  # fmt: skip
    assert op.demand().read == op.demand().written == 8 * 128


@pytest.mark.parametrize(
    ("device", "path", "value"),
    [("mi300x", "scale_up.lost", "3"), ("h100-pcie", "scale_up.shared", "0.2")],
)
def test_numbers_of_links_that_change_the_time_are_said_to_have_a_say(
    device: str, path: str, value: str
) -> None:
    plain, changed = run(device=device), run(f"hardware.{path}={value}", device=device)
    assert plain.latency != changed.latency
    assert not [text for text in changed.warnings if path in text]
    assert [basis for basis in changed.provenance.numbers if basis.path.endswith(path)]


@pytest.mark.parametrize("path", ["data_mover.latency=20000 clk"])
def test_numbers_of_a_mover_that_change_nothing_are_said_to_have_no_say(path: str) -> None:
    plain, changed = run(device="mi455x"), run(path, device="mi455x")
    assert plain.latency == changed.latency
    name = path.partition("=")[0]
    assert [text for text in changed.warnings if name in text]


def test_links_out_of_a_domain_are_named_only_where_ranks_leave_it() -> None:
    """Eight H200s share a domain."""
    for ep, far in ((8, False), (16, True)):
        paths = [basis.path for basis in run(ep=ep).provenance.numbers]
        assert any(path.startswith("h200.scale_up.") for path in paths)
        assert any(path.startswith("h200.scale_out.") for path in paths) == far


def test_room_for_rows_is_in_the_format_in_which_they_travel() -> None:
    """Weights in MXFP4 leave activations in bf16, so dispatch sends bf16."""
    scenario = make_scenario("gpt-oss-20b", "h200", phase="decode", batch=8, context=64, ep=4)
    (room,) = (part for part in memory_use(scenario).parts if part.name == "exchange buffers")
    hidden, top_k, tokens = 2880, 4, 8
    assert room.bytes == tokens * top_k * hidden * (2 + 2)


def _examples() -> list[str]:
    root = Path(simulator.__file__).parent
    return sorted(
        found.name
        for found in pkgutil.walk_packages([str(root)], "simulator.")
        if ">>>" in _source(root, found.name)
    )


def _source(root: Path, name: str) -> str:
    path = root.joinpath(*name.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.read_text(encoding="utf-8")


def test_examples_in_docstrings_hold() -> None:
    failed = {name: doctest.testmod(importlib.import_module(name)).failed for name in _examples()}
    assert len(failed) > 20
    assert {name: count for name, count in failed.items() if count} == {}


def test_sources_with_as_wide_an_index_gather_alike() -> None:
    """From 65,536 rows on an index has 32 bits, of which one descriptor names half as many."""
    mover = load_hardware("mi455x").data_mover
    made = {
        rows: expert_moves([64, 0, 1, 17], Layout.of((rows, 96), bits=8), mover, columns=64)
        for rows in (40_000, 65_535, 65_536, 200_000)
    }
    narrow, short, wide, long = (
        (found.descriptors.tolist(), found.requests.tolist(), found.rows, found.slot)
        for found in made.values()
    )
    assert narrow == short
    assert wide == long
    assert narrow[0][0] * 2 == wide[0][0]
