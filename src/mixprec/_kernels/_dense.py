"""A kernel that walks through memory may do so where elements lie without gaps, in whatever order."""

from __future__ import annotations

from torch import Tensor

__all__ = ["alike", "dense"]


def dense(tensor: Tensor) -> bool:
    """Whether the elements of `tensor` fill their memory without gaps or overlaps. Cost: Python only."""
    if tensor.is_contiguous():
        return True
    expected = 1
    steps = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1)
    for stride, size in steps:
        if stride != expected:
            return False
        expected *= size
    return True


def alike(first: Tensor, *others: Tensor) -> bool:
    """Whether all are dense and have the layout of `first`, so that equal places in memory are equal elements."""
    stride, shape = first.stride(), first.shape
    return dense(first) and all(other.stride() == stride and other.shape == shape for other in others)
