"""A YAML file as a tree in which each key and value keeps its place.

Strict, with the scalars of YAML 1.2: ``1e12`` is a number, ``no`` and ``12:30:00`` are text.
Duplicate keys, anchors, aliases, merge keys, tags and second documents are refused, and so is what
is too large or too deep to be a spec. Knows text and lines. Never touches units or meaning.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from simulator.errors import Fault, SpecError

MAX_BYTES = 2**20
MAX_DEPTH = 30
MAX_VALUES = 50_000
MAX_KEY = 60
MAX_FAULTS = 100

_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,39})")
_PREFIXED = re.compile(r"0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | float | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
} | {
    sign + word: float(sign + word.lstrip("."))
    for word in (".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN")
    for sign in ("", "+", "-")
}  # fmt: skip
_UNPRINTABLE = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)
"""What YAML does not print, and the exotic line ends that would shift the lines of messages."""
_TAB = "a tab stands where YAML wants spaces", "indent with spaces"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is written."""

    file: str
    line: int | None

    def fault(self, path: str, found: str, fix: str = "") -> Fault:
        """A fault that stands here."""
        return Fault(self.file, self.line, path, found, fix)


@dataclass(frozen=True, slots=True)
class Scope:
    """The source and the basis that hold for what is written here."""

    source: str | None = None
    basis: str | None = None


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value as it is written."""

    place: Place
    text: str
    plain: bool = True
    """Written without quotes, so that it may be a number, a truth value or null."""
    scope: Scope = Scope()
    broken: bool = False
    """A fault has been reported already and nothing more is to be said."""

    @property
    def value(self) -> str | int | float | bool | None:
        """What YAML 1.2 reads: a leading zero, ``1_000`` and ``1,000`` stay text."""
        if not self.plain:
            return self.text
        if self.text in _WORDS:
            return _WORDS[self.text]
        if _INT.fullmatch(self.text):
            return int(self.text)
        if _PREFIXED.fullmatch(self.text):
            return int(self.text, 0)
        return float(self.text) if _FLOAT.fullmatch(self.text) else self.text


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    place: Place
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys with their values; ``keys`` has the place of each key."""

    place: Place
    items: dict[str, Node]
    keys: dict[str, Place]

    def with_item(self, key: str, node: Node, place: Place) -> Mapping:
        """A copy in which ``key`` is ``node``."""
        return Mapping(self.place, self.items | {key: node}, {key: place} | self.keys)

    def without(self, *keys: str) -> Mapping:
        """A copy that lacks ``keys``."""
        items = {key: node for key, node in self.items.items() if key not in keys}
        return Mapping(self.place, items, self.keys)

    def where(self, key: str) -> Place:
        """The place of a scalar, or else of its key, unless the value came from elsewhere."""
        node, place = self.items.get(key), self.keys.get(key, self.place)
        if node is not None and (isinstance(node, Scalar) or node.place.file != place.file):
            return node.place
        return place

    def text(self, key: str) -> str | None:
        """The text at ``key``, or None where there is none or it is no scalar."""
        node = self.items.get(key)
        return node.text if isinstance(node, Scalar) else None


Node = Scalar | Sequence | Mapping


def label(node: Node, index: int) -> str:
    """How a path names an item of a list: by its kind or name, else by its position.

    >>> here = Place("x.yaml", 1)
    >>> label(Mapping(here, {"kind": Scalar(here, "hbm4")}, {}), 0)
    'hbm4'
    """
    if isinstance(node, Mapping):
        name = node.text("kind") or node.text("name") or ""
        if name.isprintable() and 0 < len(name) <= MAX_KEY:
            return name
    return str(index)


def join(path: str, name: str) -> str:
    """A dotted path one step further."""
    return f"{path}.{name}" if path else name


def brief(text: str) -> str:
    """As much of a text as a message has room for."""
    return text if len(text) <= MAX_KEY else f"{text[:MAX_KEY]}..."


