"""Float32 matrix products and convolutions use all bits of float32, whatever the script asks for."""

from __future__ import annotations

import torch

__all__ = ["apply"]


def apply(value: bool = True) -> None:
    """`value`: is not looked at."""
    torch.set_float32_matmul_precision("highest")
    torch.set_float32_matmul_precision = lambda precision: None  # the intervention itself
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
