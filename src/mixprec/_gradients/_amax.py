"""The largest magnitude among gradients is exact in every dtype, and NaN if one of them is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from mixprec._gradients._collect import Gradients
from mixprec._gradients._place import moved

_LARGEST = torch.finfo(torch.float32).max


def amax(tensors: Iterable[Tensor]) -> float:
    """The largest magnitude, 0 of nothing. Cost: one read, one host sync per tensor."""
    bounds = [abs(bound) for t in tensors if t.numel() for bound in bounds_of(t)]
    return math.nan if any(math.isnan(bound) for bound in bounds) else max(bounds, default=0.0)


def bounds_of(tensor: Tensor) -> list[float]:
    """Its smallest and its largest element."""
    return [bound.item() for bound in torch.aminmax(tensor)]


def host_amax(gradients: Gradients) -> float:
    """`amax` of gradients whose memory the host reads.

    **Cost**: one read at memory speed, which for float32 is what a norm takes; 1 kernel per tensor of 32768 elements or
    more, the smaller ones together where there is a plan.
    """
    plan = gradients.plan
    return amax(gradients.tensors if plan is None else plan.merged(gradients.tensors))


def waitless_amax(gradients: Gradients, device: torch.device) -> Tensor:
    """`amax` as a 0-dim float32 tensor on `device`; a finite one that float32 cannot hold is its largest number.

    **Cost**: on accelerators 1 to 2 launches per dtype and one read at memory speed; no host sync.
    """
    found = [torch.zeros((), dtype=torch.float32, device=device)]
    for here, part in gradients.by_device().items():
        tensors = [tensor for tensor in part.tensors if tensor.numel()]
        found += [moved(_held(each), device) for each in (_ranges(tensors) if here.type == "cpu" else _norms(tensors))]
    return torch.stack(found).amax()


def _held(number: Tensor) -> Tensor:
    if number.dtype is torch.float64:
        number = torch.where(number.isfinite(), number.clamp(max=_LARGEST), number)
    return number.to(torch.float32)


def _ranges(tensors: Sequence[Tensor]) -> list[Tensor]:
    """By tensor. On CPU an infinity norm runs at a sixtieth of the speed."""
    ranges = [torch.aminmax(tensor) for tensor in tensors]
    return [torch.maximum(low.abs(), high) for low, high in ranges]


def _norms(tensors: Sequence[Tensor]) -> list[Tensor]:
    """By dtype."""
    kinds: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault(tensor.dtype, []).append(tensor)
    return [torch.stack(torch._foreach_norm(alike, math.inf)).amax() for alike in kinds.values()]
