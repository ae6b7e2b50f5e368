"""A study as a file: a base scenario and what is varied around it.

    base: llama-3.1-70b decode batch=32 context=4096 on mi455x
    vary:
      hardware.memory.hbm.bandwidth: {from: 6.4 TB/s, to: 30 TB/s, steps: 5}
      batch: [1, 8, 64]
    how: grid

Knows YAML and how points are laid out. Never touches costs or results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, prod
from pathlib import Path
from typing import Any, Literal

import numpy as np

from simulator.api import COUNTS
from simulator.errors import Fault, InputError, SpecError, nearest
from simulator.scenario_text import load_scenario, scenario_of
from simulator.specs import yaml_tree as tree
from simulator.specs.scenario import Scenario
from simulator.specs.yaml_read import read_tree
from simulator.study.change import changed, numbers
from simulator.study.what_if import MOST_POINTS, counts_of
from simulator.units import number_and_unit

HOW = ("grid", "zip", "latin_hypercube")
PLENTY = 10_000
"""Points beyond which a study is confirmed, as it may take an hour."""
CHECKED = 1000
"""Values of a path that are checked before any point runs, from both ends of its list."""
_FAULTY = 5
"""Wrong values of a path that are told."""
_KEYS = ("base", "vary", "how", "points", "seed")
_RANGE = ("from", "to", "steps", "scale")


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A base scenario, and values of each path that are taken with every other (``grid``), or the
    first values together, then the second ones (``zip``)."""

    base: Scenario
    axes: Mapping[str, Sequence[object]]
    how: Literal["grid", "zip"]

    @property
    def paths(self) -> tuple[str, ...]:
        """What is varied."""
        return tuple(self.axes)

    @property
    def many(self) -> int:
        """How many points there are."""
        counts = [len(values) for values in self.axes.values()]
        return prod(counts) if self.how == "grid" else counts[0]

    def point(self, index: int) -> Mapping[str, object]:
        """The value of every path at a point, counted from 0; in a grid the last is fastest."""
        found: dict[str, object] = {}
        for path in reversed(self.paths):
            values = self.axes[path]
            place = index
            if self.how == "grid":
                index, place = divmod(index, len(values))
            found[path] = values[place]
        return dict(reversed(found.items()))

    @property
    def points(self) -> Iterator[Mapping[str, object]]:
        """All points in order."""
        return map(self.point, range(self.many))


def read_study(path: str | Path) -> Study:
    """The study in a file. Raises SpecError with every fault: keys, ranges, paths, units.

    Of a path with more than ``CHECKED`` values, those in the middle are not checked: what is wrong
    with one is said in the rows of its points.
    """
    faults: list[Fault] = []
    root = read_tree(Path(path), str(path), faults)
    for key in root.items:
        if key not in _KEYS:
            near = nearest(key, _KEYS)
            fix = f"did you mean {near[0]}?" if near else f"keys: {', '.join(_KEYS)}"
            faults.append(root.where(key).fault(key, "is no key of a study", fix))
    base = _base(root, faults)
    axes = dict(_axes(root, _whole_numbers(base), faults))
    for key in ("how", "points", "seed"):
        if not isinstance(root.items.get(key), tree.Scalar | None):
            faults.append(root.where(key).fault(key, "is no single value", "write one"))
    how = root.text("how") or "grid"
    if how not in HOW:
        fix = f"one of {', '.join(HOW)}"
        faults.append(root.where("how").fault("how", f"unknown way {how!r:.40}", fix))
    counts = {}
    for key in ("points", "seed"):
        text = root.text(key)
        if text is not None and not (text.isdecimal() and len(text) < 9):
            fault = root.where(key).fault(key, f"found {text!r:.40}", "write a whole number")
            faults.append(fault)
        elif text is not None:
            counts[key] = int(text)
    if how == "latin_hypercube" and "points" not in root.items:
        fix = "how many to draw, like points: 100"
        faults.append(root.place.fault("points", "is missing", fix))
    study = None
    if base is not None:
        # Before values are checked, which takes a millisecond each.
        if not faults:
            study = make_study(base, axes, how=how, path=str(path), **counts)
        for name, values in axes.items():
            faults += _wrong(base, name, values, root)
        if not faults:
            faults += _at_odds(base, axes, root)
    if faults or study is None:
        raise SpecError(faults)
    return study


def make_study(
    base: Scenario,
    vary: Mapping[str, Any],
    *,
    how: str = "grid",
    points: int = 0,
    seed: int = 0,
    path: str = "study",
) -> Study:
    """The points of ``vary``: every combination (``grid``), the first values together, then the
    second ones (``zip``), or ``points`` of a Latin hypercube, each axis cut into as many equal
    parts, of which each is drawn from once (McKay, Beckman and Conover 1979).

    Raises SpecError for an empty study and for one of more than ``MOST_POINTS``.
    """
    axes: dict[str, Sequence[object]] = dict(vary)
    if how == "latin_hypercube":
        if not 0 < points <= MOST_POINTS:
            fix = f"a count from 1 to {MOST_POINTS:,}"
            raise SpecError([Fault(path, None, "points", f"found {points}", fix)])
        rng = np.random.default_rng(seed)
        for name, values in vary.items():
            share = (rng.permutation(points) + rng.random(points)) / points
            axes[name] = [values[int(part * len(values))] for part in share]
    counts_of(axes, "grid" if how == "grid" else "zip", where=path)
    if not axes:
        raise SpecError([Fault(path, None, "vary", "no points", "name a path and its values")])
    return Study(base=base, axes=axes, how="grid" if how == "grid" else "zip")


