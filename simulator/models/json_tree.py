"""A JSON file as plain data, with the line of every key.

Knows JSON and how to say what is wrong with it. Never touches what the keys mean.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.errors import Fault, SpecError

MAX_BYTES = 4 << 20
"""A config.json has kilobytes; anything far larger is another file."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(frozen=True, slots=True)
class JsonTree:
    """The object of one file; ``lines`` maps a dotted path such as ``a.b[2]`` to its line.

    The empty path is the object itself.
    """

    file: str
    data: Mapping[str, Any]
    lines: Mapping[str, int]

    def line(self, path: str) -> int | None:
        """The line where that key stands, or None where it is absent."""
        return self.lines.get(path)


def read_json(path: Path) -> JsonTree:
    """Read a JSON object strictly; raises SpecError with every fault found.

    Refused: a directory, a missing, empty, binary or huge file, bad or truncated JSON, a key
    written twice, NaN, and anything at the top but an object. An infinity is read, since real
    files bound a step with it; no size may be one.
    """
    return parse_json(read_text(path), str(path))


def read_text(path: Path) -> str:
    """The text of a small UTF-8 file; raises SpecError where it is none."""
    file = str(path)
    try:
        if path.is_dir():
            raise _refusal(file, None, "this is a directory", "name the config.json in it")
        if path.exists() and not path.is_file():
            raise _refusal(file, None, "is not a regular file", "give a JSON text file")
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _refusal(file, None, f"cannot be read: {reason}") from None
    if len(raw) > MAX_BYTES:
        raise _refusal(file, None, f"more than {MAX_BYTES >> 20} MiB, which no config.json has")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        found = "not text: a byte that is not UTF-8"
        raise _refusal(file, line, found, "give a JSON text file") from None


def parse_json(text: str, file: str) -> JsonTree:
    """Parse JSON text strictly, see ``read_json``."""
    if not text.strip():
        raise _refusal(file, None, "empty file", "give a JSON object")
    try:
        data = json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        fix = "the file looks cut off" if cut else ""
        raise _refusal(file, error.lineno, f"not JSON: {error.msg}", fix) from None
    except RecursionError:
        raise _refusal(file, None, "nested too deeply") from None
    except ValueError as error:
        raise _refusal(file, None, f"not JSON: {str(error).split(chr(59))[0]}") from None
    if not isinstance(data, dict):
        raise _refusal(file, 1, f"a JSON {type(data).__name__}", "give a JSON object")
    lines, faults = _scan(text, file)
    if faults:
        raise SpecError(faults)
    return JsonTree(file=file, data=data, lines=lines)


def _refusal(file: str, line: int | None, found: str, fix: str = "") -> SpecError:
    return SpecError([Fault(file, line, "", found, fix)])


def _scan(text: str, file: str) -> tuple[dict[str, int], list[Fault]]:
    """Lines of all keys of valid JSON; faults for double keys and numbers that are none."""
    lines: dict[str, int] = {"": text.count("\n", 0, text.index("{")) + 1}
    faults: list[Fault] = []
    # Each open container: its path, and the index of its next item, or None for an object.
    stack: list[list[Any]] = []
    path, line, last, expect_key = "", 1, 0, False
    for match in _TOKEN.finditer(text):
        line += text.count("\n", last, match.start())
        last = match.start()
        token = match[0]
        if stack and stack[-1][1] is not None and token not in "],":
            path = f"{stack[-1][0]}[{stack[-1][1]}]"
            lines.setdefault(path, line)
        if token in "{[":
            stack.append([path, 0 if token == "[" else None])
            expect_key = token == "{"
        elif token in "}]":
            stack.pop()
            expect_key = False
        elif token == ",":
            if stack[-1][1] is None:
                expect_key = True
            else:
                stack[-1][1] += 1
        elif expect_key:
            key = json.loads(token, strict=False)
            path = f"{stack[-1][0]}.{key}" if stack[-1][0] else key
            if path in lines:
                fix = f"it already stands in line {lines[path]}; keep one"
                faults.append(Fault(file, line, path, "written twice", fix))
            lines.setdefault(path, line)
            expect_key = False
        elif token == "NaN":
            faults.append(Fault(file, line, path, "NaN is no number", "write a finite one"))
    return lines, faults
