"""Runs what articles claim of a device: its training speed against another's, at equal work.

A study is a YAML file of devices, workloads, plans and claims; its texts go to the page as they
are. Every plan is run on every device. Never touches costs or drawing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from simulator.api import load_hardware, make_scenario, simulate
from simulator.errors import CapacityError, Fault, InputError, SpecError
from simulator.report.articles import (
    Claim,
    Comparison,
    Power,
    Ratio,
    Report,
    Run,
    Spec,
    Statements,
)
from simulator.specs.fields import Checked
from simulator.specs.hardware import Accelerator
from simulator.units import Watts

NAME = "study.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device(Checked):
    """A device, and what is set of it."""

    device: str
    label: str
    set: tuple[str, ...] = ()
    rival: bool = False
    """It is compared with the rival as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload(Checked):
    """A model, what is claimed of it, and how it is trained."""

    model: str
    label: str
    claim: Claim
    run: Mapping[str, Any]
    """Arguments of ``make_scenario`` that all plans share; ``set`` are its overrides."""
    plans: tuple[Mapping[str, Any], ...]
    """What plans differ in. The first fits every device, and is the one for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed(Checked):
    """A power of the device in question that somebody named."""

    label: str
    watts: Watts


@dataclass(frozen=True, slots=True, kw_only=True)
class Powers(Checked):
    """Power of the base, as published, and what is assumed of the other."""

    base: Watts
    assumed: tuple[Assumed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims(Checked):
    """What an article says, what is known, and the verdict, row by row."""

    title: str
    rows: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study(Checked):
    """The whole file."""

    title: str
    opening: str
    base: Device
    """What claims compare with."""
    rival: Device
    """What some devices are compared with as well, without a claim."""
    devices: tuple[Device, ...]
    workloads: tuple[Workload, ...]
    powers: Powers
    implied: tuple[str, ...]
    unknown: tuple[str, ...]
    claims: tuple[Claims, ...]


def read_study(path: Path) -> Study:
    """The study in ``path``. Raises SpecError with every fault."""
    try:
        return TypeAdapter(Study).validate_python(yaml.safe_load(path.read_text("utf-8")))
    except OSError as error:
        raise SpecError([Fault(str(path), None, "", error.strerror or str(error))]) from None
    except ValidationError as error:
        raise SpecError(
            Fault(str(path), None, ".".join(map(str, fault["loc"])), fault["msg"])
            for fault in error.errors()
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        found = " ".join(str(error).split())
        raise SpecError([Fault(str(path), None, "", f"not YAML: {found}")]) from None


def run_study(study: Study, command: str) -> Report:
    """Run all plans on all devices. Raises InputError for what cannot be run or compared."""
    groups, tried = [], []
    for work in study.workloads:
        runs = {
            device: list(_runs(work, device))
            for device in (study.base, study.rival, *study.devices)
        }
        _require_equal(work, chain.from_iterable(runs.values()))
        pairs: list[tuple[Device, Device, Claim | None]]
        pairs = [(device, study.base, work.claim) for device in study.devices]
        pairs += [(device, study.rival, None) for device in study.devices if device.rival]
        groups.append(
            tuple(
                Comparison(
                    workload=work.label,
                    claim=claim,
                    same=_ratio(runs[new][0], runs[base][0]),
                    best=_ratio(_fastest(runs[new]), _fastest(runs[base])),
                )
                for new, base, claim in pairs
            )
        )
        tried.append(_tried(work, runs))
    return Report(
        title=study.title,
        opening=study.opening,
        comparisons=tuple(groups),
        specs=tuple(_specs([(new, base) for new, base, _ in pairs])),
        base_power=study.powers.base,
        powers=tuple(Power(label=one.label, watts=one.watts) for one in study.powers.assumed),
        implied=study.implied,
        unknown=study.unknown,
        statements=tuple(Statements(title=one.title, rows=one.rows) for one in study.claims),
        tried=tuple(tried),
        command=command,
    )


def _runs(work: Workload, device: Device) -> Iterator[Run | None]:
    """A run of each plan; None where it does not fit."""
    for plan in work.plans:
        options = {**work.run, **plan}
        overrides = (*work.run.get("set", ()), *options.pop("set", ()), *device.set)
        scenario = make_scenario(
            work.model, device.device, phase="train", overrides=overrides, **options
        )
        try:
            result = simulate(scenario)
        except CapacityError:
            if plan is work.plans[0]:
                raise
            yield None
        else:
            yield Run(label=device.label, plan=_plan(plan), result=result)


def _plan(plan: Mapping[str, Any]) -> str:
    """A plan in words: ``pp 16, dp 8, recipe=fp8``."""
    parts = [f"{name.replace('_', ' ')} {value}" for name, value in plan.items() if name != "set"]
    return ", ".join([*parts, *plan.get("set", ())])


def _fastest(runs: list[Run | None]) -> Run:
    return min((run for run in runs if run is not None), key=lambda run: run.result.latency)


def _ratio(new: Run | None, base: Run | None) -> Ratio:
    assert new is not None, "the first plan fits"
    assert base is not None, "the first plan fits"
    return Ratio(new=new, base=base)


def _require_equal(work: Workload, runs: Iterable[Run | None]) -> None:
    """Raise InputError where plans differ in what a step does, or on how many devices."""
    found = dict.fromkeys((run.result.work, run.result.devices) for run in runs if run is not None)
    if len(found) > 1:
        each = "; ".join(f"{size:,.0f} on {devices:,} devices" for size, devices in found)
        raise InputError(f"{work.label}: plans are to do the same on as many devices, not {each}")


def _tried(work: Workload, runs: Mapping[Device, list[Run | None]]) -> str:
    """The plans of a workload, and what they do not fit on."""
    parts = []
    for place, plan in enumerate(work.plans):
        lacking = [device.label for device, some in runs.items() if some[place] is None]
        parts.append(_plan(plan) + (f" (does not fit {', '.join(lacking)})" if lacking else ""))
    common = next(iter(runs.values()))[0]
    assert common is not None, "the first plan fits"
    where = f"{common.result.devices:,} devices ({_plan(work.run)})"
    return f"- {work.label} on {where}, tried: {'; '.join(parts)}."


def _specs(pairs: list[tuple[Device, Device]]) -> Iterator[Spec]:
    """Ratios of what data sheets print."""
    found = [tuple(map(_sheet, pair)) for pair in pairs]
    for name in found[0][0]:
        ratios = ((new[name], base[name]) for new, base in found)
        yield Spec(
            name=name,
            ratios=tuple(new / base if new and base else None for new, base in ratios),
        )


def _sheet(device: Device) -> dict[str, float | None]:
    found: Accelerator = load_hardware(device.device)
    links = ("scale-up", found.scale_up), ("scale-out", found.scale_out)
    return {
        "BF16, dense FLOP/s": found.peak("bf16"),
        "FP8, dense FLOP/s": found.peak("fp8"),
        "memory bandwidth": found.dram.bandwidth,
        "memory capacity": found.dram.capacity,
        **{f"{name} link rate": None if link is None else link.bandwidth for name, link in links},
    }
