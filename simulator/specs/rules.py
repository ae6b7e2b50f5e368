"""What must hold between the fields of one spec: a rule is a function of the fields that were read.

A rule sees only valid values and passes over what is absent, so that all faults of a file come at
once. Knows the specs. Never touches files. Importing it puts the rules in force.
"""

from __future__ import annotations

from simulator.specs.fields import Broken, Values, rule
from simulator.specs.hardware import DRAM, Accelerator, Compute, MemoryLevel, Power
from simulator.specs.routing import routing_faults
from simulator.specs.stack import AttentionLibrary, MatmulLibrary
from simulator.specs.workload import Attention, MoE, Router, Transformer, UNet
from simulator.units import HERTZ, WATTS, show

MOST_LAYERS = 4096
"""More than any model has, few enough to walk."""


def _divides(values: Values, whole: str, part: str, what: str) -> Broken:
    if whole in values and part in values and values[whole] % values[part]:
        found = f"{values[whole]} is no multiple of {part}, {values[part]}"
        yield whole, found, what


@rule(Compute)
def _each_die_has_units(values: Values) -> Broken:
    units, dies = values.get("units"), values.get("dies", 1)
    if units and dies > units:
        yield "dies", f"{dies} dies for {units} units", "state the active units of all dies"


@rule(Compute)
def _clocks_are_ordered(values: Values) -> Broken:
    clock, held, most = (values.get(name) for name in ("clock", "held_clock", "max_clock"))
    if clock and most and most < clock:
        found = f"{show(most, HERTZ)} is below the clock of {show(clock, HERTZ)}"
        yield "max_clock", found, "state the clock of the data-sheet peak as 'clock'"
    top = most or clock
    if held and top and held > top:
        found = f"{show(held, HERTZ)} is above the highest clock, {show(top, HERTZ)}"
        yield "held_clock", found, "state the clock held under load, or max_clock"


@rule(Power)
def _idle_and_a_cap_leave_power_to_work_with(values: Values) -> Broken:
    peak, cap, idle = (values.get(key) for key in ("peak", "cap", "idle"))
    if peak and idle and idle >= peak:
        found = f"{show(idle, WATTS)} is not below the limit of {show(peak, WATTS)}"
        yield "idle", found, "the draw of a device that does nothing"
    elif peak and cap and "idle" in values:
        floor = Power(peak=peak, idle=values["idle"]).floor
        if cap <= floor:
            found = f"{show(cap, WATTS)} is not above the idle draw of {show(floor, WATTS)}"
            fix = f"a cap between that and the limit of {show(peak, WATTS)}"
            yield "cap", found, fix


@rule(MemoryLevel)
def _bandwidth_is_stated_once(values: Values) -> Broken:
    kind, bandwidth, per_clock = (values.get(key) for key in ("kind", "bandwidth", "per_clock"))
    if bandwidth and per_clock:
        yield "per_clock", "bandwidth is stated too", "keep one of them (null takes one out)"
    elif kind in DRAM and per_clock:
        yield "per_clock", "device memory has a clock of its own", "state 'bandwidth'"
    elif kind in DRAM and "bandwidth" in values and not bandwidth:
        yield "bandwidth", "is missing", "add it, like 'bandwidth: 3.35 TB/s'"


@rule(Accelerator)
def _memory_has_dram(values: Values) -> Broken:
    levels = values.get("memory")
    if levels is None:
        return
    kinds = [level.kind for level in levels]
    if not any(kind in DRAM for kind in kinds):
        yield "memory", "has no device memory", f"add a level of kind {', '.join(DRAM)}"
    for kind in sorted({kind for kind in kinds if kinds.count(kind) > 1}):
        yield "memory", f"has {kinds.count(kind)} levels of kind {kind}", "keep one of each kind"
    dram = [kind for kind in dict.fromkeys(kinds) if kind in DRAM]
    if len(dram) > 1:
        yield "memory", f"has {len(dram)} device memories, {' and '.join(dram)}", "keep one"


@rule(MatmulLibrary, AttentionLibrary)
def _efficiency_has_a_default(values: Values) -> Broken:
    if "default" not in values.get("efficiency", ("default",)):
        yield "efficiency", "has no 'default'", "add one for the other number formats"


@rule(Transformer, UNet)
def _formats_have_a_default(values: Values) -> Broken:
    if "default" not in values.get("formats", ("default",)):
        yield "formats", "has no 'default'", "add one for the other parts"


@rule(Transformer)
def _layers_can_be_counted(values: Values) -> Broken:
    count = sum(group.repeat * len(group.layers) for group in values.get("groups", ()))
    if count > MOST_LAYERS:
        yield "groups", f"has {count:,} layers", f"state at most {MOST_LAYERS:,}"


@rule(UNet)
def _blocks_can_be_counted(values: Values) -> Broken:
    counts = [values.get("middle_transformer_depth", 0)]
    for stage in values.get("stages", ()):
        counts.append(stage.residual_blocks * (1 + stage.transformer_depth))
    if sum(counts) > MOST_LAYERS:
        yield "stages", f"has {sum(counts):,} blocks", f"state at most {MOST_LAYERS:,}"


@rule(Attention)
def _heads_share_evenly(values: Values) -> Broken:
    yield from _divides(values, "heads", "kv_heads", "each KV head serves equally many heads")


@rule(MoE)
def _experts_suffice(values: Values) -> Broken:
    experts, top_k = values.get("experts"), values.get("top_k")
    if experts and top_k and top_k > experts:
        yield "top_k", f"{top_k} of {experts} experts", "choose at most all of them"
    router = values.get("router")
    if experts and router and experts % router.groups:
        found = f"{experts} experts in {router.groups} groups"
        near = [count for count in range(1, min(experts, 64) + 1) if experts % count == 0]
        equal = f"groups of experts are of equal size, so {', '.join(map(str, near))} would do"
        yield "router", found, equal
    shared, width = values.get("shared_experts", 0), values.get("shared_width", 0)
    if bool(shared) != bool(width):
        found = f"{width} for {shared} shared experts"
        yield "shared_width", found, "state both, the width of all of them together"


@rule(MoE)
def _routing_is_known(values: Values) -> Broken:
    yield from routing_faults(values)


@rule(Router)
def _groups_suffice(values: Values) -> Broken:
    groups, top = values.get("groups", 1), values.get("top_groups", 1)
    if top > groups:
        yield "top_groups", f"{top} of {groups} groups", "choose at most all of them"
