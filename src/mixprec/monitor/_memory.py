"""How much memory the process holds: of the accelerator's allocator, or resident where there is none."""

from __future__ import annotations

import os

import torch

__all__ = ["memory"]

_STATM = "/proc/self/statm"
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def memory() -> int | None:
    """Bytes now; None where the system does not tell. **Cost**: one read of a counter or of a small file; no sync."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call] # torch leaves it untyped
        return int(torch.cuda.memory_allocated())
    try:
        with open(_STATM, "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return None
