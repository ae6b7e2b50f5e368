"""Strict YAML: from the text of a file to its tree.

Duplicate keys, anchors, aliases, merge keys, tags and second documents are refused, and so is what
is too large or too deep to be a spec. Knows PyYAML's events. Never touches units or meaning.
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
from simulator.specs.yaml_tree import MAX_KEY, Mapping, Node, Place, Scalar, Sequence, brief

MAX_BYTES = 2**20
MAX_DEPTH = 30
MAX_VALUES = 50_000
MAX_FAULTS = 100

_UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]"
)
"""What YAML does not print, and the exotic line ends that would shift the lines of messages."""
_TAB = "a tab stands where YAML wants spaces", "indent with spaces"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


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
