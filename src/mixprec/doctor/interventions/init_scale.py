"""The loss scale starts at a value and is adjusted as ever."""

from __future__ import annotations

from typing import Any

import torch

from mixprec.doctor.interventions._change import arguments

__all__ = ["apply"]


def apply(value: float) -> None:
    """`value`: the first scale."""

    def first(given: dict[str, Any]) -> None:
        given["init_scale"] = float(value)

    arguments(torch.amp.GradScaler, "__init__", first)
