"""The loss was not finite, and the run goes on: a log that averages or filters does not show it."""

from __future__ import annotations

import math

from mixprec.monitor.alerts._rule import Rule, Window, seen
from mixprec.records import Finding, Severity


class HiddenNaN(Rule):
    """The raw loss, as backward got it."""

    code = "MP133"

    def look(self, window: Window) -> Finding | None:
        """One number tells."""
        last = window.last
        if last.loss is None or math.isfinite(last.loss):
            return None
        fate = "and was applied to the weights" if last.applied else "and its step was skipped"
        return self.finding(
            f"The loss of step {last.step} was {last.loss:g} {fate}. Logs that average, or leave out what is not "
            "finite (transformers' logging_nan_inf_filter does by default), do not show that.",
            "Do not trust the logged loss from here on; replay the step (`mixprec replay`) to see which op was first.",
            seen("loss", last.loss, last),
            seen("loss scale", last.scale, last),
            severity=Severity.ERROR if last.applied else Severity.WARNING,
        )


RULE = HiddenNaN()
