"""What-ifs set into a spec: where a path leads, what is refused, and that the rest stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.errors import SpecError
from simulator.specs.hardware import Accelerator
from simulator.specs.load import (
    load_hardware,
    load_model_yaml,
    load_stack,
    names,
    overrides_by_spec,
    with_overrides,
)
from simulator.specs.overrides import Override, parse_overrides
from simulator.specs.workload import Attention, MoE, Transformer


def device(*texts: str) -> Accelerator:
    return load_hardware("mi455x", parse_overrides(texts))


def model(*texts: str) -> Transformer:
    loaded = load_model_yaml("gpt-oss-20b", parse_overrides(texts))
    assert isinstance(loaded, Transformer)
    return loaded


@pytest.mark.parametrize(
    "path", ["memory.hbm4.bandwidth", "memory.hbm.bandwidth", "memory.0.bandwidth"]
)
def test_an_item_of_a_list_goes_by_kind_by_the_start_of_it_or_by_position(path: str) -> None:
    changed = device(f"{path}=24 TB/s")
    assert changed.dram.bandwidth == 24e12
    memory = (replace(load_hardware("mi455x").dram, bandwidth=24e12), *changed.memory[1:])
    assert changed == replace(load_hardware("mi455x"), memory=memory)


def test_an_overridden_number_says_so_and_the_others_keep_their_source() -> None:
    before = {entry.path: entry for entry in load_hardware("mi455x").provenance}
    after = {entry.path: entry for entry in device("compute.units = 300").provenance}
    assert (after["compute.units"].source, after["compute.units"].basis) == ("--set", "assumed")
    assert {path for path in before if before[path] != after[path]} == {"compute.units"}


def test_what_the_file_leaves_out_can_be_set_and_null_takes_out() -> None:
    assert load_hardware("mi455x").price is None
    price = device("price.rent=3 USD/h").price
    assert price is not None
    assert price.rent == 3.0
    assert load_hardware("mi455x").data_mover is not None
    assert device("data_mover=null").data_mover is None


def test_a_table_takes_a_key_and_brackets_take_a_whole_one() -> None:
    assert device("compute.matrix.tf32=4096 FLOP/clk").compute.matrix["tf32"] == 4096.0
    mover = device("data_mover.gather_rows={16: 32}").data_mover
    assert mover is not None
    assert dict(mover.gather_rows) == {16: 32}
    assert load_stack("cpu", parse_overrides(["matmul.split_k=[1, 3]"])).matmul.split_k == (1, 3)


def test_a_kind_of_block_means_every_block_of_that_kind() -> None:
    blocks = [layer.ffn for layer in model("moe.routing=balanced", "moe.router.groups=2").layers()]
    assert all(isinstance(block, MoE) and block.routing == "balanced" for block in blocks)
    assert all(isinstance(block, MoE) and block.router.groups == 2 for block in blocks)
    attention = [layer.attention for layer in model("gqa.window=64").layers()]
    assert {block.window for block in attention if isinstance(block, Attention)} == {64}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("memory.hmb4.bandwidth=24 TB/s", "--set: memory.hmb4.bandwidth: no such path; did you mean"
         " memory.hbm4.bandwidth"),
        ("memory.l.capacity=1 GB", "--set: memory.l.capacity: fits more than one entry; name one of"
         " l2, l1, lds"),
        ("compute.clok=2 GHz", "--set: compute.clok: no such path; did you mean compute.clock"),
        ("zzz=1", "--set: zzz: no such path; paths start with aliases, architecture, compute"),
        ("compute.clock=2400", "--set: compute.clock: 2400 has no unit; write it with a unit"),
        ("compute.clock=2 GB", "--set: compute.clock: '2 GB' is not in clock/second; write it"),
        ("compute.units=-1", "--set: compute.units: -1 is negative; it must be more than zero"),
        ("compute.units=nan", "--set: compute.units: found 'nan'; write a whole number"),
        (
            "compute.units=1000000001",
            "--set: compute.units: 1000000001 is too large; it is at most 1,000,000,000",
        ),
        ("compute.units=1.5", "--set: compute.units: 1.5 is not a whole number; write a whole"),
        ("compute.dies=1000", "--set: compute.dies: 1000 dies for 256 units; state the active"),
        ("compute=5", "--set: compute: found 5; write a mapping with units, unit, clock"),
        ("compute.matrix.fp9=1 FLOP/clk", "--set: compute.matrix: unknown number format 'fp9';"),
        ("memory.hbm4=[1", "--set: memory.hbm4: not valid YAML, while parsing a flow sequence: "),
        ("compute.units.x=1", "--set: compute.units.x: no such path; did you mean compute.units"),
        ("data_mover.gather_rows={16: &a 3}", "--set: data_mover.gather_rows.16: anchors and"),
    ],
)  # fmt: skip
def test_an_override_is_checked_like_a_file(text: str, message: str) -> None:
    with pytest.raises(SpecError) as refusal:
        device(text)
    assert any(line.startswith(message) for line in str(refusal.value).splitlines()), refusal.value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("moe.topk=4", "--set: moe.topk: no such path; did you mean moe.top_k"),
        ("mla.heads=4", "--set: mla.heads: no such path; did you mean gqa.heads"),
        ("moe=4", "--set: moe: no such path; "),
        ("moe.top_k=99", "workloads/gpt-oss-20b.yaml"),
    ],
)
def test_a_block_that_the_model_does_not_have_is_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError) as refusal:
        model(text)
    assert message in str(refusal.value) or "of 32 experts" in str(refusal.value)


@pytest.mark.parametrize(
    ("texts", "messages"),
    [
        (["compute.units"], ["--set: 'compute.units' has no '='; write path=value, like "
                             "'memory.hbm4.bandwidth=24 TB/s'"]),
        (["=3", "a..b=3"], ["--set: '=3' has no path; write path=value, like "
                            "'memory.hbm4.bandwidth=24 TB/s'",
                            "--set: 'a..b=3' has no path; write path=value, like "
                            "'memory.hbm4.bandwidth=24 TB/s'"]),
        (["compute.units="], ["--set: compute.units: has no value; write null to take it out"]),
        (["a=1", "a=2"], ["--set: a: is set twice; keep one of them"]),
    ],
)  # fmt: skip
def test_a_malformed_override_is_refused(texts: list[str], messages: list[str]) -> None:
    with pytest.raises(SpecError) as refusal:
        parse_overrides(texts)
    assert str(refusal.value).splitlines() == messages


@pytest.mark.parametrize(
    ("text", "spec", "path"),
    [
        ("memory.hbm4.bandwidth=1 GB/s", "hardware", "memory.hbm4.bandwidth"),
        ("hardware.compute.units=3", "hardware", "compute.units"),
        ("scale_up.bandwidth=1 GB/s", "hardware", "scale_up.bandwidth"),
        ("scale_up.devices=3", "system", "scale_up.devices"),
        ("host.bandwidth=1 GB/s", "hardware", "host.bandwidth"),
        ("host.memory=1 GB", "system", "host.memory"),
        ("launch.gap=0 us", "stack", "launch.gap"),
        ("stack.bandwidth=0.5", "stack", "bandwidth"),
        ("hidden=64", "workload", "hidden"),
        ("moe.routing=balanced", "workload", "moe.routing"),
        ("workload.moe.top_k=2", "workload", "moe.top_k"),
        ("groups.0.repeat=2", "workload", "groups.0.repeat"),
        ("power.peak=1 W", "hardware", "power.peak"),
    ],
)
def test_a_path_goes_to_the_one_spec_that_has_it(text: str, spec: str, path: str) -> None:
    parts = overrides_by_spec([text])
    assert {name: part for name, part in parts.items() if part} == {
        spec: (Override(path, text.partition("=")[2]),)
    }


def test_a_path_of_two_specs_or_of_none_is_refused() -> None:
    with pytest.raises(SpecError) as refusal:
        overrides_by_spec(["kind=x", "compute.unitz=3"])
    assert str(refusal.value).splitlines() == [
        "--set: kind: is a path of hardware and of workload; write hardware.kind or workload.kind",
        "--set: compute.unitz: no such path; did you mean compute.unit or compute.units or "
        "compute.dies?",
    ]


@pytest.mark.parametrize("name", ["mi455x", "h100", "epyc-9575f"])
def test_a_loaded_accelerator_without_overrides_is_itself(name: str) -> None:
    loaded = load_hardware(name)
    again = with_overrides(loaded, ())
    assert again == loaded
    assert set(again.provenance) == set(loaded.provenance)


@pytest.mark.parametrize("name", names("workloads"))
def test_a_loaded_model_without_overrides_is_itself(name: str) -> None:
    assert with_overrides(load_model_yaml(name), ()) == load_model_yaml(name)


def test_an_override_means_the_same_before_and_after_loading() -> None:
    texts = ("memory.hbm.bandwidth=24 TB/s", "compute.matrix.fp8=1 FLOP/clk", "price.rent=3 USD/h")
    after = with_overrides(load_hardware("mi455x"), parse_overrides(texts))
    assert after == device(*texts)
    assert set(after.provenance) == set(device(*texts).provenance)


@pytest.mark.parametrize("value", ['"24 TB/s', "[" * 40, "{a"])
def test_a_value_that_is_no_yaml_is_one_fault(value: str) -> None:
    with pytest.raises(SpecError) as error:
        device(f"memory.hbm4.bandwidth={value}")
    (fault,) = error.value.faults
    assert fault.path == "memory.hbm4.bandwidth"


@pytest.mark.parametrize("step", ["\u00b2", "\u0661", "00", "-1", "+0", "99"])
def test_a_position_is_written_as_it_is_counted(step: str) -> None:
    with pytest.raises(SpecError, match="no such path"):
        device(f"memory.{step}.bandwidth=24 TB/s")


@pytest.mark.parametrize("other", ["memory.hbm4.bandwidth", "memory.0.bandwidth"])
def test_two_paths_to_one_number_are_refused_in_either_order(other: str) -> None:
    texts = ["memory.hbm.bandwidth=20 TB/s", f"{other}=24 TB/s"]
    for order in (texts, texts[::-1]):
        with pytest.raises(SpecError, match="is set twice, by another path too"):
            device(*order)


def test_a_section_that_is_set_whole_may_be_refined() -> None:
    price = device("price={purchase: 30000 USD}", "price.rent=3 USD/h").price
    assert price is not None
    assert price.purchase == 30000
    assert price.rent == 3


def test_a_slip_below_an_item_of_a_list_offers_what_the_device_has() -> None:
    parts = overrides_by_spec(["memory.hbm.bandwith=5 TB/s"])
    with pytest.raises(SpecError, match=r"did you mean memory\.hbm3e\.bandwidth"):
        load_hardware("h200", parts["hardware"])
