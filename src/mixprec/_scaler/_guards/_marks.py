"""Whether anybody wrote to an optimizer's gradients is seen on a few of its smallest: who they are, which version."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch
from torch import Tensor

SENTINELS = 3
"""Gradients that stand for all of an optimizer's."""

Mark = tuple["weakref.ref[Tensor] | None", int]
"""Which tensor a gradient is (None: there is none), and how often it has been written to in place.

There is one weak reference without a callback per object, so two marks of a tensor hold the same one.
"""

_ABSENT: Mark = (None, 0)


def mark(param: Tensor) -> Mark:
    """The mark of the gradient of `param`. Cost: Python only."""
    grad = param.grad
    return _ABSENT if grad is None else (weakref.ref(grad), grad._version)


def is_same_tensor(before: Mark, after: Mark) -> bool:
    """Whether both marks are of one tensor, which may have been written to between them."""
    return before[0] is after[0] is not None


def untouched(before: Mark, after: Mark) -> bool:
    """Whether a gradient is the same tensor and was not written to, or was absent and still is."""
    return before[0] is after[0] and before[1] == after[1]


@dataclass(frozen=True)
class Sentinels:
    """The parameters whose gradients are marked."""

    params: tuple[Tensor, ...]

    def marks(self) -> list[Mark]:
        """The marks as they are now."""
        return list(map(mark, self.params))


def sentinels_of(params: list[Tensor]) -> Sentinels:
    """The smallest trainable plain parameters; none where there is none, and then nothing is noticed."""
    plain = [p for p in params if p.requires_grad and type(p) in (Tensor, torch.nn.Parameter)]
    return Sentinels(tuple(sorted(plain, key=torch.Tensor.numel)[:SENTINELS]))
