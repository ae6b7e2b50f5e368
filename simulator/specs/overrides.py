"""What-ifs: ``path=value`` set into a spec before it is checked, so that it is checked like a file.

A path follows the keys of the file; an item of a list goes by its kind or name, or by the start
of it where that is unique (``memory.hbm.bandwidth``). In a model a path may also start with the
kind of a block (``moe.top_k``) and then means every such block. Knows trees and shapes. Never
touches files or units.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from simulator.errors import Fault, SpecError, nearest
from simulator.specs.cite import cite_as
from simulator.specs.shape import (
    Choice,
    Listing,
    Record,
    Shape,
    Table,
    Variants,
    below,
    fields_of,
)
from simulator.specs.yaml_read import parse_text
from simulator.specs.yaml_tree import (
    Mapping,
    Node,
    Place,
    Scalar,
    Scope,
    Sequence,
    join,
    label,
)

OPTION = "--set"
_HERE = Place(OPTION, None)
_SCOPE = Scope(OPTION, "assumed")
_EXAMPLE = "write path=value, like 'memory.hbm4.bandwidth=24 TB/s'"


@dataclass(frozen=True, slots=True)
class Override:
    """One value to set."""

    path: str
    value: str


def parse_overrides(texts: Iterable[str]) -> tuple[Override, ...]:
    """Overrides from texts such as ``compute.units=300``.

    >>> parse_overrides(["memory.hbm4.bandwidth = 24 TB/s"])
    (Override(path='memory.hbm4.bandwidth', value='24 TB/s'),)

    Raises SpecError with every text that is none.
    """
    overrides: dict[str, Override] = {}
    faults = []
    for text in texts:
        path, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            faults.append(_HERE.fault("", f"{text[:80]!r} has no '='", _EXAMPLE))
        elif not path or not all(path.split(".")):
            faults.append(_HERE.fault("", f"{text[:80]!r} has no path", _EXAMPLE))
        elif not value:
            faults.append(_HERE.fault(path, "has no value", "write null to take it out"))
        elif path in overrides:
            faults.append(_HERE.fault(path, "is set twice", "keep one of them"))
        else:
            overrides[path] = Override(path, value)
    if faults:
        raise SpecError(faults)
    return tuple(overrides.values())


def split_overrides(
    overrides: Iterable[Override], shapes: dict[str, Shape]
) -> dict[str, tuple[Override, ...]]:
    """The overrides of each of several specs, by the spec's prefix (``hardware``, ``stack``, ...).

    A path that starts with a prefix goes there, without it; any other goes to the one spec that
    has such a path. Raises SpecError where none has, or more than one.
    """
    parts: dict[str, list[Override]] = {prefix: [] for prefix in shapes}
    faults: list[Fault] = []
    for override in overrides:
        prefix, _, rest = override.path.partition(".")
        steps = override.path.split(".")
        if prefix in shapes and rest:
            owners, chosen = [prefix], Override(rest, override.value)
        else:
            owners = [owner for owner, shape in shapes.items() if _has_path(shape, steps)]
            chosen = override
        if len(owners) == 1:
            if any(known.path == chosen.path for known in parts[owners[0]]):
                faults.append(_HERE.fault(override.path, "is set twice", "keep one of them"))
            parts[owners[0]].append(chosen)
        elif owners:
            found = f"is a path of {' and of '.join(owners)}"
            fix = f"write {' or '.join(f'{owner}.{override.path}' for owner in owners)}"
            faults.append(_HERE.fault(override.path, found, fix))
        elif len(steps) > 2 and len(near := _reaching(shapes, steps[:2])) == 1:
            parts[near[0]].append(override)  # The spec itself tells what its list has instead.
        else:
            known = (path for shape in shapes.values() for path in _paths(shape))
            faults.append(_no_path(override.path, known))
    if faults:
        raise SpecError(faults)
    return {prefix: tuple(chosen) for prefix, chosen in parts.items()}


def _reaching(shapes: dict[str, Shape], steps: list[str]) -> list[str]:
    return [owner for owner, shape in shapes.items() if _reaches(shape, steps)]


def apply_overrides(
    root: Mapping, shape: Shape, overrides: Iterable[Override], faults: list[Fault]
) -> Mapping:
    """``root`` with each override set in it; those without a place, or in that of another, are
    added to ``faults``."""
    scalars: list[tuple[Override, Scalar]] = []
    for override in overrides:
        value = _value(override, faults)
        if isinstance(value, Scalar) and value.broken:
            continue
        steps = override.path.split(".")
        try:
            if _reaches(shape, steps[:1]):
                changed = _set(root, shape, steps, value)
            else:
                changed = _set_blocks(root, shape, steps, value)
        except _NoPathError as error:
            if error.choices:
                fix = f"name one of {', '.join(error.choices)}"
                faults.append(_HERE.fault(override.path, "fits more than one entry", fix))
            else:
                faults.append(_no_path(override.path, _paths(shape, root)))
        else:
            root = changed if isinstance(changed, Mapping) else root
            if isinstance(value, Scalar):
                scalars.append((override, value))
    if len(scalars) > 1:
        # Two paths may lead to one number: the later value stands there alone.
        left = {id(node) for node in _scalars(root)}
        faults += (
            _HERE.fault(override.path, "is set twice, by another path too", "keep one of them")
            for override, value in scalars
            if id(value) not in left
        )
    return root


def _scalars(node: Node) -> Iterator[Scalar]:
    if isinstance(node, Scalar):
        yield node
        return
    for child in node.items.values() if isinstance(node, Mapping) else node.items:
        yield from _scalars(child)


class _NoPathError(Exception):
    """The path leads nowhere, or, where there are choices, to more than one place."""

    def __init__(self, choices: Iterable[str] = ()) -> None:
        self.choices = list(choices)
        super().__init__()


def _no_path(path: str, paths: Iterable[str]) -> Fault:
    known = list(dict.fromkeys(paths))
    near = nearest(path, known)
    roots = sorted({entry.partition(".")[0] for entry in known})
    fix = f"did you mean {' or '.join(near)}?" if near else f"paths start with {', '.join(roots)}"
    return _HERE.fault(path[:80], "no such path", fix)


def _value(override: Override, faults: list[Fault]) -> Node:
    """The value as YAML reads it: a scalar, or a list or mapping in brackets."""
    text = override.value
    if text[:1] not in ("[", "{", '"', "'"):
        return Scalar(_HERE, text, scope=_SCOPE)
    found: list[Fault] = []
    node: Node | None = Scalar(_HERE, "", broken=True)
    try:
        node = parse_text(text, _HERE, found)
    except SpecError as error:
        found = list(error.faults)
    for fault in found:
        path = join(override.path, fault.path) if fault.path else override.path
        faults.append(_HERE.fault(path, fault.found, fault.fix))
    return Scalar(_HERE, "") if node is None else cite_as(node, _SCOPE)


def _set(node: Node | None, shape: Shape, steps: list[str], value: Node) -> Node:
    """``node`` with ``value`` at the end of ``steps``; what an optional section lacks is added."""
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if inner := below(shape, step):
        parent = node if isinstance(node, Mapping) else Mapping(_HERE, {}, {})
        child = _set(parent.items.get(step), inner, rest, value)
        return parent.with_item(step, child, _HERE)
    match shape:
        case Variants() if isinstance(node, Mapping):
            record = shape.named(node.text("kind"))
            if record is not None:
                return _set(node, record, steps, value)
        case Listing(item=item) if isinstance(node, Sequence):
            at = _position(node, step)
            items = list(node.items)
            items[at] = _set(items[at], item, rest, value)
            return Sequence(node.place, tuple(items))
        case _:
            pass
    raise _NoPathError


def _position(node: Sequence, step: str) -> int:
    """The item that ``step`` names, by its label, the start of it, or its position."""
    labels = [label(item, at) for at, item in enumerate(node.items)]
    if step in labels:
        return labels.index(step)
    if step in (places := [str(at) for at in range(len(labels))]):
        return places.index(step)
    fits = [at for at, name in enumerate(labels) if name.startswith(step)]
    if len(fits) == 1:
        return fits[0]
    raise _NoPathError(labels[at] for at in fits)


def _set_blocks(root: Node, shape: Shape, steps: list[str], value: Node) -> Node:
    """``root`` with the value set in every block of the kind that the first step names."""
    changed = 0

    def walk(node: Node, shape: Shape) -> Node:
        nonlocal changed
        match shape:
            case Variants() if isinstance(node, Mapping):
                named = shape.named(node.text("kind"))
                return walk(node, named) if named else node
            case Record(kind=kind) if isinstance(node, Mapping):
                items = {
                    name: walk(child, inner) if (inner := below(shape, name)) else child
                    for name, child in node.items.items()
                }
                block = Mapping(node.place, items, node.keys)
                if kind == steps[0]:
                    changed += 1
                    return _set(block, shape, steps[1:], value)
                return block
            case Listing(item=item) if isinstance(node, Sequence):
                return Sequence(node.place, tuple(walk(child, item) for child in node.items))
            case _:
                return node

    tree = walk(root, shape)
    if not changed or len(steps) == 1:
        raise _NoPathError
    return tree


def _records(shape: Shape, node: Node | None = None) -> Iterator[Record]:
    """Every record in ``node``, or, without one, that a spec of that shape can hold."""
    match shape:
        case Variants(records):
            named = shape.named(node.text("kind")) if isinstance(node, Mapping) else None
            for record in records if node is None else (named,) if named else ():
                yield from _records(record, node)
        case Record(cls=cls):
            yield shape
            for name, entry in fields_of(cls).items():
                child = node.items.get(name) if isinstance(node, Mapping) else None
                if node is None or child is not None:
                    yield from _records(entry.shape, child)
        case Listing(item=item):
            for child in node.items if isinstance(node, Sequence) else (None,):
                yield from _records(item, child)
        case _:
            return


def _has_path(shape: Shape, steps: list[str]) -> bool:
    """Whether some spec of that shape has the path."""
    return _reaches(shape, steps) or any(
        record.kind == steps[0] and len(steps) > 1 and _reaches(record, steps[1:])
        for record in _records(shape)
    )


def _reaches(shape: Shape, steps: list[str]) -> bool:
    if not steps:
        return True
    match shape:
        case Variants(records):
            return any(_reaches(record, steps) for record in records)
        case Listing(item=item):
            return _reaches(item, steps[1:])
        case _:
            inner = below(shape, steps[0])
            return inner is not None and _reaches(inner, steps[1:])


def _paths(shape: Shape, node: Node | None = None, stem: str = "") -> Iterator[str]:
    """The paths of ``node``, or of any spec of that shape, for offering the near ones."""
    match shape:
        case Record(cls=cls):
            for name, entry in fields_of(cls).items():
                child = node.items.get(name) if isinstance(node, Mapping) else None
                yield from _paths(entry.shape, child, f"{stem}{name}.")
        case Variants(records) if node is None:
            for record in records:
                yield from _paths(record, None, stem)
        case Variants() if isinstance(node, Mapping):
            named = shape.named(node.text("kind"))
            if named is not None:
                yield from _paths(named, node, stem)
        case Listing(item=item) if isinstance(node, Sequence):
            for at, child in enumerate(node.items):
                yield from _paths(item, child, f"{stem}{label(child, at)}.")
        case Listing(item=Record(cls=cls) as item):
            kind = fields_of(cls).get("kind")
            for word in kind.shape.words if kind and isinstance(kind.shape, Choice) else ():
                yield from _paths(item, None, f"{stem}{word}.")
        case Table() if isinstance(node, Mapping):
            yield from (f"{stem}{key}" for key in node.items)
        case _:
            yield stem.rstrip(".")
    if not stem:
        blocks = {record.kind: record for record in _records(shape, node) if record.kind}
        for name, record in blocks.items():
            if record is not shape:
                yield from (f"{name}.{field}" for field in fields_of(record.cls))
