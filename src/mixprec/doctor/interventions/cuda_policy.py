"""Autocast regions on the CPU follow CUDA's list of ops, so that a rehearsal of a GPU script is honest.

PyTorch's two lists differ in most ops: on the CPU softmax, layer_norm, exp, pow and sum stay in 16 bits.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from mixprec._autocast import autocast
from mixprec._policy import Policy

__all__ = ["apply"]


def apply(value: bool = True) -> None:
    """`value`: is not looked at."""
    enter: Any = torch.autocast.__enter__
    leave: Any = torch.autocast.__exit__
    policy = Policy.torch("cuda")

    @functools.wraps(enter)
    def enter_with_policy(region: Any) -> Any:
        if isinstance(region, autocast) or region.device != "cpu" or not region._enabled:
            return enter(region)
        inner = autocast("cpu", region.fast_dtype, cache_enabled=region._cache_enabled, policy=policy)
        region.__dict__.setdefault("_mixprec_inner", []).append(inner)
        inner.__enter__()
        return region

    @functools.wraps(leave)
    def leave_with_policy(region: Any, *error: Any) -> Any:
        inner = region.__dict__.get("_mixprec_inner")
        return inner.pop().__exit__(*error) if inner else leave(region, *error)

    torch.autocast.__enter__ = enter_with_policy  # type: ignore[method-assign] # the intervention itself
    torch.autocast.__exit__ = leave_with_policy  # type: ignore[method-assign] # the intervention itself
