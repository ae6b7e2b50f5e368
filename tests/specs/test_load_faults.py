"""What is wrong in a spec: one message per fault, with file, line, path and what would do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from simulator.errors import SpecError
from simulator.specs.fields import Checked, Count
from simulator.specs.load import load_hardware, load_model_yaml, load_stack, load_system
from simulator.specs.validate import validate
from simulator.specs.yaml_tree import Mapping, Place, Scalar

ACCELERATOR = """\
name: sample
vendor: Nobody
architecture: none
status: projection
source: a made-up sheet
basis: assumed
compute:
  units: 4
  unit: SM
  clock: 2 GHz
  dies: 2
  matrix: {bf16: 1024 FLOP/clk}
  vector: {fp32: 256 FLOP/clk}
memory:
  - kind: hbm3
    capacity: 80 GB
    bandwidth: 3 TB/s
"""
MODEL = """\
name: sample
kind: transformer
source: a made-up card
basis: assumed
hidden: 64
vocab: 100
groups:
  - layers:
      - attention: {kind: gqa, heads: 4, kv_heads: 2, head_dim: 16}
        ffn: {kind: dense, width: 128}
"""
STACK = """\
name: sample
architectures: [none]
source: a made-up release
basis: assumed
launch: {host: 5 us, gap: 0 us, graph: 0 us}
fill: 1 us
bandwidth: 0.9
matmul:
  tiles: [[64, 64, 32]]
  efficiency: {default: 0.8}
attention:
  prefill_tile: [64, 64]
  decode_tile: [16, 64]
  efficiency: {default: 0.6}
