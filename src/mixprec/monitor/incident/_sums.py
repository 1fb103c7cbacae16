"""A check sum of a tensor is of its bytes, dtype and shape: equal sums, equal tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["checksum", "checksums"]


def checksum(tensor: Tensor) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of dtype, shape and bytes. **Cost** one copy to the host."""
    local = getattr(tensor, "_local_tensor", tensor).detach().cpu().contiguous()
    total = hashlib.sha256(f"{local.dtype}{tuple(local.shape)}".encode())
    total.update(local.reshape(-1).view(torch.uint8).numpy().tobytes() if local.numel() else b"")
    return total.hexdigest()[:16]


def checksums(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """The check sum of each tensor by name."""
    return {name: checksum(tensor) for name, tensor in tensors.items()}
