"""The ``tilecast`` command: parse, call one function of the library, print.

Nothing is reachable from here alone. Commands import what they need when they run.
"""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO, cast


class _Shown:
    """Standard output whose reader may leave early, as ``head`` does: what is written after that
    is for nobody, and files that the command writes are written all the same."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._close()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._close()

    def _close(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def main() -> None:
    """Run the command line; exit 0 done, 2 wrong input, 3 does not fit, 1 a failed check."""
    from simulator.cli.app import app
    from simulator.errors import SimulatorError

    # Python has no stream where the shell has closed it.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stdout = cast(TextIO, _Shown(sys.stdout))
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except SimulatorError as error:
        sys.stderr.write(f"tilecast: {error}\n")
        sys.exit(error.exit_code)
    except OSError as error:
        sys.stderr.write(f"tilecast: {error.strerror or error}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
