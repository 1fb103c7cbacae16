"""Between units of two dtypes stands a door: a cast on the way in or out that is part of the graph when one is made."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

__all__ = ["Entrance", "Exit", "cast"]


def cast(values: Any, dtype: torch.dtype) -> Any:
    """`values`, any nest, with its floating-point tensors in `dtype`; the same object where nothing is to be cast."""
    return pytree.tree_map_only(
        Tensor, lambda t: t.to(dtype) if t.is_floating_point() and t.dtype != dtype else t, values
    )


class Entrance:
    """A forward pre-hook that brings inputs to `dtype`. `used` says whether it ever had something to cast."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.used = False

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """As torch calls it."""
        given = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t.is_floating_point()]
        if all(t.dtype == self.dtype for t in given):
            return args, kwargs
        if not torch.compiler.is_compiling():
            self.used = True
        return cast(args, self.dtype), cast(kwargs, self.dtype)


class Exit:
    """A forward hook that brings float32 results to `dtype`."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        """As torch calls it."""
        return cast(output, self.dtype)
