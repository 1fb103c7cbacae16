"""The square sum of gradients is exact to a few float32 roundings whatever their number, and finite if they all are.

Float32 accumulation over one long row loses digits: on 8.4 M normal numbers `torch.linalg.vector_norm` is 2.3e-4 too
small on CPU (torch 2.13). Rows of 2048 in float32, added up in float64, are below 1e-9 off at the same speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from mixprec._gradients._amax import bounds_of
from mixprec._gradients._collect import Gradients
from mixprec._gradients._place import host_number, moved
from mixprec._gradients._plan import SMALL, Plan

ROW = 2048
"""Elements that are added up in float32 before float64 takes over."""

FEW_NORMS = 256
"""Up to so many norms, Python adds their squares up sooner than three kernels do."""

PIECE = 1 << 22
"""Elements of a 16-bit tensor that are converted to float32 at a time: 16 MiB of memory."""

_NARROW = (torch.float16, torch.bfloat16)

_Total: TypeAlias = "Callable[[Sequence[Tensor], Plan | None], Tensor]"


def wide(device: torch.device) -> torch.dtype:
    """The widest floating dtype of a device: float64, and float32 on MPS, which has no other."""
    return torch.float32 if device.type == "mps" else torch.float64


def square_sum(gradients: Gradients, device: torch.device) -> Tensor:
    """Sum of squares of all elements, 0-dim on `device`, in one read; inf if float32 overflows in one of its rows.

    **Cost**: one read of the gradients at memory speed; 2 kernels per tensor of 32768 elements or more, the smaller
    ones together. No host sync.
    """
    return _by_share(gradients, device, _row_square_sum)


def host_square_sum(gradients: Gradients) -> float:
    """`square_sum` as a Python float, for gradients whose memory the host reads."""
    if gradients.shares is not None or gradients.plan is None:
        return host_number(square_sum(gradients, gradients.tensors[0].device))
    block = gradients.plan.block
    if block is not None:
        torch._foreach_copy_(block.views, gradients.tensors)
        return sum([host_number(torch.dot(piece, piece)) for piece in block.pieces])
    rows = _row_norms(gradients.tensors, gradients.plan)
    if sum(norm.numel() for norm in rows) > FEW_NORMS:
        return host_number(_square_sum_of_norms(rows))
    numbers: list[float] = [number for norm in rows for number in norm.reshape(-1).tolist()]
    return sum(number * number for number in numbers)


def wide_square_sum(gradients: Gradients, device: torch.device) -> Tensor:
    """Sum of squares accumulated in float64: it is finite exactly if every element of less than 64 bits is.

    **Cost**: on accelerators 1 to 2 launches per dtype and one read at memory speed, no host sync. Gradients in the
    host's memory beside them are added up as `square_sum` does.
    """
    return _by_share(gradients, device, _foreach_square_sum)


def look_again(gradients: Gradients) -> tuple[bool, float]:
    """(every element is finite, the sum of squares), exact where `square_sum` overflowed.

    The sum is inf where float64 cannot hold it, which takes a norm above 1e154. Cost: host syncs, 2 reads.
    """
    if not all(math.isfinite(bound) for t in gradients.tensors if t.numel() for bound in bounds_of(t)):
        return False, math.inf
    shares = gradients.shares or [1.0] * len(gradients.tensors)
    norms = [torch.linalg.vector_norm(t, dtype=wide(t.device)).item() for t in gradients.tensors]
    return True, sum(share * norm * norm for share, norm in zip(shares, norms, strict=True))


def _by_share(gradients: Gradients, device: torch.device, total: _Total) -> Tensor:
    parts = [
        moved(_weighted(part, total if here == device else _on_its_own_device(here, total)), device)
        for here, part in gradients.by_device().items()
        if part.tensors
    ]
    if not parts:
        return torch.zeros((), dtype=wide(device), device=device)
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum()


def _on_its_own_device(device: torch.device, total: _Total) -> _Total:
    """How to add up what lies elsewhere: in the host's memory the host may look, which is faster than float64 there."""
    return _exact_square_sum if device.type == "cpu" else total


def _exact_square_sum(tensors: Sequence[Tensor], plan: Plan | None) -> Tensor:
    total = _row_square_sum(tensors, plan)
    if math.isfinite(host_number(total)):
        return total
    return torch.tensor(look_again(Gradients(list(tensors)))[1], dtype=torch.float64)


def _weighted(gradients: Gradients, total: _Total) -> Tensor:
    if gradients.shares is None:
        return total(gradients.tensors, gradients.plan)
    kinds: dict[float, list[Tensor]] = {}
    for tensor, share in zip(gradients.tensors, gradients.shares, strict=True):
        kinds.setdefault(share, []).append(tensor)
    parts = [total(t, None) if share == 1.0 else total(t, None) * share for share, t in kinds.items()]
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum()


def _row_square_sum(tensors: Sequence[Tensor], plan: Plan | None) -> Tensor:
    return _square_sum_of_norms(_row_norms(tensors, plan))


def _square_sum_of_norms(rows: list[Tensor]) -> Tensor:
    norms = rows[0].reshape(-1) if len(rows) == 1 else torch.cat([norms.reshape(-1) for norms in rows])
    norms = norms.to(wide(norms.device))
    return torch.dot(norms, norms)


def _row_norms(tensors: Sequence[Tensor], plan: Plan | None) -> list[Tensor]:
    """Norms of pieces of `tensors` that are short enough for float32 to add up exactly enough."""
    rows: list[Tensor] = []
    for tensor in _merged(tensors) if plan is None else plan.merged(list(tensors)):
        _add_row_norms(rows, tensor)
    return rows


def _merged(tensors: Sequence[Tensor]) -> list[Tensor]:
    """All elements of `tensors`: the large ones as they are, small ones of a dtype put together."""
    kinds: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        if tensor.numel() < SMALL:
            kinds.setdefault(tensor.dtype, []).append(tensor)
    small = [k[0] if len(k) == 1 else torch._C._nn.flatten_dense_tensors(k) for k in kinds.values()]
    return [tensor for tensor in tensors if tensor.numel() >= SMALL] + small


def _add_row_norms(rows: list[Tensor], tensor: Tensor) -> None:
    if tensor.dtype in _NARROW:
        for piece in torch.split(tensor.reshape(-1), PIECE):
            _add_row_norms(rows, piece.float())
    elif tensor.numel() <= ROW:
        rows.append(torch.linalg.vector_norm(tensor))
    else:
        flat = _in_memory_order(tensor)
        whole = flat.numel() // ROW * ROW
        rows.append(torch.linalg.vector_norm(flat[:whole].view(-1, ROW), dim=1))
        if whole < flat.numel():
            rows.append(torch.linalg.vector_norm(flat[whole:]))


def _in_memory_order(tensor: Tensor) -> Tensor:
    """All elements in one dimension, as they lie; copied only if there are gaps between them."""
    if not tensor.is_contiguous():
        tensor = tensor.permute(sorted(range(tensor.ndim), key=tensor.stride, reverse=True))
    return tensor.reshape(-1)


def _foreach_square_sum(tensors: Sequence[Tensor], plan: Plan | None) -> Tensor:
    kinds: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault(tensor.dtype, []).append(tensor)
    dtype = wide(tensors[0].device)
    norms = [norm for alike in kinds.values() for norm in torch._foreach_norm(alike, 2, dtype=dtype)]
    stacked = torch.stack(norms)
    return torch.dot(stacked, stacked)
