"""The loss scale is fixed at a value, 1 unless another is given; the scaler works as ever besides.

A step whose gradients are not finite is still skipped.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from mixprec.doctor.interventions._change import arguments

__all__ = ["apply"]


def apply(value: float) -> None:
    """`value`: the scale."""

    def first(given: dict[str, Any]) -> None:
        given["init_scale"] = float(value)

    arguments(torch.amp.GradScaler, "__init__", first)
    _hold(torch.amp.GradScaler, float(value))


def _hold(cls: Any, value: float) -> None:
    update = cls.update

    @functools.wraps(update)
    def held(scaler: Any, new_scale: Any = None) -> Any:
        result = update(scaler, new_scale)
        if getattr(scaler, "_scale", None) is not None:
            scaler._scale.fill_(value)
        return result

    cls.update = held
