"""``list``, ``show`` and ``check``: what the catalogue holds and what a file says."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from simulator.errors import Fault, InputError, SimulatorError, SpecError, UnknownNameError
from simulator.models.arithmetic import active_parameters, parameters, summary, weight_bytes
from simulator.models.load import check_model, is_config, load_workload
from simulator.report import numbers
from simulator.specs.fit import Fit
from simulator.specs.hardware import Accelerator
from simulator.specs.leaves import leaves
from simulator.specs.load import (
    PREFIXES,
    catalog,
    check_file,
    kind_of,
    load_fit,
    load_hardware,
    load_memory,
    load_stack,
    load_system,
    names,
    overrides_by_spec,
)
from simulator.specs.stack import Stack
from simulator.specs.workload import Model
from simulator.units import BYTES, FLOPS_PER_SECOND, show

CONTEXTS = (1, 1024, 4096, 32768, 131072)
"""Cache sizes that ``show`` prints unless asked for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text under headings; columns that may be cut when the terminal is narrow."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What ``show`` knows of one spec: as data and as tables."""

    data: dict[str, Any]
    tables: list[Table]


def listing(kind: str) -> list[dict[str, Any]]:
    """One row per name of that kind, with the figures one looks for first."""
    return [_LISTED[kind](name) for name in names(kind)]


def _hardware_row(name: str) -> dict[str, Any]:
    device = load_hardware(name)
    return {
        "name": name,
        "vendor": device.vendor,
        "architecture": device.architecture,
        "status": device.status,
        "memory": device.dram.capacity,
        "bandwidth": device.dram.bandwidth,
        "bf16": device.peak("bf16"),
        "fp8": device.peak("fp8"),
        "fp4": device.peak("fp4"),
        "aliases": list(device.aliases),
    }


def _workload_row(name: str) -> dict[str, Any]:
    model = load_workload(name)
    return {
        "name": name,
        "kind": model.kind,
        "parameters": parameters(model),
        "active": active_parameters(model),
        "weights": weight_bytes(model),
        "basis": model.basis,
        "description": model.description,
    }


def _stack_row(name: str) -> dict[str, Any]:
    stack = load_stack(name)
    return {
        "name": name,
        "architectures": list(stack.architectures),
        "tiles": len(stack.matmul.tiles),
        "description": stack.description,
    }


def _system_row(name: str) -> dict[str, Any]:
    system = load_system(name)
    return {
        "name": name,
        "devices": system.scale_up.devices,
        "topology": system.scale_up.topology,
        "accelerators": list(system.accelerators),
        "description": system.description,
    }


def _fit_row(name: str) -> dict[str, Any]:
    fit = load_fit(name)
    same = [score for score in fit.scores if score.distance == "same"]
    rows = sum(score.rows for score in same)
    mean = sum(score.mean * score.rows for score in same) / rows if rows else None
    return {
        "name": name,
        "date": fit.date,
        "rows": fit.rows,
        "libraries": len(fit.libraries),
        "held back": rows,
        "error %": None if mean is None else round(mean, 1),
    }


def _memory_row(name: str) -> dict[str, Any]:
    memory = load_memory(name)
    return {
        "name": name,
        "pseudo channels": memory.pseudo_channels,
        "bits": memory.width,
        "banks": memory.bank_groups * memory.banks * memory.stack_ids,
        "page B": f"{memory.page:.0f}",
        "description": memory.description,
    }


_LISTED = {
    "hardware": _hardware_row,
    "workloads": _workload_row,
    "stacks": _stack_row,
    "systems": _system_row,
    "fits": _fit_row,
    "memories": _memory_row,
}

_SCALES = {
    "memory": ("memory GB", 1e9),
    "bandwidth": ("TB/s", 1e12),
    "bf16": ("bf16", 1e12),
    "fp8": ("fp8", 1e12),
    "fp4": ("fp4", 1e12),
    "parameters": ("parameters B", 1e9),
    "active": ("active B", 1e9),
    "weights": ("weights GB", 1e9),
}
_TITLES = {
    "hardware": "hardware: dense matrix peaks in TFLOP/s",
    "fits": "fits: rows fitted to, rows held back, mean error on those",
}
_SHOWN = {
    "hardware": ("name", "architecture", "memory", "bandwidth", "bf16", "fp8", "fp4", "status"),
    "workloads": ("name", "parameters", "active", "weights", "basis", "description"),
    "stacks": ("name", "architectures", "tiles", "description"),
    "systems": ("name", "devices", "topology", "accelerators", "description"),
    "fits": ("name", "date", "rows", "libraries", "held back", "error %"),
    "memories": ("name", "pseudo channels", "bits", "banks", "page B", "description"),
}


