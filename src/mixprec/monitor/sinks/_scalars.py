"""A record as named numbers, for whatever draws numbers over steps."""

from __future__ import annotations

from mixprec.monitor._record import StepRecord

__all__ = ["SCALARS", "scalars"]

SCALARS = (
    "loss",
    "scale",
    "grad_norm",
    "clipped_norm",
    "lr",
    "seconds",
    "memory",
    "logit",
    "zero",
    "subnormal",
    "subnormal_bf16",
    "nonfinite",
    "update_ratio",
    "unchanged",
)
"""Fields of a record that are one number."""


def scalars(record: StepRecord) -> dict[str, float]:
    """What was measured, by name: fields, `skipped` (0 or 1), and headroom in bits by module and direction."""
    found = {name: float(value) for name in SCALARS if (value := getattr(record, name)) is not None}
    found["skipped"] = float(record.skipped)
    for path, module in record.modules.items():
        if module.headroom is not None:
            found[f"headroom/{path}"] = module.headroom
        if module.grad_headroom is not None:
            found[f"grad_headroom/{path}"] = module.grad_headroom
    return found
