"""Gradients are multiplied in float32 arithmetic at least, so that a small factor is never rounded to a 16-bit zero."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mixprec._gradients._collect import Gradients
from mixprec._gradients._norm import wide
from mixprec._gradients._place import float32, host_number, moved, on_host


def reciprocal(scale: Tensor) -> Tensor:
    """1/`scale` in float32, rounded once. Cost: 1 small kernel on the host, 3 elsewhere; no host sync."""
    if on_host(scale):
        value = host_number(scale)
        return float32(1.0 / value if value else math.inf, scale.device)
    return scale.to(wide(scale.device)).reciprocal().float()


def multiply_(gradients: Gradients, multiplier: Tensor, found_inf: Tensor) -> dict[torch.device, Tensor]:
    """Multiplies `gradients` in place by the 0-dim float32 `multiplier`; what was not finite before sets a flag to 1.

    Returns the flags, one per device of the gradients, each starting from `found_inf`.

    **Cost**: one launch per device and dtype, one read and one write of the gradients. No host sync.
    """
    flags: dict[torch.device, Tensor] = {}
    with torch.no_grad():
        for device, part in gradients.by_device().items():
            flags[device] = found_inf.clone() if found_inf.device == device else moved(found_inf, device)
            factor = moved(multiplier, device)
            for alike in _by_dtype(part.tensors):
                torch._amp_foreach_non_finite_check_and_unscale_(alike, flags[device], factor)
    return flags


def _by_dtype(tensors: list[Tensor]) -> list[list[Tensor]]:
    if len({tensor.dtype for tensor in tensors}) == 1:
        return [tensors]
    kinds: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault(tensor.dtype, []).append(tensor)
    return list(kinds.values())
