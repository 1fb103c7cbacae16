"""The loss is the same to the last digit, step after step: nothing is being learned."""

from __future__ import annotations

import math

from mixprec.monitor.alerts._rule import Rule, Window, seen
from mixprec.records import Finding

STEPS = 30


class ConstantLoss(Rule):
    """With gradients that are zero or absent: the loss is cut off from what the optimizer holds."""

    code = "MP144"

    def look(self, window: Window) -> Finding | None:
        """The last two losses are compared before any others."""
        last = window.last
        steps = window.steps
        if last.loss is None or last.grad_norm or last.loss == 0.0 or len(steps) < STEPS:
            return None
        if steps[-2].loss != last.loss or not math.isfinite(last.loss):
            return None
        if any(r.loss != last.loss or r.grad_norm or not r.applied for r in window.tail(STEPS)):
            return None
        return self.finding(
            f"The loss has been exactly {last.loss:g} for {STEPS} steps, and the optimizer's parameters have no "
            "gradient. Either the loss is cut off from the graph (.item(), .detach(), NumPy), or the optimizer holds "
            "other parameters than the model that is trained (MP145).",
            "Keep the loss a tensor from the model to backward(), and create the optimizer after the model was moved, "
            "copied or wrapped.",
            seen("loss", last.loss, last),
            seen("gradient norm", last.grad_norm, last),
        )


RULE = ConstantLoss()