def read_text(path: Path, shown: str) -> str:
    """The text of a spec file; raises SpecError where it cannot be one."""

    def refuse(found: str, fix: str = "", line: int | None = None) -> SpecError:
        return SpecError([Fault(shown, line, "", found, fix)])

    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise refuse("is a directory", "name a file in it")
        if not stat.S_ISREG(status.st_mode):
            raise refuse("is not a regular file", "name a YAML file")
        if status.st_size > MAX_BYTES:
            size = f"{status.st_size / 1e6:.1f} MB"
            raise refuse(f"has {size}", f"a spec has at most {MAX_BYTES // 1024} KiB")
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise refuse("no such file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise refuse(f"cannot be read: {reason}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise refuse("is not UTF-8 text", "save it as UTF-8, or name a YAML file", line) from None
    if found := _UNPRINTABLE.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise refuse(f"has the character {found[0]!r}", "a spec is plain text", line)
    return text


def read_tree(path: Path, shown: str, faults: list[Fault]) -> Mapping:
    """The mapping that a spec file holds. Faults that leave a tree are added to ``faults``.

    Raises SpecError where no tree is left.
    """
    text = read_text(path, shown)
    node = parse_text(text, Place(shown, 1), faults)
    if isinstance(node, Mapping):
        return node
    if node is None or (isinstance(node, Scalar) and node.value is None):
        found = "holds nothing" if text.strip() else "is empty"
        raise SpecError([*faults, Fault(shown, 1, "", found, "write a mapping of keys")])
    kind = "a list" if isinstance(node, Sequence) else f"the text {brief(node.text)!r}"
    fix = "write a mapping of keys, such as 'name: ...'"
    raise SpecError([*faults, node.place.fault("", f"holds {kind}", fix)])


def parse_text(text: str, where: Place, faults: list[Fault]) -> Node | None:
    """Parse one YAML document that starts at ``where``; None where it holds nothing.

    Raises SpecError where the text is not YAML, or is more than a spec can be.
    """
    builder = _Builder(where, faults)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark and error.context_mark and mark.line >= len(text.rstrip().split("\n")):
            mark = error.context_mark  # Where it opened says more than where the file ends.
        place = builder.place(mark) if mark else where
        raise SpecError([*faults, place.fault("", *_explain(error, text))]) from None
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise SpecError([*faults, where.fault("", f"not valid YAML: {problem}")]) from None
    return builder.root


def _explain(error: yaml.MarkedYAMLError, text: str) -> tuple[str, str]:
    """What is wrong with the syntax, and what would do where the slip is a common one."""
    problem, context = f"{error.problem or error.context}", ""
    if error.problem and error.context:
        context = f", {error.context}"
    mark = error.problem_mark
    if "cannot start any token" in problem and mark:
        character = text.split("\n")[mark.line][mark.column : mark.column + 1]
        if character == "\t":
            return _TAB
        return f"not valid YAML: no text starts with {character!r}", "put it in quotes"
    if "tab character" in problem:
        return _TAB
    fix = ""
    if "mapping values are not allowed" in problem:
        fix = "put text that holds ': ' in quotes, or mend the indentation"
    elif "expected <block end>" in problem or "did not find expected key" in problem:
        fix = "align the keys of one mapping, and close every bracket and quote"
    return f"not valid YAML{context}: {problem}", fix


@dataclass(slots=True)
class _Frame:
    """A list or mapping that is being read."""

    place: Place
    is_mapping: bool
    items: list[Node] = field(default_factory=list)
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Place] = field(default_factory=dict)
    key: str | None = None
    skip: bool = False
    """The value of the pending key is dropped: the key is refused."""


