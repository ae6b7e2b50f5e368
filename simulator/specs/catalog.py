"""The catalogue: which specs there are, by name and alias, and the tree of each.

Specs lie in folders of YAML files: inside the installed package, or beside it in a checkout. A
name is the stem of its file; case, ``_`` and ``-`` do not matter. Knows files. Never touches what
a spec means.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from simulator.errors import Fault, SpecError, UnknownNameError
from simulator.specs.cite import cite
from simulator.specs.dram import Dram
from simulator.specs.fabric import System
from simulator.specs.fields import BY_KIND
from simulator.specs.fit import Fit
from simulator.specs.hardware import Accelerator
from simulator.specs.shape import Record, Variants, shape_of
from simulator.specs.stack import Stack
from simulator.specs.variant import OWN, merge
from simulator.specs.workload import Model
from simulator.specs.yaml_read import read_tree
from simulator.specs.yaml_tree import Mapping, Scalar, Scope, Sequence, brief


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of spec: what one is called, where its files lie, and what they are read into."""

    noun: str
    folder: str
    hint: Any

    @property
    def records(self) -> tuple[Record, ...]:
        """The dataclasses that a file of this kind can become."""
        shape = shape_of(self.hint)
        if isinstance(shape, Variants):
            return shape.records
        return (shape,) if isinstance(shape, Record) else ()


KINDS = {
    "hardware": Kind("accelerator", "hw_specs", Accelerator),
    "systems": Kind("system", "hw_specs/systems", System),
    "stacks": Kind("stack", "hw_specs/stacks", Stack),
    "memories": Kind("memory", "hw_specs/memories", Dram),
    "fits": Kind("fit", "hw_specs/fits", Fit),
    "workloads": Kind("workload", "workloads", Annotated[Model, BY_KIND]),
}
Written = tuple[Mapping, tuple[Fault, ...]]
"""The tree of a file, and the faults that it already has."""

Stamp = tuple[tuple[str, int, int], ...]
"""Path, time and size of a file and of its base."""


def find_root() -> Path:
    """The folder that holds ``hw_specs`` and ``workloads``."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "_catalog"
    return inside if inside.is_dir() else package.parent


@dataclass(frozen=True)
class Catalog:
    """The specs below ``root``."""

    root: Path

    def names(self, kind: str) -> tuple[str, ...]:
        """Names of that kind in alphabetical order, read from the files' names alone."""
        folder = self.root / KINDS[kind].folder
        # A folder's time changes when a file is put into it or taken out.
        return _names_once(folder, folder.stat().st_mtime_ns if folder.is_dir() else 0)

    def aliases(self, kind: str) -> dict[str, str]:
        """Other names that the files of that kind declare, with the name that each stands for."""
        found: dict[str, str] = {}
        for name in self.names(kind):
            try:
                tree, _ = self.written(self.root / KINDS[kind].folder / f"{name}.yaml")
            except SpecError:
                continue  # It is refused, with its faults, when it is asked for by name.
            listed = tree.items.get("aliases")
            for item in listed.items if isinstance(listed, Sequence) else ():
                if isinstance(item, Scalar):
                    found.setdefault(item.text, name)
        return found

    def find(self, kind: str, name: str | Path) -> Path:
        """The file of a name, an alias or a path; raises UnknownNameError with the near names."""
        if isinstance(name, Path) or name.endswith((".yaml", ".yml", ".json")) or "/" in name:
            return Path(name)
        folder = self.root / KINDS[kind].folder
        names = {plain(known): known for known in self.names(kind)}
        if plain(name) not in names:
            aliases = self.aliases(kind)
            names |= {plain(alias): owner for alias, owner in aliases.items()}
            if plain(name) not in names:
                if os.path.isfile(name):
                    return Path(name)
                known = {*self.names(kind), *aliases}
                raise UnknownNameError(KINDS[kind].noun, name, known)
        return folder / f"{names[plain(name)]}.yaml"

    def shown(self, path: Path) -> str:
        """A path as messages print it: from here where it lies below, else from the catalogue."""
        for start in (Path.cwd(), self.root):
            if path.is_absolute() and path.is_relative_to(start):
                return str(path.relative_to(start))
        return str(path)

    def written(self, path: Path) -> Written:
        """The tree of one file as it is written; raises SpecError where there is none."""
        absolute = Path(os.path.abspath(path))
        if not (absolute.is_relative_to(self.root) and os.path.isfile(absolute)):
            return _read(path, self.shown(path))
        status = absolute.stat()
        return _read_once(self, path, os.getcwd(), status.st_mtime_ns, status.st_size)

    def stamp(self, path: Path) -> Stamp | None:
        """What changes when a spec of the catalogue, or its base, does; None of any other file."""
        absolute = Path(os.path.abspath(path))
        if not (absolute.is_relative_to(self.root) and os.path.isfile(absolute)):
            return None
        status = absolute.stat()
        own = str(absolute), status.st_mtime_ns, status.st_size
        base = self.written(absolute)[0].text("base")
        if base is None:
            return (own,)
        below = self.stamp(absolute.parent / f"{base}.yaml")
        return None if below is None else (own, *below)

    def tree(self, kind: str, path: Path) -> Written:
        """The tree of a spec, its base merged in, each value with its source and basis."""
        written, found = self.written(path)
        faults = list(found)
        # A class that has a basis of its own states the one of its file.
        own: dict[str, Any] = {e.name: e.default for e in fields(KINDS[kind].records[0].cls)}
        keep = frozenset(own) & {"basis"}
        scope = Scope(basis=own.get("basis"))
        base = self.base(kind, path, written, faults)
        tree = cite(written.without("base"), keep, scope, faults, base)
        if base is not None:
            tree = merge(cite(base.without(*OWN), keep, scope, faults), tree)
        return tree, tuple(faults)

    def base(self, kind: str, path: Path, tree: Mapping, faults: list[Fault]) -> Mapping | None:
        """The tree of the file that ``tree`` is a variant of, or None where it is none.

        Raises SpecError where there is no such base, for then nothing more can be said.
        """
        node = tree.items.get("base")
        if node is None:
            return None
        if not isinstance(node, Scalar):
            fault = node.place.fault("base", "is more than one value", "name one spec")
            raise SpecError([*faults, fault])
        name = node.text
        beside = path.parent / f"{name}.yaml"
        try:
            base, found = self.written(beside if os.path.isfile(beside) else self.find(kind, name))
        except UnknownNameError as error:
            raise SpecError([*faults, node.place.fault("base", str(error))]) from None
        faults.extend(found)
        if "base" in base.items:
            fix = f"name {brief(base.text('base') or '')!r}, or state what differs here"
            fault = node.place.fault("base", f"{brief(name)!r} is a variant itself", fix)
            raise SpecError([*faults, fault])
        return base


def plain(name: str) -> str:
    """A name without what does not matter in it.

    >>> plain("H100_SXM")
    'h100-sxm'
    """
    return name.strip().lower().replace("_", "-").replace(" ", "-")


def _read(path: Path, shown: str) -> Written:
    faults: list[Fault] = []
    tree = read_tree(path, shown, faults)
    return tree, tuple(faults)


@lru_cache(maxsize=64)
def _names_once(folder: Path, time: int) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


@lru_cache(maxsize=256)
def _read_once(catalog: Catalog, path: Path, here: str, time: int, size: int) -> Written:
    """A file of the catalogue is read again only when its time or size changes."""
    return _read(path, catalog.shown(path))
