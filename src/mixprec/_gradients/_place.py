"""A number moves to the host only when it has arrived: a copy that is not waited for is never read there."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def on_host(tensor: Tensor) -> bool:
    """Whether the host can read `tensor` without waiting for anything."""
    return tensor.is_cpu and not torch.compiler.is_compiling()


def host_number(tensor: Tensor) -> float:
    """A 0-dim tensor as a Python float: a memory read where it lies on the host, a sync elsewhere."""
    value: float = tensor.tolist()  # type: ignore[assignment] # a 0-dim tensor's list is its number
    return value


def float32(number: float, device: torch.device) -> Tensor:
    """`number` as a 0-dim float32 tensor; infinite where float32 cannot hold it. Cost: 1 small kernel."""
    if abs(number) > _LARGEST:
        number = math.copysign(math.inf, number)
    return torch.full((), number, dtype=torch.float32, device=device)


_LARGEST = torch.finfo(torch.float32).max


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """`tensor` on `device`, itself if it is there. Waits only for a copy to the host, whose memory is read at once."""
    return tensor if tensor.device == device else tensor.to(device, non_blocking=device.type != "cpu")
