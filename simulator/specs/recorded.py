"""Recorded routings: tokens per expert, the experts of each token, or the logits of a router.

Knows the files and what one expert layer can hold. Never touches how a batch is drawn from them.
A path is relative to the working directory. Whatever is wrong in a file comes at once.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, wraps
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from simulator.errors import Fault, SpecError

T = TypeVar("T")
Cells = list[tuple[int | None, list[Any]]]
"""The line of each layer, where it has one, and what stands there."""
MOST = 20
"""Faults that a message lists."""
MOST_TOKENS = 1e15
"""Most tokens of an expert: beyond any recording, small enough for exact sums."""
_ROW = "write {layer: 0, token: 0, experts: [3, 5]} on each line"


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """The routing of one layer, tokens in order of their numbers."""

    layer: int
    experts: NDArray[np.int64]
    """(tokens, top_k)."""
    weights: NDArray[np.float64] | None
    """(tokens, top_k), or None where none were recorded."""


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Tokens of each expert by layer."""

    layers: tuple[int, ...]
    """Numbers that the file gives its layers; 0, 1, ... where it gives none."""
    loads: NDArray[np.float64]
    """(layers, experts)."""


def _remembered(read: Callable[[Path, int, int], T]) -> Callable[[str, int, int], T]:
    """``read``, once as long as the file stays as it is."""

    @lru_cache(maxsize=8)
    def stamped(path: Path, stamp: tuple[int, int], experts: int, top_k: int) -> T:
        return read(path, experts, top_k)

    @wraps(read)
    def fresh(file: str, experts: int, top_k: int) -> T:
        path = Path(file).expanduser()
        try:
            state = path.stat()
            return stamped(path, (state.st_mtime_ns, state.st_size), experts, top_k)
        except (OSError, UnicodeDecodeError) as error:
            found = getattr(error, "strerror", None) or "is not UTF-8 text"
            raise SpecError([Fault(file, None, "", found, "name a file of a routing")]) from None

    return fresh


def _refuse(faults: Iterator[Fault]) -> None:
    """Raise what there is, as far as a person reads, and how many more there are."""
    some = list(islice(faults, MOST))
    if some:
        if more := sum(1 for _ in faults):
            found = f"and {more:,} more {'fault' if more == 1 else 'faults'}"
            some.append(Fault(some[0].file, None, "", found))
        raise SpecError(some)


@_remembered
def read_histogram(path: Path, experts: int, top_k: int) -> Counts:
    """Tokens of each expert by layer.

    CSV with the columns expert, tokens and, where there is more than one, layer; or without a
    header, one line per layer or, of one layer, per expert. JSON: a list of numbers, or a list of
    such lists. Raises SpecError with every fault.
    """
    text = path.read_text(encoding="utf-8-sig")
    name = str(path)
    if not text.strip():
        _refuse(iter([Fault(name, None, "", "is empty", "write the tokens of each expert")]))
    numbers: tuple[int, ...] = ()
    if path.suffix.lower() == ".json":
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise SpecError([Fault(name, error.lineno, "", f"is no JSON: {error.msg}")]) from None
        except (ValueError, RecursionError):
            found = "is no JSON of numbers: too deep, or a number too long"
            raise SpecError([Fault(name, None, "", found)]) from None
        data = data if isinstance(data, list) else [data]
        nested = bool(data) and all(isinstance(row, list) for row in data)
        rows: Cells = [(None, row) for row in (data if nested else [data])]
    else:
        lines = [(at, row) for at, row in enumerate(csv.reader(text.splitlines()), 1) if any(row)]
        numbers, rows = _layers_of_csv(name, lines, experts)
    _refuse(_counts_amiss(name, rows, experts, top_k))
    loads = np.array([[float(cell) for cell in row] for _, row in rows])
    return Counts(numbers or tuple(range(len(rows))), loads)


