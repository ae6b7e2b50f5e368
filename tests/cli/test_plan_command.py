"""``tilecast plan`` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

Tilecast = Callable[[str], tuple[int, str, str]]
DECODE = "plan llama-3.1-70b --on mi300x,h200 --phase decode --context 8192 --batch 64"


def rows(out: str, order: str) -> list[list[str]]:
    """Cells of a table, its head first."""
    lines = out.split(f"\n{order}\n")[1].split("\n\n")[0].split("\n")
    return [line.split() for line in lines]


def test_plans_are_listed_by_time_and_by_cost(tilecast: Tilecast) -> None:
    code, out, err = tilecast(f"{DECODE} --devices 4,8 --top 4")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    head, *plans = rows(out, "by time")
    assert head == ["device", "n", "plan", "ms", "tok/s/dev", "$/Mtok", "free", "GB", "bound"]
    assert [row[0] for row in plans] == ["1", "2", "3", "4"]
    assert plans[0][1:4] == ["h200", "8", "tp8"]
    cheap = rows(out, "by cost")[1:]
    assert cheap[0][1] == "mi300x"
    assert "mi300x: 16 plans tried, 16 legal and fitting" in out
    assert "\nthe first one:\n  tilecast run llama-3.1-70b --on h200 " in out


def test_the_data_rank_each_plan_and_carry_its_command(tilecast: Tilecast) -> None:
    code, out, _ = tilecast(f"{DECODE} --devices 4,8 --top 3 --json -")
    data = json.loads(out)
    assert code == 0
    assert data["by"] == ["time", "cost"]
    assert (data["phase"], data["batch"], data["context"]) == ("decode", 64, 8192)
    plans = data["plans"]
    for by, key in (("time", "latency"), ("cost", "cost_per_million_tokens")):
        best = sorted(plans, key=lambda plan: plan["ranks"][by])[:3]
        assert [plan["ranks"][by] for plan in best] == [1, 2, 3]
        values = [plan[key] for plan in best]
        assert values == sorted(values)
    for plan in plans:
        assert plan["throughput"] == pytest.approx(64 / plan["latency"])
        degrees = plan["plan"]
        assert degrees["tp"] * degrees["pp"] * degrees["dp"] == plan["devices"]
        assert 0 <= plan["headroom"] < plan["memory"] + plan["headroom"]
    for space in data["spaces"]:
        dropped = space["illegal"] + space["too_large"] + space["outdone"]
        assert space["tried"] == space["fit"] + dropped
    best = min(plans, key=lambda plan: plan["latency"])
    assert best["exact"]
    words = best["command"].removeprefix("tilecast ")
    assert json.loads(tilecast(f"{words} --json -")[1])["latency"] == best["latency"]


def test_estimates_are_marked(tilecast: Tilecast) -> None:
    _, out, _ = tilecast(f"{DECODE} --devices 4 --top 9 --exact 1 --by time")
    assert "\nby cost" not in out
    times = [row[4] for row in rows(out, "by time")[1:] if row[0].isdigit()]
    assert not times[0].startswith("~")
    assert times[-1].startswith("~")
    assert "\n~ estimated; the others are simulated\n" in out


def test_training_plans_say_how_they_train(tilecast: Tilecast) -> None:
    code, out, _ = tilecast(
        "plan llama-3.1-8b --on h100 --phase train --sequence 4096 --global-batch 64 --devices 8 "
        "--exact 1"
    )
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "\nby time and by cost\n" in out
    assert "zero1" in out
    assert "share or recompute more than one that fits" in out
    assert "do not fit, by" in out


def test_without_a_rent_there_is_no_cost(tilecast: Tilecast) -> None:
    _, out, _ = tilecast("plan llama-3.1-8b --on mi455x --batch 8 --devices 1")
    assert "$/Mtok" not in out
    assert "by time and by throughput of a device" in out
    assert "no cost for mi455x: no price is known" in out
    code, _, err = tilecast("plan llama-3.1-8b --on mi455x --by cost")
    assert code == 2
    assert "price.rent: not known for mi455x" in err
    assert "$/Mtok" in tilecast(
        "plan llama-3.1-8b --on mi455x --devices 1 --by cost --set 'price.rent=2 USD/h'"
    )[1]  # fmt: skip


def test_what_fits_nowhere_exits_with_the_nearest_plan(tilecast: Tilecast) -> None:
    code, out, err = tilecast("plan llama-3.1-405b --on mi300x --phase decode --devices 4")
    assert (code, out) == (3, "")
    assert "the nearest of 3 legal ones, tp2 pp2, needs 207.6 GB of 206.1 GB on each" in err
    assert "1.5 GB short; --devices 8 fits" in err


def test_a_device_without_a_plan_is_named_beside_the_others(tilecast: Tilecast) -> None:
    code, out, _ = tilecast("plan llama-3.1-70b --on h100,mi300x --phase decode --devices 1")
    assert code == 0
    assert "h100: 1 plans tried, 0 legal and fitting" in out
    assert "nearest: tp1 on 1" in out


def test_where_no_plan_has_a_cost_none_is_ranked_by_it(tilecast: Tilecast) -> None:
    code, out, _ = tilecast(
        "plan llama-3.1-70b --on h100,mi455x,mi455x --phase decode --devices 1 --by cost"
    )
    assert code == 0
    assert "\nby cost\nnone\n" in out
    assert out.count("mi455x: 1 plans tried, 1 legal and fitting") == 1


def test_all_that_is_wrong_is_said_at_once(tilecast: Tilecast) -> None:
    code, out, err = tilecast("plan llama-3.1-8b --on h20x,mi300,h200 --devices 0,x,-3 --by speed")
    assert (code, out) == (2, "")
    for words in ("'h20x'", "'mi300'", "devices: 0;", "devices: 'x';", "devices: -3;", "'speed'"):
        assert words in err
    assert "Traceback" not in err


def test_the_same_command_writes_the_same_bytes(tilecast: Tilecast) -> None:
    command = "plan gpt-oss-20b --on h200 --batch 16 --devices 2 --json -"
    assert tilecast(command)[1] == tilecast(command)[1]


def test_the_best_plan_of_each_device_is_shown_where_others_fill_the_list(
    tilecast: Tilecast,
) -> None:
    words = "plan llama-3.1-8b --on h200,mi455x --batch 8 --context 512 --devices 1,2 --top 1"
    code, out, _ = tilecast(words)
    assert code == 0
    each = rows(out, "the best of each device by time")[1:]
    assert {row[1] for row in each} == {"h200", "mi455x"}
    assert "such costs are not alike" not in out
    out = tilecast("plan llama-3.1-8b --on h200,b200 --devices 1")[1]
    assert "h200 rented, b200 bought: such costs are not alike" in " ".join(out.split())
