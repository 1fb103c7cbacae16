"""Every optimizer's learning rate rises linearly over its first steps to what the script says."""

from __future__ import annotations

from typing import Any

from mixprec.doctor.interventions._change import during_step

__all__ = ["apply"]


def apply(value: int) -> None:
    """`value`: how many steps the rise takes."""
    steps: dict[int, int] = {}

    def rise(optimizer: Any, group: dict[str, Any]) -> None:
        if group is optimizer.param_groups[0]:
            steps[id(optimizer)] = steps.get(id(optimizer), 0) + 1
        group["lr"] = group["lr"] * min(1.0, steps[id(optimizer)] / value)

    during_step(rise)
