"""Whatever a file or an override holds, it is a spec or a SpecError, never a traceback."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.errors import SpecError
from simulator.specs.load import (
    catalog,
    check_file,
    load_hardware,
    load_model_yaml,
    names,
    overrides_by_spec,
)

SLOW = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
WORDS = st.sampled_from(
    ["name", "kind", "compute", "units", "clock", "matrix", "memory", "value", "source", "basis",
     "sources", "note", "base", "aliases", "bf16", "hbm3", "gqa", "moe", "layers", "groups",
     "mi455x", "2 GHz", "80 GB", "hidden", "attention", "launch", "scale_up", "<<", "null"]
)  # fmt: skip
LEAVES = st.one_of(WORDS, st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
PUNCTUATION = st.sampled_from("ab:-[]{},\"'#&*!|>%@`?~ \n\t0123.eE_<\\\u2028\ufeff")
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | LEAVES, inner, max_size=5),
    max_leaves=25,
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def holds_or_is_refused(data: bytes) -> None:
    Path("x.yaml").write_bytes(data)
    for load in (load_hardware, load_model_yaml):
        with suppress(SpecError):
            load("x.yaml")
    assert all(str(fault).isprintable() for fault in check_file("x.yaml"))


@SLOW
@given(data=st.binary(max_size=300))
def test_random_bytes(data: bytes) -> None:
    holds_or_is_refused(data)


@SLOW
@given(
    text=st.text(
        st.sampled_from("ab:-[]{},\"'#&*!|>%@`?~ \n\t0123.eE_<\\\u2028\ufeff"), max_size=60
    )
)
def test_random_punctuation(text: str) -> None:
    holds_or_is_refused(text.encode())


@SLOW
@given(tree=TREES)
def test_random_trees(tree: object) -> None:
    holds_or_is_refused(yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "replace"))


@SLOW
@given(
    name=st.sampled_from(names("hardware")),
    start=st.floats(0, 1),
    length=st.integers(0, 12),
    new=st.text(max_size=6) | WORDS,
)
def test_a_spec_with_one_place_overwritten(name: str, start: float, length: int, new: str) -> None:
    text = catalog().find("hardware", name).read_text()
    at = int(start * len(text))
    changed = text[:at] + new + text[at + length :]
    holds_or_is_refused(changed.encode("utf-8", "replace"))


@SLOW
@given(
    path=st.lists(WORDS | st.text(max_size=4), min_size=1, max_size=4).map(".".join),
    value=LEAVES.map(str) | st.text(max_size=10),
)
def test_random_overrides(path: str, value: str) -> None:
    with suppress(SpecError):
        parts = overrides_by_spec([f"{path}={value}"])
        load_hardware("mi455x", parts["hardware"])
        load_model_yaml("gpt-oss-20b", parts["workload"])