def _base(root: tree.Mapping, faults: list[Fault]) -> Scenario | None:
    text, place, node = root.text("base"), root.where("base"), root.items.get("base")
    if text is None and not isinstance(node, tree.Mapping):
        fix = "a line like 'llama-3.1-8b decode batch=32 on h200'"
        faults.append(place.fault("base", "is missing", fix))
        return None
    try:
        return scenario_of(node) if isinstance(node, tree.Mapping) else load_scenario(text or "")
    except SpecError as error:
        faults += (place.fault(f"base: {f.path}", f.found, f.fix) for f in error.faults)
    except InputError as error:
        faults.append(place.fault("base", str(error)))
    return None


def _whole_numbers(base: Scenario | None) -> frozenset[str]:
    """Paths of what is counted: in a range of them every value is rounded."""
    spec = () if base is None else numbers(base)
    return frozenset((*COUNTS, *(leaf.path for leaf in spec if isinstance(leaf.value, int))))


def _axes(
    root: tree.Mapping, whole: frozenset[str], faults: list[Fault]
) -> Iterator[tuple[str, list[str]]]:
    """Paths with their values, as texts."""
    vary = root.items.get("vary")
    if not isinstance(vary, tree.Mapping) or not vary.items:
        fix = "paths with their values, like 'batch: [1, 8, 64]'"
        faults.append(root.where("vary").fault("vary", "is missing or empty", fix))
        return
    for path, node in vary.items.items():
        place = vary.where(path)
        if isinstance(node, tree.Scalar):
            yield path, [node.text]
        elif isinstance(node, tree.Sequence):
            texts = [item.text for item in node.items if isinstance(item, tree.Scalar)]
            if not node.items or len(texts) < len(node.items):
                found = "has no values" if not node.items else "has values that are none"
                faults.append(place.fault(path, found, "write a list such as [1, 8, 64]"))
            yield path, texts
        else:
            counted = not whole.isdisjoint({path.removeprefix("plan."), f"hardware.{path}", path})
            yield path, list(_range(path, node, place, counted, faults))


def _range(
    path: str, node: tree.Mapping, place: tree.Place, counted: bool, faults: list[Fault]
) -> Iterator[str]:
    """Values from one end to the other, evenly or by equal ratios, whole where ``counted``."""
    like = "like {from: 5 TB/s, to: 25 TB/s, steps: 9, scale: log}"
    if node.items and not set(node.items) & set(_RANGE):
        fix = f"write the whole path, like '{path}.{next(iter(node.items))}: [1, 8]', or a range "
        faults.append(place.fault(path, "has paths inside", fix + like))
        return
    for key in node.items:
        if key not in _RANGE:
            faults.append(node.where(key).fault(f"{path}.{key}", "is no key of a range", like))
    first, last = (number_and_unit(node.text(key) or "") for key in ("from", "to"))
    steps, scale = node.text("steps") or "", node.text("scale") or "linear"
    many = int(steps) if steps.isdecimal() and len(steps) < 9 else 0
    bad = [k for k, end in (("from", first), ("to", last)) if node.text(k) and end is None]
    if bad:
        faults += (place.fault(f"{path}.{k}", f"found {node.text(k)!r:.40}", like) for k in bad)
        return
    if first is None or last is None or not 2 <= many <= MOST_POINTS:
        found = f"needs from, to, and 2 to {MOST_POINTS:,} steps"
        faults.append(place.fault(path, found, like))
        return
    (low, unit), (high, other) = first, last
    if unit != other:
        found = f"goes from {node.text('from')} to {node.text('to')}"
        faults.append(place.fault(path, found, "write both ends in one unit"))
        return
    if not isfinite(high - low):
        faults.append(place.fault(path, "has an end beyond all numbers", like))
        return
    if scale not in ("linear", "log") or (scale == "log" and min(low, high) <= 0):
        found = f"scale {scale}" + (" through zero" if scale == "log" else "")
        faults.append(place.fault(path, found, "linear, or log between numbers above zero"))
        return
    spaced = np.linspace if scale == "linear" else np.geomspace
    values = (float(value) for value in spaced(low, high, many))
    texts = (str(round(v)) if counted else f"{v:.6g} {unit}".strip() for v in values)
    yield from dict.fromkeys(texts)


def _at_odds(base: Scenario, axes: Mapping[str, list[str]], root: tree.Mapping) -> list[Fault]:
    """Faults of paths that lead to one number."""
    try:
        changed(base, {path: values[0] for path, values in axes.items()})
    except SpecError as error:
        place = root.where("vary")
        twice = [fault for fault in error.faults if "twice" in fault.found]
        return [place.fault(fault.path, fault.found, fault.fix) for fault in twice]
    except InputError:
        pass  # What only these values together forbid is an answer of its own.
    return []


def _wrong(base: Scenario, path: str, values: list[str], root: tree.Mapping) -> Iterator[Fault]:
    """Faults of a path or of how a value is written; what only a plan or memory forbids is an
    answer of its own."""
    vary = root.items["vary"]
    assert isinstance(vary, tree.Mapping), "it has paths"
    place, wrong = vary.where(path), 0
    half = CHECKED // 2
    for value in values if len(values) <= CHECKED else values[:half] + values[-half:]:
        faults: list[Fault] = []
        try:
            changed(base, {path: value})
        except SpecError as error:
            faults += (
                place.fault(fault.path or path, fault.found, fault.fix)
                for fault in error.faults
                if fault.file in ("--set", "change")
            )
        except InputError as error:
            if "unknown" in str(error):
                faults.append(place.fault(path, str(error)))
        wrong += bool(faults)
        if wrong > _FAULTY:
            yield place.fault(path, f"has more wrong values than these {_FAULTY}", "see to all")
            return
        yield from faults
