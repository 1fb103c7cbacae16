"""Every 16-bit dtype that the script names (`.half()`, `dtype=torch.bfloat16`) is "fp32", "bf16" or "fp16" instead.

So a script that converts its parameters by hand has a control as well. In the main thread; code that compares dtypes
sees the one that it really got.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from mixprec.doctor.interventions.precision import DTYPES

__all__ = ["apply"]

LOW = (torch.float16, torch.bfloat16)


class _Exchange(TorchFunctionMode):
    """Calls with a 16-bit dtype among their arguments get `dtype` instead."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.methods: dict[Any, Callable[..., Any]] = {
            torch.Tensor.half: lambda tensor, *rest, **more: tensor.to(dtype),
            torch.Tensor.bfloat16: lambda tensor, *rest, **more: tensor.to(dtype),
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        func = self.methods.get(func, func)
        args = tuple(self.dtype if isinstance(arg, torch.dtype) and arg in LOW else arg for arg in args)
        kwargs = {
            key: self.dtype if isinstance(arg, torch.dtype) and arg in LOW else arg
            for key, arg in (kwargs or {}).items()
        }
        return func(*args, **kwargs)


def apply(value: str) -> None:
    """`value`: "fp32", "bf16" or "fp16"."""
    dtype = DTYPES[value]
    _Exchange(dtype).__enter__()  # type: ignore[no-untyped-call] # torch leaves it untyped
    for name in ("half", "bfloat16"):
        setattr(
            torch.nn.Module, name, lambda module: module._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)
        )
    set_default = torch.set_default_dtype
    torch.set_default_dtype = lambda d: set_default(dtype if d in LOW else d)
