"""A variant: what one file changes of another, its base.

Mappings merge key by key, lists of mappings by kind or name, everything else is replaced; null
takes a value out. Knows trees. Never touches files.
"""

from __future__ import annotations

from simulator.specs.yaml_tree import Mapping, Node, Sequence, label

OWN = ("base", "aliases")
"""Keys of the base that a variant does not take over."""


def merge(base: Mapping, variant: Mapping) -> Mapping:
    """``base`` with what ``variant`` states in its place."""
    items = dict(base.items)
    for key, node in variant.items.items():
        items[key] = _merged(items[key], node) if key in items else node
    return Mapping(variant.place, items, base.keys | variant.keys)


def _merged(base: Node, variant: Node) -> Node:
    if isinstance(base, Mapping) and isinstance(variant, Mapping):
        kinds = base.text("kind"), variant.text("kind")
        # Another kind is another thing: nothing of the old one holds.
        return variant if None not in kinds and kinds[0] != kinds[1] else merge(base, variant)
    if isinstance(base, Sequence) and isinstance(variant, Sequence) and _are_named(base, variant):
        items = {label(item, at): item for at, item in enumerate(base.items)}
        for at, item in enumerate(variant.items):
            name = label(item, at)
            items[name] = _merged(items[name], item) if name in items else item
        return Sequence(variant.place, tuple(items.values()))
    return variant


def _are_named(*lists: Sequence) -> bool:
    items = [item for listed in lists for item in listed.items]
    return all(isinstance(item, Mapping) and label(item, -1) != "-1" for item in items)
