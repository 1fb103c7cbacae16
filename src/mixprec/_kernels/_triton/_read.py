"""Two launches read all gradients of a device once and end with every number that a step needs, in a fixed order.

Each program adds up the squares of its chunk in float64, where no gradient of up to 32 bits can overflow, and leaves
three numbers. One program adds these up, always in the same order, and does a step's arithmetic on the sum. So a sum
that is not finite proves an element that is not, and the same gradients give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton.language as tl
from torch import Tensor

from mixprec._gradients._read import CLIP_EPSILON
from mixprec._kernels._triton._jit import kernel
from mixprec._kernels._triton._tables import CHUNK, TYPES, batch, launch, table

__all__ = ["LIMITS", "Numbers", "read"]

BLOCK = 2048
WARPS = 8

LIMITS = {
    torch.float32: math.inf,
    torch.bfloat16: (2.0 - 2.0**-8) * 2.0**127,
    torch.float16: 65520.0,
}
"""The smallest float32 magnitude that rounds to infinity in each dtype."""

_LARGEST = tl.constexpr((2.0 - 2.0**-23) * 2.0**127)
"""The largest float32."""


@dataclass(frozen=True)
class Numbers:
    """What the gradients of one device amount to; all 0-dim on it, float64 but for the last three, which are float32.

    `square_sum` and `largest` are of the gradients as they are, scaled or not; `norm` is that of the unscaled ones.
    `found_inf` is 1 if an unscaled gradient is not finite, else 0; so is `flag`. `divisor` is scale / coefficient,
    `multiplier` is coefficient / scale.
    """

    square_sum: Tensor
    largest: Tensor
    found_inf: Tensor
    norm: Tensor
    coefficient: Tensor
    flag: Tensor
    divisor: Tensor
    multiplier: Tensor


@kernel()
def _add(x: tl.tensor, squares: tl.tensor, largest: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Takes elements into the running sums of their lanes."""
    wide = x.to(tl.float64)
    return squares + wide * wide, tl.maximum(largest, tl.abs(x.to(tl.float32)))