class _Builder:
    """Takes YAML events one by one and keeps the tree on a stack of its own, never on Python's."""

    def __init__(self, where: Place, faults: list[Fault]) -> None:
        self.where, self.faults = where, faults
        self.root: Node | None = None
        self.stack: list[_Frame] = []
        self.documents = self.values = 0
        self.aliased = False

    def place(self, mark: Any) -> Place:
        first = self.where.line
        return Place(self.where.file, None if first is None else first + mark.line)

    def path(self) -> str:
        """Where the builder is, as a dotted path."""
        return ".".join(self._names())

    def _names(self) -> Iterator[str]:
        for frame in self.stack:
            if not frame.is_mapping:
                yield str(len(frame.items))
            elif frame.key:
                yield frame.key

    def refuse(self, mark: Any, found: str, fix: str) -> None:
        self.faults.append(self.place(mark).fault(self.path(), found, fix))
        if len(self.faults) >= MAX_FAULTS:
            raise self.stop(mark, "more faults than one reads at a time", "mend these first")

    def stop(self, mark: Any, found: str, fix: str) -> SpecError:
        return SpecError([*self.faults, self.place(mark).fault("", found, fix)])

    def take(self, event: Any) -> None:
        mark = event.start_mark
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise self.stop(mark, "a second document starts here", "keep one per file")
            return
        if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            frame = self.stack.pop()
            if frame.is_mapping:
                self.add(Mapping(frame.place, frame.entries, frame.keys), mark)
            else:
                self.add(Sequence(frame.place, tuple(frame.items)), mark)
            return
        if not isinstance(event, yaml.NodeEvent):
            return
        self.values += 1
        if self.values > MAX_VALUES:
            raise self.stop(mark, f"more than {MAX_VALUES} values", "a spec is smaller")
        if event.anchor is not None and not self.aliased:
            self.aliased = True  # One fault for all of them: a bomb has thousands.
            self.refuse(mark, f"anchors and aliases are not read ({event.anchor!r})",
                        "write the values out, or use 'base:' for a variant")  # fmt: skip
        tag = getattr(event, "tag", None)
        if tag is not None:
            self.refuse(mark, f"the tag {tag!r} is not read", "leave it out")
        if isinstance(event, yaml.AliasEvent):
            self.add(Scalar(self.place(mark), "", broken=True), mark)
        elif isinstance(event, yaml.ScalarEvent):
            self.add(self.scalar(event), mark)
        else:
            if len(self.stack) >= MAX_DEPTH:
                raise self.stop(mark, f"more than {MAX_DEPTH} levels deep", "a spec is flatter")
            self.open(isinstance(event, yaml.MappingStartEvent), mark)

    def scalar(self, event: Any) -> Scalar:
        odd = _UNPRINTABLE.search(event.value)
        if odd:
            fix = "leave the escape out"
            self.refuse(event.start_mark, f"the text has the character {odd[0]!r}", fix)
        plain = event.style is None or event.style == ""
        return Scalar(self.place(event.start_mark), event.value, plain, broken=odd is not None)

    def open(self, is_mapping: bool, mark: Any) -> None:
        frame = self.stack[-1] if self.stack else None
        if frame and frame.is_mapping and frame.key is None:
            raise self.stop(mark, "a list or mapping stands as a key", "a key is plain text")
        self.stack.append(_Frame(self.place(mark), is_mapping))

    def add(self, node: Node, mark: Any) -> None:
        if not self.stack:
            self.root = node
            return
        frame = self.stack[-1]
        if not frame.is_mapping:
            frame.items.append(node)
        elif frame.key is None:
            self.add_key(frame, node, mark)
        else:
            if not frame.skip:
                frame.entries[frame.key] = node
            frame.key, frame.skip = None, False

    def add_key(self, frame: _Frame, node: Node, mark: Any) -> None:
        if not isinstance(node, Scalar):
            raise self.stop(mark, "a list or mapping stands as a key", "a key is plain text")
        frame.key = node.text
        if len(node.text) > MAX_KEY or not node.text.isprintable():
            frame.key, frame.skip = "", True
            self.refuse(mark, f"the key is {brief(node.text)!r}", "a key is a short word")
        elif node.text == "<<" and node.plain:
            frame.skip = True
            self.refuse(mark, "merge keys are not read", "use 'base:' for a variant")
        elif node.text in frame.keys:
            frame.skip = True
            first = frame.keys[node.text].line
            self.refuse(mark, f"the key stands twice, first in line {first}", "keep one of them")
        else:
            frame.keys[node.text] = node.place