"""
LOAD = {ACCELERATOR: load_hardware, MODEL: load_model_yaml, STACK: load_stack}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def faults(text: str, old: str = "", new: str = "") -> list[str]:
    """The faults of a sample in which ``old`` has been replaced."""
    assert old in text
    Path("x.yaml").write_text(text.replace(old, new) if old else text)
    with pytest.raises(SpecError) as refusal:
        LOAD[text]("x.yaml")
    return str(refusal.value).splitlines()


def begins(message: str, lines: list[str]) -> bool:
    """One of the lines is, or begins with, the message; the lines where not, for pytest to show."""
    assert any(line.startswith(message) for line in lines), "\n".join(lines)
    return True


@pytest.mark.parametrize("text", LOAD)
def test_the_samples_hold(text: str) -> None:
    Path("x.yaml").write_text(text)
    assert LOAD[text]("x.yaml").name == "sample"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # keys
        ("bandwidth: 3", "bandwith: 3",
         "x.yaml:17: memory.hbm3: unknown key 'bandwith'; did you mean bandwidth?"),
        ("vendor: Nobody\n", "", "x.yaml:1: vendor: is missing; add a text"),
        ("  clock: 2 GHz\n", "", "x.yaml:8: compute.clock: is missing; add it, like "
         "'clock: 1.83 GHz'"),
        ("unit: SM", "unit: SM\n  units: 8",
         "x.yaml:10: compute.units: the key stands twice, first in line 8; keep one of them"),
        ("{bf16:", "{bf61:", "x.yaml:12: compute.matrix: unknown number format 'bf61'; did you "
         "mean bf16"),
        # quantities
        ("2 GHz", "2400", "x.yaml:10: compute.clock: 2400 has no unit; write it with a unit, like "
         "'1.83 GHz'"),
        ("2 GHz", "2 GB", "x.yaml:10: compute.clock: '2 GB' is not in clock/second; write it like "
         "'1.83 GHz'"),
        ("80 GB", "80 Gb", "x.yaml:16: memory.hbm3.capacity: '80 Gb' counts bits, and a capacity "
         "is in bytes; write it like '80 GB'"),
        ("80 GB", "80 KB", "x.yaml:16: memory.hbm3.capacity: '80 KB' has an unknown unit; write "
         "kB (1000) or KiB (1024) in place of KB"),
        ("80 GB", "80 GB/s", "x.yaml:16: memory.hbm3.capacity: '80 GB/s' is not in byte; write it "
         "like '80 GB'"),
        ("2 GHz", "0 GHz", "x.yaml:10: compute.clock: 0 GHz is zero; it must be more than zero"),
        ("2 GHz", "-2 GHz", "x.yaml:10: compute.clock: -2 GHz is negative; it must be more than "
         "zero"),
        ("2 GHz", ".nan", "x.yaml:10: compute.clock: .nan is not finite; write it with a unit, "
         "like '1.83 GHz'"),
        ("2 GHz", "nan GHz", "x.yaml:10: compute.clock: 'nan GHz' is not a number with a unit; "
         "write it like '1.83 GHz'"),
        ("2 GHz", ".inf", "x.yaml:10: compute.clock: .inf is not finite; write it with a unit, "
         "like '1.83 GHz'"),
        ("2 GHz", "9e99 GHz", "x.yaml:10: compute.clock: 9e99 GHz is too large; write it with a "
         "unit, like '1.83 GHz'"),
        ("2 GHz", "1e-99 GHz", "x.yaml:10: compute.clock: 1e-99 GHz is too small; write it with a "
         "unit, like '1.83 GHz'"),
        ("2 GHz", "", "x.yaml:10: compute.clock: is empty; write it with a unit, like '1.83 GHz'"),
        ("2 GHz", "''", "x.yaml:10: compute.clock: is empty; write it with a unit, like "
         "'1.83 GHz'"),
        ("2 GHz", "[2 GHz]", "x.yaml:10: compute.clock: found a list; write it with a unit, like "
         "'1.83 GHz'"),
        # counts and shares
        ("units: 4", "units: 4.5", "x.yaml:8: compute.units: 4.5 is not a whole number; write a "
         "whole number"),
        ("units: 4", "units: 0", "x.yaml:8: compute.units: 0 is zero; it must be more than zero"),
        ("units: 4", "units: four", "x.yaml:8: compute.units: found 'four'; write a whole number"),
        ("units: 4", "units: '4'", "x.yaml:8: compute.units: found '4'; write 4, without quotes"),
        ("units: 4", "units: 017", "x.yaml:8: compute.units: found '017'; write 17"),
        ("units: 4", "units: 1_000", "x.yaml:8: compute.units: found '1_000'; write 1000"),
        ("units: 4", "units: 1,000", "x.yaml:8: compute.units: found '1,000'; write 1000"),
        ("units: 4", "units: true", "x.yaml:8: compute.units: found true; write a whole number"),
        ("units: 4", "units: 1e400", "x.yaml:8: compute.units: 1e400 is too large; write a whole "
         "number"),
        ("3 TB/s", "3 TB/s\n    achieved: 1.2",
         "x.yaml:18: memory.hbm3.achieved: 1.2 is too large; it is a share, at most 1"),
        ("3 TB/s", "3 TB/s\n    achieved: 86 %",
         "x.yaml:18: memory.hbm3.achieved: found '86 %'; write 0.86"),
        ("3 TB/s", "3 TB/s\n    achieved: .nan",
         "x.yaml:18: memory.hbm3.achieved: .nan is not finite; write a plain number"),
        # words
        ("kind: hbm3", "kind: hbm5", "x.yaml:15: memory.hbm5.kind: found 'hbm5'; did you mean "),
        ("unit: SM", "unit: 12:30:00", "x.yaml:9: compute.unit: found '12:30:00'; one of CU, WGP, "
         "SM, Xe, core"),
        ("name: sample", "name:", "x.yaml:1: name: is empty; write a text"),
        ("vendor: Nobody", "vendor: [a]", "x.yaml:2: vendor: found a list; write a text"),
        ("- kind: hbm3", "- kind: {a: 1}", "x.yaml:15: memory.0.kind: found a mapping; one of "
         "hbm2, hbm2e, hbm3"),
        # sources
        ("source: a made-up sheet", "source: sheet", "x.yaml:5: source: the source 'sheet' is not "
         "among 'sources'; add the key to 'sources', or write the source out"),
        ("source: a made-up sheet", "source: sheat\nsources: {sheet: Sheet 1}",
         "x.yaml:5: source: the source 'sheat' is not among 'sources'; did you mean sheet? add the "
         "key to 'sources', or write the source out"),
        ("basis: assumed", "basis: measurd", "x.yaml:6: basis: unknown basis 'measurd'; did you "
         "mean measured?"),
        ("source: a made-up sheet\n", "", "x.yaml:7: compute.units: the number has no source, like "
         "6 more; write {value: ..., source: ..., basis: ...}, or state them for the whole file"),
        ("80 GB", "{value: 80 GB, sauce: x}", "x.yaml:16: memory.hbm3.capacity: unknown key "
         "'sauce'; beside a value stand source, basis, note"),
        ("80 GB", "{value: 80 GB, note: printed as 80, not 85.9}",
         "x.yaml:16: memory.hbm3.capacity: unknown key 'not 85.9'; put a text that holds a comma "
         "in quotes"),
        # what must hold between fields
        ("2 GHz", "2 GHz\n  held_clock: 2.1 GHz", "x.yaml:11: compute.held_clock: 2.1 GHz is above "
         "the highest clock, 2 GHz; state the clock held under load, or max_clock"),
        ("dies: 2", "dies: 8", "x.yaml:11: compute.dies: 8 dies for 4 units; state the active units"
         " of all dies"),
        ("kind: hbm3", "kind: l2", "x.yaml:14: memory: has no device memory; add a level of kind "),
        ("3 TB/s", "3 TB/s\n    per_clock: 64 B/clk", "x.yaml:18: memory.hbm3.per_clock: bandwidth "
         "is stated too; keep one of them (null takes one out)"),
        ("bandwidth: 3 TB/s", "per_clock: 64 B/clk", "x.yaml:17: memory.hbm3.per_clock: device "
         "memory has a clock of its own; state 'bandwidth'"),
        ("    bandwidth: 3 TB/s\n", "",
         "x.yaml:15: memory.hbm3.bandwidth: is missing; add it, like 'bandwidth: 3.35 TB/s'"),
        ("3 TB/s", "3 TB/s\n  - {kind: hbm3, capacity: 1 GB, bandwidth: 1 TB/s}",
         "x.yaml:14: memory: has 2 levels of kind hbm3; keep one of each kind"),
    ],
)  # fmt: skip
def test_a_fault_of_an_accelerator_is_one_line_that_says_what_would_do(
    old: str, new: str, message: str
) -> None:
    assert begins(message, faults(ACCELERATOR, old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind: transformer\n", "", "x.yaml:1: kind: is missing; one of transformer, unet"),
        ("kind: gqa, ", "", "x.yaml:9: groups.0.layers.0.attention.kind: is missing; one of gqa, "
         "mla"),
        ("kind: gqa", "kind: gqqa", "x.yaml:9: groups.0.layers.0.attention.kind: found 'gqqa'; did "
         "you mean gqa?"),
        ("kv_heads: 2", "kv_heads: 3", "x.yaml:9: groups.0.layers.0.attention.heads: 4 is no "
         "multiple of kv_heads, 3; each KV head serves equally many heads"),
        ("head_dim: 16}", "head_dim: 16, sinks: yes}", "x.yaml:9: groups.0.layers.0.attention."
         "sinks: found 'yes'; write true"),
        ("kind: dense, width: 128", "kind: moe, experts: 4, top_k: 5, width: 8",
         "x.yaml:10: groups.0.layers.0.ffn.top_k: 5 of 4 experts; choose at most all of them"),
        ("vocab: 100", "vocab: 100\nformats: {experts: fp4}",
         "x.yaml:7: formats: has no 'default'; add one for the other parts"),
        ("vocab: 100", "vocab: 100\nkv_format: fp7",
         "x.yaml:7: kv_format: unknown number format 'fp7'; did you mean fp"),
        ("vocab: 100", "vocab: 100\nformats: {default: bf16, expert: fp4}",
         "x.yaml:7: formats: found 'expert'; did you mean experts or shared_experts?"),
        ("  - layers:\n      - ", "  - layers: []\n    repeat:\n      - ",
         "x.yaml:8: groups.0.layers: is an empty list; write at least one entry"),
    ],
)  # fmt: skip
def test_a_fault_of_a_model_is_one_line_that_says_what_would_do(
    old: str, new: str, message: str
) -> None:
    assert begins(message, faults(MODEL, old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gap: 0 us", "gap: -1 us", "x.yaml:5: launch.gap: -1 us is negative; it must be zero or "
         "more"),
        ("gap: 0 us", "gap: 0", "x.yaml:5: launch.gap: 0 has no unit; write it with a unit, like "
         "'4.9 us'"),
        ("bandwidth: 0.9", "bandwidth: 0", "x.yaml:7: bandwidth: 0 is zero; it must be more than "
         "zero"),
        ("[[64, 64, 32]]", "[[64, 64]]", "x.yaml:9: matmul.tiles.0: has 2 entries; write 3"),
        ("[[64, 64, 32]]", "[[64, 64, 0]]", "x.yaml:9: matmul.tiles.0.2: 0 is zero; it must be "
         "more than zero"),
        ("{default: 0.8}", "{bf16: 0.8}", "x.yaml:10: matmul.efficiency: has no 'default'; add one "
         "for the other number formats"),
        ("{default: 0.8}", "{default: 0.8, bf17: 1}", "x.yaml:10: matmul.efficiency: unknown number"
         " format 'bf17'; did you mean bf16"),
        ("{default: 0.8}", "0.8", "x.yaml:10: matmul.efficiency: found 0.8; write a mapping"),
    ],
)  # fmt: skip
def test_a_fault_of_a_stack_is_one_line_that_says_what_would_do(
    old: str, new: str, message: str
) -> None:
    assert begins(message, faults(STACK, old, new))


def test_all_faults_of_a_file_come_at_once_in_the_order_of_its_lines() -> None:
    text = ACCELERATOR.replace("2 GHz", "2").replace("80 GB", "-80 GB").replace("bf16", "bf61")
    text = text.replace("status: projection", "status: projekt").replace("vendor", "vender")
    Path("x.yaml").write_text(text)
    with pytest.raises(SpecError) as refusal:
        load_hardware("x.yaml")
    assert [(fault.line, fault.path) for fault in refusal.value.faults] == [
        (1, "vendor"), (2, ""), (4, "status"), (10, "compute.clock"), (12, "compute.matrix"),
        (16, "memory.hbm3.capacity"),
    ]  # fmt: skip


def test_a_system_is_checked_like_any_other_spec() -> None:
    Path("x.yaml").write_text("name: box\nscale_up: {devices: 8, topology: star}\n")
    with pytest.raises(SpecError) as refusal:
        load_system("x.yaml")
    assert str(refusal.value).splitlines() == [
        "x.yaml:2: scale_up.devices: the number has no source and no basis; write {value: ..., "
        "source: ..., basis: ...}, or state them for the whole file",
        "x.yaml:2: scale_up.topology: found 'star'; one of mesh, switch, ring, pcie",
    ]


def test_a_file_with_thousands_of_faults_names_a_hundred() -> None:
    Path("x.yaml").write_text(ACCELERATOR + "".join(f"k{i}: 1\n" for i in range(5000)))
    with pytest.raises(SpecError) as refusal:
        load_hardware("x.yaml")
    assert len(refusal.value.faults) == 101
    assert "more faults" in str(refusal.value.faults[-1])


def test_a_message_is_one_line_whatever_the_file_holds() -> None:
    key = "k" * 500
    lines = faults(ACCELERATOR, "unit: SM", f'unit: "{"s" * 500}\\n\\n"\n  "a\\nb": 1\n  {key}: 2')
    assert len(lines) == 3
    assert all(line.startswith("x.yaml:") and len(line) < 200 for line in lines)


def test_what_a_class_itself_refuses_is_a_fault_like_any_other() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Odd(Checked):
        number: Count

        def __post_init__(self) -> None:
            if self.number % 2 == 0:
                raise ValueError(f"{self.number} is even")

    place = Place("x.yaml", 3)
    tree = Mapping(place, {"number": Scalar(place, "4")}, {"number": place})
    with pytest.raises(SpecError) as refusal:
        validate(tree, Odd, cited=False)
    assert str(refusal.value) == "x.yaml:3: 4 is even"


def test_a_rule_speaks_beside_other_faults_of_the_same_section() -> None:
    text = ACCELERATOR.replace("dies: 2", "dies: 8").replace("2 GHz", "2").replace("hbm3", "l2")
    Path("x.yaml").write_text(text.replace("80 GB", "80 GiB"))
    with pytest.raises(SpecError) as refusal:
        load_hardware("x.yaml")
    assert [(fault.line, fault.path) for fault in refusal.value.faults] == [
        (10, "compute.clock"), (11, "compute.dies"), (14, "memory"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("{0: 3}", "data_mover.gather_rows: 0 is zero; it must be more than zero"),
        ("{x: 3}", "data_mover.gather_rows: found 'x'; write a whole number"),
        ("{1.5: 3}", "data_mover.gather_rows: 1.5 is not a whole number; write a whole number"),
        ("{16: x}", "data_mover.gather_rows.16: found 'x'; write a whole number"),
        ("[16]", "data_mover.gather_rows: found a list; write a mapping"),
    ],
)
def test_the_keys_of_a_table_are_checked_too(new: str, message: str) -> None:
    mover = "{kind: tdm, rank: 5, tile_dim: 65536, alignment: 16 B, gather_rows: " + new + "}"
    lines = faults(ACCELERATOR, "memory:", f"data_mover: {mover}\nmemory:")
    assert lines == [f"x.yaml:14: {message}"]


def test_the_sources_of_a_spec_are_no_key_of_its_file() -> None:
    lines = faults(ACCELERATOR, "compute:", "provenance: []\ncompute:")
    assert begins("x.yaml:7: unknown key 'provenance'; ", lines)
