"""No optimizer uses its fused kernel."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from mixprec.doctor.interventions._change import arguments

__all__ = ["apply"]


def apply(value: bool = True) -> None:
    """`value`: is not looked at."""

    def unfused(given: dict[str, Any]) -> None:
        given["fused"] = None

    for cls in {cls for cls in vars(torch.optim).values() if isinstance(cls, type)}:
        if "__init__" in vars(cls) and "fused" in inspect.signature(vars(cls)["__init__"]).parameters:
            arguments(cls, "__init__", unfused)
