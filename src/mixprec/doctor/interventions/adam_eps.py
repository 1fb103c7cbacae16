"""Every optimizer that has an epsilon steps with a given one."""

from __future__ import annotations

from typing import Any

from mixprec.doctor.interventions._change import during_step

__all__ = ["apply"]


def apply(value: float) -> None:
    """`value`: the epsilon, such as 1e-4."""

    def exchange(_: Any, group: dict[str, Any]) -> None:
        if "eps" in group:
            group["eps"] = value

    during_step(exchange)
