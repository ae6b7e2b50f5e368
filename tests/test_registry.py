"""Named choices: registration, discovery, entry points, near names."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from simulator import registry
from simulator.errors import UnknownNameError
from simulator.registry import Registry


def test_what_is_registered_is_found_by_name_and_listed_in_order() -> None:
    routers: Registry[str] = Registry("router")
    routers.register("softmax")("a")
    routers.register("group")("b")
    assert routers["softmax"] == "a"
    assert (list(routers), len(routers), "group" in routers) == (["group", "softmax"], 2, True)


def test_an_unknown_name_is_refused_with_the_near_ones() -> None:
    routers: Registry[str] = Registry("router")
    routers.register("softmax")("a")
    with pytest.raises(UnknownNameError, match="unknown router 'softmix'; did you mean softmax"):
        routers["softmix"]


def test_a_name_is_taken_once() -> None:
    routers: Registry[str] = Registry("router")
    routers.register("softmax")("a")
    with pytest.raises(ValueError, match="there is a router 'softmax' already"):
        routers.register("softmax")("b")


def test_the_modules_of_a_package_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "registry_sample"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from simulator.registry import Registry\nSHAPES = Registry('shape', package=__name__)\n"
    )
    (package / "square.py").write_text(
        "from registry_sample import SHAPES\n\n@SHAPES.register('square')\ndef square(): return 4\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import registry_sample  # type: ignore[import-not-found]

    assert "registry_sample.square" not in sys.modules
    assert registry_sample.SHAPES["square"]() == 4


@pytest.fixture
def offers(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    offered: list[EntryPoint] = []
    monkeypatch.setattr(registry, "entry_points", lambda group: list(offered))
    return offered


def test_another_package_adds_a_choice_through_an_entry_point(offers: list[EntryPoint]) -> None:
    offers.append(EntryPoint("half", "fractions:Fraction", "sample"))
    numbers: Registry[type] = Registry("number", group="sample")
    numbers.register("whole")(int)
    assert list(numbers) == ["half", "whole"]
    assert numbers["half"](1, 2) * 2 == 1


def test_a_broken_choice_of_another_package_hurts_only_who_asks_for_it(
    offers: list[EntryPoint],
) -> None:
    offers.append(EntryPoint("broken", "no_such_module:x", "sample"))
    numbers: Registry[type] = Registry("number", group="sample")
    numbers.register("whole")(int)
    assert numbers["whole"] is int
    with pytest.raises(ModuleNotFoundError):
        numbers["broken"]


def test_two_packages_may_not_offer_one_name(offers: list[EntryPoint]) -> None:
    offers.append(EntryPoint("half", "fractions:Fraction", "sample"))
    offers.append(EntryPoint("half", "decimal:Decimal", "sample"))
    numbers: Registry[type] = Registry("number", group="sample")
    with pytest.raises(ValueError, match="there is a number 'half' beside decimal:Decimal"):
        numbers["half"]
