"""A few elements, evenly spaced, stand for a tensor: shares are counted on them, for all tensors in a few kernels."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from mixprec.formats import BF16, FP16

__all__ = ["GRADIENT_COUNTS", "counts_of", "gradient_counts", "per_tensor", "sampled"]

GRADIENT_COUNTS = ("zero", "subnormal", "subnormal_bf16", "nonfinite")
"""What `gradient_counts` counts, in order."""


def sampled(tensor: Tensor, elements: int) -> Tensor:
    """About `elements` elements of `tensor` as a one-dimensional view (a copy where there is no such view).

    The stride is odd, so that it does not run down a column of a matrix whose width is a power of 2.
    """
    flat = tensor.detach()
    if not flat.is_contiguous():
        flat = _thinned(flat, elements)
    flat = flat.reshape(-1)
    count = flat.numel()
    return flat if count <= elements else flat[:: -(-count // elements) | 1]


def _thinned(tensor: Tensor, elements: int) -> Tensor:
    """As many leading slices as are needed: a copy of all of it would cost as much as the tensor is large."""
    while tensor.dim() > 1 and tensor.numel() > 16 * elements and tensor.shape[0] > 1:
        tensor = tensor[:: min(tensor.shape[0], max(2, tensor.numel() // (16 * elements)))]
        if tensor.shape[0] == 1:
            tensor = tensor[0]
    return tensor


@functools.lru_cache(maxsize=64)
def _ends(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """The index of the last element of each stretch."""
    return torch.tensor(sizes, device=device).cumsum(0) - 1


def per_tensor(flags: Tensor, sizes: Sequence[int]) -> Tensor:
    """Sums of `flags` (kinds × elements) over consecutive stretches of `sizes`: kinds × tensors, float32.

    Cost: 3 kernels however many tensors there are; a host sync on accelerators when these sizes are new.
    """
    totals = flags.to(torch.float32).cumsum(1)[:, _ends(tuple(sizes), flags.device)]
    return torch.diff(totals, dim=1, prepend=torch.zeros_like(totals[:, :1]))


def gradient_counts(elements: Tensor) -> Tensor:
    """Which of `elements` are of each kind of `GRADIENT_COUNTS`: kinds × elements, bool."""
    magnitude = elements.abs().to(torch.float32)
    zero = magnitude == 0
    return torch.stack(
        (
            zero,
            (magnitude < FP16.tiny) & ~zero,
            (magnitude < BF16.tiny) & ~zero,
            ~(magnitude <= torch.finfo(torch.float32).max),
        )
    )


def counts_of(samples: Sequence[Tensor]) -> Tensor:
    """Tensors × kinds of `GRADIENT_COUNTS`, float32: how many elements of each sample are of each kind.

    Samples are on one device. Cost: about 15 kernels on the samples.
    """
    together = torch.cat([sample.to(torch.float32) for sample in samples])
    return per_tensor(gradient_counts(together), [sample.numel() for sample in samples]).T
