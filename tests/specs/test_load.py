"""Specs by name, alias and file; their variants; and where each number comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.errors import SpecError, UnknownNameError
from simulator.specs.catalog import KINDS, Catalog
from simulator.specs.hardware import Accelerator
from simulator.specs.load import (
    catalog,
    check_file,
    default_stack,
    load_hardware,
    load_model_yaml,
    load_stack,
    load_system,
    names,
)

SHEET = """\
name: base
vendor: Nobody
architecture: none
status: projection
aliases: [first]
source: sheet
basis: datasheet
sources: {sheet: The sheet of 2026, lab: Measured in a lab}
compute:
  units: 4
  unit: SM
  clock: {value: 2 GHz, note: boost}
  matrix:
    source: A white paper
    bf16: 1024 FLOP/clk
    fp8: {value: 2048 FLOP/clk, source: lab, basis: measured}
  vector: {fp32: 256 FLOP/clk}
memory:
  - {kind: hbm3, capacity: 80 GB, bandwidth: 3 TB/s, source: [sheet, lab], basis: vendor}
  - {kind: l2, capacity: 50 MiB}
scale_up: {kind: nvlink, bandwidth: 450 GB/s, links: 18}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text(SHEET)


def variant(text: str) -> Accelerator:
    Path("variant.yaml").write_text(f"name: variant\nbase: base\n{text}")
    return load_hardware("variant.yaml")


def refused(text: str) -> list[str]:
    with pytest.raises(SpecError) as refusal:
        variant(text)
    return str(refusal.value).splitlines()


def origin(spec: Accelerator, path: str) -> tuple[str, str]:
    found = [entry for entry in spec.provenance if entry.path == path]
    assert len(found) == 1, path
    return found[0].source, found[0].basis


# Names


def test_every_spec_of_the_catalogue_holds() -> None:
    loaders = {
        "hardware": load_hardware, "systems": load_system, "stacks": load_stack,
        "workloads": load_model_yaml,
    }  # fmt: skip
    for kind, load in loaders.items():
        assert names(kind)
        for name in names(kind):
            assert load(name).name == name
            assert check_file(catalog().find(kind, name)) == []


def test_a_spec_is_frozen_whole_and_can_be_a_key() -> None:
    device = load_hardware("mi455x")
    assert {device: 1}[load_hardware("MI455X")] == 1


@pytest.mark.parametrize("name", ["h100_sxm", "H100-SXM", " h100 sxm "])
def test_case_and_dashes_and_underscores_of_an_alias_do_not_matter(name: str) -> None:
    assert load_hardware(name).name == "h100"


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_specs_of_a_kind_answer_to_one_name(kind: str) -> None:
    owners: dict[str, str] = {}
    for name in names(kind):
        tree, _ = catalog().written(catalog().find(kind, name))
        listed = tree.items.get("aliases")
        for answer in (name, *(item.text for item in getattr(listed, "items", ()))):
            key = answer.lower().replace("_", "-")
            assert owners.setdefault(key, name) == name


def test_an_unknown_name_offers_near_ones_and_aliases() -> None:
    with pytest.raises(UnknownNameError, match="unknown accelerator 'mi45x'; did you mean mi455x"):
        load_hardware("mi45x")
    with pytest.raises(UnknownNameError, match="did you mean h100_sxm"):
        load_hardware("h100_sxn")
    with pytest.raises(UnknownNameError, match=r"unknown stack 'zz'; known: .*cuda-sm90"):
        load_stack("zz")


def test_a_file_is_loaded_by_its_path() -> None:
    assert load_hardware("base.yaml").name == load_hardware(Path("base.yaml")).name == "base"


def test_a_file_that_changes_is_read_again() -> None:
    assert load_hardware("base.yaml").compute.units == 4
    Path("base.yaml").write_text(SHEET.replace("units: 4", "units: 40"))
    assert load_hardware("base.yaml").compute.units == 40


def test_the_names_of_a_catalogue_are_those_of_its_files() -> None:
    folder = Path("hw_specs")
    folder.mkdir()
    (folder / "one.yaml").write_text(SHEET)
    (folder / "two.yaml").write_text("not a spec\n")
    shelf = Catalog(Path.cwd())
    assert shelf.names("hardware") == ("one", "two")
    assert shelf.find("hardware", "First") == Path.cwd() / "hw_specs" / "one.yaml"


def test_an_accelerator_gets_the_stack_of_its_architecture() -> None:
    assert "gfx1250" in default_stack(load_hardware("mi455x")).architectures
    with pytest.raises(UnknownNameError, match="unknown architecture of a stack 'none'"):
        default_stack(load_hardware("base.yaml"))


# Sources


@pytest.mark.parametrize(
    ("path", "source", "basis"),
    [
        ("compute.units", "The sheet of 2026", "datasheet"),  # the file's
        ("compute.clock", "The sheet of 2026", "datasheet"),  # a note changes nothing
        ("compute.matrix.bf16", "A white paper", "datasheet"),  # its section's source
        ("compute.matrix.fp8", "Measured in a lab", "measured"),  # its own
        ("memory.hbm3.capacity", "The sheet of 2026; Measured in a lab", "vendor"),  # two
        ("memory.l2.capacity", "The sheet of 2026", "datasheet"),
    ],
)
def test_a_number_has_its_own_source_else_that_of_what_is_around_it(
    path: str, source: str, basis: str
) -> None:
    assert origin(load_hardware("base.yaml"), path) == (source, basis)


def test_the_numbers_of_one_list_share_one_entry() -> None:
    paths = [entry.path for entry in load_stack("cuda-sm90").provenance]
    assert paths.count("matmul.tiles") == 1


# Variants


