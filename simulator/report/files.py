"""Files of a report, written whole or not at all. Knows names and bytes alone."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from simulator.errors import Fault, SpecError


def write_files(
    contents: Mapping[str, bytes], directory: str | Path, stale: Collection[str] = ()
) -> list[Path]:
    """Write files into ``directory``, made if absent, and remove ``stale`` ones that are not among
    them; returns the files.

    Others are left alone. Raises SpecError where the directory cannot be written.
    """
    target = Path(directory)
    try:
        if target.exists() and not target.is_dir():
            raise NotADirectoryError(0, "is a file")
        home = target if target.exists() else target.parent
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".tilecast-", dir=home) as folder:
            whole = Path(folder) / "report"
            whole.mkdir()
            for name, data in contents.items():
                (whole / name).write_bytes(data)
            if home is target:
                for name in set(stale).difference(contents):
                    (target / name).unlink(missing_ok=True)
                for name in contents:
                    (whole / name).replace(target / name)
            else:
                whole.rename(target)
    except OSError as error:
        below = isinstance(error, FileExistsError)  # What mkdir says of a parent that is a file.
        found = "lies in what is no directory" if below else error.strerror or str(error)
        fix = "name a directory that can be written, or a new one"
        raise SpecError([Fault(str(directory), None, "", found, fix)]) from None
    return [target / name for name in contents]
