"""What tensors hold, in as few kernels and host syncs as will do; call within `quiet`."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from mixprec._trace import tensors_in
from mixprec.records import TensorStats

__all__ = [
    "TINY",
    "dense",
    "dtype_name",
    "extents",
    "fingerprint",
    "first_tensors",
    "floats",
    "global_norm",
    "sample",
    "shares",
    "stats",
]

TINY = {torch.float16: 2.0**-14, torch.bfloat16: 2.0**-126, torch.float32: 2.0**-126, torch.float64: 2.0**-1022}
SAMPLED = 1 << 14
"""Elements looked at where a share is enough, of each tensor."""

MOST = 64
"""Tensors of one call that are looked at."""


def dtype_name(dtype: torch.dtype) -> str:
    """`float16` for `torch.float16`."""
    return str(dtype).removeprefix("torch.")


def dense(tensor: Tensor) -> Tensor:
    """The local values of a sparse or distributed tensor; complex numbers as pairs."""
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.layout is not torch.strided:
        tensor = tensor.coalesce().values() if tensor.layout is torch.sparse_coo else tensor.to_dense()
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def first_tensors(value: Any) -> list[Tensor]:
    """The tensors in what a module takes or returns, at most 64."""
    return list(itertools.islice(tensors_in(value), MOST))


def extents(tensors: Sequence[Tensor]) -> list[float]:
    """The largest magnitude of each floating-point tensor, inf or nan where it holds one; one sync."""
    ends = [torch.stack(torch.aminmax(local)).float() for t in tensors if (local := dense(t)).numel()]
    if not ends:
        return []
    return [_amax(low, high) for low, high in torch.stack([pair.cpu() for pair in ends]).tolist()]


def _amax(low: float, high: float) -> float:
    return math.nan if math.isnan(low) or math.isnan(high) else max(abs(low), abs(high))


def global_norm(tensors: Iterable[Tensor]) -> float:
    """The 2-norm of all elements together, accumulated in float32 per tensor and float64 across them."""
    local = [dense(t) for t in tensors]
    by_kind: dict[Any, list[Tensor]] = {}
    for tensor in local:
        if tensor.numel():
            by_kind.setdefault((tensor.device, tensor.dtype), []).append(tensor)
    total = 0.0
    for group in by_kind.values():
        wide = torch.float64 if group[0].dtype is torch.float64 else torch.float32
        norms = torch.stack(list(torch._foreach_norm(group, 2, dtype=wide))).double()
        total += float((norms * norms).sum().item())
    return math.sqrt(total) if not math.isnan(total) else math.nan


def sample(tensor: Tensor, count: int = SAMPLED) -> Tensor:
    """Up to `count` elements, evenly spread."""
    flat = dense(tensor).reshape(-1)
    return flat[:: max(1, flat.numel() // count)][:count]


def shares(tensors: Iterable[Tensor], tiny: float) -> tuple[float, float] | None:
    """Which share of (sampled) elements is 0, and which is not but is smaller than `tiny`; None without elements."""
    parts = [sample(t, SAMPLED // 4).abs().float() for t in tensors]
    parts = [part for part in parts if part.numel()]
    if not parts:
        return None
    values = torch.cat([part.cpu() for part in parts])
    zero = values == 0
    small = (values < tiny) & ~zero
    zeros, smalls = torch.stack([zero.float().mean(), small.float().mean()]).tolist()
    return zeros, smalls


def stats(tensor: Tensor) -> TensorStats:
    """Every number that a `TensorStats` holds; of an integer tensor its shape and largest magnitude."""
    local = dense(tensor)
    kind, shape = dtype_name(tensor.dtype), tuple(tensor.shape)
    if not local.numel() or local.device.type == "meta":
        return TensorStats(kind, shape, tensor.numel())
    if not local.is_floating_point():
        return TensorStats(kind, shape, tensor.numel(), amax=float(local.double().abs().max().item()))
    values = local.double()
    size = values.abs()
    finite = values.isfinite()
    rest = torch.where(finite, size, 0.0)
    small = (rest > 0) & (rest < TINY.get(local.dtype, 0.0))
    low = torch.where(rest > 0, rest, math.inf).min()
    read = torch.stack(
        [
            ((size == 0).sum()).double(),
            small.sum().double(),
            values.isinf().sum().double(),
            values.isnan().sum().double(),
            rest.max(),
            low,
        ]
    ).tolist()
    zeros, subnormals, infs, nans = (int(number) for number in read[:4])
    return TensorStats(
        kind, shape, tensor.numel(), zeros, subnormals, infs, nans, read[4], 0.0 if math.isinf(read[5]) else read[5]
    )


def fingerprint(tensors: Iterable[Tensor]) -> str:
    """A short hash of shapes, dtypes and up to 4096 sampled elements of each."""
    digest = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        digest.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
        values = sample(tensor, 4096).cpu()
        values = values.double() if values.is_floating_point() else values
        digest.update(values.contiguous().view(torch.uint8).numpy().tobytes() if values.numel() else b"")
    return digest.hexdigest()


def floats(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Those that hold floating-point numbers and have memory."""
    return (t for t in tensors if t.is_floating_point() and t.device.type != "meta")