def test_a_variant_changes_what_it_states_and_keeps_the_rest() -> None:
    base = load_hardware("base.yaml")
    changed = variant("memory: [{kind: hbm3, bandwidth: 4 TB/s, source: A rumour of 2026, basis: "
                      "estimated}]\n")  # fmt: skip
    assert changed.dram.bandwidth == 4e12
    assert changed.dram.capacity == base.dram.capacity
    assert changed.memory[1:] == base.memory[1:]
    assert changed.compute == base.compute
    assert (base.aliases, changed.aliases) == (("first",), ())


def test_each_number_of_a_variant_keeps_the_source_of_its_own_file() -> None:
    changed = variant("source: lab\nbasis: estimated\ncompute: {clock: 3 GHz}\n")
    assert origin(changed, "compute.clock") == ("Measured in a lab", "estimated")
    assert origin(changed, "compute.units") == ("The sheet of 2026", "datasheet")


def test_a_number_of_a_variant_does_not_borrow_the_source_of_its_base() -> None:
    assert refused("compute: {clock: 3 GHz}\n") == [
        "variant.yaml:3: compute.clock: the number has no source and no basis; write {value: ..., "
        "source: ..., basis: ...}, or state them for the whole file"
    ]


def test_null_takes_a_value_of_the_base_out_and_a_new_item_is_added() -> None:
    changed = variant(
        "source: lab\nbasis: assumed\nscale_up: null\nmemory: [{kind: l1, capacity: 1 MiB}]\n"
    )
    assert changed.scale_up is None
    assert [level.kind for level in changed.memory] == ["hbm3", "l2", "l1"]


def test_another_kind_replaces_a_section_whole() -> None:
    link = "scale_up: {kind: pcie, bandwidth: 64 GB/s}\n"
    changed = variant(f"source: lab\nbasis: assumed\n{link}")
    assert changed.scale_up is not None
    assert (changed.scale_up.kind, changed.scale_up.links) == ("pcie", 1)


def test_a_fault_names_the_file_that_it_stands_in() -> None:
    Path("base.yaml").write_text(SHEET.replace("450 GB/s", "450"))
    assert refused("source: lab\nbasis: assumed\ncompute: {clock: 3}\n") == [
        "variant.yaml:5: compute.clock: 3 has no unit; write it with a unit, like '1.83 GHz'",
        "base.yaml:21: scale_up.bandwidth: 450 has no unit; write it with a unit, like '3.35 TB/s'",
    ]


def test_a_variant_of_a_variant_is_refused() -> None:
    Path("third.yaml").write_text("name: third\nbase: variant\n")
    variant("")
    with pytest.raises(SpecError) as refusal:
        load_hardware("third.yaml")
    assert str(refusal.value) == (
        "third.yaml:2: base: 'variant' is a variant itself; name 'base', or state what differs here"
    )


def test_a_base_that_does_not_exist_is_refused_with_the_near_names() -> None:
    Path("variant.yaml").write_text("name: variant\nbase: mi45x\n")
    with pytest.raises(SpecError, match=r"variant.yaml:2: base: unknown accelerator 'mi45x'; did"):
        load_hardware("variant.yaml")


# Kinds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SHEET, None),
        ("name: x\nbase: mi455x\nscale_up: {links: 2}\nsource: A guess\nbasis: assumed\n", None),
        ("name: x\nscale_up: {devices: 8}\nnics_per_accelerator: 1\n", "scale_up.topology"),
        ("name: x\nlaunch: {gap: 1 us}\n", "launch.host: is missing"),
        ("name: x\nhidden: 3\n", "kind: is missing; one of transformer, unet"),
        ("name: x\n", "its keys do not tell what this file describes; state the keys of one of: "
         "accelerator, system, stack, memory, fit, workload"),
    ],
)  # fmt: skip
def test_a_file_is_checked_as_what_its_keys_say(text: str, message: str | None) -> None:
    Path("x.yaml").write_text(text)
    found = [str(fault) for fault in check_file("x.yaml")]
    assert found == [] if message is None else any(message in line for line in found)


def test_a_file_with_duplicate_keys_and_a_missing_unit_shows_both() -> None:
    Path("x.yaml").write_text(SHEET.replace("450 GB/s", "450") + "vendor: Other\n")
    assert [(fault.line, fault.path) for fault in check_file("x.yaml")] == [
        (21, "scale_up.bandwidth"), (22, "vendor"),
    ]  # fmt: skip


def test_a_base_is_one_name() -> None:
    Path("third.yaml").write_text("name: third\nbase: [base]\n")
    with pytest.raises(SpecError, match=r"third\.yaml:2: base: is more than one value; name one"):
        load_hardware("third.yaml")


def test_a_variant_with_another_kind_of_device_memory_replaces_that_of_its_base(
    tmp_path: Path,
) -> None:
    path = tmp_path / "upgrade.yaml"
    path.write_text(
        "name: upgrade\nbase: h200\nstatus: projection\nsource: a what-if of mine\nbasis: assumed\n"
        "memory:\n  - {kind: hbm4, capacity: 288 GB, bandwidth: 9 TB/s}\n"
    )
    device = load_hardware(path)
    assert device.dram.kind == "hbm4"
    assert device.dram.bandwidth == 9e12
    assert device.dram.achieved is None
    assert device.level("hbm3e") is None
    assert device.level("l2") == load_hardware("h200").level("l2")


def test_a_level_that_a_variant_states_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text(
        "name: twice\nbase: mi455x\nsource: a what-if of mine\nbasis: assumed\nmemory:\n"
        "  - {kind: hbm4, bandwidth: 10 TB/s}\n  - {kind: hbm4, bandwidth: 40 TB/s}\n"
    )
    with pytest.raises(SpecError, match="2 levels of kind hbm4"):
        load_hardware(path)
