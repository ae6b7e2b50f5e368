"""Where JSON goes: a file, whole or not at all, or standard output; and the files of a report."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_json(data: Any, target: str) -> None:
    """Write ``data`` whole or not at all; ``-`` is standard output.

    A device, a pipe or a link is written through, never put aside for a file.
    """
    import json
    import sys

    from simulator.errors import Fault, SpecError

    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    path = Path(target)
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_text(text, encoding="utf-8")
            return
        part = path.with_name(f".{path.name}.part")
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        fix = "name a file in a folder that can be written"
        raise SpecError([Fault(target, None, "", error.strerror or str(error), fix)]) from None


def say_written(paths: Iterable[Path]) -> None:
    """Name the files of a report on standard error."""
    import sys

    sys.stderr.write(f"report: {', '.join(str(path) for path in paths)}\n")
