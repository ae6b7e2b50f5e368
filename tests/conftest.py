"""Settings for every test.

Hypothesis draws the same examples in every run, so that a change is judged by what it changes;
``--hypothesis-profile explore`` draws fresh ones, and more of them.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable

import pytest
from hypothesis import settings

settings.register_profile("repeat", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("repeat")


@pytest.fixture
def tilecast(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], tuple[int, str, str]]:
    """Runs a command line as a user does: its exit code, and what it printed on either stream."""
    from simulator.cli import main

    def call(command: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tilecast", *shlex.split(command)])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return call
