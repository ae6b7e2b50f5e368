"""What fills the memory of one device, part by part. Data alone."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPart:
    """One thing that occupies device memory, with the formula that sized it."""

    name: str
    bytes: Bytes
    formula: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Device memory against its capacity."""

    parts: tuple[MemoryPart, ...]
    capacity: Bytes

    @property
    def total(self) -> Bytes:
        """Bytes that must be resident."""
        return sum(part.bytes for part in self.parts)
