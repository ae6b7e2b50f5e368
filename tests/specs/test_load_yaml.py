"""YAML read strictly: scalars of YAML 1.2, and nothing but plain mappings, lists and text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.errors import Fault, SpecError
from simulator.specs import yaml_read
from simulator.specs.load import check_file, load_hardware
from simulator.specs.yaml_read import parse_text, read_tree
from simulator.specs.yaml_tree import Mapping, Place, Scalar, Sequence


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=[yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers of PyYAML: the one in Python and, where it was built, the one in C."""
    monkeypatch.setattr(yaml_read, "_LOADER", request.param)


def tree(text: str | bytes) -> tuple[Mapping | None, list[str]]:
    """The tree of a file, and its faults as text."""
    Path("x.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    faults: list[Fault] = []
    try:
        return read_tree(Path("x.yaml"), "x.yaml", faults), [str(fault) for fault in faults]
    except SpecError as error:
        return None, str(error).splitlines()


def scalar(text: str) -> Any:
    node = parse_text(text, Place("x.yaml", 1), [])
    assert isinstance(node, Scalar)
    return node.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12), ("-3", -3), ("+3", 3), ("0", 0), ("0o17", 15), ("0x1F", 31),
        ("1e12", 1e12), ("1.0e12", 1e12), ("1.0e+12", 1e12), ("1E-3", 1e-3), (".5", 0.5),
        ("5.", 5.0), (".inf", float("inf")), ("-.INF", -float("inf")),
        ("true", True), ("False", False), ("~", None), ("null", None), ("Null", None),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("loader")
def test_a_plain_scalar_is_what_yaml_1_2_says(text: str, value: Any) -> None:
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


@pytest.mark.parametrize(
    "text",
    ["no", "yes", "on", "off", "y", "12:30:00", "017", "00.5", "1_000", "1,000", "2026-07-23",
     "3.35TB/s", "0b11", "1e", "e5", "--1", "'12'", '"true"', "'~'", "0o9"],
)  # fmt: skip
@pytest.mark.usefixtures("loader")
def test_everything_else_is_text(text: str) -> None:
    assert scalar(text) == text.strip("'\"")


