"""The ``tilecast`` command: parse, call one function of the library, print.

Nothing is reachable from here alone. Commands import what they need when they run.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line; exit 0 done, 2 wrong input, 3 does not fit, 1 a failed check."""
    from simulator.cli.app import app
    from simulator.errors import SimulatorError

    # Python has no stream where the shell has closed it.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except SimulatorError as error:
        sys.stderr.write(f"tilecast: {error}\n")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader has enough. Nothing is left to flush when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        sys.stderr.write(f"tilecast: {error.strerror or error}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
