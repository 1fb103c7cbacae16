"""PyTorch's autocast list for Intel GPUs is the shared one."""

from __future__ import annotations

from mixprec._policy.tables import shared

__all__ = ["GROUPS"]

GROUPS = shared.GROUPS