@pytest.mark.usefixtures("loader")
def test_each_key_and_value_keeps_its_line() -> None:
    root, faults = tree("a: 1\n\nb:\n  - c\n  - d: {e: 2,\n      f: 3}\n")
    assert root is not None
    assert not faults
    assert [place.line for place in root.keys.values()] == [1, 3]
    listed = root.items["b"]
    assert isinstance(listed, Sequence)
    assert [item.place.line for item in listed.items] == [4, 5]
    inner = listed.items[1]
    assert isinstance(inner, Mapping)
    inner = inner.items["d"]
    assert isinstance(inner, Mapping)
    assert [inner.keys["e"].line, inner.keys["f"].line, inner.items["f"].place.line] == [5, 6, 6]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.yaml:1: is empty; write a mapping of keys"),
        ("  \n", "x.yaml:1: is empty; write a mapping of keys"),
        ("# nothing\n", "x.yaml:1: holds nothing; write a mapping of keys"),
        ("~\n", "x.yaml:1: holds nothing; write a mapping of keys"),
        ("- a\n", "x.yaml:1: holds a list; write a mapping of keys, such as 'name: ...'"),
        ("hello\n", "x.yaml:1: holds the text 'hello'; write a mapping of keys"),
        ("name: x\n\tvendor: y\n", "x.yaml:2: a tab stands where YAML wants spaces; indent with"),
        ("a:\n\tb: 3\n", "x.yaml:2: a tab stands where YAML wants spaces; indent with spaces"),
        ("a: b: c\n", "x.yaml:1: not valid YAML: mapping values are not allowed"),
        ("a: 1\n  b: 2\n", "x.yaml:2: not valid YAML: mapping values are not allowed"),
        ("a: {b: 1\n", "x.yaml:1: not valid YAML, while parsing a flow mapping: "),
        ('a: 1\nb: "x\nc: y\n', "x.yaml:2: not valid YAML, while scanning a quoted scalar: "),
        ("a: @b\n", "x.yaml:1: not valid YAML: no text starts with '@'; put it in quotes"),
        ("a: %b\n", "x.yaml:1: not valid YAML: no text starts with '%'; put it in quotes"),
        ("a:\n- b\nc\n", "x.yaml:3: not valid YAML, while scanning a simple key: "),
        ("%YAML 9.9\n---\na: 1\n", "x.yaml:1: not valid YAML: found incompatible YAML document"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2: a second document starts here; keep one per file"),
        ("? [a]\n: 1\n", "x.yaml:1: a list or mapping stands as a key; a key is plain text"),
        ("a: " + "[" * 500, "x.yaml:1: more than 30 levels deep; a spec is flatter"),
        ("a: [" + "1," * 60_000 + "]", "x.yaml:1: more than 50000 values; a spec is smaller"),
        ("a: 1\nb: \x07\n", r"x.yaml:2: has the character '\x07'; a spec is plain text"),
        (b"\x00\x01\x02" * 99, r"x.yaml:1: has the character '\x00'; a spec is plain text"),
        (b"a: 1\n\xff\xfe\n", "x.yaml:2: is not UTF-8 text; save it as UTF-8, or name a YAML file"),
        ("a: 1\n".encode("utf-16"), "x.yaml:1: is not UTF-8 text; save it as UTF-8"),
        ("a: x\u2028y\n", r"x.yaml:1: has the character '\u2028'; a spec is plain text"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("loader")
def test_what_is_no_spec_is_one_message_with_its_line(text: str | bytes, message: str) -> None:
    root, faults = tree(text)
    assert root is None
    assert len(faults) == 1
    assert faults[0].startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "x.yaml:3: a: the key stands twice, first in line 1; keep one of"),
        ("a:\n  b: {c: 1, c: 2}\n", "x.yaml:2: a.b.c: the key stands twice, first in line 2; keep"),
        ("a: &b 1\n", "x.yaml:1: a: anchors and aliases are not read ('b'); write the values out"),
        ("a: *b\n", "x.yaml:1: a: anchors and aliases are not read ('b'); write the values out"),
        ("a:\n  <<: {b: 1}\n", "x.yaml:2: a.<<: merge keys are not read; use 'base:' for a var"),
        ("a: !!python/object:os.system x\n", "x.yaml:1: a: the tag 'tag:yaml.org,2002:python/obje"),
        ("a: [1, !b {c: 1}]\n", "x.yaml:1: a.1: the tag '!b' is not read; leave it out"),
        ("a: ! x\n", "x.yaml:1: a: the tag '!' is not read; leave it out"),
        ('a: "b\\x1b[2J"\n', r"x.yaml:1: a: the text has the character '\x1b'; leave the escape"),
        (f"{'k' * 70}: 1\n", f"x.yaml:1: the key is '{'k' * 60}...'; a key is a short word"),
        ('"a\\nb": 1\n', r"x.yaml:1: the key is 'a\nb'; a key is a short word"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("loader")
def test_what_is_refused_leaves_a_tree_to_find_more_faults_in(text: str, message: str) -> None:
    root, faults = tree(text)
    assert root is not None
    assert len(faults) == 1
    assert faults[0].startswith(message)


@pytest.mark.usefixtures("loader")
def test_a_yaml_bomb_is_refused_unexpanded_in_one_message() -> None:
    levels = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    for level in range(1, 20):
        inner = ", ".join([f"*a{level - 1}"] * 9)
        levels.append(f"a{level}: &a{level} [{inner}]")
    root, faults = tree("\n".join(levels))
    assert root is not None
    assert len(faults) == 1
    assert faults[0].startswith("x.yaml:1: a0: anchors and aliases are not read")


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm() -> None:
    root, faults = tree("\ufeffa: 1\r\nb: 2\r\n")
    assert root is not None
    assert not faults
    assert root.keys["b"].line == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("big.yaml", "big.yaml: has 10.0 MB; a spec has at most 1024 KiB"),
        ("folder", "folder: is a directory; name a file in it"),
        ("missing.yaml", "missing.yaml: no such file"),
        ("pipe.yaml", "pipe.yaml: is not a regular file; name a YAML file"),
        ("n" * 300 + ".yaml", f"{'n' * 300}.yaml: cannot be read: File name too long"),
        ("a\0b.yaml", "a\0b.yaml: cannot be read: embedded null byte"),
    ],
)
def test_what_is_no_readable_file_is_one_message(name: str, message: str) -> None:
    Path("big.yaml").write_bytes(b"a: 1\n" * 2_000_000)
    Path("folder").mkdir()
    os.mkfifo("pipe.yaml")
    assert [str(fault) for fault in check_file(name)] == [message]
    with pytest.raises(SpecError, match=r": (has|is|no|cannot) "):
        load_hardware(Path(name))
