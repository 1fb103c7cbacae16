"""A scale that grows and grows means gradients that never overflow, because there are none."""

from __future__ import annotations

from mixprec.monitor.alerts._rule import Rule, Window, seen
from mixprec.records import Finding

HIGH = 2.0**24
ABSURD = 2.0**40


class ScaleRunaway(Rule):
    """No gradient that matters is as small as this scale assumes."""

    code = "MP014"

    def look(self, window: Window) -> Finding | None:
        """A scale above 2^24 with gradients of exactly 0, or above 2^40 whatever they are."""
        last = window.last
        if last.scale is None or last.scale <= HIGH or not (last.grad_norm == 0.0 or last.scale > ABSURD):
            return None
        return self.finding(
            f"The loss scale has grown to {last.scale:.3g}, and still no gradient overflows: they are zero or "
            "nearly so. The loss may be cut off from the parameters, or constant.",
            "See that the loss depends on the parameters that the optimizer holds; bound the scale "
            "(mixprec.GradScaler(max_scale=2.0**24) does).",
            seen("loss scale", last.scale, last),
            seen("gradient norm", last.grad_norm, last),
        )


RULE = ScaleRunaway()
