"""Scaled dot-product attention runs as plain matrix products and a softmax."""

from __future__ import annotations

import torch

__all__ = ["apply"]


def apply(value: bool = True) -> None:
    """`value`: is not looked at. A script that chooses a kernel itself afterwards gets it."""
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_math_sdp(True)
    if hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        torch.backends.cuda.enable_cudnn_sdp(False)
