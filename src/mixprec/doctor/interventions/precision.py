"""Every autocast region computes in "fp32" (autocast and scaler off), "bf16" (scaler off) or "fp16" (scaler on).

Regions that the script itself switched off stay off. Parameters that the script converted (`model.half()`) are not
touched: see `explicit`.
"""

from __future__ import annotations

from typing import Any

import torch

from mixprec.doctor.interventions._change import arguments, subclasses

__all__ = ["DTYPES", "apply"]

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def apply(value: str) -> None:
    """`value`: "fp32", "bf16" or "fp16"."""
    dtype = DTYPES[value]

    def region(given: dict[str, Any]) -> None:
        if dtype is torch.float32:
            given["enabled"] = False
        elif given["enabled"]:
            given["dtype"] = dtype

    def scaler(given: dict[str, Any]) -> None:
        given["enabled"] = dtype is torch.float16

    arguments(torch.autocast, "__init__", region)
    arguments(torch.amp.GradScaler, "__init__", scaler)
    for cls in subclasses(torch.amp.GradScaler)[1:]:
        _enabled(cls, scaler)


def _enabled(cls: type, change: Any) -> None:
    """A subclass that acts on `enabled` itself gets the same value."""
    if "__init__" in vars(cls) and "enabled" in vars(cls)["__init__"].__code__.co_varnames:
        arguments(cls, "__init__", change)
