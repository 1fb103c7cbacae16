"""A `ScaleCheckpoint` that exists can be restored: a scale, counts and rules that fit together."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mixprec._loss_scale import Arithmetic, Rules, State
from mixprec.errors import CheckpointError
from mixprec.formats import FP32

__all__ = ["ScaleCheckpoint", "check_scale"]


@dataclass(frozen=True)
class ScaleCheckpoint:
    """A loss scale as saved: rules, state, optimizer steps attempted (None where unknown).

    `assumed` names the fields of `rules` that the layout it was read from does not carry.

    Raises: CheckpointError for a scale that is not positive and finite or that the rules' arithmetic cannot hold, and
    for an allowance above what the rules grant.
    """

    rules: Rules
    state: State
    steps: int | None = None
    assumed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_scale(self.state.scale, self.rules)
        granted = self.rules.hysteresis - 1
        if self.state.allowance > granted:
            raise CheckpointError(
                "allowance",
                f"The saved state tolerates {self.state.allowance} more overflows, but the rules grant {granted} "
                f"(hysteresis={self.rules.hysteresis}). Pass the rules that it was saved under.",
            )


def check_scale(scale: float, rules: Rules) -> None:
    """Raises CheckpointError for a scale that no system recovers from, or that the rules' arithmetic cannot hold."""
    if not 0.0 < scale < math.inf:
        raise CheckpointError(
            "scale",
            f"The saved loss scale is {scale!r}, from which no system recovers: gradients are 0 or NaN at every step. "
            "Find what kept overflowing, and start again with a scale of 1 or more.",
        )
    if rules.arithmetic is Arithmetic.FLOAT32 and not 0.0 < FP32.round(scale) < math.inf:
        raise CheckpointError("scale", f"The saved loss scale is {scale!r}; accepted is what float32 can hold.")