def print_listing(tables: dict[str, list[dict[str, Any]]]) -> None:
    """Print each kind as a table that fits the terminal, one unit per column."""
    for kind, rows in tables.items():
        names = _SHOWN[kind]
        heads = [_SCALES[name][0] if name in _SCALES else name for name in names]
        cells = [tuple(_text(name, row[name]) for name in names) for row in rows]
        print_table(Table(title=_TITLES.get(kind, kind), columns=tuple(heads), rows=cells))


def _text(name: str, value: Any) -> str:
    if name in _SCALES:
        return numbers.digits(None if value is None else value / _SCALES[name][1])
    return ", ".join(value) if isinstance(value, list) else str(value)


def describe(name: str, contexts: Iterable[int], overrides: Sequence[str]) -> Description:
    """A spec with the source of each number, or the arithmetic of a model."""
    parts = overrides_by_spec(overrides)
    kind = _kind(name)
    if kind in _UNCHANGED:
        if overrides:
            fault = Fault("--set", None, overrides[0], f"has no say in {name}", "leave it out")
            raise SpecError([fault])
        return _UNCHANGED[kind](name)
    own = next(prefix for prefix, owner in PREFIXES.items() if owner == kind)
    if stray := [part for prefix in parts if prefix != own for part in parts[prefix]]:
        fix = f"{name} has the paths of a {own}"
        raise SpecError([Fault("--set", None, part.path, "has no say here", fix) for part in stray])
    if kind == "workloads":
        return _describe_model(load_workload(name, parts["workload"]), tuple(contexts))
    if kind == "hardware":
        return _describe_spec(load_hardware(name, parts["hardware"]))
    if kind == "stacks":
        return _describe_spec(load_stack(name, parts["stack"]))
    return _describe_spec(load_system(name, parts["system"]))


def _kind(name: str) -> str:
    """Which kind of spec a name or file is."""
    if is_config(name):
        return "workloads"
    path = Path(name)
    if path.suffix.lower() in (".yaml", ".yml") or os.path.exists(path):
        kind = kind_of(catalog().written(path)[0], path)
        if kind is None:
            raise SpecError([Fault(name, None, "", "is no spec", "tilecast check says why")])
        return kind
    for kind in _LISTED:
        try:
            catalog().find(kind, name)
        except UnknownNameError:
            continue
        return kind
    known = {entry for kind in _LISTED for entry in names(kind)}
    raise UnknownNameError("spec", name, known)


def _describe_spec(spec: Any) -> Description:
    sources = {entry.path: entry for entry in spec.provenance}
    words, rows, data = [], [], []
    for leaf in leaves(spec):
        if leaf.path.startswith("libraries."):
            continue  # a table of its own
        # A table that was cited as a whole cites each of its entries.
        origin = sources.get(leaf.path) or sources.get(leaf.path.rpartition(".")[0])
        text = show(leaf.value, leaf.unit) if leaf.unit else _plain(leaf.value)
        if isinstance(leaf.value, str):
            words.append((leaf.path, text))
        else:
            rows.append(
                (
                    leaf.path,
                    numbers.cut(text, _WIDEST),
                    *((origin.basis, origin.source) if origin else ("", "")),
                )
            )
        data.append(
            {
                "path": leaf.path,
                "value": list(leaf.value) if isinstance(leaf.value, tuple) else leaf.value,
                "unit": leaf.unit.symbol if leaf.unit else None,
                "source": origin.source if origin else None,
                "basis": origin.basis if origin else None,
            }
        )
    tables = [
        Table(title=spec.name, columns=("path", "text"), rows=words),
        Table(title="numbers", columns=("path", "value", "basis", "source"), rows=rows),
    ]
    if isinstance(spec, Stack):
        tables.append(
            Table(
                title="libraries",
                columns=("model", "framework", "for", "library", "where"),
                rows=list(_libraries(spec)),
            )
        )
    if isinstance(spec, Accelerator):
        tables.append(
            Table(
                title="dense peak",
                columns=("format", "rate"),
                rows=[
                    (name, show(spec.peak(name) or 0.0, FLOPS_PER_SECOND))
                    for name in spec.compute.matrix
                ],
            )
        )
    told: dict[str, Any] = {"name": spec.name, "values": data}
    if isinstance(spec, Stack):
        heads = ("model", "framework", "for", "library", "where")
        told["libraries"] = [dict(zip(heads, row, strict=True)) for row in _libraries(spec)]
    return Description(data=told, tables=tables)


def _libraries(stack: Stack) -> Iterable[tuple[str, ...]]:
    """A row per rule of which kernel library runs."""
    for model, frameworks in stack.libraries.items():
        for framework, keys in frameworks.items():
            for key, rules in keys.items():
                for rule in rules:
                    where = (
                        f"{name} {low:g}..{high:g}" for name, (low, high) in rule.where.items()
                    )
                    yield model, framework, key, rule.use, ", ".join(where)


