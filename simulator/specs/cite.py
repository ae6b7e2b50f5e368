"""Who says so: the source and the basis of each value of a file.

A value stands plainly or as ``{value, source, basis, note}``; any mapping may state ``source`` and
``basis`` for what is below it, and the file for all of it. ``sources`` gives long texts short keys.
Knows the tree of one file. Never touches types or units.
"""

from __future__ import annotations

from collections.abc import Mapping as Texts
from dataclasses import dataclass, replace

from simulator.errors import Fault, nearest
from simulator.specs.hardware import BASES
from simulator.specs.yaml_tree import Mapping, Node, Scalar, Scope, Sequence, brief, join, label

_CITATION = ("source", "basis", "note")


def cite(
    root: Mapping,
    keep: frozenset[str],
    scope: Scope,
    faults: list[Fault],
    base: Mapping | None = None,
) -> Mapping:
    """The tree of a file with each value's source and basis in it, and nothing else of them.

    ``keep`` names keys of the root that mean something themselves; ``scope`` holds where the file
    states nothing; the ``sources`` of ``base`` hold too, but not its own source and basis, for
    they speak of other numbers. What is wrong with a citation is added to ``faults``.
    """
    texts = (_sources(base, []) if base else {}) | _sources(root, faults)
    citing = _Citing(texts, faults)
    inner = citing.scope(root, scope, "")
    drop = {"sources", *_CITATION} - keep
    items = {
        key: citing.node(node, inner, key) for key, node in root.items.items() if key not in drop
    }
    return Mapping(root.place, items, root.keys)


def cite_as(node: Node, scope: Scope) -> Node:
    """``node`` with one scope for all its values."""
    return _Citing({}, []).node(node, scope, "")


def _sources(root: Mapping, faults: list[Fault]) -> dict[str, str]:
    """The texts of ``sources`` by key."""
    texts: dict[str, str] = {}
    sources = root.items.get("sources")
    if isinstance(sources, Mapping):
        for key, node in sources.items.items():
            if isinstance(node, Scalar) and node.text.strip():
                texts[key] = node.text
            else:
                fix = "write what the source is"
                faults.append(node.place.fault(f"sources.{key}", "is no text", fix))
    elif sources is not None:
        fix = "write a key and a text for each source"
        faults.append(sources.place.fault("sources", "is no mapping", fix))
    return texts


@dataclass(frozen=True, slots=True)
class _Citing:
    texts: Texts[str, str]
    faults: list[Fault]

    def node(self, node: Node, scope: Scope, path: str) -> Node:
        """``node`` with its scope in every scalar."""
        if isinstance(node, Scalar):
            return replace(node, scope=scope)
        if isinstance(node, Sequence):
            listed = [
                self.node(item, scope, join(path, label(item, at)))
                for at, item in enumerate(node.items)
            ]
            return Sequence(node.place, tuple(listed))
        inner = self.scope(node, scope, path)
        if "value" in node.items:
            for key in node.items.keys() - {"value", *_CITATION}:
                fix = f"beside a value stand {', '.join(_CITATION)}"
                if node.text(key) == "":
                    fix = "put a text that holds a comma in quotes"
                self.faults.append(node.keys[key].fault(path, f"unknown key {key!r}", fix))
            return self.node(node.items["value"], inner, path)
        items = {
            key: self.node(child, inner, join(path, key))
            for key, child in node.items.items()
            if key not in _CITATION
        }
        return Mapping(node.place, items, node.keys)

    def scope(self, node: Mapping, outer: Scope, path: str) -> Scope:
        """What ``node`` states, else what holds around it."""
        source, basis = node.items.get("source"), node.items.get("basis")
        note = node.items.get("note")
        if note is not None and not isinstance(note, Scalar):
            self.faults.append(note.place.fault(join(path, "note"), "is no text"))
        return Scope(
            outer.source if source is None else self.source(source, join(path, "source")),
            outer.basis if basis is None else self.basis(basis, join(path, "basis")),
        )

    def source(self, node: Node, path: str) -> str:
        """The text of a source: of its key or keys, else itself where it reads as a text."""
        if isinstance(node, Sequence):
            return "; ".join(self.source(item, path) for item in node.items)
        if not isinstance(node, Scalar) or not node.text:
            self.faults.append(node.place.fault(path, "is no text", "name a source"))
        elif node.text in self.texts:
            return self.texts[node.text]
        elif " " not in node.text:
            near = nearest(node.text, self.texts)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            fix = f"{hint}add the key to 'sources', or write the source out"
            found = f"the source {brief(node.text)!r} is not among 'sources'"
            self.faults.append(node.place.fault(path, found, fix))
        # A wrong one is reported once, here, and not again as a missing one.
        return node.text if isinstance(node, Scalar) else "?"

    def basis(self, node: Node, path: str) -> str:
        """One of the bases."""
        text = node.text if isinstance(node, Scalar) else ""
        if text not in BASES:
            near = nearest(text, BASES)
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(BASES)}"
            self.faults.append(node.place.fault(path, f"unknown basis {brief(text)!r}", hint))
            return "assumed"
        return text
