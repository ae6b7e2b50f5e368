"""A variant: what one file changes of another, its base.

Mappings merge key by key, lists of mappings by kind or name, everything else is replaced; null
takes a value out. A device memory of another kind replaces the base's. Knows trees and kinds of
memory. Never touches files.
"""

from __future__ import annotations

from simulator.specs.hardware import DRAM
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
        kept = {_slot(item): item for item in base.items}
        stated: list[Node] = []
        for item in variant.items:
            old = kept.get(_slot(item))
            stated.append(item if old is None else _merged(old, item))
        places = {_slot(item): at for at, item in enumerate(base.items)}
        own = {_slot(item) for item in variant.items}
        both = [item for slot, item in kept.items() if slot not in own] + stated
        both.sort(key=lambda item: places.get(_slot(item), len(places)))
        return Sequence(variant.place, tuple(both))
    return variant


def _slot(item: Node) -> str:
    """What an item of a list stands for: a device has one device memory, of whichever kind."""
    name = label(item, -1)
    return "device memory" if name in DRAM else name


def _are_named(*lists: Sequence) -> bool:
    items = [item for listed in lists for item in listed.items]
    return all(isinstance(item, Mapping) and label(item, -1) != "-1" for item in items)
