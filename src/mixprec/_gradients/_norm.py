"""The square sum of gradients is exact to about 1e-9 whatever their number, and finite whenever they all are.

Float32 accumulation over one long row loses digits: on 8.4 M normal numbers `torch.linalg.vector_norm` is 2.3e-4 too
small on CPU (torch 2.13). Rows of 4096 in float32, added up in float64, are 4e-10 off at the same speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from mixprec._gradients._collect import Gradients

ROW = 4096
"""Elements that are added up in float32 before float64 takes over."""

SMALL = 32768
"""Below this many elements, copying tensors into one costs less than a kernel for each."""

PIECE = 1 << 22
"""Elements of a 16-bit tensor that are converted to float32 at a time: 16 MiB of memory."""

_NARROW = (torch.float16, torch.bfloat16)

_Total: TypeAlias = Callable[[Sequence[Tensor]], Tensor]


def wide(device: torch.device) -> torch.dtype:
    """The widest floating dtype of a device: float64, and float32 on MPS, which has no other."""
    return torch.float32 if device.type == "mps" else torch.float64


def square_sum(gradients: Gradients, device: torch.device) -> Tensor:
    """Sum of squares of all elements, 0-dim float64 on `device`, in one read; inf if a float32 row overflows.

    **Cost**: one read of the gradients at memory speed; 2 kernels per tensor of 32768 elements or more, the smaller
    ones together. No host sync.
    """
    return _by_share(gradients, device, _row_square_sum)


def wide_square_sum(gradients: Gradients, device: torch.device) -> Tensor:
    """Sum of squares accumulated in float64: it is finite exactly if every element of less than 64 bits is.

    **Cost**: on accelerators 1 to 2 launches per dtype and one read at memory speed, no host sync; on CPU about 30
    times as slow as `square_sum`.
    """
    return _by_share(gradients, device, _foreach_square_sum)


def host_number(tensor: Tensor) -> float:
    """A 0-dim tensor as a Python float: a memory read where it lies on the host, a sync elsewhere."""
    value: float = tensor.tolist()  # type: ignore[assignment] # a 0-dim tensor's list is its number
    return value


def look_again(gradients: Gradients) -> tuple[bool, float]:
    """(every element is finite, the sum of squares), exact where `square_sum` overflowed.

    The sum is inf where float64 cannot hold it, which takes a norm above 1e154. Cost: host syncs, 2 reads.
    """
    if not all(math.isfinite(bound) for t in gradients.tensors if t.numel() for bound in _range(t)):
        return False, math.inf
    shares = gradients.shares or [1.0] * len(gradients.tensors)
    norms = [torch.linalg.vector_norm(t, dtype=wide(t.device)).item() for t in gradients.tensors]
    return True, sum(share * norm * norm for share, norm in zip(shares, norms, strict=True))


def amax(tensors: Iterable[Tensor]) -> float:
    """The largest magnitude, NaN if there is a NaN, 0 of nothing. Cost: one read, one host sync per tensor."""
    bounds = [abs(bound) for t in tensors if t.numel() for bound in _range(t)]
    return math.nan if any(math.isnan(bound) for bound in bounds) else max(bounds, default=0.0)


def _range(tensor: Tensor) -> list[float]:
    return [bound.item() for bound in torch.aminmax(tensor)]


def _by_share(gradients: Gradients, device: torch.device, total: _Total) -> Tensor:
    if not gradients.tensors:
        return torch.zeros((), dtype=wide(device), device=device)
    parts = [
        _weighted(part, total).to(device, non_blocking=True) for part in gradients.by_device().values() if part.tensors
    ]
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum()


def _weighted(gradients: Gradients, total: _Total) -> Tensor:
    if gradients.shares is None:
        return total(gradients.tensors)
    kinds: dict[float, list[Tensor]] = {}
    for tensor, share in zip(gradients.tensors, gradients.shares, strict=True):
        kinds.setdefault(share, []).append(tensor)
    parts = [total(tensors) if share == 1.0 else total(tensors) * share for share, tensors in kinds.items()]
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum()


def _row_square_sum(tensors: Sequence[Tensor]) -> Tensor:
    small: dict[torch.dtype, list[Tensor]] = {}
    rows: list[Tensor] = []
    for tensor in tensors:
        if tensor.numel() < SMALL:
            small.setdefault(tensor.dtype, []).append(tensor)
        else:
            _add_row_norms(rows, tensor)
    for alike in small.values():
        _add_row_norms(rows, torch._C._nn.flatten_dense_tensors(alike) if len(alike) > 1 else alike[0])
    return _square_sum_of_norms(rows)


def _square_sum_of_norms(rows: list[Tensor]) -> Tensor:
    norms = rows[0].reshape(-1) if len(rows) == 1 else torch.cat([norms.reshape(-1) for norms in rows])
    norms = norms.to(wide(norms.device))
    return torch.dot(norms, norms)


def _add_row_norms(rows: list[Tensor], tensor: Tensor) -> None:
    if tensor.dtype in _NARROW:
        for piece in torch.split(tensor.reshape(-1), PIECE):
            _add_row_norms(rows, piece.float())
        return
    if tensor.numel() <= ROW:
        rows.append(torch.linalg.vector_norm(tensor))
        return
    if not tensor.is_contiguous():
        rows.append(torch.linalg.vector_norm(tensor, dim=-1))
        return
    flat = tensor.view(-1)
    whole = flat.numel() // ROW * ROW
    rows.append(torch.linalg.vector_norm(flat[:whole].view(-1, ROW), dim=1))
    if whole < flat.numel():
        rows.append(torch.linalg.vector_norm(flat[whole:]))


def _foreach_square_sum(tensors: Sequence[Tensor]) -> Tensor:
    kinds: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault(tensor.dtype, []).append(tensor)
    dtype = wide(tensors[0].device)
    norms = [norm for alike in kinds.values() for norm in torch._foreach_norm(alike, 2, dtype=dtype)]
    stacked = torch.stack(norms)
    return torch.dot(stacked, stacked)
