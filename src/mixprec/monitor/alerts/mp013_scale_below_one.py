"""A loss scale below 1 makes small gradients smaller, and from 2^-128 on makes NaN of sound ones."""

from __future__ import annotations

from mixprec.monitor.alerts._rule import Rule, Window, seen
from mixprec.records import Finding, Severity


class ScaleBelowOne(Rule):
    """The scale has come down past the point where it does anything useful."""

    code = "MP013"
    severity = Severity.ERROR

    def look(self, window: Window) -> Finding | None:
        """One number tells."""
        last = window.last
        if last.scale_after is None or last.scale_after >= 1.0:
            return None
        return self.finding(
            f"The loss scale is {last.scale_after:g}. Below 1 it protects nothing; PyTorch's scaler halves it without "
            "end, and from 2^-128 on unscaling turns sound gradients into NaN that are applied.",
            "Stop, restore weights from before the skips began and build a new scaler. mixprec.GradScaler keeps its "
            "scale at 1 or above and raises instead.",
            seen("loss scale", last.scale_after, last),
        )


RULE = ScaleBelowOne()
