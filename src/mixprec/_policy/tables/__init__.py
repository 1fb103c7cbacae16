"""PyTorch's own op lists, one file per device."""

from __future__ import annotations

from types import MappingProxyType

from mixprec._policy.tables import cpu, cuda, mps, xpu
from mixprec._policy.tables.group import Group, release, rows

__all__ = ["DEVICES", "Group", "release", "rows"]

DEVICES = MappingProxyType({"cpu": cpu.GROUPS, "cuda": cuda.GROUPS, "mps": mps.GROUPS, "xpu": xpu.GROUPS})
"""Device type -> PyTorch's list for it."""
