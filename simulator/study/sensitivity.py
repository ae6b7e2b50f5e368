"""What a run owes to each number of its device: both sides of every number, simulated.

Knows how to change a scenario and what its run used. Never touches a cost or a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from simulator.errors import Fault, ImpossibleError, InputError, SpecError, nearest
from simulator.report.sensitivity import MATTERS, Elasticity, Sensitivity, Side
from simulator.result import Bound, Result
from simulator.specs.leaves import Leaf
from simulator.specs.scenario import Scenario
from simulator.study.change import changed, full_path, numbers, require_kinds, written
from simulator.study.what_if import Runner

Told = Callable[[str, int, int], None]
"""Hears what is done, how much of it and of how much."""

STEP, LEAST, LARGEST = 0.1, 1e-6, 0.5
"""The step where none is given, the least, below which rounding shows, and the largest, beyond
which a slope says nothing."""
SILENT = ("transistors", "compute.sparsity.", "price.", "power.", "compute.sustained")
"""Starts of paths of numbers that no time depends on outside training."""
UNREAD = ("stacks", "stack_ids", "pin_rate")
"""Ends of paths of numbers that only say how others came about."""


def sensitivity(
    base: Scenario,
    paths: Iterable[str] | None = None,
    step: float = STEP,
    told: Told | None = None,
) -> Sensitivity:
    """Elasticity of the throughput of ``base`` to numbers of its device, percent per percent.

    Each number is simulated a ``step`` lower and higher, a whole number at the whole numbers
    nearest to them. ``paths`` are those of ``changed`` below ``hardware.``; without them all
    numbers of the spec are taken, but those that the run does not use. Largest first.

    Raises SpecError for a base, a step or a path that is none, and what ``simulate`` raises for
    ``base``.
    """
    if paths is not None:
        several = isinstance(paths, Iterable) and not isinstance(paths, str)
        paths = list(paths) if several else [paths]  # type: ignore[list-item]
    require_kinds(base, dict.fromkeys(paths or ()))
    faults = []
    if not isinstance(step, int | float) or not LEAST <= step <= LARGEST:
        fix = f"a share from {LEAST:g} to {LARGEST:g}, such as 0.1"
        faults.append(Fault("sensitivity", None, "step", f"found {step!r:.40}", fix))
    known = {leaf.path: leaf for leaf in numbers(base)}
    asked = None if paths is None else [full_path(path, known) for path in paths]
    for path in asked or ():
        if path not in known:
            near = nearest(path, known)
            fix = f"did you mean {' or '.join(near)}?" if near else "see tilecast show"
            found = "no number of the device"
            faults.append(Fault("sensitivity", None, path[:80], found, fix))
    if asked is not None and not asked:
        faults.append(Fault("sensitivity", None, "paths", "none", "name one, or leave it out"))
    if faults:
        raise SpecError(faults)
    run = Runner()
    result = run(base)
    used = known if asked is None else {path: known[path] for path in asked}
    unused = () if asked is not None else tuple(p for p in used if not _has_say(p, base, result))
    kept = [leaf for path, leaf in used.items() if path not in set(unused)]
    entries, fixed = [], []
    for place, leaf in enumerate(kept):
        if told is not None:
            told("numbers varied", place, len(kept))
        reason = _whole(leaf, step)
        if reason:
            fixed.append((leaf.path, reason))
            continue
        less, more = (_side(base, leaf, 1 + sign * step, result, run) for sign in (-1, 1))
        if less.throughput is None and more.throughput is None:
            fixed.append((leaf.path, less.refused))
            continue
        assert result.throughput is not None, "what takes no time was refused"
        entries.append(
            Elasticity(
                path=leaf.path,
                value=float(leaf.value),
                unit=leaf.unit.symbol if leaf.unit else "",
                throughput=result.throughput,
                less=less,
                more=more,
            )
        )
    entries.sort(key=lambda one: (-abs(one.elasticity), one.path))
    notes = []
    if base.bare is not None:
        notes.append("links are those of the system around it; set them with --set system.")
    return Sensitivity(
        result=result,
        step=step,
        entries=tuple(entries),
        fixed=tuple(fixed),
        unused=unused,
        notes=tuple(notes),
        command=base.command.replace("tilecast run", "tilecast sensitivity", 1)
        + ("" if step == STEP else f" --step {step:g}"),
    )


def _has_say(path: str, base: Scenario, result: Result) -> bool:
    """Whether the run may depend on a number: what it surely does not use is not worth a run."""
    place = path.removeprefix("hardware.")
    silent = SILENT[:-1] if base.phase == "train" else SILENT
    power = base.hardware.power
    if place.startswith("power.") and power is not None and power.capped:
        return True
    if place.startswith(silent) or place.endswith(UNREAD):
        return False
    start, _, rest = place.partition(".")
    behind = [number.path.partition(".")[2] for number in result.provenance.numbers]
    if start in ("scale_up", "scale_out", "host", "data_mover"):
        return any(number.startswith(f"{start}.") for number in behind)
    if rest.startswith(("matrix.", "vector.")):
        name = rest.partition(".")[2]
        formats = {op.format for op in result.ops} | {base.model.activation_format, "fp32"}
        return name in formats or any(number == place for number in behind)
    return True


def _whole(leaf: Leaf, step: float) -> str:
    """Why a number cannot be varied, or nothing."""
    if leaf.path.endswith("scale_up.peers"):
        return "a domain of other size is another plan"
    if leaf.value == 0:
        return "it is 0"
    if isinstance(leaf.value, int) and round(leaf.value * (1 + step)) == leaf.value:
        return f"a whole number, of which {100 * step:g} % round to none"
    return ""


def _side(base: Scenario, leaf: Leaf, factor: float, result: Result, run: Runner) -> Side:
    value = float(f"{leaf.value * factor:.12g}")
    value = float(round(value)) if isinstance(leaf.value, int) else value
    text = written(leaf, value)
    try:
        found = run(changed(base, {leaf.path: text}))
    except SpecError as error:
        return Side(value=value, refused=error.faults[0].found)
    except (InputError, ImpossibleError) as error:
        return Side(value=value, refused=str(error).partition(";")[0])
    return Side(
        value=value,
        throughput=found.throughput,
        bound_by=found.bound_by,
        turned=_turned(result, found),
    )


def _turned(before: Result, after: Result) -> tuple[tuple[str, Bound, Bound], ...]:
    """Operators that another resource binds now, longest first, where they matter together."""
    now = {op.name: op.bound_by for op in after.ops}
    turned = [
        op for op in before.ops if op.name in now and now[op.name] != op.bound_by and op.time > 0
    ]
    if sum(op.time for op in turned) < MATTERS * before.latency:
        return ()
    turned.sort(key=lambda op: (-op.time, op.name))
    return tuple((op.name, op.bound_by, now[op.name]) for op in turned)