def _layers_of_csv(
    name: str, lines: list[tuple[int, list[str]]], experts: int
) -> tuple[tuple[int, ...], Cells]:
    """The layers' numbers, where they have any; the line and the counts of each layer."""
    head = [cell.strip().lower() for cell in lines[0][1]]
    if _number(head[0]) is not None:
        if len(lines) > 1 and all(len(row) == 1 for _, row in lines):
            return (), [(None, [row[0] for _, row in lines])]
        return (), [(at, list(row)) for at, row in lines]
    if not {"expert", "tokens"} <= set(head):
        fix = "name the columns expert, tokens and layer, or leave the header out"
        shown = "".join(sign if sign.isprintable() else "?" for sign in ", ".join(head)[:60])
        _refuse(iter([Fault(name, lines[0][0], "", f"has the columns {shown}", fix)]))
    twice = sorted({cell for cell in ("layer", "expert", "tokens") if head.count(cell) > 1})
    if twice:
        found = f"has the column {' and '.join(twice)} twice"
        _refuse(iter([Fault(name, lines[0][0], "", found, "keep one of them")]))
    layers: dict[int, list[Any]] = {}
    faults = []
    for at, row in lines[1:]:
        cells = dict(zip(head, row, strict=False))
        expert, layer = _number(cells.get("expert", "")), _number(cells.get("layer", "0"))
        if layer is None or layer % 1 or layer < 0:
            faults.append(Fault(name, at, "layer", f"found {cells.get('layer')!r}"))
        elif expert is None or expert not in range(experts):
            found = f"unknown expert {cells.get('expert')}"
            faults.append(Fault(name, at, "expert", found, f"experts are 0 to {experts - 1}"))
        else:
            counts = layers.setdefault(int(layer), [None] * experts)
            if counts[int(expert)] is not None:
                faults.append(Fault(name, at, "expert", f"expert {int(expert)} comes twice"))
            counts[int(expert)] = cells.get("tokens", "")
            count = _number(counts[int(expert)])
            if count is None or count < 0:
                found = f"found {counts[int(expert)]!r:.40}"
                faults.append(Fault(name, at, "tokens", found, "write a number of tokens"))
    if not layers and not faults:
        faults.append(Fault(name, 1, "", "has no rows", "write the tokens of each expert"))
    _refuse(iter(faults))
    return tuple(sorted(layers)), [(None, layers[layer]) for layer in sorted(layers)]


def _number(cell: Any) -> float | None:
    """The finite number that a cell holds; None where it holds none."""
    if isinstance(cell, bool) or not isinstance(cell, int | float | str):
        return None
    try:
        number = float(cell)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _counts_amiss(name: str, rows: Cells, experts: int, top_k: int) -> Iterator[Fault]:
    for layer, (line, row) in enumerate(rows):
        path = f"layer {layer}"
        if len(row) != experts:
            fix = f"write one for each of {experts} experts"
            yield Fault(name, line, path, f"has {len(row)} numbers", fix)
        counts = [_number(cell) for cell in row]
        for expert, count in enumerate(counts):
            if row[expert] is None:
                found = "is missing"
            elif count is None:
                found = f"found {row[expert]!r:.40}"
            elif count < 0:
                found = f"{count:g} is negative"
            elif count > MOST_TOKENS:
                found = f"{count:g} is more than {MOST_TOKENS:g}"
            else:
                continue
            yield Fault(name, line, f"{path}.expert {expert}", found, "write a number of tokens")
        hit = sum(count is not None and count > 0 for count in counts)
        if len(row) == experts and hit < top_k and None not in counts:
            found = f"{hit} experts have tokens, fewer than a top_k of {top_k}"
            yield Fault(name, line, path, "has no tokens" if hit == 0 else found)


@_remembered
def read_trace(path: Path, experts: int, top_k: int) -> tuple[Recorded, ...]:
    """The recorded experts of each layer that the trace names, in order of the layers' numbers.

    JSON lines, or parquet: ``layer``, ``token``, ``experts`` (a list) and, in all rows or none,
    ``weights``; other columns are passed over. Raises SpecError with every fault.
    """
    parquet = path.suffix.lower() in (".parquet", ".pq")
    name = str(path)
    faults: list[Fault] = []
    rows: dict[int, dict[int, tuple[list[int], list[float] | None]]] = {}
    weighted: bool | None = None
    for line, row in _parquet_rows(path) if parquet else _json_rows(path):
        found, fix = _row_amiss(row, experts, top_k)
        if not found:
            layer, token, weights = row["layer"], row["token"], row.get("weights")
            weighted = weights is not None if weighted is None else weighted
            known = rows.setdefault(layer, {})
            if weighted != (weights is not None):
                found, fix = "weights are in some rows alone", "write them in all rows or none"
            elif token in known:
                found, fix = f"token {token} of layer {layer} comes twice", "keep one row"
            known[token] = (row["experts"], weights)
        if found:
            where = f"row {line}" if parquet else ""
            faults.append(Fault(name, None if parquet else line, where, found, fix))
    if not rows and not faults:
        faults.append(Fault(name, None, "", "is empty", _ROW))
    _refuse(iter(faults))
    return tuple(_recorded(layer, rows[layer]) for layer in sorted(rows))