@kernel("n", "total", "before")
def _partial(
    chunks: tl.tensor,
    addresses: tl.tensor,
    n: tl.tensor,
    shares: tl.tensor,
    scale: tl.tensor,
    partials: tl.tensor,
    total: tl.tensor,
    before: tl.tensor,
    dtype: tl.constexpr,
    limit: tl.constexpr,
    has_shares: tl.constexpr,
    has_scale: tl.constexpr,
    aligned: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Square sum, largest magnitude, and whether that is too large once divided by the scale, of one chunk each."""
    program = tl.program_id(0)
    place = tl.load(chunks + program)
    pointer = tl.load(addresses + place).to(tl.pointer_type(dtype)) + tl.load(chunks + n + program)
    count = tl.load(chunks + 2 * n + program)
    lanes = tl.arange(0, block)
    squares = tl.zeros((block,), tl.float64)
    largest = tl.zeros((block,), tl.float32)
    whole = count - count % block
    for first in range(0, whole, block):
        pointers = pointer + first + lanes
        if aligned:
            pointers = tl.multiple_of(pointers, 16)
        squares, largest = _add(tl.load(pointers), squares, largest)
    x = tl.load(pointer + whole + lanes, mask=whole + lanes < count, other=0.0)
    squares, largest = _add(x, squares, largest)

    square_sum = tl.sum(squares, 0)
    if has_shares:
        square_sum *= tl.load(shares + place)
    peak = tl.max(largest, 0).to(tl.float64)
    quotient = peak
    if has_scale:
        quotient = peak / tl.load(scale).to(tl.float64)
    quotient = quotient.to(tl.float32)
    column = partials + before + program
    tl.store(column, square_sum)
    tl.store(column + total, peak)
    tl.store(column + 2 * total, tl.where(quotient < limit, 0.0, 1.0))


@kernel("total")
def _finish(
    partials: tl.tensor,
    total: tl.tensor,
    scale: tl.tensor,
    clip: tl.tensor,
    wide: tl.tensor,
    narrow: tl.tensor,
    has_scale: tl.constexpr,
    clips: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """One program: the partial numbers of all chunks as one, and a step's arithmetic on them."""
    lanes = tl.arange(0, block)
    squares = tl.zeros((block,), tl.float64)
    peaks = tl.zeros((block,), tl.float64)
    flags = tl.zeros((block,), tl.float64)
    for first in range(0, total, block):
        mask = first + lanes < total
        columns = partials + first + lanes
        squares += tl.load(columns, mask=mask, other=0.0)
        peaks = tl.maximum(peaks, tl.load(columns + total, mask=mask, other=0.0))
        flags = tl.maximum(flags, tl.load(columns + 2 * total, mask=mask, other=0.0))
    square_sum = tl.sum(squares, 0)
    finite = (square_sum < float("inf")) & (tl.max(flags, 0) == 0.0)
    found = tl.where(finite, 0.0, 1.0)

    norm = tl.sqrt(square_sum)
    divisor = tl.full((), 1.0, tl.float64)
    if has_scale:
        divisor = tl.load(scale).to(tl.float64)
        norm = norm / divisor
    coefficient = tl.full((), 1.0, tl.float64)
    if clips:
        wanted = tl.load(clip) / (norm + tl.load(clip + 1))
        coefficient = tl.where(finite, tl.minimum(wanted, coefficient), coefficient)
    multiplier = (1.0 / divisor) * coefficient
    divisor = tl.minimum(divisor / coefficient, _LARGEST)

    tl.store(wide, square_sum)
    tl.store(wide + 1, tl.where(square_sum == square_sum, tl.max(peaks, 0), square_sum))
    tl.store(wide + 2, found)
    tl.store(wide + 3, norm)
    tl.store(wide + 4, coefficient)
    tl.store(narrow, found)
    tl.store(narrow + 1, divisor)
    tl.store(narrow + 2, multiplier)


def read(
    tensors: Sequence[Tensor],
    shares: Sequence[float] | None = None,
    scale: Tensor | None = None,
    max_norm: float | None = None,
    *,
    chunk: int = CHUNK,
    block: int = BLOCK,
) -> Numbers:
    """Reads `tensors` (float32, float16, bfloat16 in any mix; one device) once.

    `shares` are what part of each tensor's square sum counts here, None all of it. `scale` is a 0-dim tensor that the
    gradients carry; None means that they are unscaled. `max_norm` of None clips nothing.

    **Cost**: one launch per dtype and one more; 24 bytes of memory per 16384 elements. No host sync. Tensors with gaps
    are copied first.
    """
    device = tensors[0].device
    groups = _by_dtype(tensors, shares)
    batches = [batch(group.tensors, chunk=chunk) for group in groups]
    total = sum(each.programs for each in batches)
    partials = torch.empty((3, total), dtype=torch.float64, device=device)
    wide = torch.empty(5, dtype=torch.float64, device=device)
    narrow = torch.empty(3, dtype=torch.float32, device=device)
    before = 0
    for group, each in zip(groups, batches, strict=True):
        if each.programs:
            known = None if group.shares is None else table(group.shares, torch.float64, device)
            launch(
                _partial,
                each.programs,
                device,
                each.chunks,
                each.addresses,
                each.programs,
                partials if known is None else known,
                wide if scale is None else scale,
                partials,
                total,
                before,
                dtype=TYPES[group.dtype],
                limit=LIMITS[group.dtype],
                has_shares=known is not None,
                has_scale=scale is not None,
                aligned=each.aligned,
                block=block,
                num_warps=WARPS,
            )
            before += each.programs
    clip = None if max_norm is None else table((max_norm, CLIP_EPSILON), torch.float64, device)
    launch(
        _finish,
        1,
        device,
        partials,
        total,
        wide if scale is None else scale,
        wide if clip is None else clip,
        wide,
        narrow,
        has_scale=scale is not None,
        clips=clip is not None,
        block=block // 2,
        num_warps=WARPS,
    )
    return Numbers(*wide.unbind(), *narrow.unbind())


@dataclass(frozen=True)
class _Group:
    dtype: torch.dtype
    tensors: list[Tensor]
    shares: tuple[float, ...] | None


def _by_dtype(tensors: Sequence[Tensor], shares: Sequence[float] | None) -> list[_Group]:
    places: dict[torch.dtype, list[int]] = {}
    for place, tensor in enumerate(tensors):
        places.setdefault(tensor.dtype, []).append(place)
    return [
        _Group(dtype, [tensors[place] for place in mine], None if shares is None else tuple(shares[p] for p in mine))
        for dtype, mine in places.items()
    ]
