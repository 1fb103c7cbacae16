"""Only deterministic kernels run, where there is one, and uninitialised memory is filled."""

from __future__ import annotations

import os

import torch

__all__ = ["apply"]


def apply(value: bool = True) -> None:
    """`value`: is not looked at."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
