"""Given modules compute in float32: autocast is off in their forward and their 16-bit inputs are cast.

Modules are named by their path from the outermost module that is called ("" is that module itself).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

__all__ = ["apply", "in_float32"]

LOW = (torch.float16, torch.bfloat16)


def apply(value: Sequence[str]) -> None:
    """`value`: the modules' paths."""
    seen: set[int] = set()
    chosen = frozenset(value)

    def before(module: nn.Module, args: Any) -> None:
        if id(module) in seen:
            return
        for path, part in module.named_modules():
            if id(part) not in seen and path in chosen:
                part.forward = in_float32(part.forward)
            seen.add(id(part))

    register_module_forward_pre_hook(before)


def in_float32(forward: Any) -> Any:
    """`forward` without autocast, and with float32 in place of 16-bit tensors among its arguments."""

    @functools.wraps(forward)
    def wide(*args: Any, **kwargs: Any) -> Any:
        device = next((item.device.type for item in (*args, *kwargs.values()) if isinstance(item, torch.Tensor)), "cpu")
        with torch.autocast(device, enabled=False):
            return forward(*map(_wide, args), **{key: _wide(item) for key, item in kwargs.items()})

    return wide


def _wide(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return item.float() if item.dtype in LOW else item
    return type(item)(map(_wide, item)) if type(item) in (list, tuple) else item
