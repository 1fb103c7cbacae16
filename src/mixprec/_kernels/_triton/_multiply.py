"""One launch per dtype multiplies all gradients of a device in place, in float32, and notes what was not finite."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton.language as tl
from torch import Tensor

from mixprec._kernels._triton._jit import kernel
from mixprec._kernels._triton._tables import CHUNK, TYPES, batch, launch

__all__ = ["multiply_"]

BLOCK = 2048
WARPS = 8


@kernel("n")
def _multiply(
    chunks: tl.tensor,
    addresses: tl.tensor,
    n: tl.tensor,
    factor: tl.tensor,
    flag: tl.tensor,
    dtype: tl.constexpr,
    aligned: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """One chunk each. All that write the flag write the same."""
    program = tl.program_id(0)
    place = tl.load(chunks + program)
    pointer = tl.load(addresses + place).to(tl.pointer_type(dtype)) + tl.load(chunks + n + program)
    count = tl.load(chunks + 2 * n + program)
    by = tl.load(factor)
    lanes = tl.arange(0, block)
    bad = tl.zeros((block,), tl.int32)
    whole = count - count % block
    for first in range(0, whole, block):
        pointers = pointer + first + lanes
        if aligned:
            pointers = tl.multiple_of(pointers, 16)
        x = tl.load(pointers).to(tl.float32)
        bad = tl.where(tl.abs(x) < float("inf"), bad, 1)
        tl.store(pointers, (x * by).to(dtype))
    pointers = pointer + whole + lanes
    mask = whole + lanes < count
    x = tl.load(pointers, mask=mask, other=0.0).to(tl.float32)
    bad = tl.where(tl.abs(x) < float("inf"), bad, 1)
    tl.store(pointers, (x * by).to(dtype), mask=mask)
    tl.store(flag, 1.0, mask=tl.max(bad, 0) > 0)


def multiply_(
    tensors: Sequence[Tensor], factor: Tensor, flag: Tensor, *, chunk: int = CHUNK, block: int = BLOCK
) -> None:
    """Multiplies `tensors` (dense, one device) in place by the 0-dim float32 `factor`; `flag` becomes 1 if one of their
    elements was not finite before.

    **Cost**: one launch per dtype, one read and one write. No host sync.
    """
    kinds: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault(tensor.dtype, []).append(tensor)
    for dtype, alike in kinds.items():
        each = batch(alike, chunk=chunk)
        if each.programs:
            launch(
                _multiply,
                each.programs,
                flag.device,
                each.chunks,
                each.addresses,
                each.programs,
                factor,
                flag,
                dtype=TYPES[dtype],
                aligned=each.aligned,
                block=block,
                num_warps=WARPS,
            )
    torch.autograd.graph.increment_version(tensors)
