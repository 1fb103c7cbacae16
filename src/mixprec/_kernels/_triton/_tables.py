"""A kernel finds its tensors in tables on the device, and a table whose content lies there already is not sent again.

A table is known by its content, so it can never be out of date: where gradients get the memory that they had before,
as they mostly do from a caching allocator, a step sends nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from mixprec.errors import InvalidValueError

__all__ = ["ALIGNMENT", "CHUNK", "TYPES", "Batch", "aligned", "batch", "chunk_table", "launch", "table"]

CHUNK = 16384
"""Elements that one program works on."""

ALIGNMENT = 16
"""Bytes: the widest load of a GPU thread. Tensors that begin elsewhere are read element by element."""

TYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
"""The dtypes that the kernels read."""


@dataclass(frozen=True)
class Batch:
    """Lists of tensors as a kernel sees them.

    `chunks` is int64 (3, programs): which tensor, the first element in it, how many elements. `addresses` is int64
    (lists × tensors), list after list. `aligned` says that every tensor begins at a multiple of `ALIGNMENT` bytes.
    """

    chunks: Tensor
    addresses: Tensor
    tensors: int
    aligned: bool

    @property
    def programs(self) -> int:
        """How many programs to launch."""
        return self.chunks.shape[1]


def batch(*lists: Sequence[Tensor], chunk: int = CHUNK) -> Batch:
    """The tables for `lists`, whose i-th tensors have equal sizes; all are dense and on one device.

    **Cost**: about 0.1 µs of Python per tensor; two small copies to the device if the tensors moved, no host sync.
    """
    first = lists[0]
    device = first[0].device
    addresses = tuple(tensor.data_ptr() for each in lists for tensor in each)
    sizes = tuple(tensor.numel() for tensor in first)
    chunks = _chunks(sizes, chunk, device, _stream(device))
    return Batch(chunks, table(addresses, torch.int64, device), len(first), aligned(addresses))


def aligned(addresses: Sequence[int]) -> bool:
    """Whether all are multiples of `ALIGNMENT`."""
    return not any(address % ALIGNMENT for address in addresses)


def table(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """`values` on `device`, sent there the first time. Cost: one small copy or none, no host sync."""
    return _sent(values, dtype, device, _stream(device))


def chunk_table(sizes: Sequence[int], chunk: int) -> Tensor:
    """int64 (3, programs) on the host: tensors of `sizes` elements in pieces of `chunk`; empty ones have none."""
    size = torch.tensor(sizes, dtype=torch.int64)
    pieces = (size + chunk - 1) // chunk
    place = torch.repeat_interleave(torch.arange(len(sizes)), pieces)
    start = (torch.arange(len(place)) - (pieces.cumsum(0) - pieces)[place]) * chunk
    return torch.stack((place, start, (size[place] - start).clamp(max=chunk)))


def launch(kernel: Any, programs: int, device: torch.device, *args: Any, **constants: Any) -> None:
    """Starts `programs` programs of a Triton kernel on `device`, compiled to the operations it is written in.

    **Cost**: one launch.
    """
    with _on(device):
        kernel[(programs,)](*args, **constants, enable_fp_fusion=False)


def _on(device: torch.device) -> AbstractContextManager[object]:
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _stream(device: torch.device) -> int:
    """What orders the copies to `device`: a table is used only in the stream that it was sent in."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.current_stream(device).cuda_stream)


@functools.lru_cache(maxsize=64)
def _sent(values: tuple[float, ...], dtype: torch.dtype, device: torch.device, stream: int) -> Tensor:
    return _send(torch.tensor(values, dtype=dtype), device)


@functools.lru_cache(maxsize=16)
def _chunks(sizes: tuple[int, ...], chunk: int, device: torch.device, stream: int) -> Tensor:
    return _send(chunk_table(sizes, chunk), device)


def _send(host: Tensor, device: torch.device) -> Tensor:
    if device.type != "cuda":
        return host.to(device)
    if torch.cuda.is_current_stream_capturing():
        advice = "What a graph captures runs later, and the tables of addresses would be filled only then."
        raise InvalidValueError("kernels", "triton", "'foreach' while a CUDA graph is captured", advice)
    return host.pin_memory().to(device, non_blocking=True)
