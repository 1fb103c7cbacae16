"""Every optimizer steps with its learning rate times a factor, whatever its scheduler says."""

from __future__ import annotations

from typing import Any

from mixprec.doctor.interventions._change import during_step

__all__ = ["apply"]


def apply(value: float) -> None:
    """`value`: the factor, such as 0.1."""

    def slower(_: Any, group: dict[str, Any]) -> None:
        group["lr"] = group["lr"] * value

    during_step(slower)
