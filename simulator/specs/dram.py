"""One generation of device memory: how a stack is cut into channels and banks, and its timing.

What a memory standard fixes, whatever device it sits beside; stacks, bandwidth and height are the
device's. Knows numbers and their sources. Never touches accelerators or formulas.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from simulator.specs.fields import Checked, Count
from simulator.specs.hardware import Origins
from simulator.units import BitsPerSecond, Bytes, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Dram(Checked):
    """Geometry and timing of one memory generation, per pseudo-channel (GDDR, DDR: channel)."""

    name: str
    """The kind of memory level that it describes, such as hbm3."""
    description: str = ""
    pseudo_channels: Count
    """Pseudo-channels of one stack; channels of one chip or module where there are no stacks."""
    width: Count
    """Data bits of one pseudo-channel."""
    pin_rate: BitsPerSecond
    """Where the device states neither its stacks nor its pin rate."""
    burst: Bytes
    page: Bytes
    """What one activation opens."""
    bank_groups: Count
    banks: Count
    """Banks of one group."""
    stack_ids: Count = 1
    """Ranks of banks behind one pseudo-channel (stack ids, ranks)."""
    refresh: Literal["per_bank", "all_bank"]
    """Whether one bank or all of them stand still for a refresh."""
    row_cycle: Seconds
    """tRC: activation to activation of one bank."""
    row_active: Seconds
    """tRAS: activation to precharge."""
    row_read: Seconds
    """tRCD of a read: activation to column command."""
    row_write: Seconds
    """tRCD of a write."""
    precharge: Seconds
    """tRP."""
    read_precharge: Seconds
    """tRTP: read to precharge."""
    write_recovery: Seconds
    """tWR: end of written data to precharge."""
    write_latency: Seconds
    """CWL: write command to data."""
    column_group: Seconds
    """tCCD_L: column commands of one bank group."""
    column_stack: Seconds | None = None
    """tCCD_R: column commands of two stack ids; None: as of two bank groups."""
    activate: Seconds
    """tRRD_S: activations of two bank groups."""
    activate_group: Seconds
    """tRRD_L: activations of one bank group."""
    four_activates: Seconds
    """tFAW: the window that holds at most four activations."""
    write_read: Seconds
    """tWTR_S: end of written data to a read command."""
    read_write: Seconds
    """tRTW: read command to write command."""
    refresh_interval: Seconds
    """tREFI: between two refreshes of every bank."""
    refresh_all: Seconds
    """tRFC: one refresh of all banks."""
    refresh_bank: Seconds
    """tRFCpb: one refresh of one bank."""
    provenance: Origins = field(default=(), compare=False)
