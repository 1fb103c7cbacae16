"""No autocast region keeps casts of weights."""

from __future__ import annotations

from typing import Any

import torch

from mixprec.doctor.interventions._change import arguments

__all__ = ["apply"]


def apply(value: bool = True) -> None:
    """`value`: is not looked at."""

    def without(given: dict[str, Any]) -> None:
        given["cache_enabled"] = False

    arguments(torch.autocast, "__init__", without)