def _recorded(layer: int, rows: dict[int, tuple[list[int], list[float] | None]]) -> Recorded:
    ordered = [rows[token] for token in sorted(rows)]
    weights = None if ordered[0][1] is None else np.array([row[1] for row in ordered], np.float64)
    return Recorded(layer, np.array([row[0] for row in ordered], np.int64), weights)


def _json_rows(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open(encoding="utf-8-sig") as lines:
        for at, line in enumerate(lines, 1):
            if line.strip():
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError):
                    row = None
                yield at, row


def _parquet_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """The rows from 0 on."""
    import polars as pl

    try:
        frame = pl.read_parquet(path.read_bytes())
    except pl.exceptions.PolarsError as error:
        found = f"cannot be read as parquet: {str(error).splitlines()[0][:80]}"
        raise SpecError([Fault(str(path), None, "", found)]) from None
    wanted = [name for name in ("layer", "token", "experts", "weights") if name in frame.columns]
    lacking = [name for name in ("layer", "token", "experts") if name not in wanted]
    if lacking and len(frame):
        found = ", ".join(f"{name} is missing" for name in lacking)
        fix = "write layer, token and experts, a list, in each row"
        raise SpecError([Fault(str(path), None, "", found, fix)])
    yield from enumerate(frame.select(wanted).iter_rows(named=True))


def _row_amiss(row: Any, experts: int, top_k: int) -> tuple[str, str]:
    """What was found in one row, and what would do; empty where nothing is amiss."""
    if not isinstance(row, dict):
        return "is no JSON object", _ROW
    for name in ("layer", "token"):
        value = row.get(name)
        if value is None:
            return f"{name} is missing", _ROW
        if type(value) is not int or not 0 <= value < 2**63:
            return f"{name} is {value!r:.40}", "write a whole number, 0 or more"
    chosen, weights = row.get("experts"), row.get("weights")
    if chosen is None:
        return "experts are missing", _ROW
    if not isinstance(chosen, list) or any(type(one) is not int for one in chosen):
        return f"experts are {chosen!r:.40}", "write a list of whole numbers"
    for one in chosen:
        if not 0 <= one < experts:
            return f"unknown expert {one}", f"experts are 0 to {experts - 1}"
    if len(set(chosen)) != len(chosen):
        return f"an expert comes twice in {chosen!r:.60}", "write different ones"
    if len(chosen) != top_k:
        return f"has {len(chosen)} experts", f"write {top_k}, the model's top_k"
    if weights is not None:
        if not isinstance(weights, list) or len(weights) != top_k:
            return f"weights are {weights!r:.40}", f"write {top_k}, one for each expert"
        for one in weights:
            if type(one) not in (int, float) or not 0 <= one <= 1e300:
                return f"a weight is {one!r:.40}", "write a number, 0 or more"
    return "", ""


@_remembered
def read_logits(path: Path, experts: int, top_k: int) -> NDArray[np.floating]:
    """Logits of a router from a .npy file, (layers, tokens, experts); one layer may have two axes.

    Raises SpecError for another shape, no tokens, or logits that are not finite.
    """
    name = str(path)
    try:
        read = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        found = f"is no .npy file of numbers: {str(error).splitlines()[0][:60]}"
        raise SpecError([Fault(name, None, "", found, "save one with numpy.save")]) from None
    if not isinstance(read, np.ndarray) or read.dtype.kind not in "fiu" or read.itemsize > 8:
        fix = "save one array of integers or floats of at most 64 bits"
        raise SpecError([Fault(name, None, "", "holds no array of numbers", fix)])
    shape = " x ".join(map(str, read.shape))
    logits = read[None] if read.ndim == 2 else read
    if logits.ndim != 3 or logits.shape[2] != experts or 0 in logits.shape:
        fix = f"save (tokens, {experts}) or (layers, tokens, {experts}), with one token or more"
        raise SpecError([Fault(name, None, "", f"is {shape or 'a single number'}", fix)])
    faults = (
        Fault(name, None, f"layer {layer}.token {token}", "a logit is not finite")
        for layer, rows in enumerate(logits)
        for token in np.flatnonzero(~np.isfinite(rows).all(axis=1)).tolist()
    )
    _refuse(faults)
    return logits
