"""Our own lists, one file each. They hold on every device."""

from __future__ import annotations

from types import MappingProxyType

from mixprec._policy.named import careful, lean, uniform

__all__ = ["NAMED"]

NAMED = MappingProxyType({"uniform": uniform.GROUPS, "lean": lean.GROUPS, "careful": careful.GROUPS})
"""Name -> the groups of that list."""
