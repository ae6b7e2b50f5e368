"""Texts of routings, the files they name, and the layers that cannot route so."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from simulator.errors import SpecError
from simulator.specs.load import load_model_yaml
from simulator.specs.overrides import parse_overrides
from simulator.specs.recorded import read_histogram, read_logits, read_trace
from simulator.specs.routing import Routing, RoutingError, parse_routing
from simulator.specs.workload import MoE, Transformer


def layer(*texts: str) -> MoE:
    """The experts of gpt-oss-20b, 4 of 32, with overrides."""
    model = load_model_yaml("gpt-oss-20b", parse_overrides(texts))
    assert isinstance(model, Transformer)
    block = next(entry.ffn for entry in model.layers() if isinstance(entry.ffn, MoE))
    assert (block.experts, block.top_k) == (32, 4)
    return block


@pytest.mark.parametrize(
    ("text", "routing"),
    [
        ("uniform", Routing("uniform")),
        (" balanced ", Routing("balanced")),
        ("zipf 1.2", Routing("zipf", number=1.2)),
        ("power_law  1.01", Routing("power_law", number=1.01)),
        ("lognormal 3", Routing("lognormal", number=3.0)),
        ("histogram a b.csv", Routing("histogram", file="a b.csv")),
        ("histogram 3", Routing("histogram", file="3")),
        ("trace t.parquet", Routing("trace", file="t.parquet")),
        ("logits", Routing("logits")),
        ("logits 0.5", Routing("logits", number=0.5)),
        ("logits l.npy", Routing("logits", file="l.npy")),
    ],
)
def test_each_form_is_read(text: str, routing: Routing) -> None:
    assert parse_routing(text) == routing


@pytest.mark.parametrize(
    ("text", "found", "fix"),
    [
        ("zipff 1", "unknown routing 'zipff 1'", "did you mean zipf? known: uniform, balanced, "),
        ("?", "unknown routing '?'", "known: uniform, balanced, zipf 1.2, "),
        ("zipf", "'zipf' stands alone", "write it like 'zipf 1.2'"),
        ("zipf -1", "zipf of -1", "it is from 0 to 10"),
        ("zipf 11", "zipf of 11", "it is from 0 to 10"),
        ("zipf nan", "zipf of nan", "it is from 0 to 10"),
        ("zipf 1 2", "zipf of '1 2'", "write 'zipf 1.2'"),
        ("lognormal 0.9", "lognormal of 0.9", "it is 1 or more"),
        ("lognormal inf", "lognormal of inf", "it is 1 or more"),
        ("logits -1", "logits of -1", "it is from 0 to 10"),
        ("uniform 3", "uniform of '3'", "write 'uniform'"),
        ("trace", "'trace' stands alone", "write it like 'trace routed.jsonl'"),
    ],
)
def test_a_text_that_says_nothing_known_is_refused(text: str, found: str, fix: str) -> None:
    with pytest.raises(RoutingError) as caught:
        parse_routing(text)
    assert caught.value.found == found
    assert caught.value.fix.startswith(fix)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_routing_can_be_set_and_the_default_is_uniform() -> None:
    assert layer().routing == "uniform"
    assert layer("moe.routing=zipf 1.2").routing == "zipf 1.2"
    assert layer("moe.routing='lognormal 8'", "moe.capacity_factor=1.25").capacity_factor == 1.25
    assert layer("moe.router.choice=expert_choice").router.choice == "expert_choice"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["moe.routing=zipff 1.2"], "unknown routing 'zipff 1.2'; did you mean zipf? known: "),
        (["moe.routing=3"], "unknown routing '3'; known: "),
        (["moe.routing=lognormal 9"], "with top_k 4 of 32 it is at most 8"),
        (["moe.routing=trace /no/file"], "'/no/file' is no file; name one that exists"),
        (["moe.top_k=33"], "33 of 32 experts; choose at most all of them"),
        (["moe.router.groups=5"], "32 experts in 5 groups; groups of experts are of equal size, "
         "so 1, 2, 4, 8, 16, 32 would do"),
        (["moe.router.groups=2", "moe.router.top_groups=3"], "3 of 2 groups; choose at most all"),
        (["moe.router.groups=16"], "1 of 16 groups keep 2 experts; keep more groups, for a top_k"),
        (["moe.router.choice=expert_choice", "moe.routing=balanced"],
         "balanced says what tokens choose, but here experts choose; write uniform, logits"),
        (["moe.capacity_factor=0"], "0 is zero; it must be more than zero"),
    ],
)  # fmt: skip
def test_a_layer_that_cannot_route_so_is_refused_when_it_is_loaded(
    texts: list[str], message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        layer(*texts)
    assert message in str(caught.value)


def refused(read: object, path: Path, experts: int = 4, top_k: int = 2) -> str:
    """What is said of a file, without its folder."""
    with pytest.raises(SpecError) as caught:
        read(str(path), experts, top_k)  # type: ignore[operator]
    return str(caught.value).replace(f"{path.parent}/", "")


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.csv", "1,2,3,4\n4,3,2,1\n"),
        (
            "named.csv",
            "layer,expert,tokens\n5,3,4\n5,0,1\n5,1,2\n5,2,3\n9,0,4\n9,1,3\n9,2,2\n9,3,1",
        ),
        ("rows.json", "[[1,2,3,4],[4,3,2,1]]"),
    ],
)
def test_histograms_of_two_layers_are_read(name: str, text: str, tmp_path: Path) -> None:
    read = read_histogram(str(written(tmp_path / name, text)), 4, 2)
    assert read.loads.tolist() == [[1, 2, 3, 4], [4, 3, 2, 1]]
    assert read.layers == ((5, 9) if name == "named.csv" else (0, 1))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "1\n2\n3\n4\n"),
        ("b.csv", "1,2,3,4"),
        ("c.csv", "expert,tokens\n1,2\n0,1\n2,3\n3,4\n"),
        ("d.json", "[1,2,3,4]"),
    ],
)
def test_a_histogram_of_one_layer_is_read_in_each_form(
    name: str, text: str, tmp_path: Path
) -> None:
    assert read_histogram(str(written(tmp_path / name, text)), 4, 2).loads.tolist() == [
        [1, 2, 3, 4]
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", " \n", "a.csv: is empty"),
        ("a.csv", "1,2,3\n", "a.csv:1: layer 0: has 3 numbers; write one for each of 4 experts"),
        ("a.csv", "1,2,3,4\n1,-2,3,4", "a.csv:2: layer 1.expert 1: -2 is negative"),
        ("a.csv", "1,2,3,4\n1,,3,4", "a.csv:2: layer 1.expert 1: found ''"),
        ("a.csv", "1,2,3,4\n0,0,0,0", "a.csv:2: layer 1: has no tokens"),
        ("a.csv", "1,0,0,0\n", "a.csv:1: layer 0: 1 experts have tokens, fewer than a top_k of 2"),
        ("a.csv", "who,tokens\n1,2\n", "a.csv:1: has the columns who, tokens; name the columns"),
        ("a.csv", "expert,tokens\n", "a.csv:1: has no rows"),
        ("a.csv", "expert,tokens\n0,1\n1,1\n2,1\n", "a.csv: layer 0.expert 3: is missing"),
        ("a.csv", "expert,tokens\n4,1\n", "a.csv:2: expert: unknown expert 4; experts are 0 to 3"),
        ("a.csv", "expert,tokens\n1,1\n1,1\n", "a.csv:3: expert: expert 1 comes twice"),
        ("a.csv", "expert,tokens\n1,-1\n", "a.csv:2: tokens: found '-1'"),
        ("a.csv", "expert,tokens\n1\n", "a.csv:2: tokens: found ''"),
        ("a.csv", "expert,tokens,layer\n1,1,x\n", "a.csv:2: layer: found 'x'"),
        ("a.json", "[1, 2\n", "a.json:2: is no JSON"),
        ("a.json", "{}", "a.json: layer 0: has 1 numbers"),
        ("a.json", "[]", "a.json: layer 0: has 0 numbers"),
        ("a.json", "[1, true, 3, 4]", "a.json: layer 0.expert 1: found True"),
        ("a.json", "[1, NaN, 3, 4]", "a.json: layer 0.expert 1: found nan"),
    ],
)
def test_a_histogram_that_is_wrong_says_where(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    assert message in refused(read_histogram, written(tmp_path / name, text))


GOOD = {"layer": 0, "token": 0, "experts": [3, 1]}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"experts": [4, 1]}, "unknown expert 4; experts are 0 to 3"),
        ({"experts": [-1, 1]}, "unknown expert -1"),
        ({"experts": [1, 1]}, "an expert comes twice in [1, 1]"),
        ({"experts": [1]}, "has 1 experts; write 2, the model's top_k"),
        ({"experts": []}, "has 0 experts"),
        ({"experts": None}, "experts are missing"),
        ({"experts": 3}, "experts are 3; write a list of whole numbers"),
        ({"experts": [1, 2.5]}, "experts are [1, 2.5]"),
        ({"experts": [1, True]}, "experts are [1, True]"),
        ({"token": -1}, "token is -1; write a whole number, 0 or more"),
        ({"layer": None}, "layer is missing"),
        ({"layer": "a"}, "layer is 'a'"),
        ({"weights": [1.0]}, "weights are [1.0]; write 2"),
        ({"weights": [1.0, -0.5]}, "a weight is -0.5; write a number, 0 or more"),
        ({"weights": [0.5, 0.5]}, "weights are in some rows alone"),
        ({"token": 0}, "token 0 of layer 0 comes twice; keep one row"),
    ],
)
def test_a_trace_that_is_wrong_says_on_which_line(
    row: dict[str, object], message: str, tmp_path: Path
) -> None:
    rows = [GOOD, GOOD | {"token": 1} | row]
    path = written(tmp_path / "t.jsonl", "\n\n".join(map(json.dumps, rows)))
    assert refused(read_trace, path).startswith(f"t.jsonl:3: {message}")


def test_all_faults_of_a_trace_come_at_once_but_not_more_than_a_person_reads(
    tmp_path: Path,
) -> None:
    rows = [GOOD, GOOD | {"experts": [9, 1]}, GOOD | {"layer": -1}]
    path = written(tmp_path / "t.jsonl", "\n".join([*map(json.dumps, rows), "[1", "3"]))
    said = refused(read_trace, path).splitlines()
    assert [line.split(": ")[0] for line in said] == [f"t.jsonl:{at}" for at in (2, 3, 4, 5)]
    said = refused(read_trace, written(path, "[]\n" * 500)).splitlines()
    assert len(said) == 21
    assert said[-1] == "t.jsonl: and 480 more faults"
    assert refused(read_trace, written(path, "\n")).startswith("t.jsonl: is empty; write {layer")


def test_a_parquet_trace_that_is_wrong_says_in_which_row(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame([GOOD, GOOD | {"experts": [0, 7]}]).write_parquet(path)
    assert refused(read_trace, path) == "t.parquet: row 1: unknown expert 7; experts are 0 to 3"
    pl.DataFrame({"layer": [0]}).write_parquet(path)
    assert "token is missing" in refused(read_trace, path)
    pl.DataFrame(schema={"layer": pl.Int64}).write_parquet(path)
    assert "is empty" in refused(read_trace, path)
    assert "cannot be read as parquet" in refused(read_trace, written(path, "layer"))


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path / "t.jsonl", json.dumps(GOOD))
    assert read_trace(str(path), 4, 2)[0].experts.tolist() == [[3, 1]]
    written(path, json.dumps(GOOD | {"experts": [0, 2]}) + "\n")
    assert read_trace(str(path), 4, 2)[0].experts.tolist() == [[0, 2]]
    path.unlink()
    assert refused(read_trace, path).startswith("t.jsonl: No such file")


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (np.zeros((3, 5)), "is 3 x 5; save (tokens, 4) or (layers, tokens, 4)"),
        (np.zeros((2, 0, 4)), "is 2 x 0 x 4"),
        (np.zeros(4), "is 4; save"),
        (np.array([[0, 1, 2, np.nan]]), "layer 0.token 0: a logit is not finite"),
        (np.array([["a"] * 4]), "holds no array of numbers"),
        (np.array([[None] * 4]), "is no .npy file of numbers"),
    ],
)
def test_logits_that_are_wrong_say_why(logits: np.ndarray, message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "l.npy", logits)
    assert f"l.npy: {message}" in refused(read_logits, tmp_path / "l.npy")


def test_a_file_that_is_no_npy_is_refused(tmp_path: Path) -> None:
    assert "is no .npy file" in refused(read_logits, written(tmp_path / "l.npy", "1,2"))
    assert "is no .npy file" in refused(read_logits, written(tmp_path / "l.npy", ""))
