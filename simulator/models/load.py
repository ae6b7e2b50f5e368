"""A model by name, YAML file or config.json.

Knows which reader a file needs. Never touches what is in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from simulator.errors import Fault, SpecError
from simulator.models.config_json import read_config
from simulator.specs.load import load_model_yaml, with_overrides
from simulator.specs.overrides import Override
from simulator.specs.workload import Model


def load_workload(name_or_path: str | Path, overrides: Iterable[Override] = ()) -> Model:
    """The model of that catalogue name, YAML file or Hugging Face config.json.

    A folder that holds a config.json stands for it. ``overrides`` are set before the model is
    checked. Raises UnknownNameError with the near names, and SpecError with every fault.
    """
    if not is_config(name_or_path):
        return load_model_yaml(name_or_path, overrides)
    model: Model = read_config(_config(Path(name_or_path)))
    settings = tuple(overrides)
    return with_overrides(model, settings) if settings else model


def check_model(path: str | Path) -> list[Fault]:
    """Every fault of a config.json; an empty list where it is read right."""
    try:
        read_config(_config(Path(path)))
    except SpecError as error:
        return list(error.faults)
    return []


def is_config(name_or_path: str | Path) -> bool:
    """Whether a config.json is meant: by suffix, by its first brace, or a folder with one."""
    path = _config(Path(name_or_path))
    if path.suffix.lower() == ".json":
        return True
    if path.suffix.lower() in (".yaml", ".yml") or not os.path.isfile(path):
        return False
    try:
        with path.open("rb") as stream:
            return stream.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
    except OSError:
        return False  # Who reads it says why it cannot.


def _config(path: Path) -> Path:
    inside = path / "config.json"
    return inside if os.path.isfile(inside) else path
