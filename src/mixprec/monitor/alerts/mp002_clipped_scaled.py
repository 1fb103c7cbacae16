"""Gradients were clipped while they still carried the loss scale."""

from __future__ import annotations

from mixprec.monitor.alerts._rule import Rule, Window, seen
from mixprec.records import Finding, Severity

IN_A_ROW = 3


class ClippedScaled(Rule):
    """`clip_grad_norm_` before `unscale_`: the limit is lower by the loss scale than it says."""

    code = "MP002"
    severity = Severity.ERROR

    def look(self, window: Window) -> Finding | None:
        """Noted at the call itself."""
        last = window.last
        if not last.clipped_scaled or last.clipped_norm is None or last.grad_norm is None or last.scale is None:
            return None
        tail = window.tail(IN_A_ROW)
        if len(tail) < IN_A_ROW or not all(record.clipped_scaled for record in tail):
            return None
        return self.finding(
            f"Gradients are clipped before they are unscaled: at a loss scale of {last.scale:g} the norm of "
            f"{last.grad_norm:.3g} is cut to {last.clipped_norm:.3g}, and the limit moves whenever the scale does.",
            "Call scaler.unscale_(optimizer) before clip_grad_norm_, or let mixprec.GradScaler.step(optimizer, "
            "max_norm=...) clip.",
            seen("gradient norm", last.grad_norm, last),
            seen("norm after clipping", last.clipped_norm, last),
            seen("loss scale", last.scale, last),
        )


RULE = ClippedScaled()
