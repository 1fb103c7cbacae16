"""A cast is an op that gives its input in another floating-point dtype, whoever asked for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass
class Casts:
    """How many, and the bytes that they wrote."""

    count: int = 0
    bytes: int = 0


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.casts = Casts()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default and _differ(args[0], result):
            self.casts.count += 1
            self.casts.bytes += result.numel() * result.element_size()
        return result


def counted_casts(program: Callable[[], object]) -> Casts:
    """The casts in one call of `program`, those of its backward pass included."""
    counter = _Counter()
    with counter:
        program()
    return counter.casts


def _differ(source: Tensor, result: Tensor) -> bool:
    return source.dtype is not result.dtype and source.is_floating_point() and result.is_floating_point()