def _describe_fit(fit: Fit) -> Description:
    """What was fitted to what, and how far off it is on what was held back."""
    words = [("date", fit.date), ("data", fit.data), ("rows", f"{fit.rows:,}")]
    libraries = [
        (name, "" if one.tuned else "untuned", ", ".join(one.devices), one.description)
        for name, one in fit.libraries.items()
    ]
    spreads = [
        (op, far, f"{one.lower:g} .. {one.upper:g}", f"{one.rows:,}")
        for op, classes in fit.intervals.items()
        for far, one in classes.items()
    ]
    errors = [
        (s.op, s.dtype, s.device, s.distance, f"{s.rows:,}", f"{s.mean:.1f}", f"{s.median:.1f}")
        for s in fit.scores
    ]
    heads = ("operator", "format", "device", "distance", "rows", "mean %", "median %")
    tables = [
        Table(title=fit.name, columns=("what", "text"), rows=words),
        Table(title="libraries", columns=("name", "state", "measured on", "text"), rows=libraries),
        Table(
            title="80 % intervals, factors of a prediction",
            columns=("operator", "distance", "factors", "rows"),
            rows=spreads,
        ),
        Table(title="errors on held-back shapes", columns=heads, rows=errors),
    ]
    return Description(data=_thawed(fit), tables=tables)


_UNCHANGED: dict[str, Callable[[str], Description]] = {
    "fits": lambda name: _describe_fit(load_fit(name)),
    "memories": lambda name: _describe_spec(load_memory(name)),
}
"""Kinds that no override reaches."""


def _thawed(value: Any) -> Any:
    """The same value with plain mappings, for JSON."""
    if isinstance(value, Mapping):
        return {name: _thawed(entry) for name, entry in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return _thawed({entry.name: getattr(value, entry.name) for entry in fields(value)})
    return [_thawed(entry) for entry in value] if isinstance(value, list | tuple) else value


_WIDEST = 48
"""Letters of one value; the rest is in the JSON."""


def _plain(value: Any) -> str:
    """A count, a share, a text, or several of them."""
    if isinstance(value, tuple):
        nested = bool(value) and isinstance(value[0], tuple)
        return ", ".join("x".join(map(_plain, v)) if nested else _plain(v) for v in value)
    return f"{value:,.0f}" if isinstance(value, float) and value >= 1000 else str(value)


def _describe_model(model: Model, contexts: tuple[int, ...]) -> Description:
    longest = getattr(model, "max_context", None)
    chosen = contexts or tuple(c for c in CONTEXTS if longest is None or c <= longest)
    data = summary(model, chosen)
    rows = [
        ("parameters", f"{data['parameters']:,}"),
        ("active parameters", f"{data['active_parameters']:,}"),
        ("weights", show(data["weight_bytes"], BYTES)),
    ]
    if data["kv_bytes_per_token"]:
        rows.append(("KV cache per token", f"{data['kv_bytes_per_token']:,.0f} B"))
        rows += [
            (
                f"KV cache at context {int(tokens):,}",
                show(size, BYTES),
            )
            for tokens, size in data["kv_bytes_at"].items()
        ]
    parts = [
        (part, f"{count:,}", show(data["weight_bytes_by_part"][part], BYTES))
        for part, count in data["parameters_by_part"].items()
    ]
    return Description(
        data=data,
        tables=[
            Table(title=model.name, columns=("quantity", "value"), rows=rows),
            Table(title="by part", columns=("part", "parameters", "weights"), rows=parts),
        ],
    )


def print_description(description: Description) -> None:
    """Print every table of a description."""
    for table in description.tables:
        print_table(table)


def check_files(files: Sequence[Path]) -> int:
    """Print every fault of every file; 2 if there was any, else 0."""
    faulty = False
    for path in files:
        try:
            faults = check_model(path) if is_config(path) else check_file(path)
        except SpecError as error:
            faults = list(error.faults)
        except InputError as error:
            sys.stderr.write(f"{error}\n")
            faulty = True
            continue
        except SimulatorError as error:
            sys.stderr.write(f"{path}: {error}\n")
            faulty = True
            continue
        for fault in faults:
            sys.stderr.write(f"{fault}\n")
        faulty = faulty or bool(faults)
        if not faults:
            sys.stdout.write(f"{path}: ok\n")
    return 2 if faulty else 0


def print_table(table: Table) -> None:
    """Columns of equal width; on a terminal a line is cut at its edge, elsewhere never."""
    rows = [table.columns, *table.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    edge = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    sys.stdout.write(f"{table.title}\n")
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(f"  {line.rstrip()}"[:edge] + "\n")
    sys.stdout.write("\n")
